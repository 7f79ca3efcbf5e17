package loader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// resident is the common part of the sources that hold the matrices in memory: one buffer [rows, columns of all], in
// the stored type. A row of all matrices is one range of memory, which is read faster, with fewer page table misses,
// than one range for each matrix. It holds row i of the loader if i % Loader.holders == Loader.holder.
type resident struct {
	l      *Loader
	memory gds.Buffer
	read   ReadStats

	mu     sync.Mutex // of stream
	stream gds.Stream // while chunks are copied into memory that the host cannot write to
}

// loadResidents allocates the memory of all residents, and fills it. A store that shares what is read
// (format.Dir.Share) has the memory of a single one.
func loadResidents(ctx context.Context, all []*resident,
	alloc func(m *gds.Memory, what string, bytes int64) gds.Buffer) error {
	l := all[0].l
	if l.rows > 1<<32 {
		return fmt.Errorf("%d rows are too many for memory (at most 2^32)", l.rows)
	}
	if device, ok := l.o.Device.(adopter); ok && l.o.Store.Shares() && len(l.ranks) == 1 && l.unified() {
		return all[0].hold(ctx, device)
	}
	for _, r := range all {
		what := fmt.Sprintf("%d matrices of %d rows", len(l.o.Matrices), r.heldRows())
		r.memory = alloc(&r.l.memory, what, r.heldRows()*l.joinedBytes())
		if r.l.memory.Err != nil {
			return r.l.memory.Err
		}
	}
	return all[0].fill(ctx, all)
}

// adopter is a device whose buffers may be memory of the host that others hold too.
type adopter interface {
	Adopt(memory *offheap.Buffer) gds.Buffer
}

// hold lets the store have the memory, for others too.
func (r *resident) hold(ctx context.Context, device adopter) error {
	l := r.l
	memory, err := l.o.Store.Hold(ctx, l.o.InputName(), l.rows*l.joinedBytes(), func(b *offheap.Buffer) error {
		r.memory = device.Adopt(b)
		return r.fill(ctx, []*resident{r})
	})
	if err == nil {
		r.memory = device.Adopt(memory)
		l.memory.Keep(r.memory)
	}
	return err
}

// InputName names what is loaded into memory with these options, for format.Dir.Hold.
func (o *Options) InputName() string { return fmt.Sprintf("rows of %q: %v", o.Regions, o.Matrices) }

// heldRows is the number of rows that are held.
func (r *resident) heldRows() int64 { return (r.l.rows - r.l.holder + r.l.holders - 1) / r.l.holders }

// rows is the matrix of all rows that are held.
func (r *resident) rows() gds.Tensor {
	return gds.NewTensor(r.memory, int(r.heldRows()), r.l.joinedColumns(), r.l.layout.DType)
}

// preloadBytes is the most that is on its way from files to memory, unless one chunk is more.
const preloadBytes = 16 << 20

// preloadChunks is how many chunks all ranks read at a time.
func (l *Loader) preloadChunks(ranks int) int {
	return int(max(1, min(int64(l.o.Threads*ranks), preloadBytes/max(l.mostChunkBytes(), 1))))
}

// fill reads and checks every chunk of the loader's regions once, and copies it to all residents, this one included.
func (r *resident) fill(ctx context.Context, all []*resident) (err error) {
	r.read = ReadStats{Path: "buffered", Reason: "read once, when the loader was opened"}
	pinned := gds.Memory{Device: r.l.o.Device}
	defer func() {
		closed := pinned.Free()
		for _, t := range all {
			if t.stream != nil {
				closed = errors.Join(closed, t.stream.Close())
				t.stream = nil
			}
		}
		if err == nil {
			err = closed
		}
	}()
	for _, t := range all {
		if t.memory.Bytes() == nil {
			if t.stream, err = t.l.o.Device.NewStream(); err != nil {
				return err
			}
		}
	}
	free := make(chan gds.Buffer, r.l.preloadChunks(len(r.l.ranks))) // a chunk of one matrix each
	for range cap(free) {
		free <- pinned.Pin("chunks on their way", r.l.mostChunkBytes())
	}
	if pinned.Err != nil {
		return pinned.Err
	}
	for i := range r.l.o.Matrices {
		if err := r.fillMatrix(ctx, i, all, free); err != nil {
			return err
		}
	}
	return nil
}

// fillMatrix reads one matrix into its columns.
func (r *resident) fillMatrix(ctx context.Context, matrix int, all []*resident, free chan gds.Buffer) (err error) {
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
		err := parallel.For(ctx, cap(free), int64(region.Chunks), 1, func(lo, _ int64) error {
			k := region.FirstChunk + int(lo)
			first, _ := m.ChunkRowRange(k)
			b := <-free
			defer func() { free <- b }()
			return loadChunk(ctx, m, k, b, matrix, first-region.FirstRow+region.firstRow, all)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *resident) reads() []ReadStats {
	if r.read.Files == 0 {
		return nil
	}
	return []ReadStats{r.read}
}

// loadChunk reads chunk k, whose first row is row at of the loader, into pinned memory, and copies it to the columns of
// its matrix of all residents.
func loadChunk(ctx context.Context, m *format.Matrix, k int, b gds.Buffer, matrix int, at int64,
	all []*resident) error {
	_, rows := m.ChunkRowRange(k)
	l := all[0].l
	chunk := gds.NewTensor(b, rows, l.width(matrix), l.layout.DType)
	if err := m.ReadChunk(k, b.Bytes()[:int64(rows)*l.rowBytes(matrix)]); err != nil {
		return err
	}
	var err error
	events := make([]gds.Event, len(all))
	for i, t := range all {
		events[i] = t.copyChunk(chunk, matrix, at)
	}
	for _, copied := range events {
		if copied == nil {
			continue
		}
		// Not ctx: the memory must not be used again before.
		if failed := copied.Wait(context.WithoutCancel(ctx)); err == nil {
			err = failed
		}
	}
	return err
}

// copyChunk copies the rows of a chunk that this rank holds. The chunk is in pinned memory, and its first row is row at
// of the loader. It returns nil when the rows are copied, else the event after which they are.
func (t *resident) copyChunk(chunk gds.Tensor, matrix int, at int64) gds.Event {
	holders := int(t.l.holders)
	first, to := t.nextHeld(at)
	held := chunk.Slice(int(first), chunk.Rows)
	held.Rows = (held.Rows + holders - 1) / holders
	held.Stride *= holders
	if held.Rows <= 0 {
		return nil
	}
	columns := t.rows().Slice(int(to), int(to)+held.Rows).Columns(t.l.starts[matrix], t.l.starts[matrix+1])
	if t.stream == nil {
		size, stride := t.l.rowBytes(matrix), t.l.joinedBytes()
		dst, src := columns.Buf.Bytes()[columns.Offset:], held.Buf.Bytes()[held.Offset:]
		for i := range int64(held.Rows) {
			copy(dst[i*stride:][:size], src[i*size*t.l.holders:])
		}
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stream.Copy(columns, held)
	return t.stream.Record()
}

// nextHeld finds the first row >= at of the loader that is held: its distance from at, and its
// number among the held rows.
func (r *resident) nextHeld(at int64) (ahead, place int64) {
	ahead = (r.l.holder - at%r.l.holders + r.l.holders) % r.l.holders
	return ahead, (at + ahead) / r.l.holders
}
