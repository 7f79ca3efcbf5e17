package ingest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// StandIn is what nodes of a type without features get in their place.
type StandIn string

// Stand-ins for features.
const (
	NoStandIn   StandIn = ""        // none: no metapath starts from the type
	OnesFor     StandIn = Ones      // a column of ones
	IdentityFor StandIn = "one-hot" // the identity matrix
	DegreeFor   StandIn = "degree"  // log(1 + edges of a relation that end, or begin, at the node)
)

// mostOneHot is the most nodes of a type whose stand-in is the identity matrix.
const mostOneHot = 1 << 12

func (s StandIn) check() error {
	switch s {
	case NoStandIn, OnesFor, IdentityFor, DegreeFor:
		return nil
	}
	return badOptions("--missing-features %s: want %s, %s or %s", string(s), OnesFor, IdentityFor, DegreeFor)
}

// standInSource is the nodes of a type whose features are a stand-in.
type standInSource struct {
	Source
	kind    StandIn
	of      *typedSource
	name    string // of the type
	columns int
}

func (s standInSource) Info() Info {
	info := s.Source.Info()
	info.Input = maps.Clone(info.Input)
	info.Input[format.MissingFeatures] = string(s.kind)
	if info.Features = s.columns; s.kind == DegreeFor {
		info.FeatureBytes = 4 * info.Nodes * int64(s.columns)
	}
	return info
}

func (s standInSource) Columns() []inputColumn { return columnsOf(s.Source, format.OfNodes) }

// width is how many columns the nodes get.
func (s standInSource) width() (int, error) {
	switch n := s.Info().Nodes; {
	case s.kind == NoStandIn:
		return 0, nil
	case s.kind == OnesFor:
		return 1, nil
	case s.kind == DegreeFor:
		columns := 0
		s.eachEnd(func(Source, bool) { columns++ })
		return columns, nil
	case n > mostOneHot:
		return 0, badOptions("--missing-features one-hot: type %s has %d nodes, which is more than %d (use ones or degree, "+
			"or give it features)", s.name, n, mostOneHot)
	default:
		return int(n), nil
	}
}

// eachEnd calls body for each end of each given relation that is of the type.
func (s standInSource) eachEnd(body func(relation Source, isSource bool)) {
	for _, r := range s.of.relations {
		if !r.added && r.id.Destination == s.name {
			body(r.source, false)
		}
		if !r.added && r.id.Source == s.name {
			body(r.source, true)
		}
	}
}

func (s standInSource) Features(threads int) (FeatureReader, error) {
	switch s.kind {
	case OnesFor:
		return ones{}, nil
	case IdentityFor:
		return &identity{columns: s.columns}, nil
	}
	return &degrees{standInSource: s, threads: threads}, nil
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

// degrees reads log(1 + d), with a column of d for each end of a relation. Duplicates count as often as they are there.
type degrees struct {
	standInSource
	threads int
	memory  *offheap.Buffer // nil: not counted yet
	counts  []uint32        // that are still to be read, row by row
}

func (r *degrees) Read(ctx context.Context, dst []float32) error {
	if r.memory == nil {
		if err := r.count(ctx); err != nil {
			return err
		}
	}
	for i := range dst {
		dst[i] = float32(math.Log1p(float64(r.counts[i])))
	}
	r.counts = r.counts[len(dst):]
	return nil
}

func (r *degrees) count(ctx context.Context) (err error) {
	if r.memory, err = alloc(4 * r.Info().Nodes * int64(r.columns)); err != nil {
		return err
	}
	r.counts = dtype.As[uint32](r.memory.Bytes())
	counts, at := r.counts, 0
	r.eachEnd(func(relation Source, isSource bool) {
		column := counts[at:]
		if at++; err != nil {
			return
		}
		err = relation.Edges(ctx, r.threads, func(e Edges) error {
			nodes := e.Dst
			if isSource {
				nodes = e.Src
			}
			for _, v := range nodes {
				atomic.AddUint32(&column[int64(v)*int64(r.columns)], 1)
			}
			return nil
		})
	})
	return err
}

func (r *degrees) Place(row int64) string {
	return fmt.Sprintf("degrees of node %d of type %s", row, r.name)
}

func (r *degrees) Close() error {
	if r.memory == nil {
		return nil
	}
	return r.memory.Free()
}
