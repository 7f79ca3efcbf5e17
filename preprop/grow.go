package preprop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Growth is what is added to a store.
type Growth struct {
	Hops      int        // to each operator that there is
	Operators []Operator // with as many hops as the others then have
}

// Grow adds matrices to a hop store that Propagate made of the graph; it is then what
// Propagate would have made at once, byte for byte. What is there is not touched, and
// readers go on with it until all is there. Hops are made from the last one where the
// store has all rows, else from the graph. Of the options, those that a store is a
// function of are taken from the store. See Propagate for the rest.
func Grow(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, add Growth, o Options) (*Result, error) {
	s, err := openSite(fsys, graphDir, storeDir)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.grown, err = format.OpenStore(s.fsys, storeDir); err != nil {
		return nil, err
	}
	m := &s.grown.Manifest
	if err := s.checkMadeFrom(m); err != nil {
		return nil, err
	}
	s.target, s.layout = targetOf(m), s.grown.Layout()
	s.target.Operators, o.Operators, o.Hops, err = grownOperators(m.Operators, add)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", storeDir, ErrOptions, err)
	}
	o.Rows, o.DType, o.ChunkRows, o.Split, o.Seed, o.Force = m.RowSet, s.layout.DType, m.ChunkRows, m.Split, m.Seed, false
	if s.o, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", storeDir, ErrOptions, err)
	}
	table, err := s.grown.Rows(ctx)
	if err != nil {
		return nil, err
	}
	s.nodes = table.NodeID
	return s.run(ctx)
}

// grownOperators is what a store with operators will have.
func grownOperators(there []format.Operator, add Growth) (all []format.Operator, parsed []Operator, hops int, err error) {
	if add.Hops < 0 {
		return nil, nil, 0, fmt.Errorf("%d hops cannot be added", add.Hops)
	}
	if add.Hops == 0 && len(add.Operators) == 0 {
		return nil, nil, 0, errors.New("nothing is to be added")
	}
	for _, o := range there {
		o.Hops += add.Hops
		hops = max(hops, o.Hops)
		all = append(all, o)
	}
	for _, o := range add.Operators {
		if slices.ContainsFunc(there, func(t format.Operator) bool { return t.Name == o.String() }) {
			return nil, nil, 0, fmt.Errorf("operator %q is there already", o)
		}
		all = append(all, format.Operator{Name: o.String(), Hops: max(hops, add.Hops)})
		hops = max(hops, add.Hops)
	}
	for _, o := range all {
		operator, err := ParseOperator(o.Name)
		if err != nil {
			return nil, nil, 0, err
		}
		parsed = append(parsed, operator)
	}
	if hops == 0 {
		err = errors.New("the store has hop 0 alone: say how many hops to add")
	}
	return all, parsed, hops, err
}

// startFromStore lets a chain start from the last hop that a store of all rows has.
func (s *site) startFromStore(c *chain) error {
	m := &s.grown.Manifest
	if m.Rows < m.Nodes {
		return nil
	}
	for _, o := range m.Operators {
		if o.Name != c.operator.String() || o.Hops == 0 {
			continue
		}
		stored, err := s.grown.Matrix(format.MatrixID{Operator: o.Name, Hop: o.Hops})
		if err != nil {
			return err
		}
		c.from = o.Hops
		c.input = &input{Matrix: stored, path: s.storeDir, nodes: s.nodes, dtype: s.o.DType}
	}
	return nil
}
