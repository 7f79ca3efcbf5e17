package ingest

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// each calls body with every element of an array, in the order of the file. next
// fills its argument with the elements that follow.
func each[T npy.Number](ctx context.Context, elements int64, next func([]T) error, body func(i int64, v T) error) error {
	block := make([]T, min(edgeBlock, elements))
	for first := int64(0); first < elements; first += int64(len(block)) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		block = block[:min(int64(len(block)), elements-first)]
		if err := next(block); err != nil {
			return err
		}
		for i, v := range block {
			if err := body(first+int64(i), v); err != nil {
				return err
			}
		}
	}
	return nil
}

// fromStart reads an array from its start on.
func fromStart[T npy.Number](a *npy.Array) func([]T) error {
	first := int64(0)
	return func(dst []T) error {
		err := npy.Read(a, dst, first)
		first += int64(len(dst))
		return err
	}
}

// asNode is the node of a row where rows are nodes.
func asNode(row int64) (node int64, ok bool) { return row, true }

// isColumn tells whether a shape is [n] or [n,1].
func isColumn(shape []int64) bool {
	return len(shape) == 1 || len(shape) == 2 && shape[1] == 1
}

// labelBytes checks the shape of labels of n nodes and returns what they take in
// memory, for one node.
func labelBytes(path string, h *npy.Header, n int64) (int64, error) {
	if !h.Type.IsNumber() || len(h.Shape) != 1 && len(h.Shape) != 2 || h.Shape[0] != n {
		return 0, fmt.Errorf("%w: %s: %s array of shape %v (want a row of numbers for each of %d nodes)", ErrInvalid, path, h.Type, h.Shape, n)
	}
	if isColumn(h.Shape) {
		return 4, nil
	}
	if l := h.Shape[1]; l < 1 || l > format.MaxLabelColumns {
		return 0, fmt.Errorf("%w: %s: %d labels a node (want 1 to %d)", ErrInvalid, path, l, format.MaxLabelColumns)
	}
	return h.Shape[1], nil
}

// makeLabels makes room for labels in l columns, all unlabelled.
func makeLabels(t *format.RowTable, l int64) {
	if l == 1 {
		t.Labels = make([]int32, t.Rows)
		for i := range t.Labels {
			t.Labels[i] = -1
		}
		return
	}
	t.MultiLabels, t.LabelColumns = make([]int8, t.Rows*l), int(l)
	for i := range t.MultiLabels {
		t.MultiLabels[i] = -1
	}
}

// setLabel sets a label of a node: one of many, or one of several that are 0 or 1.
// NaN and -1 are unlabelled. The error names no file.
func setLabel(t *format.RowTable, node, column int64, v float64) error {
	if v != v {
		v = -1
	}
	most := 1.0
	if t.Labels != nil {
		most = MaxClasses - 1
	}
	if v < -1 || v > most || v != math.Trunc(v) {
		notation := byte('f')
		if math.Abs(v) >= 1<<63 {
			notation = 'g'
		}
		return fmt.Errorf("label %s of node %d (want -1 to %d)", strconv.FormatFloat(v, notation, -1, 64), node, int64(most))
	}
	if t.Labels != nil {
		t.Labels[node] = int32(v)
	} else {
		t.MultiLabels[node*int64(t.LabelColumns)+column] = int8(v)
	}
	return nil
}

// readLabelArray reads one label a row, or several. nodeOf is the node of a row,
// if it is one.
func readLabelArray(ctx context.Context, path string, h *npy.Header, next func([]float64) error, t *format.RowTable, nodeOf func(row int64) (int64, bool)) error {
	rows, l := h.Shape[0], int64(1)
	if !isColumn(h.Shape) {
		l = h.Shape[1]
	}
	makeLabels(t, l)
	return each(ctx, h.Elements(), next, func(i int64, v float64) error {
		row, column := i/l, i%l
		if h.Fortran {
			row, column = i%rows, i/rows
		}
		node, ok := nodeOf(row)
		if !ok {
			return nil
		}
		if err := setLabel(t, node, column, v); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
		}
		return nil
	})
}

func numSplits(a *npy.Array) int64 {
	if len(a.Shape) == 1 {
		return 1
	}
	return a.Shape[0]
}

// openSplitArray opens an array of splits of n nodes, or, if n is negative, of any
// number of rows.
func openSplitArray(fsys vfs.FS, path string, n int64) (*npy.Array, error) {
	a, err := openIntegers(fsys, path, "integers [k,n]: 0 train, 1 valid, 2 test, -1 none", 1, 2)
	if err != nil {
		return nil, err
	}
	switch rows := a.Shape[len(a.Shape)-1]; {
	case n >= 0 && rows != n:
		err = fmt.Errorf("%w: %s: shape %v (want [k,%d])", ErrInvalid, path, a.Shape, n)
	case numSplits(a) > format.MaxSplits:
		err = errSplits(path, numSplits(a))
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func errSplits(path string, splits int64) error {
	return fmt.Errorf("%w: %s: %d splits (at most %d)", ErrInvalid, path, splits, format.MaxSplits)
}

// readSplitArray reads the splits of an array [k,n] or [n] into those of t from
// number at on.
func readSplitArray(ctx context.Context, a *npy.Array, t *format.RowTable, at int64, nodeOf func(row int64) (int64, bool)) error {
	count, rows := numSplits(a), a.Shape[len(a.Shape)-1]
	return each(ctx, a.Elements(), fromStart[int64](a), func(i, v int64) error {
		split, row := i/rows, i%rows
		if a.Fortran {
			split, row = i%count, i/count
		}
		if v < -1 || v > 2 {
			return fmt.Errorf("%w: %s: split %d has %s for node %d (want 0 train, 1 valid, 2 test or -1)", ErrInvalid, a.Path(), split, a.Element(i), row)
		}
		if node, ok := nodeOf(row); ok {
			t.Splits[node*int64(t.NumSplits)+at+split] = uint8(v + 1)
		}
		return nil
	})
}
