package preprop

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// input is a stored hop of all nodes, from which others are made: hop 0 in a graph,
// or a hop in a store of all rows. Columns of it are read from where it is stored, or
// from strips: scratch files of some of its columns each, in the stored order of rows,
// already rounded to the type of the new hops.
type input struct {
	*format.Matrix
	path  string   // of its directory
	nodes []uint32 // of its rows; nil: row i is that of node i
	dtype format.DType
}

// node is that of a row.
func (in *input) node(row int64) int64 {
	if in.nodes == nil {
		return row
	}
	return int64(in.nodes[row])
}

// chunks calls body with every chunk, from several goroutines, and a function by which
// to round the columns [first, first+width) of its i-th row to dst.
func (in *input) chunks(ctx context.Context, threads int, body func(k int, cut func(dst []byte, i, first, width int) error) error) error {
	from, features := in.Layout.DType, in.Layout.Features
	rowBytes := features * from.Size()
	buffers, err := newBuffers(threads, int64(4*features+in.Layout.ChunkRows*rowBytes)) // a row, a chunk
	if err != nil {
		return err
	}
	defer buffers.Free()
	var failure lowest
	err = parallel.For(ctx, threads, int64(in.Chunks()), 1, func(at, _ int64) error {
		buffer := buffers.get()
		defer buffers.put(buffer)
		k := int(at)
		start, rows := in.ChunkRowRange(k)
		row, chunk := dtype.Float32s(buffer[:4*features]), buffer[4*features:][:rows*rowBytes]
		if err := in.ReadChunk(k, chunk); err != nil {
			return failure.report(start, err)
		}
		err := body(k, func(dst []byte, i, first, width int) error {
			values := row[:width]
			dtype.Decode(values, chunk[i*rowBytes+first*from.Size():][:width*from.Size()], from)
			if encode(dst, values, unscaled, in.dtype, false) {
				return nil
			}
			return notFinite(in.ID, in.node(start+int64(i)), first, dst, values, 1, in.dtype)
		})
		if err != nil {
			return failure.report(start, err)
		}
		return nil
	})
	if failure.err != nil {
		return failure.err
	}
	return err
}

// load fills m with its columns of the input.
func (in *input) load(ctx context.Context, m *matrix, threads int, p progress.Reporter) error {
	m.id = in.ID
	task := p.Start(fmt.Sprintf("read %s, %s", m.id, m.span()), int64(in.Layout.Features*in.Layout.DType.Size())*in.rows(), progress.Bytes)
	defer task.Done()
	return in.chunks(ctx, threads, func(k int, cut func(dst []byte, i, first, width int) error) error {
		start, rows := in.ChunkRowRange(k)
		for i := range rows {
			v := in.node(start + int64(i))
			if err := cut(m.rows(v, v+1), i, m.first, m.features); err != nil {
				return err
			}
		}
		task.Add(in.Extent(k).Length)
		return nil
	})
}

func (in *input) rows() int64 {
	if n := in.Chunks(); n > 0 {
		first, rows := in.ChunkRowRange(n - 1)
		return first + int64(rows)
	}
	return 0
}

// cut makes strips of these columns, which are apart, all in one pass over the input.
func (in *input) cut(ctx context.Context, fsys vfs.FS, spans []span, path func(span) string, threads int, p progress.Reporter) error {
	task := p.Start(fmt.Sprintf("cut %s into strips", in.ID), int64(in.Layout.Features*in.Layout.DType.Size())*in.rows(), progress.Bytes)
	defer task.Done()
	size, widest := in.dtype.Size(), 0
	strips := make([]*spillWriter, len(spans))
	for i, s := range spans {
		var err error
		if strips[i], err = createSpill(fsys, path(s), chunkBlocks(in.Matrix, int64(s.width()*size))); err != nil {
			return err
		}
		defer strips[i].Close()
		widest = max(widest, s.width())
	}
	buffers, err := newBuffers(threads, int64(in.Layout.ChunkRows*widest*size))
	if err != nil {
		return err
	}
	defer buffers.Free()
	err = in.chunks(ctx, threads, func(k int, cut func(dst []byte, i, first, width int) error) error {
		_, rows := in.ChunkRowRange(k)
		buffer := buffers.get()
		defer buffers.put(buffer)
		for n, s := range spans {
			row := s.width() * size
			part := buffer[:rows*row]
			for i := range rows {
				if err := cut(part[i*row:(i+1)*row], i, s.first, s.width()); err != nil {
					return err
				}
			}
			if err := strips[n].write(k, part); err != nil {
				return err
			}
		}
		task.Add(in.Extent(k).Length)
		return nil
	})
	for _, strip := range strips {
		if err == nil {
			err = strip.commit()
		}
	}
	return err
}

// loadStrips fills m from strips that have all of its columns.
func (in *input) loadStrips(ctx context.Context, m *matrix, fsys vfs.FS, strips []span, path func(span) string, threads int, p progress.Reporter) error {
	m.id = in.ID
	task := p.Start(fmt.Sprintf("read %s, %s", m.id, m.span()), in.rows()*m.rowBytes(), progress.Bytes)
	defer task.Done()
	size, widest := in.dtype.Size(), 0
	parts := cover(m.span(), strips)
	for _, part := range parts {
		widest = max(widest, part.of.width())
	}
	buffers, err := newBuffers(threads, int64(in.Layout.ChunkRows*widest*size))
	if err != nil {
		return err
	}
	defer buffers.Free()
	for _, part := range parts {
		shape := chunkBlocks(in.Matrix, int64(part.of.width()*size))
		strip, err := openSpill(fsys, path(part.of), shape)
		if err != nil {
			return err
		}
		defer strip.Close()
		// What lies as it should is read to its place.
		whole := in.nodes == nil && part.span == part.of && part.span == m.span()
		from, to, width := (part.first-part.of.first)*size, (part.first-m.first)*size, part.width()*size
		err = parallel.For(ctx, threads, int64(strip.blocks()), 1, func(at, _ int64) error {
			k := int(at)
			first, end := strip.rows(k)
			task.Add((end - first) * int64(width))
			if whole {
				_, err := strip.readBlock(k, m.rows(first, end))
				return err
			}
			buffer := buffers.get()
			defer buffers.put(buffer)
			block, err := strip.readBlock(k, buffer)
			if err != nil {
				return err
			}
			for row := first; row < end; row++ {
				v := in.node(row)
				copy(m.rows(v, v+1)[to:to+width], block[(row-first)*shape.rowBytes:][from:])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
