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
// with fewer misses of the page table. Of the loader's rows it has each
// (Loader.parts)th, from Loader.part on.
type resident struct {
	l      *Loader
	memory gds.Buffer
	read   ReadStats
}

func (r *resident) allocate(alloc func(int64) (gds.Buffer, error)) (err error) {
	l := r.l
	if l.rows > 1<<32 {
		return fmt.Errorf("%d rows are too many for memory (at most 2^32)", l.rows)
	}
	if r.memory, err = alloc(r.held() * l.joinedBytes()); err != nil {
		return fmt.Errorf("loading %d matrices of %d rows: %w", len(l.o.Matrices), r.held(), err)
	}
	return nil
}

// held is the number of rows.
func (r *resident) held() int64 { return (r.l.rows - r.l.part + r.l.parts - 1) / r.l.parts }

// rows is all matrices, all rows that are held.
func (r *resident) rows() gds.Tensor {
	return gds.NewTensor(r.memory, int(r.held()), r.l.joinedColumns(), r.l.layout.DType)
}

// fill reads and checks every chunk of the loader's regions, once for all residents,
// of which this is one.
func (r *resident) fill(ctx context.Context, all []*resident) error {
	r.read = ReadStats{Path: "buffered", Reason: "read once, when the loader was opened"}
	in, err := newIntake(r.l, all)
	if err != nil {
		return err
	}
	for i := range r.l.o.Matrices {
		if err = r.fillMatrix(ctx, i, in); err != nil {
			break
		}
	}
	if closeErr := in.close(); err == nil {
		err = closeErr
	}
	return err
}

// fillMatrix reads one matrix into its columns.
func (r *resident) fillMatrix(ctx context.Context, matrix int, in *intake) (err error) {
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
		err := parallel.For(ctx, cap(in.free), int64(region.Chunks), 1, func(lo, _ int64) error {
			k := region.FirstChunk + int(lo)
			first, _ := m.ChunkRowRange(k)
			return in.take(ctx, m, k, matrix, first-region.FirstRow+region.at)
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
func (r *resident) release(*job)                         {}
func (r *resident) close() error                         { return nil }

func (r *resident) reads() []ReadStats {
	if r.read.Files == 0 {
		return nil
	}
	return []ReadStats{r.read}
}

// intake brings chunks to their columns.
type intake struct {
	free chan gds.Buffer // pinned, a chunk of one matrix each
	to   []*landing
}

func newIntake(l *Loader, all []*resident) (*intake, error) {
	in := &intake{free: make(chan gds.Buffer, l.o.Threads*len(l.ranks))}
	bytes := int64(l.layout.ChunkRows) * l.rowBytes()
	for _, r := range all {
		t := &landing{resident: r}
		in.to = append(in.to, t)
		if err := t.open(); err != nil {
			return nil, errors.Join(err, in.close())
		}
	}
	for range cap(in.free) {
		b, err := l.o.Device.AllocPinned(bytes)
		if err != nil {
			return nil, errors.Join(err, in.close())
		}
		in.free <- b
	}
	return in, nil
}

// take returns when chunk k, whose rows are the loader's from row at on, is in the
// columns of its matrix.
func (in *intake) take(ctx context.Context, m *format.Matrix, k, matrix int, at int64) error {
	b := <-in.free
	defer func() { in.free <- b }()
	_, rows := m.ChunkRowRange(k)
	chunk := b.Bytes()[:int64(rows)*in.to[0].l.rowBytes()]
	if err := m.ReadChunk(k, chunk); err != nil {
		return err
	}
	var err error
	events := make([]gds.Event, len(in.to))
	for i, t := range in.to {
		events[i] = t.put(chunk, rows, matrix, at)
	}
	for _, landed := range events {
		if landed == nil {
			continue
		}
		// Not ctx: the memory must not be used again before.
		if failed := landed.Wait(context.WithoutCancel(ctx)); err == nil {
			err = failed
		}
	}
	return err
}

func (in *intake) close() error {
	var err error
	for _, t := range in.to {
		err = errors.Join(err, t.close())
	}
	for len(in.free) > 0 {
		err = errors.Join(err, (<-in.free).Free())
	}
	return err
}

// landing is where a resident takes in chunks.
type landing struct {
	*resident
	// Where the host cannot write to the columns, chunks go through the memory of a
	// batch, as far as it goes at a time: a device that is full has no other.
	mu     sync.Mutex
	stream gds.Stream
	staged gds.Buffer
}

func (t *landing) open() (err error) {
	if t.memory.Bytes() == nil {
		t.staged = t.l.frames[0].features
		t.stream, err = t.l.o.Device.NewStream()
	}
	return err
}

// put copies those rows of a chunk that are held. It returns when they are there,
// or what happens then.
func (t *landing) put(chunk []byte, rows, matrix int, at int64) gds.Event {
	l := t.l
	size, stride := l.rowBytes(), l.joinedBytes()
	if t.stream == nil {
		first, to := t.next(at)
		columns := t.memory.Bytes()[to*stride+int64(matrix)*size:]
		for n, i := int64(0), first; i < int64(rows); n, i = n+1, i+l.parts {
			copy(columns[n*stride:][:size], chunk[i*size:])
		}
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fit := int(t.staged.Len() / size)
	for lo := 0; lo < rows; lo += fit {
		first, to := t.next(at + int64(lo))
		part := gds.NewTensor(t.staged, min(fit, rows-lo), l.layout.Features, l.layout.DType)
		held := part.Slice(int(first), part.Rows)
		held.Rows = int((int64(part.Rows) - first + l.parts - 1) / l.parts)
		held.Stride *= int(l.parts)
		if held.Rows == 0 {
			continue
		}
		t.stream.CopyIn(part, chunk[int64(lo)*size:][:int64(part.Rows)*size])
		t.stream.Copy(t.rows().Slice(int(to), int(to)+held.Rows).Columns(matrix*part.Cols, (matrix+1)*part.Cols), held)
	}
	return t.stream.Record()
}

// next is the first of the loader's rows from row at on that is held: how far on it
// is, and its place.
func (r *resident) next(at int64) (ahead, place int64) {
	ahead = (r.l.part - at%r.l.parts + r.l.parts) % r.l.parts
	return ahead, (at + ahead) / r.l.parts
}

func (t *landing) close() error {
	if t.stream == nil {
		return nil
	}
	return t.stream.Close()
}
