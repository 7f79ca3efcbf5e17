package loader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// resident is what the sources that hold the matrices in memory have in common:
// one buffer [rows, matrices * F], in the stored type. A row that is read at random
// is thus one run of memory and not one for each matrix, which memory gives faster,
// with fewer misses of the page table.
type resident struct {
	l      *Loader
	memory gds.Buffer
	read   ReadStats
}

// load reads and checks every chunk of the loader's regions.
func load(ctx context.Context, l *Loader, onDevice bool) (r resident, err error) {
	r = resident{l: l, read: ReadStats{Path: "buffered", Reason: "read once, when the loader was opened"}}
	if l.rows > 1<<32 {
		return r, fmt.Errorf("%d rows are too many for memory (at most 2^32)", l.rows)
	}
	alloc := l.memory.pin
	if onDevice {
		alloc = l.memory.alloc
	}
	if r.memory, err = alloc(l.rows * l.joinedBytes()); err != nil {
		return r, fmt.Errorf("loading %d matrices of %d rows: %w", len(l.o.Matrices), l.rows, err)
	}
	in, err := newIntake(&r, onDevice && !l.unified())
	if err != nil {
		return r, err
	}
	for i := range l.o.Matrices {
		if err = r.fill(ctx, i, in); err != nil {
			break
		}
	}
	return r, errors.Join(err, in.close())
}

// rows is all matrices, all rows of the loader.
func (r *resident) rows() gds.Tensor {
	return gds.NewTensor(r.memory, int(r.l.rows), r.l.joinedColumns(), r.l.layout.DType)
}

// fill reads one matrix into its columns.
func (r *resident) fill(ctx context.Context, matrix int, in *intake) (err error) {
	m, err := r.l.o.Store.Matrix(r.l.o.Matrices[matrix])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	file := ""
	for _, region := range r.l.regions {
		for k := region.FirstChunk; k < region.FirstChunk+region.Chunks; k++ {
			e := m.Extent(k)
			r.read.Bytes += e.Length
			if e.File != file {
				file = e.File
				r.read.Files++
			}
		}
		err := parallel.For(ctx, r.l.o.Threads, int64(region.Chunks), 1, func(lo, _ int64) error {
			k := region.FirstChunk + int(lo)
			first, _ := m.ChunkRowRange(k)
			return in.take(ctx, m, k, matrix, int(first-region.FirstRow+region.at))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *resident) check(*Set) error                     { return nil }
func (r *resident) prefetch(context.Context, *job) error { return nil }
func (r *resident) ahead(*Set) int                       { return 1 }
func (r *resident) fetch(context.Context, *job) error    { return nil }
func (r *resident) reset()                               {}
func (r *resident) close() error                         { return nil }

func (r *resident) reads() []ReadStats { return []ReadStats{r.read} }

// intake brings chunks to their columns.
type intake struct {
	r    *resident
	free chan gds.Buffer // pinned, a chunk of one matrix each
	// Where the host cannot write to the columns, chunks go through device memory
	// for one.
	mu     sync.Mutex
	stream gds.Stream
	staged gds.Buffer
}

func newIntake(r *resident, discrete bool) (*intake, error) {
	l := r.l
	in := &intake{r: r, free: make(chan gds.Buffer, l.o.Threads)}
	bytes := int64(l.layout.ChunkRows) * l.rowBytes()
	var err error
	if discrete {
		if in.stream, err = l.o.Device.NewStream(); err != nil {
			return nil, err
		}
		if in.staged, err = l.o.Device.Alloc(bytes); err != nil {
			return nil, errors.Join(err, in.close())
		}
	}
	for range l.o.Threads {
		b, err := l.o.Device.AllocPinned(bytes)
		if err != nil {
			return nil, errors.Join(err, in.close())
		}
		in.free <- b
	}
	return in, nil
}

// take returns when chunk k is in the columns of its matrix, from row at on.
func (in *intake) take(ctx context.Context, m *format.Matrix, k, matrix, at int) error {
	b := <-in.free
	defer func() { in.free <- b }()
	l := in.r.l
	_, rows := m.ChunkRowRange(k)
	size := l.rowBytes()
	chunk := b.Bytes()[:int64(rows)*size]
	if err := m.ReadChunk(k, chunk); err != nil {
		return err
	}
	if in.stream == nil {
		stride := l.joinedBytes()
		to := in.r.memory.Bytes()[int64(at)*stride+int64(matrix)*size:]
		for i := range int64(rows) {
			copy(to[i*stride:][:size], chunk[i*size:])
		}
		return nil
	}
	features := l.layout.Features
	staged := gds.NewTensor(in.staged, rows, features, l.layout.DType)
	in.mu.Lock()
	in.stream.CopyIn(staged, chunk)
	in.stream.Copy(in.r.rows().Slice(at, at+rows).Columns(matrix*features, (matrix+1)*features), staged)
	done := in.stream.Record()
	in.mu.Unlock()
	// Not ctx: the memory must not be used again before.
	return done.Wait(context.WithoutCancel(ctx))
}

func (in *intake) close() error {
	var err error
	if in.stream != nil {
		err = in.stream.Close()
	}
	if in.staged != nil {
		err = errors.Join(err, in.staged.Free())
	}
	for len(in.free) > 0 {
		err = errors.Join(err, (<-in.free).Free())
	}
	return err
}
