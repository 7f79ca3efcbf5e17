package preprop

import (
	"context"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// keptInput is what stays in memory of an input while it is cut into column files (Plan.InputKept), so that
// it is not written and read again: the columns of the first panel, and, in the memory of the first hop, the rows
// of hop 0 that the store has, with all columns.
type keptInput struct {
	matrix  *matrix // has the columns; nil: none are kept
	rows    []byte  // in the order of the store; nil: none are kept
	rowOf   []uint32
	columns int // of a row
}

// noRow is rowOf nodes that the store does not have.
const noRow = math.MaxUint32

// keptRowsBytes is the memory for the rows of hop 0, and the row of each node.
func keptRowsBytes(rows, rowBytes, nodes int64) int64 { return rowsPlace(rows*rowBytes) + 4*nodes }

// rowsPlace is where the numbers of rows begin, after so many bytes of rows.
func rowsPlace(bytes int64) int64 { return (bytes + 3) / 4 * 4 }

// keepsRows tells whether the rows of hop 0 fit into the memory of the first hop.
func (w *work) keepsRows(p *Plan) bool {
	return p.InputKept && w.makesInput && !w.resultFiles && w.columns == w.stored.Features &&
		keptRowsBytes(w.rows, w.storedRowBytes(), w.nodes) <= w.nodes*int64(p.PanelColumns*w.stored.DType.Size())
}

// keptBytes are the bytes of the first panel, which go to no file.
func (w *work) keptBytes(p *Plan) int64 {
	if !p.InputKept {
		return 0
	}
	return w.nodes * int64(p.PanelColumns*w.stored.DType.Size())
}

// keep is what is kept of an input while rest, columns of these panels, are cut. A job that goes on with
// columns that it has finished keeps nothing: these may be loaded into the same memory.
func (e *engine) keep(in *input, panels, rest []columnRange) (k keptInput, err error) {
	if !e.plan.InputKept || len(e.inputs()) > 1 || len(e.sequences) > 1 && e.inputBuffer == nil || rest[0] != panels[0] || e.hasPartialMatrices() {
		return k, nil
	}
	e.setColumns(panels[0])
	if k.matrix = e.hopBuffers[0]; e.inputBuffer != nil {
		k.matrix = e.inputBuffer
	}
	k.matrix.id, k.columns = in.ID, in.Layout.Features
	rows := e.hopBuffers[1]
	if e.store == nil || e.receive != nil || in.ID != format.Input || e.finished[in.ID] || rows == nil || e.columns.width() < k.columns {
		return k, nil
	}
	rowBytes := int64(k.columns * e.DType.Size())
	n, memory := int64(len(e.nodes)), rows.buf.Bytes()
	if keptRowsBytes(n, rowBytes, e.graph.Manifest.Nodes) > int64(len(memory)) {
		return k, nil
	}
	k.rows = memory[:n*rowBytes]
	k.rowOf = dtype.Uint32s(memory[rowsPlace(n*rowBytes):][:4*e.graph.Manifest.Nodes])
	for v := range k.rowOf {
		k.rowOf[v] = noRow
	}
	for row, v := range e.nodes {
		k.rowOf[v] = uint32(row)
	}
	return k, nil
}

// take puts what is kept of a node into its places by cut, which is that of input.chunks for its row i.
func (k *keptInput) take(node int64, i int, cut func(dst []byte, i, first, width int) error) error {
	if k.matrix == nil {
		return nil
	}
	if err := cut(k.matrix.rows(node, node+1), i, k.matrix.first, k.matrix.features); err != nil {
		return err
	}
	if k.rows == nil || k.rowOf[node] == noRow {
		return nil
	}
	rowBytes := k.columns * k.matrix.dtype.Size()
	return cut(k.rows[int(k.rowOf[node])*rowBytes:][:rowBytes], i, 0, k.columns)
}

// writeInput writes hop 0 to the store.
func (e *engine) writeInput(ctx context.Context, k keptInput) error {
	start := e.pace.clock()
	out, err := e.store.Matrix(format.Input)
	if err != nil {
		return err
	}
	rowBytes := int64(k.columns * e.DType.Size())
	step := writeStep(int64(len(e.nodes)), rowBytes, 1) * rowBytes
	for rows := k.rows; len(rows) > 0; {
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
	e.finished[format.Input] = true
	e.pace.savedAny = true
	e.pace.measureRate(int64(len(k.rows)), start)
	return nil
}
