package ingest

import (
	"context"
	"fmt"
)

// StandIn is what nodes of a type without features get in their place.
type StandIn string

// Stand-ins for features.
const (
	NoStandIn   StandIn = ""        // none: no metapath starts from the type
	OnesFor     StandIn = Ones      // a column of ones
	IdentityFor StandIn = "one-hot" // the identity matrix
)

// mostOneHot is the most nodes of a type whose stand-in is the identity matrix.
const mostOneHot = 1 << 12

func (s StandIn) check() error {
	switch s {
	case NoStandIn, OnesFor, IdentityFor:
		return nil
	}
	return badOptions("--missing-features %s: want %s or %s", string(s), OnesFor, IdentityFor)
}

// columns is how many columns n nodes of a type get.
func (s StandIn) columns(name string, n int64) (int, error) {
	switch {
	case s == NoStandIn:
		return 0, nil
	case s == OnesFor:
		return 1, nil
	case n > mostOneHot:
		return 0, badOptions("--missing-features one-hot: type %s has %d nodes, which is more than %d (use ones, or give it "+
			"a node_feat.npy)", name, n, mostOneHot)
	}
	return int(n), nil
}

// standInSource is the nodes of a type whose features are a stand-in.
type standInSource struct {
	*arraySource
	kind StandIn
}

func (s standInSource) Features(int) (FeatureReader, error) {
	if s.kind == OnesFor {
		return ones{}, nil
	}
	return &identity{columns: s.info.Features}, nil
}

// identity reads the identity matrix.
type identity struct{ columns, next int } // next: row

func (r *identity) Read(_ context.Context, dst []float32) error {
	clear(dst)
	for at := 0; at < len(dst); at, r.next = at+r.columns, r.next+1 {
		dst[at+r.next] = 1
	}
	return nil
}

func (r *identity) Place(row int64) string { return fmt.Sprintf("row %d", row) }
func (r *identity) Close() error           { return nil }
