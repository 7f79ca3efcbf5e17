package preprop

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// WriteChanged writes, as the store dir, the rows of a store that differ in one of some matrices from the rows of the
// same nodes in an earlier store, or that it lacks.
func WriteChanged(ctx context.Context, fsys vfs.FS, store, earlier *format.Dir, matrices []format.MatrixID,
	dir string) (err error) {
	table, err := store.Rows(ctx)
	if err != nil {
		return err
	}
	changed, err := changedRows(ctx, store, earlier, matrices, table.NodeID)
	if err != nil {
		return err
	}
	l := store.Layout()
	sizes := make([]format.RegionSize, len(l.Regions))
	for i, r := range l.Regions {
		sizes[i].Name = r.Name
	}
	out, next := store.Manifest.NewRowTable(changed.Count()), int64(0)
	changed.Each(func(i int64) {
		sizes[regionOf(&l, i)].Rows++
		out.NodeID[next] = table.NodeID[i]
		copyRow(out, table, next, i)
		next++
	})
	widest := l.Features
	for _, features := range l.Widths {
		widest = max(widest, features)
	}
	layout := format.NewLayout(sizes, 0, widest, l.DType)
	layout.Features, layout.Widths = l.Features, l.Widths
	w, err := format.Create(fsys, dir, layout, format.CreateOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	if err := w.Rows(out); err != nil {
		return err
	}
	for _, id := range store.Matrices() {
		if err := copyRows(ctx, w, store, id, changed); err != nil {
			return err
		}
	}
	m := store.Manifest
	return w.Publish(&format.Manifest{Kind: format.KindStore, Name: m.Name, Nodes: m.Nodes, Edges: m.Edges,
		Directed: m.Directed, Weighted: m.Weighted, Classes: m.Classes, ClassNames: m.ClassNames, Labels: m.Labels,
		Splits: m.Splits, Split: m.Split, RowSet: format.RowsChosen, Seed: m.Seed, Operators: m.Operators,
		LabelHops: m.LabelHops, Input: m.Input})
}

// copyRows writes the rows of a matrix that are in a set.
func copyRows(ctx context.Context, w *format.Writer, store *format.Dir, id format.MatrixID,
	rows product.NodeSet) error {
	from, err := store.Matrix(id)
	if err != nil {
		return err
	}
	to, err := w.Matrix(id)
	if err != nil {
		return err
	}
	r := &format.RowReader{Matrix: from}
	rows.Each(func(i int64) {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			var row []byte
			if row, err = r.Row(i); err == nil {
				err = to.Write(row)
			}
		}
	})
	if err != nil {
		return err
	}
	return to.Close()
}

// changedRows are the rows of a store, of these nodes, that differ from those of an earlier one.
func changedRows(ctx context.Context, store, earlier *format.Dir, matrices []format.MatrixID,
	nodes []uint32) (product.NodeSet, error) {
	rowOf, err := rowsOf(ctx, earlier, store.Manifest.Nodes)
	if err != nil {
		return nil, err
	}
	changed := product.NewNodeSet(int64(len(nodes)))
	for _, id := range matrices {
		now, err := store.Matrix(id)
		if err != nil {
			return nil, err
		}
		old, err := earlier.Matrix(id)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		if l, before := now.Layout, old.Layout; l.Features != before.Features || l.DType != before.DType {
			return nil, fmt.Errorf("%s: %w: its rows are %d numbers of type %v, and those of %s %d of type %v", earlier.Path(),
				ErrOptions, before.Features, before.DType, store.Path(), l.Features, l.DType)
		}
		if err := compareRows(ctx, now, old, func(i int64) int64 {
			if row := rowOf[nodes[i]]; row != noRow {
				return int64(row)
			}
			return -1
		}, changed, nil); err != nil {
			return nil, err
		}
	}
	return changed, nil
}
