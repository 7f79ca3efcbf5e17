package engine

import (
	"context"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Input is a stored hop of all nodes, from which the next hops are made: hop 0 in a
// graph, or a hop in a store of all rows. Its columns are read from there, or from column
// files, which have the rows in the same order, rounded to the type of the new hops.
type Input struct {
	*format.Matrix
	Path  string   // of its directory
	Nodes []uint32 // node of each row; nil: row i is node i
	DType format.DType
}

// node is the node of a row.
func (in *Input) node(row int64) int64 {
	if in.Nodes == nil {
		return row
	}
	return int64(in.Nodes[row])
}

// chunks calls body with every chunk, from several goroutines, what buffer has made, and a function that rounds
// the columns [first, first+width) of the chunk's i-th row and writes them to dst. emit is then called with the
// buffers, in the order of chunks.
func (in *Input) chunks(ctx context.Context, threads int, buffer func() []byte,
	body func(k int, buffer []byte, cut func(dst []byte, i, first, width int) error) error,
	emit func([]byte) error) error {
	from, features := in.Layout.DType, in.Layout.Features
	rowBytes := features * from.Size()
	readers := plan.DiskReaders(threads)
	buffers, err := product.NewBuffers(readers, plan.ChunkBuffer(in.Layout))
	if err != nil {
		return err
	}
	defer buffers.Free()
	var failure product.LowestError
	err = parallel.Ordered(ctx, readers, int64(in.Chunks()), buffer, func(at int64, out []byte) ([]byte, error) {
		buffer := buffers.Get()
		defer buffers.Put(buffer)
		k := int(at)
		start, rows := in.ChunkRowRange(k)
		chunk := buffer[:rows*rowBytes]
		row := dtype.Float32s(buffer[(len(chunk)+3)/4*4:][:4*features])
		if err := in.ReadChunk(k, chunk); err != nil {
			return nil, failure.Report(start, err)
		}
		err := body(k, out, func(dst []byte, i, first, width int) error {
			values := row[:width]
			dtype.Decode(values, chunk[i*rowBytes+first*from.Size():][:width*from.Size()], from)
			if product.Encode(dst, values, product.Unscaled, in.DType, false) {
				return nil
			}
			return product.NotFinite(in.ID, in.node(start+int64(i)), first, dst, values, 1, in.DType)
		})
		if err != nil {
			return nil, failure.Report(start, err)
		}
		return out, nil
	}, emit)
	if failure.Err != nil {
		return failure.Err
	}
	return err
}

// Load fills m, whose first and features say which columns it wants, from the stored input.
func (in *Input) Load(ctx context.Context, m *product.Matrix, threads int, p progress.Reporter) error {
	m.ID = in.ID
	task := p.Start(fmt.Sprintf("read %s, %s", m.ID, m.Columns()),
		int64(in.Layout.Features*in.Layout.DType.Size())*in.rows(), progress.Bytes)
	defer task.Done()
	if in.IsWhole(m) {
		return in.readWhole(ctx, m, threads, task)
	}
	return in.chunks(ctx, threads, func() []byte { return nil },
		func(k int, _ []byte, cut func(dst []byte, i, first, width int) error) error {
			start, rows := in.ChunkRowRange(k)
			for i := range rows {
				v := in.node(start + int64(i))
				if err := cut(m.Rows(v, v+1), i, m.First, m.Features); err != nil {
					return err
				}
			}
			task.Add(in.Extent(k).Length)
			return nil
		}, func([]byte) error { return nil })
}

// IsWhole tells whether m is what the input has, byte for byte, in places that chunks can be read into.
func (in *Input) IsWhole(m *product.Matrix) bool {
	l := &in.Layout
	return in.Nodes == nil && l.DType == m.DType && m.First == 0 && m.Features == l.Features &&
		(in.Chunks() == 1 || int64(l.ChunkRows)*m.RowBytes()%vfs.PageBytes == 0)
}

// readWhole reads the chunks into m, and checks the numbers there.
func (in *Input) readWhole(ctx context.Context, m *product.Matrix, threads int, task progress.Task) error {
	var failure product.LowestError
	err := parallel.For(ctx, plan.DiskReaders(threads), int64(in.Chunks()), 1, func(at, _ int64) error {
		k := int(at)
		start, rows := in.ChunkRowRange(k)
		chunk := m.Rows(start, start+int64(rows))
		if err := in.ReadChunk(k, chunk); err != nil {
			return failure.Report(start, err)
		}
		if !product.Finite(chunk, m.DType) {
			return in.reportNotFinite(m, start, start+int64(rows), &failure)
		}
		task.Add(in.Extent(k).Length)
		return nil
	})
	if failure.Err != nil {
		return failure.Err
	}
	return err
}

// reportNotFinite reports the first row of [lo, hi) of m that has a number which is not finite.
func (in *Input) reportNotFinite(m *product.Matrix, lo, hi int64, failure *product.LowestError) error {
	for v := lo; v < hi; v++ {
		if row := m.Rows(v, v+1); !product.Finite(row, m.DType) {
			values := make([]float32, m.Features)
			dtype.Decode(values, row, m.DType)
			return failure.Report(v, product.NotFinite(in.ID, v, 0, row, values, 1, m.DType))
		}
	}
	panic("preprop: a number was not finite, and is finite now")
}

func (in *Input) rows() int64 {
	if n := in.Chunks(); n > 0 {
		first, rows := in.ChunkRowRange(n - 1)
		return first + int64(rows)
	}
	return 0
}

// cutToFiles writes a column file for each of these ranges, which must not overlap, and fills what
// is kept, all in one pass over the input.
func (in *Input) cutToFiles(ctx context.Context, ranges []product.ColumnRange, kept keptInput, to *ColumnFiles,
	threads int, p progress.Reporter) error {
	task := p.Start(fmt.Sprintf("cut %s into column files", in.ID),
		int64(in.Layout.Features*in.Layout.DType.Size())*in.rows(), progress.Bytes)
	defer task.Done()
	size, columns := in.DType.Size(), 0
	files := make([]*columnFileWriter, len(ranges))
	for i, s := range ranges {
		var err error
		if files[i], err = to.create(s); err != nil {
			return err
		}
		defer files[i].Close()
		columns += s.Width()
	}
	buffers, err := product.NewBuffers(plan.DiskReaders(threads)+1, int64(in.Layout.ChunkRows*columns*size))
	if err != nil {
		return err
	}
	defer buffers.Free()
	k := 0 // chunk that is written next
	err = in.chunks(ctx, threads, buffers.Get, func(k int, buffer []byte,
		cut func(dst []byte, i, first, width int) error) error {
		start, rows := in.ChunkRowRange(k)
		for i := range rows {
			if err := kept.take(in.node(start+int64(i)), i, cut); err != nil {
				return err
			}
		}
		for _, s := range ranges {
			row := s.Width() * size
			for i := range rows {
				if err := cut(buffer[i*row:(i+1)*row], i, s.First, s.Width()); err != nil {
					return err
				}
			}
			buffer = buffer[rows*row:]
		}
		return nil
	}, func(buffer []byte) error {
		_, rows := in.ChunkRowRange(k)
		for n, s := range ranges {
			part := rows * s.Width() * size
			if err := files[n].write(buffer[:part]); err != nil {
				return err
			}
			buffer = buffer[part:]
		}
		task.Add(in.Extent(k).Length)
		k++
		return nil
	})
	for _, file := range files {
		if err == nil {
			err = file.commit()
		}
	}
	return err
}

// keptInput is the part of an input that stays in memory while the input is cut into column files (Plan.InputKept),
// instead of being written and read back: the columns of the first panel and, in the memory of the first hop, all
// columns of hop 0 for the rows of the store.
type keptInput struct {
	Matrix  *product.Matrix // has the columns; nil: none are kept
	Rows    []byte          // in the order of the store; nil: none are kept
	rowOf   []uint32
	columns int // of a row
}

// noRow marks a node that has no row in the store.
const noRow = math.MaxUint32

// keep chooses what stays in memory of an input while the columns rest of these panels are cut. A job that goes on with
// columns that it has finished keeps nothing: these may be loaded into the same memory.
func (e *engine) keep(in *Input, panels, rest []product.ColumnRange) (k keptInput, err error) {
	if !e.Plan.InputKept || len(e.inputs()) > 1 || len(e.Sequences) > 1 && e.inputBuffer == nil ||
		rest[0] != panels[0] || e.HasPartialMatrices() {
		return k, nil
	}
	e.setColumns(panels[0])
	if k.Matrix = e.hopBuffers[0]; e.inputBuffer != nil {
		k.Matrix = e.inputBuffer
	}
	k.Matrix.ID, k.columns = in.ID, in.Layout.Features
	rows := e.hopBuffers[1]
	if e.Store == nil || e.Receive != nil || in.ID != format.Input || e.Finished[in.ID] || rows == nil ||
		e.Columns.Width() < k.columns {
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

// take stores the kept numbers of a node, which is row i of a chunk. cut is the function that input.chunks passes.
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
func (e *engine) writeInput(ctx context.Context, k keptInput) error {
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
