package engine

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Input is a stored hop of all nodes, from which the next hops are made: hop 0 in a graph, or a hop in a store of all
// rows. Its columns are read from there, or from column files, which have the rows in the same order, rounded to the
// type of the new hops.
type Input struct {
	Chunked
	ID     format.MatrixID
	Layout format.Layout
	Nodes  []uint32        // node of each row; nil: row i is node FirstNode+i
	DType  format.DType    // of the new hops
	Labels *product.Labels // that follow the columns of the stored hop; nil: none

	Content string // the same for the same matrix of all nodes, in jobs that share a Reserve; "": it is not known

	Tag string // in names of files that Cut writes: a hash of all that they depend on but the ranges

	// Node and column of the stored hop that the first row and column of this input are.
	FirstNode   int64
	FirstColumn int
}

// Chunked is a matrix in chunks of whole rows, as format.Matrix has them.
type Chunked interface {
	Chunks() int
	ChunkRowRange(k int) (first int64, rows int)
	ReadChunk(k int, dst []byte) error
}

// NewInput is all of a stored hop, with the node of each row.
func NewInput(m *format.Matrix, nodes []uint32, t format.DType) *Input {
	return &Input{Chunked: m, ID: m.ID, Layout: m.Layout, Nodes: nodes, DType: t}
}

// Columns is how many columns there are, labels among them.
func (in *Input) Columns() int {
	if in.Labels != nil {
		return in.Layout.Features + in.Labels.Columns
	}
	return in.Layout.Features
}

// all are the columns of the stored hop that this input is.
func (in *Input) all() product.ColumnRange {
	return product.ColumnRange{First: in.FirstColumn, End: in.FirstColumn + in.Columns()}
}

// chunkBytes is the size of a chunk.
func (in *Input) chunkBytes(k int) int64 {
	_, rows := in.ChunkRowRange(k)
	return int64(rows) * int64(in.Layout.Features*in.Layout.DType.Size())
}

// node is the node of a row.
func (in *Input) node(row int64) int64 {
	if in.Nodes == nil {
		return in.FirstNode + row
	}
	return int64(in.Nodes[row])
}

// bytes is the size of the stored hop.
func (in *Input) bytes() int64 {
	n := in.Chunks()
	if n == 0 {
		return 0
	}
	first, rows := in.ChunkRowRange(n - 1)
	return (first + int64(rows)) * int64(in.Layout.Features*in.Layout.DType.Size())
}

// Load fills m, whose First and Features say which columns it wants, from the stored input.
func (in *Input) Load(ctx context.Context, m *product.Matrix, threads int, p progress.Reporter) error {
	m.ID = in.ID
	task := p.Start(fmt.Sprintf("read %s, %s", m.ID, m.Columns()), in.bytes(), progress.Bytes)
	defer task.Done()
	if in.IsWhole(m) {
		return in.readWhole(ctx, m, threads, task)
	}
	return in.cut(ctx, m, nil, nil, threads, task)
}

// IsWhole tells whether m is what the input has, byte for byte, in places that chunks can be read into.
func (in *Input) IsWhole(m *product.Matrix) bool {
	l := &in.Layout
	last := int64(0)
	if n := in.Chunks(); n > 0 {
		last, _ = in.ChunkRowRange(n - 1)
	}
	return in.Nodes == nil && in.Labels == nil && l.DType == m.DType && m.First == in.FirstColumn &&
		m.Features == l.Features && last == int64(max(in.Chunks(), 1)-1)*int64(l.ChunkRows) &&
		(in.Chunks() == 1 || int64(l.ChunkRows)*m.RowBytes()%vfs.PageBytes == 0)
}

// readWhole reads the chunks into m, and checks the numbers there.
func (in *Input) readWhole(ctx context.Context, m *product.Matrix, threads int, task progress.Task) error {
	var failure product.LowestError
	err := parallel.For(ctx, plan.DiskReaders(threads), int64(in.Chunks()), 1, func(k, _ int64) error {
		start, rows := in.ChunkRowRange(int(k))
		end := start + int64(rows)
		err := in.ReadChunk(int(k), m.Rows(start, end))
		for v := start; err == nil && v < end; v++ {
			if row := m.Rows(v, v+1); !product.Finite(row, m.DType) {
				values := make([]float32, m.Features)
				dtype.Decode(values, row, m.DType)
				err = product.NotFinite(in.ID, v, 0, row, values, 1, m.DType)
			}
		}
		if err != nil {
			return failure.Report(start, err)
		}
		task.Add(in.chunkBytes(int(k)))
		return nil
	})
	if failure.Err != nil {
		return failure.Err
	}
	return err
}

// inputChunk is a chunk of an input in memory.
type inputChunk struct {
	*Input
	first, rows int64
	data        []byte
	values      []float32 // room for a row
}

// round rounds some columns of the i-th row, and writes them to dst.
func (c *inputChunk) round(dst []byte, i int64, columns product.ColumnRange) error {
	if stored := c.FirstColumn + c.Layout.Features; columns.End > stored {
		first := max(columns.First, stored)
		at := (first - columns.First) * c.DType.Size()
		labels := make([]float32, columns.End-first)
		c.Labels.Put(labels, c.node(c.first+i), first-stored)
		dtype.Encode(dst[at:columns.Width()*c.DType.Size()], labels, c.DType)
		if dst, columns.End = dst[:at], stored; columns.First >= stored {
			return nil
		}
	}
	values, size := c.values[:columns.Width()], c.Layout.DType.Size()
	stored := c.data[(int(i)*c.Layout.Features+columns.First-c.FirstColumn)*size:][:len(values)*size]
	if product.Round(dst, c.DType, stored, c.Layout.DType, values) {
		return nil
	}
	return product.NotFinite(c.ID, c.node(c.first+i), columns.First, dst, values, 1, c.DType)
}

// cut fills m, unless it is nil, and writes a column file for each of these ranges, which must not overlap, in one pass
// over the input.
func (in *Input) cut(ctx context.Context, m *product.Matrix, ranges []product.ColumnRange, to *ColumnFiles, threads int,
	task progress.Task) error {
	readers, columns := plan.DiskReaders(threads), 0
	files := make([]*columnFileWriter, len(ranges))
	for i, s := range ranges {
		var err error
		if files[i], err = to.create(s); err != nil {
			return err
		}
		defer files[i].Close()
		columns += s.Width()
	}
	chunks, err := product.NewBuffers(readers, plan.ChunkBuffer(in.Layout))
	if err != nil {
		return err
	}
	defer chunks.Free()
	buffers, err := product.NewBuffers(readers+1, int64(in.Layout.ChunkRows*columns*in.DType.Size()))
	if err != nil {
		return err
	}
	defer buffers.Free()
	k := 0 // chunk that is written next
	err = parallel.Ordered(ctx, readers, int64(in.Chunks()), buffers.Get, func(k int64, out []byte) ([]byte, error) {
		buffer := chunks.Get()
		defer chunks.Put(buffer)
		start, rows := in.ChunkRowRange(int(k))
		c := inputChunk{Input: in, first: start, rows: int64(rows)}
		c.data = buffer[:rows*in.Layout.Features*in.Layout.DType.Size()]
		c.values = dtype.Float32s(buffer[(len(c.data)+3)/4*4:][:4*in.Layout.Features])
		if err := in.ReadChunk(int(k), c.data); err != nil {
			return nil, err
		}
		return out, c.cut(out, m, files)
	}, func(out []byte) error {
		_, rows := in.ChunkRowRange(k)
		for _, file := range files {
			part := int64(rows) * file.rowBytes
			if err := file.write(out[:part]); err != nil {
				return err
			}
			out = out[part:]
		}
		task.Add(in.chunkBytes(k))
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

// cut writes the columns of each file to out, one file after another, and those of m to m.
func (c *inputChunk) cut(out []byte, m *product.Matrix, files []*columnFileWriter) error {
	for i := int64(0); m != nil && i < c.rows; i++ {
		v := c.node(c.first + i)
		if err := c.round(m.Rows(v, v+1), i, m.Columns()); err != nil {
			return err
		}
	}
	for _, file := range files {
		for i := range c.rows {
			if err := c.round(out[:file.rowBytes], i, file.columns); err != nil {
				return err
			}
			out = out[file.rowBytes:]
		}
	}
	return nil
}

// keep chooses the matrix in which the first of these panels stays while the input is cut into column files
// (Plan.InputKept), instead of being written and read back; nil: there is none. rest are the columns to be cut. A job
// that goes on with columns that it has finished keeps nothing: these may be loaded into the same memory.
func (e *engine) keep(in *Input, panels, rest []product.ColumnRange) *product.Matrix {
	if !e.Plan.InputKept || len(e.inputs()) > 1 || len(e.Sequences) > 1 && e.inputBuffer == nil ||
		rest[0] != panels[0] || e.HasPartialMatrices() {
		return nil
	}
	e.setColumns(panels[0])
	m := e.hopBuffers[0]
	if e.inputBuffer != nil {
		m = e.inputBuffer
	}
	m.ID = in.ID
	return m
}
