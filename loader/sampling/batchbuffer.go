package sampling

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// batchBuffer is the device memory that a batch is assembled in. It grows with the batches. On a device with memory of
// its own, the host writes to pinned memory first, which is copied at once.
type batchBuffer struct {
	epoch.Buffer
	l      *Loader
	device epoch.Growing
	bytes  atomic.Int64 // the most that a batch needed

	batch  loader.Batch
	x      []gds.Tensor
	sparse loader.SparseRows
	blocks []loader.Block
}

// pool has things that batches take and give back. It makes as many as are taken at a time.
type pool[T any] struct {
	mu        sync.Mutex
	free, all []*T
}

func (p *pool[T]) take() *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		t := new(T)
		p.all = append(p.all, t)
		return t
	}
	t := p.free[n-1]
	p.free = p.free[:n-1]
	return t
}

func (p *pool[T]) put(t *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, t)
}

// reset takes all back, when no batch is on its way.
func (p *pool[T]) reset() { p.free = append(p.free[:0], p.all...) }

// takeMemory lays a job's batch out, and takes memory that the host can write to.
func (l *Loader) takeMemory(w *pipeline.Worker, j *job) error {
	p := &j.layout
	l.setSize(j)
	l.form.layOut(p, &j.size)
	if limit := l.o.MaxBatchBytes; limit > 0 && p.bytes() > limit {
		return fmt.Errorf("%w: batch %d needs %v for %d rows of features and %d blocks, more than the %v that a "+
			"batch may take: use fewer seeds or smaller fanouts",
			gds.ErrOutOfMemory, j.plan.Index, units.Bytes(p.bytes()), p.inputs, len(p.blocks), units.Bytes(limit))
	}
	if l.unified {
		return l.takeBuffer(w, j)
	}
	j.pinned = l.pinned.take()
	return noRoom(j, j.pinned.Grow(p.written, gds.Room(p.written), l.o.Device.AllocPinned))
}

// takeBuffer gives a job a free buffer with room for its batch, once nothing uses its memory.
func (l *Loader) takeBuffer(w *pipeline.Worker, j *job) (err error) {
	if j.buffer, err = l.buffers.Take(w); err != nil {
		return err
	}
	b, need := j.buffer, j.layout.bytes()
	b.bytes.Store(max(b.bytes.Load(), need))
	grows := b.device.Buffer == nil || b.device.Len() < need
	if l.unified || grows {
		// An error is of a stream of the client, who sees it there.
		if _ = l.buffers.AwaitRelease(w, b); w.Context().Err() != nil {
			return context.Cause(w.Context())
		}
	}
	if grows {
		return b.grow(w.Context(), j)
	}
	return nil
}

// putPinned takes the pinned memory of a job back.
func (l *Loader) putPinned(j *job) {
	if j.pinned != nil {
		l.pinned.put(j.pinned)
		j.pinned = nil
	}
}

// noRoom explains an error by which there is no memory for a batch.
func noRoom(j *job, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("batch %d of %d rows of features (use fewer seeds, smaller fanouts or fewer buffers): %w",
		j.plan.Index, j.layout.inputs, err)
}

// grow makes room for a batch, and a quarter more, if there is, so that it is seldom called. Nothing uses the memory.
func (b *batchBuffer) grow(ctx context.Context, j *job) error {
	l, need := b.l, j.layout.bytes()
	if err := b.release(); err != nil {
		return err
	}
	more := gds.Room(need)
	switch limit := l.o.MaxBatchBytes; {
	case limit > 0 && l.unified && l.o.MostBuffers == l.o.Buffers:
		more = limit // see LoaderOptions
	case limit > 0:
		more = min(more, limit)
	}
	if l.roomBytes() < more {
		if err := l.buffers.EachFree(ctx, (*batchBuffer).release); err != nil {
			return err
		}
		room := l.roomBytes()
		if room < need {
			return fmt.Errorf("%w: batch %d needs %v, and %w %v: hold fewer batches, or use fewer seeds or smaller "+
				"fanouts",
				gds.ErrOutOfMemory, j.plan.Index, units.Bytes(need), ErrHeld, units.Bytes(max(room, 0)))
		}
		more = min(more, room)
	}
	err := b.device.Grow(need, more, l.o.Device.Alloc)
	l.batchBytes.Add(gds.Aligned(b.device.Size()))
	return noRoom(j, err)
}

// release frees the memory.
func (b *batchBuffer) release() error {
	b.l.batchBytes.Add(-gds.Aligned(b.device.Size()))
	return b.device.Free()
}
