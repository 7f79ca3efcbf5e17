package engine

import (
	"context"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// keptInput is what stays in memory of an input while it is cut into column files (Plan.InputKept), so that
// it is not written and read again: the columns of the first panel, and, in the memory of the first hop, the rows
// of hop 0 that the store has, with all columns.
type keptInput struct {
	Matrix  *product.Matrix // has the columns; nil: none are kept
	Rows    []byte          // in the order of the store; nil: none are kept
	rowOf   []uint32
	columns int // of a row
}

// noRow is rowOf nodes that the store does not have.
const noRow = math.MaxUint32

// Keep is what is kept of an input while rest, columns of these panels, are cut. A job that goes on with
// columns that it has finished keeps nothing: these may be loaded into the same memory.
func (e *Engine) Keep(in *Input, panels, rest []product.ColumnRange) (k keptInput, err error) {
	if !e.Plan.InputKept || len(e.inputs()) > 1 || len(e.Sequences) > 1 && e.inputBuffer == nil || rest[0] != panels[0] || e.HasPartialMatrices() {
		return k, nil
	}
	e.setColumns(panels[0])
	if k.Matrix = e.hopBuffers[0]; e.inputBuffer != nil {
		k.Matrix = e.inputBuffer
	}
	k.Matrix.ID, k.columns = in.ID, in.Layout.Features
	rows := e.hopBuffers[1]
	if e.Store == nil || e.Receive != nil || in.ID != format.Input || e.Finished[in.ID] || rows == nil || e.Columns.Width() < k.columns {
		return k, nil
	}
	rowBytes := int64(k.columns * e.DType.Size())
	n, memory := int64(len(e.Nodes)), rows.Buf.Bytes()
	if plan.KeptRowsBytes(n, rowBytes, e.Graph.Manifest.Nodes) > int64(len(memory)) {
		return k, nil
	}
	k.Rows = memory[:n*rowBytes]
	k.rowOf = dtype.Uint32s(memory[plan.RowsPlace(n*rowBytes):][:4*e.Graph.Manifest.Nodes])
	for v := range k.rowOf {
		k.rowOf[v] = noRow
	}
	for row, v := range e.Nodes {
		k.rowOf[v] = uint32(row)
	}
	return k, nil
}

// take puts what is kept of a node into its places by cut, which is that of input.chunks for its row i.
func (k *keptInput) take(node int64, i int, cut func(dst []byte, i, first, width int) error) error {
	if k.Matrix == nil {
		return nil
	}
	if err := cut(k.Matrix.Rows(node, node+1), i, k.Matrix.First, k.Matrix.Features); err != nil {
		return err
	}
	if k.Rows == nil || k.rowOf[node] == noRow {
		return nil
	}
	rowBytes := k.columns * k.Matrix.DType.Size()
	return cut(k.Rows[int(k.rowOf[node])*rowBytes:][:rowBytes], i, 0, k.columns)
}

// writeInput writes hop 0 to the store.
func (e *Engine) writeInput(ctx context.Context, k keptInput) error {
	start := e.Pace.Clock()
	out, err := e.Store.Matrix(format.Input)
	if err != nil {
		return err
	}
	rowBytes := int64(k.columns * e.DType.Size())
	step := plan.WriteStep(int64(len(e.Nodes)), rowBytes, 1) * rowBytes
	for rows := k.Rows; len(rows) > 0; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n := min(step, int64(len(rows)))
		if err := out.Write(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	if err := out.Close(); err != nil {
		return err
	}
	e.Finished[format.Input] = true
	e.Pace.SavedAny = true
	e.Pace.measureRate(int64(len(k.Rows)), start)
	return nil
}
