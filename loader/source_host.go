package loader

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// hostSource has the matrices in pinned host memory. A batch is gathered into
// pinned memory by all threads and copied to the device as one piece
// (preprop-gnn section 4.1); long spans are copied from where they are, and
// assembled on the device (section 4.2). If the device's memory is the host's, any
// batch is gathered into it. Several ranks share the matrices of the first, pinned once
// for all of their devices.
type hostSource struct {
	resident
	staging []*staging // unless the host can write to the device's memory
	free    chan *staging
}

// staging is pinned memory that a batch is gathered into. It belongs to the batch until
// the loop is done with that.
type staging struct {
	gds.Buffer
	copied gds.Event // to the device, or nil
}

// stagings is how many there are: for the batches on the device, and for one more, which
// is gathered while these are copied and computed on: else the link would be idle
// meanwhile. With one buffer nothing is to be done beside computing.
func (l *Loader) stagings() int { return min(2*l.o.Buffers-1, l.o.Buffers+1) }

// stagingBytes is the size of one.
func (l *Loader) stagingBytes() int64 { return int64(l.o.BatchRows) * l.joinedBytes() }

func openHost(l *Loader) (source, error) {
	h := &hostSource{resident: resident{l: l}}
	if l.unified() {
		return h, nil
	}
	h.free = make(chan *staging, l.stagings())
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
	for len(h.free) > 0 {
		<-h.free
	}
	for _, s := range h.staging {
		s.copied = nil
		h.free <- s
	}
}

func (h *hostSource) fill(ctx context.Context) error {
	// Not before all ranks have pinned what they gather batches into.
	if err := h.allocate(h.l.memory.pin); err != nil {
		return err
	}
	for _, l := range h.l.ranks {
		l.source.(*hostSource).memory = h.memory
	}
	return h.resident.fill(ctx, []*resident{&h.resident})
}

// prefetch waits for staging, where a batch needs it.
func (h *hostSource) prefetch(ctx context.Context, j *job) error {
	if h.free == nil || j.numbers == nil || j.plan.Rows == 0 {
		return nil
	}
	select {
	case j.staging = <-h.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.staging.copied == nil {
		return nil
	}
	return j.staging.copied.Wait(ctx)
}

func (h *hostSource) fetch(ctx context.Context, j *job) error {
	if j.staging == nil {
		return nil
	}
	return h.gather(ctx, j.staging.Bytes(), j.numbers)
}

// release gives the staging of a batch back.
func (h *hostSource) release(j *job) {
	if j.staging != nil {
		h.free <- j.staging
	}
}

func (h *hostSource) assemble(ctx context.Context, j *job, stream gds.Stream) error {
	f := j.frame
	switch {
	case j.staging != nil:
		stream.CopyIn(f.raw, j.staging.Bytes()[:int64(j.plan.Rows)*h.l.joinedBytes()])
		j.staging.copied = stream.Record()
	case j.numbers == nil:
		at := 0
		for _, s := range j.spans {
			stream.CopyIn(f.raw.Slice(at, at+s.Rows), h.stored(s))
			at += s.Rows
		}
	default:
		if err := h.gather(ctx, f.stored.Bytes(), j.numbers); err != nil {
			return err
		}
	}
	f.convert(stream)
	return nil
}

// stored is the memory of a span.
func (h *hostSource) stored(s chunk.Span) []byte {
	size := h.l.joinedBytes()
	return h.memory.Bytes()[s.First*size:][:int64(s.Rows)*size]
}

// A thread gathers about so many bytes at a time: its share of a batch, but neither so
// few that handing them out takes longer, nor so many that one thread is left alone.
const (
	fewestGathered = 64 << 10
	mostGathered   = 1 << 20
)

// gather copies the given rows to dst. Rows that follow one another are no special
// case: the memory has always some on their way.
func (h *hostSource) gather(ctx context.Context, dst []byte, rows []uint32) error {
	size := h.l.joinedBytes()
	bytes := int64(len(rows)) * size
	h.l.assembled.Add(bytes)
	grain := min(max(bytes/int64(h.l.o.Threads), fewestGathered), mostGathered) / size
	return parallel.For(ctx, h.l.o.Threads, int64(len(rows)), grain, func(lo, hi int64) error {
		kernel.GatherRows(dst[lo*size:], int(size), h.memory.Bytes(), int(size), int(size), rows[lo:hi], bytes >= kernel.StreamBytes)
		return nil
	})
}
