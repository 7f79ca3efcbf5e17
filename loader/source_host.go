package loader

import (
	"context"
	"fmt"
	"sync"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// hostSource holds the matrices in pinned host memory. All threads gather a batch into pinned
// memory, which is copied to the device by one operation (preprop-gnn section 4.1). Long spans
// are not gathered but copied straight to the batch on the device (section 4.2). On a unified
// device, every batch is gathered into the batch buffer itself. The matrices are held once, by
// rank 0, for all ranks.
type hostSource struct {
	resident
	staging []*staging // unless the host can write to the device's memory
	free    chan *staging
	pool    *parallel.Pool // that gathers, while an epoch runs
}

// staging is pinned memory that a batch is gathered into. It belongs to the batch until release.
type staging struct {
	gds.Buffer
	copied gds.Event // to the device, or nil
}

// stagingCount is the number of stagings: one for each batch on the device, and one that is
// gathered meanwhile, so that the link is never idle. With a single buffer, nothing overlaps with
// computing, and one is enough.
func (l *Loader) stagingCount() int { return min(2*l.o.Buffers-1, l.o.Buffers+1) }

// stagingBytes is the size of one staging.
func (l *Loader) stagingBytes() int64 { return int64(l.o.BatchRows) * l.joinedBytes() }

func openHost(l *Loader) (source, error) {
	h := &hostSource{resident: resident{l: l}}
	if l.unified() {
		return h, nil
	}
	h.free = make(chan *staging, l.stagingCount())
	for range cap(h.free) {
		b, err := l.memory.pin(l.stagingBytes())
		if err != nil {
			return nil, fmt.Errorf("pinned memory to gather batches of %d rows in: %w", l.o.BatchRows, err)
		}
		h.staging = append(h.staging, &staging{Buffer: b})
	}
	h.reset()
	return h, nil
}

func (h *hostSource) reset() {
	if h.pool != nil {
		h.pool.Close()
		h.pool = nil
	}
	for len(h.free) > 0 {
		<-h.free
	}
	for _, s := range h.staging {
		s.copied = nil
		h.free <- s
	}
}

func (h *hostSource) fill(ctx context.Context) error {
	// After all ranks have pinned their staging, which is more important to lock.
	if err := h.allocate(h.l.memory.pin); err != nil {
		return err
	}
	for _, l := range h.l.ranks {
		l.source.(*hostSource).memory = h.memory
	}
	return h.resident.fill(ctx, []*resident{&h.resident})
}

// prefetch starts to gather the batch, into staging or, on a unified device, into the buffer.
// assemble waits for it.
func (h *hostSource) prefetch(ctx context.Context, j *job) error {
	switch {
	case j.numbers == nil || j.plan.Rows == 0:
		return nil
	case h.free == nil:
		j.gathering = h.gather(j.buffer.stored.Bytes(), j.numbers)
		return nil
	}
	select {
	case j.staging = <-h.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.staging.copied != nil {
		if err := j.staging.copied.Wait(ctx); err != nil {
			return err
		}
	}
	j.gathering = h.gather(j.staging.Bytes(), j.numbers)
	return nil
}

// release gives the staging of a batch back.
func (h *hostSource) release(j *job) {
	if j.staging != nil {
		h.free <- j.staging
	}
}

func (h *hostSource) assemble(_ context.Context, j *job, stream gds.Stream) error {
	f := j.buffer
	if j.gathering != nil {
		j.gathering.Wait()
	}
	if j.staging != nil {
		stream.Copy(f.raw, gds.NewTensor(j.staging.Buffer, f.raw.Rows, f.raw.Cols, f.raw.DType))
		j.staging.copied = stream.Record()
	}
	at := 0
	for _, s := range j.spans {
		stream.Copy(f.raw.Slice(at, at+s.Rows), h.rows().Slice(int(s.First), int(s.First)+s.Rows))
		at += s.Rows
	}
	f.convert(stream)
	return nil
}

// Bounds of what a thread gathers at a time, normally its share of a batch: less would cost more
// to hand out than to gather, more would leave other threads without work at the end.
const (
	minGatherBytes = 64 << 10
	maxGatherBytes = 1 << 20
)

// gather starts to copy the given rows to dst. Consecutive rows need no special case: the kernel
// prefetches the rows to come in any order.
func (h *hostSource) gather(dst []byte, rows []uint32) *sync.WaitGroup {
	if h.pool == nil {
		h.pool = parallel.NewPool(h.l.o.Threads)
	}
	size := h.l.joinedBytes()
	bytes := int64(len(rows)) * size
	h.l.assembled.Add(bytes)
	grain := min(max(bytes/int64(h.l.o.Threads), minGatherBytes), maxGatherBytes) / size
	return h.pool.For(int64(len(rows)), grain, func(lo, hi int64) {
		kernel.GatherRows(dst[lo*size:], int(size), h.memory.Bytes(), int(size), int(size), rows[lo:hi], bytes >= kernel.StreamBytes)
	})
}
