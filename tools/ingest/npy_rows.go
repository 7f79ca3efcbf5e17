package ingest

import (
	"context"
	"fmt"

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
func labelBytes(path string, h *npy.Header, n int64, as LabelsAs) (int64, error) {
	isText := h.Type == npy.Text && isColumn(h.Shape)
	if !h.Type.IsNumber() && !isText || len(h.Shape) != 1 && len(h.Shape) != 2 || h.Shape[0] != n {
		return 0, fmt.Errorf("%w: %s: %s array of shape %v (want a row of numbers for each of %d nodes)", ErrInvalid, path, h.Type, h.Shape, n)
	}
	if isText {
		return 20 + h.Width, nil // of ASCII
	}
	if isColumn(h.Shape) {
		return 4, nil
	}
	l := h.Shape[1]
	if l < 1 || l > format.MaxLabelColumns {
		return 0, fmt.Errorf("%w: %s: %d labels a node (want 1 to %d)", ErrInvalid, path, l, format.MaxLabelColumns)
	}
	if h.Type.IsFloat() && as != LabelsAsMulti || as == LabelsAsValues {
		l *= 4
	}
	return l, nil
}

// labelColumns is the number of labels in a row of an array.
func labelColumns(h *npy.Header) int64 {
	if isColumn(h.Shape) {
		return 1
	}
	return h.Shape[1]
}

// readLabelArray reads one label a row, or several. nodeOf is the node of a row,
// if it is one.
func readLabelArray(ctx context.Context, as LabelsAs, a *npy.Array, rows *format.RowTable, nodeOf func(row int64) (int64, bool)) (labelResult, error) {
	return readLabels(as, a.Path(), labelColumns(&a.Header), rows, func(sink *labelSink) error {
		if a.Type == npy.Text {
			return sink.texts(a, nodeOf)
		}
		return sink.numbersOf(ctx, a.Path(), &a.Header, fromStart[float64](a), nodeOf)
	})
}

// numbersOf takes labels from an array; next fills its argument with the elements
// that follow.
func (s *labelSink) numbersOf(ctx context.Context, path string, h *npy.Header, next func([]float64) error, nodeOf func(row int64) (int64, bool)) error {
	rows, l := h.Shape[0], s.columns
	return each(ctx, h.Elements(), next, func(i int64, v float64) error {
		row, column := i/l, i%l
		if h.Fortran {
			row, column = i%rows, i/rows
		}
		node, ok := nodeOf(row)
		if !ok {
			return nil
		}
		if err := s.number(node, column, v); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
		}
		return nil
	})
}

// texts takes labels from an array of text.
func (s *labelSink) texts(a *npy.Array, nodeOf func(row int64) (int64, bool)) error {
	texts, err := a.Strings()
	if err != nil {
		return err
	}
	for row, text := range texts {
		node, ok := nodeOf(int64(row))
		if !ok {
			continue
		}
		if err := s.text(node, 0, []byte(text)); err != nil {
			return fmt.Errorf("%w: %s: row %d: %w", ErrInvalid, a.Path(), row, err)
		}
	}
	return nil
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
