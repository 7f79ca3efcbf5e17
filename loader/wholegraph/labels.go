package wholegraph

import (
	"context"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
)

// labels are those of all nodes, of one of three types: see loader.Batch.
type labels struct {
	classes []int32
	several []int8    // [n, columns]
	values  []float32 // [n, columns]
	columns int
}

// perRow tells whether a row has several labels, or values: the tensor of them is then a matrix.
func (l *labels) perRow() bool { return l.classes == nil }

func readLabels(ctx context.Context, graph *format.Dir) (l labels, err error) {
	m := &graph.Manifest
	n := m.Nodes
	l.columns = max(1, m.Labels)
	switch {
	case m.LabelValues:
		l.values = make([]float32, n*int64(l.columns))
	case m.Labels > 1:
		l.several = make([]int8, n*int64(l.columns))
	default:
		l.classes = make([]int32, n)
		for i := range l.classes {
			l.classes[i] = -1
		}
	}
	if m.Labels == 0 {
		return l, nil
	}
	for _, r := range graph.Layout().Regions { // one
		switch {
		case l.values != nil:
			err = graph.ReadLabelValues(ctx, r, l.values)
		case l.several != nil:
			err = graph.ReadMultiLabels(ctx, r, l.several)
		default:
			err = graph.ReadLabels(ctx, r, l.classes)
		}
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// uploadLabels makes the labels of rows on the device: rows that visit does not give the label of a node have none.
func (g *Graph) uploadLabels(rows int, visit func(label func(row int, node uint32))) (gds.Tensor, error) {
	l, c := &g.labels, g.labels.columns
	switch {
	case l.values != nil:
		of := make([]float32, rows*c)
		for i := range of {
			of[i] = float32(math.NaN())
		}
		visit(func(row int, node uint32) { copy(of[row*c:(row+1)*c], l.values[int(node)*c:]) })
		return uploadMatrix(g, rows, c, gds.Float32, of)
	case l.several != nil:
		of := make([]int8, rows*c)
		for i := range of {
			of[i] = -1
		}
		visit(func(row int, node uint32) { copy(of[row*c:(row+1)*c], l.several[int(node)*c:]) })
		return uploadMatrix(g, rows, c, gds.Int8, of)
	}
	of := make([]int32, rows)
	for i := range of {
		of[i] = -1
	}
	visit(func(row int, node uint32) { of[row] = l.classes[node] })
	return uploadMatrix(g, 1, rows, gds.Int32, of)
}

func uploadMatrix[T int8 | int32 | float32](g *Graph, rows, cols int, t gds.DType, values []T) (gds.Tensor, error) {
	m, err := g.alloc("labels", rows, cols, t)
	if err == nil {
		err = gds.Upload(g.device, g.stream, m, values)
	}
	return m, err
}
