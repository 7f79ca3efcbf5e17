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
// one buffer [rows, F] a matrix, in the stored type.
type resident struct {
	l        *Loader
	matrices []gds.Buffer
	read     ReadStats
}

// load reads and checks every chunk of the loader's regions. What the host cannot
// write to goes through pinned memory.
func load(ctx context.Context, l *Loader, onDevice bool) (r resident, err error) {
	r = resident{
		l:        l,
		matrices: make([]gds.Buffer, len(l.o.Matrices)),
		read:     ReadStats{Path: "buffered", Reason: "read once, when the loader was opened"},
	}
	if l.rows > 1<<32 {
		return r, fmt.Errorf("%d rows are too many for memory (at most 2^32)", l.rows)
	}
	var via *uploader
	if onDevice && !l.unified() {
		if via, err = newUploader(l); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, via.close()) }()
	}
	for i, id := range l.o.Matrices {
		bytes := l.rows * l.rowBytes()
		if onDevice {
			r.matrices[i], err = l.memory.alloc(bytes)
		} else {
			r.matrices[i], err = l.memory.pin(bytes)
		}
		if err != nil {
			return r, fmt.Errorf("loading %d matrices of %d rows: %w", len(l.o.Matrices), l.rows, err)
		}
		if err := r.fill(ctx, id, r.matrices[i], via); err != nil {
			return r, err
		}
	}
	return r, nil
}

// fill reads one matrix into its buffer.
func (r *resident) fill(ctx context.Context, id MatrixID, buf gds.Buffer, via *uploader) (err error) {
	m, err := r.l.o.Store.Matrix(id)
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
			first, rows := m.ChunkRowRange(k)
			at := (first - region.FirstRow + region.at) * r.l.rowBytes()
			bytes := int64(rows) * r.l.rowBytes()
			if via != nil {
				return via.upload(ctx, m, k, buf, at, bytes)
			}
			return m.ReadChunk(k, buf.Bytes()[at:at+bytes])
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

// uploader copies chunks to device memory that the host cannot write to.
type uploader struct {
	free   chan gds.Buffer // pinned, a chunk each
	mu     sync.Mutex
	stream gds.Stream
}

func newUploader(l *Loader) (*uploader, error) {
	u := &uploader{free: make(chan gds.Buffer, l.o.Threads)}
	var err error
	if u.stream, err = l.o.Device.NewStream(); err != nil {
		return nil, err
	}
	for range l.o.Threads {
		b, err := l.o.Device.AllocPinned(int64(l.layout.ChunkRows) * l.rowBytes())
		if err != nil {
			return nil, errors.Join(err, u.close())
		}
		u.free <- b
	}
	return u, nil
}

// upload returns when chunk k is at its place in dst.
func (u *uploader) upload(ctx context.Context, m *format.Matrix, k int, dst gds.Buffer, at, bytes int64) error {
	b := <-u.free
	defer func() { u.free <- b }()
	pinned := b.Bytes()[:bytes]
	if err := m.ReadChunk(k, pinned); err != nil {
		return err
	}
	to := gds.NewTensor(dst, 1, int(bytes), gds.Uint8)
	to.Offset = at
	u.mu.Lock()
	u.stream.CopyIn(to, pinned)
	done := u.stream.Record()
	u.mu.Unlock()
	// Not ctx: the memory must not be used again before.
	return done.Wait(context.WithoutCancel(ctx))
}

func (u *uploader) close() error {
	err := u.stream.Close()
	for len(u.free) > 0 {
		err = errors.Join(err, (<-u.free).Free())
	}
	return err
}
