package preprop

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// input is a stored hop of all nodes, from which the next hops are made: hop 0 in a
// graph, or a hop in a store of all rows. Its columns are read from there, or from column
// files, which have the rows in the same order, rounded to the type of the new hops.
type input struct {
	*format.Matrix
	path  string   // of its directory
	nodes []uint32 // node of each row; nil: row i is node i
	dtype format.DType
}

// node is the node of a row.
func (in *input) node(row int64) int64 {
	if in.nodes == nil {
		return row
	}
	return int64(in.nodes[row])
}

// chunkBuffer is the memory in which a reader takes a chunk apart: the chunk, and a row of numbers
// at the next multiple of 4 bytes.
func chunkBuffer(l format.Layout) int64 {
	return vfs.WholePages(int64(l.Features)*int64(4+l.ChunkRows*l.DType.Size()) + 2)
}

// inputBytes is the size of an input, and inputFileBytes that of its column files.
func (w *work) inputBytes(l format.Layout) int64 { return w.nodes * int64(l.Features*l.DType.Size()) }
func (w *work) inputFileBytes() int64            { return w.share(w.nodes * w.storedRowBytes()) }

// inputFileBlock is the size of a chunk's columns in a column file of the widest panel.
func (w *work) inputFileBlock(p *Plan) int64 {
	most := int64(0)
	for _, l := range w.inputs {
		most = max(most, int64(l.ChunkRows*p.PanelColumns*w.stored.DType.Size()))
	}
	return most
}

// inputChunk is the largest chunkBuffer.
func (w *work) inputChunk() int64 {
	most := int64(0)
	for _, l := range w.inputs {
		most = max(most, chunkBuffer(l))
	}
	return most
}

// cutCost is what cutting inputs takes: each reader has a chunk of the input, each reader and one more the columns for the
// files, and each file has a stream. All files are there when the first panel begins, and those of a panel go when it is done.
func (w *work) cutCost(p *Plan) cost {
	if !p.InputFiles {
		return cost{}
	}
	var c cost
	for _, l := range w.inputs {
		columns := int64(l.ChunkRows * w.columns * w.stored.DType.Size())
		file, cut := w.inputFileBytes()/int64(p.Panels), w.inputFileBytes()-w.keptBytes(p)
		readers := int64(diskReaders(w.threads))
		memory := readers*chunkBuffer(l) + (readers+1)*columns + int64(p.Panels)*vfs.StreamBytes(file)
		c.memory[cutting] = max(c.memory[cutting], memory)
		c.add(cost{read: w.inputBytes(l), written: cut, scratch: during(cutting, writing, cut), inputPasses: 1})
	}
	c.scratch[lastPanel] = c.scratch[writing] / int64(p.Panels)
	return c
}

// loadCost is what loading takes: each sequence reads its input for each panel, or its column
// files once; with an input in memory, one sequence of several reads it. A job that goes on
// reads chunks of the store, or blocks of result files or checkpoints, instead.
func (w *work) loadCost(p *Plan) cost {
	var c cost
	for i, l := range w.inputs {
		loads := w.loads[i]
		if p.InputInMemory {
			loads = 1
		}
		if p.InputFiles {
			c.add(cost{read: int64(loads)*w.inputFileBytes() - w.keptBytes(p)})
		} else {
			c.add(cost{read: int64(loads*p.Panels) * w.inputBytes(l), inputPasses: loads * p.Panels})
		}
	}
	threads, readers := int64(w.threads), int64(diskReaders(w.threads))
	memory := threads * vfs.WholePages(columnFileBlock(w.nodes, w.storedRowBytes(), w.storedRowBytes()))
	if p.InputFiles {
		memory = max(memory, threads*vfs.WholePages(w.inputFileBlock(p)))
	} else {
		memory = max(memory, readers*w.inputChunk())
	}
	if w.rows == w.nodes {
		memory = max(memory, readers*chunkBuffer(w.stored))
	}
	c.memory = during(loading, loading, memory)
	return c
}

// chunks calls body with every chunk, from several goroutines, what buffer has made, and a function that rounds
// the columns [first, first+width) of the chunk's i-th row and writes them to dst. emit is then called with the
// buffers, in the order of chunks.
func (in *input) chunks(ctx context.Context, threads int, buffer func() []byte, body func(k int, buffer []byte, cut func(dst []byte, i, first, width int) error) error, emit func([]byte) error) error {
	from, features := in.Layout.DType, in.Layout.Features
	rowBytes := features * from.Size()
	readers := diskReaders(threads)
	buffers, err := newBuffers(readers, chunkBuffer(in.Layout))
	if err != nil {
		return err
	}
	defer buffers.Free()
	var failure lowestError
	err = parallel.Ordered(ctx, readers, int64(in.Chunks()), buffer, func(at int64, out []byte) ([]byte, error) {
		buffer := buffers.get()
		defer buffers.put(buffer)
		k := int(at)
		start, rows := in.ChunkRowRange(k)
		chunk := buffer[:rows*rowBytes]
		row := dtype.Float32s(buffer[(len(chunk)+3)/4*4:][:4*features])
		if err := in.ReadChunk(k, chunk); err != nil {
			return nil, failure.report(start, err)
		}
		err := body(k, out, func(dst []byte, i, first, width int) error {
			values := row[:width]
			dtype.Decode(values, chunk[i*rowBytes+first*from.Size():][:width*from.Size()], from)
			if encode(dst, values, unscaled, in.dtype, false) {
				return nil
			}
			return notFinite(in.ID, in.node(start+int64(i)), first, dst, values, 1, in.dtype)
		})
		if err != nil {
			return nil, failure.report(start, err)
		}
		return out, nil
	}, emit)
	if failure.err != nil {
		return failure.err
	}
	return err
}

// load fills m, whose first and features say which columns it wants, from the stored input.
func (in *input) load(ctx context.Context, m *matrix, threads int, p progress.Reporter) error {
	m.id = in.ID
	task := p.Start(fmt.Sprintf("read %s, %s", m.id, m.columns()), int64(in.Layout.Features*in.Layout.DType.Size())*in.rows(), progress.Bytes)
	defer task.Done()
	if in.isWhole(m) {
		return in.readWhole(ctx, m, threads, task)
	}
	return in.chunks(ctx, threads, func() []byte { return nil }, func(k int, _ []byte, cut func(dst []byte, i, first, width int) error) error {
		start, rows := in.ChunkRowRange(k)
		for i := range rows {
			v := in.node(start + int64(i))
			if err := cut(m.rows(v, v+1), i, m.first, m.features); err != nil {
				return err
			}
		}
		task.Add(in.Extent(k).Length)
		return nil
	}, func([]byte) error { return nil })
}

// isWhole tells whether m is what the input has, byte for byte, in places that chunks can be read into.
func (in *input) isWhole(m *matrix) bool {
	l := &in.Layout
	return in.nodes == nil && l.DType == m.dtype && m.first == 0 && m.features == l.Features &&
		(in.Chunks() == 1 || int64(l.ChunkRows)*m.rowBytes()%vfs.PageBytes == 0)
}

// readWhole reads the chunks into m, and checks the numbers there.
func (in *input) readWhole(ctx context.Context, m *matrix, threads int, task progress.Task) error {
	var failure lowestError
	err := parallel.For(ctx, diskReaders(threads), int64(in.Chunks()), 1, func(at, _ int64) error {
		k := int(at)
		start, rows := in.ChunkRowRange(k)
		chunk := m.rows(start, start+int64(rows))
		if err := in.ReadChunk(k, chunk); err != nil {
			return failure.report(start, err)
		}
		if !finite(chunk, m.dtype) {
			return in.reportNotFinite(m, start, start+int64(rows), &failure)
		}
		task.Add(in.Extent(k).Length)
		return nil
	})
	if failure.err != nil {
		return failure.err
	}
	return err
}

// reportNotFinite reports the first row of [lo, hi) of m that has a number which is not finite.
func (in *input) reportNotFinite(m *matrix, lo, hi int64, failure *lowestError) error {
	for v := lo; v < hi; v++ {
		if row := m.rows(v, v+1); !finite(row, m.dtype) {
			values := make([]float32, m.features)
			dtype.Decode(values, row, m.dtype)
			return failure.report(v, notFinite(in.ID, v, 0, row, values, 1, m.dtype))
		}
	}
	panic("preprop: a number was not finite, and is finite now")
}

// finite tells whether stored numbers are neither infinite nor NaN: no exponent is all ones, so that adding one to it
// carries into the place of the sign.
func finite(stored []byte, t format.DType) bool {
	exponents, ones := uint64(0x7f800000_7f800000), uint64(0x00800000_00800000)
	switch t {
	case format.Float16:
		exponents, ones = 0x7c007c00_7c007c00, 0x04000400_04000400
	case format.BFloat16:
		exponents, ones = 0x7f807f80_7f807f80, 0x00800080_00800080
	}
	carried := uint64(0)
	for ; len(stored) >= 8; stored = stored[8:] {
		carried |= binary.LittleEndian.Uint64(stored)&exponents + ones
	}
	var rest [8]byte
	copy(rest[:], stored)
	carried |= binary.LittleEndian.Uint64(rest[:])&exponents + ones
	return carried&(exponents+ones) == 0
}

func (in *input) rows() int64 {
	if n := in.Chunks(); n > 0 {
		first, rows := in.ChunkRowRange(n - 1)
		return first + int64(rows)
	}
	return 0
}

// cutToFiles writes a column file for each of these ranges, which must not overlap, and fills what
// is kept, all in one pass over the input.
func (in *input) cutToFiles(ctx context.Context, fsys vfs.FS, ranges []columnRange, kept keptInput, path func(columnRange) string, threads int, p progress.Reporter) error {
	task := p.Start(fmt.Sprintf("cut %s into column files", in.ID), int64(in.Layout.Features*in.Layout.DType.Size())*in.rows(), progress.Bytes)
	defer task.Done()
	size, columns := in.dtype.Size(), 0
	files := make([]*columnFileWriter, len(ranges))
	for i, s := range ranges {
		var err error
		if files[i], err = createColumnFile(fsys, path(s), chunkBlocks(in.Matrix, int64(s.width()*size))); err != nil {
			return err
		}
		defer files[i].Close()
		columns += s.width()
	}
	buffers, err := newBuffers(diskReaders(threads)+1, int64(in.Layout.ChunkRows*columns*size))
	if err != nil {
		return err
	}
	defer buffers.Free()
	k := 0 // chunk that is written next
	err = in.chunks(ctx, threads, buffers.get, func(k int, buffer []byte, cut func(dst []byte, i, first, width int) error) error {
		start, rows := in.ChunkRowRange(k)
		for i := range rows {
			if err := kept.take(in.node(start+int64(i)), i, cut); err != nil {
				return err
			}
		}
		for _, s := range ranges {
			row := s.width() * size
			for i := range rows {
				if err := cut(buffer[i*row:(i+1)*row], i, s.first, s.width()); err != nil {
					return err
				}
			}
			buffer = buffer[rows*row:]
		}
		return nil
	}, func(buffer []byte) error {
		_, rows := in.ChunkRowRange(k)
		for n, s := range ranges {
			part := rows * s.width() * size
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

// loadFromFiles fills m from column files that together have all of its columns.
func (in *input) loadFromFiles(ctx context.Context, m *matrix, fsys vfs.FS, files []columnRange, path func(columnRange) string, threads int, p progress.Reporter) error {
	m.id = in.ID
	layout := func(s columnRange) columnFileLayout { return chunkBlocks(in.Matrix, int64(s.width()*in.dtype.Size())) }
	return loadColumnFiles(ctx, m, fsys, files, in.nodes, path, layout, threads, p)
}

// loadColumnFiles fills m from column files that together have all of its columns. Row i
// of a file is that of nodes[i], or of node i if nodes is nil.
func loadColumnFiles(ctx context.Context, m *matrix, fsys vfs.FS, ranges []columnRange, nodes []uint32, path func(columnRange) string, layout func(columnRange) columnFileLayout, threads int, p progress.Reporter) error {
	parts, size, most, rows := cover(m.columns(), ranges), m.dtype.Size(), int64(0), int64(0)
	for _, part := range parts {
		layout := layout(part.source)
		for k := range layout.blocks() {
			first, end := layout.rows(k)
			most, rows = max(most, (end-first)*layout.rowBytes), max(rows, end)
		}
	}
	task := p.Start(fmt.Sprintf("read %s, %s", m.id, m.columns()), rows*m.rowBytes(), progress.Bytes)
	defer task.Done()
	buffers, err := newBuffers(threads, vfs.WholePages(most))
	if err != nil {
		return err
	}
	defer buffers.Free()
	for _, part := range parts {
		layout := layout(part.source)
		file, err := openColumnFile(fsys, path(part.source), layout)
		if err != nil {
			return err
		}
		defer file.Close()
		// A file with the same rows and columns as m is read into m at once.
		if nodes == nil && part.columnRange == part.source && part.columnRange == m.columns() {
			if err := file.readAll(ctx, diskReaders(threads), m.buf.Bytes()[:file.dataBytes()], func(bytes int) { task.Add(int64(bytes)) }); err != nil {
				return err
			}
			continue
		}
		from, to, width := (part.first-part.source.first)*size, (part.first-m.first)*size, part.width()*size
		err = parallel.For(ctx, threads, int64(file.blocks()), 1, func(at, _ int64) error {
			k := int(at)
			first, end := file.rows(k)
			task.Add((end - first) * int64(width))
			buffer := buffers.get()
			defer buffers.put(buffer)
			block, err := file.readBlock(k, buffer)
			if err != nil {
				return err
			}
			for row := first; row < end; row++ {
				v := row
				if nodes != nil {
					v = int64(nodes[row])
				}
				copy(m.rows(v, v+1)[to:to+width], block[(row-first)*layout.rowBytes:][from:])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
