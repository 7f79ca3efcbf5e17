package preprop

import (
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Described is the size of a graph that need not exist.
type Described struct {
	Nodes, Edges int64
	Features     int
	DType        format.DType // of the features, and of the store; default float32
	Rows         int64        // nodes that have a label or are in a split
}

// PlanDescribed returns what a dry run of Propagate returns, for a graph that need not
// exist. Without o.Hardware, it predicts times by defaultRates.
func PlanDescribed(d Described, o Options) (*Result, error) {
	if d.DType == 0 {
		d.DType = format.Float32
	}
	switch {
	case d.Nodes < 1 || d.Nodes > format.MaxNodes:
		return nil, fmt.Errorf("%w: a graph of %d nodes: there can be 1 to %d", ErrOptions, d.Nodes, int64(format.MaxNodes))
	case d.Edges < 0 || d.Edges > format.MaxEdges:
		return nil, fmt.Errorf("%w: a graph of %d edges: there can be 0 to %d", ErrOptions, d.Edges, int64(format.MaxEdges))
	case d.Features < 1 || d.Features > format.MaxFeatures:
		return nil, fmt.Errorf("%w: a graph of %d features: there can be 1 to %d", ErrOptions, d.Features, format.MaxFeatures)
	}
	g := &format.Manifest{
		Nodes: d.Nodes, Edges: d.Edges, Features: d.Features, ChunkRows: format.ChunkRowsFor(0, d.Features, d.DType),
		Files: []format.FileEntry{{Path: format.PartPath("nodes", 0), Size: 5 * d.Nodes}}, // a label and a split
	}
	o, err := o.withDefaults(g, d.DType)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.Rows == format.RowsAll {
		d.Rows = d.Nodes
	}
	s := &jobContext{options: o, layout: format.NewLayout([]format.RegionSize{{Name: format.RegionTrain, Rows: d.Rows}}, o.ChunkRows, d.Features, o.DType)}
	s.target.DType = o.DType.String()
	w := &plan.Work{
		Nodes: d.Nodes, Edges: d.Edges, Columns: d.Features, Stored: s.layout,
		Inputs: []format.Layout{{Features: d.Features, ChunkRows: g.ChunkRows, DType: d.DType}},
		Rows:   d.Rows, RowTableBytes: plan.RowTableBytes(g), PickedBytes: plan.PickedBytes(g, d.Rows), Threads: o.Threads,
	}
	for _, operator := range s.options.Operators {
		w.Sequences = append(w.Sequences, &plan.Sequence{Operator: operator, Hops: o.Hops})
		s.target.Operators = append(s.target.Operators, format.Operator{Name: operator.String(), Hops: o.Hops})
	}
	w.Loads = []int{max(1, len(w.Sequences))}
	matrices := s.target.matrices()
	w.Matrices = len(matrices)
	if w.StoreBytes, err = plan.StoreBytes(g, s.layout, matrices); err != nil {
		return nil, err
	}
	r := &plan.DefaultRates
	if o.Hardware != nil {
		r = plan.RatesOf(*o.Hardware)
	}
	p, err := w.PlanOn(o.Device, o.MemoryBytes, r)
	if err != nil {
		return nil, err
	}
	return s.newResult(g, p, d.Rows), nil
}
