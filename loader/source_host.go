package loader

import (
	"context"
	"fmt"
	"sync"

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
	crew    *parallel.Crew // that gathers, while an epoch runs
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
	if h.crew != nil {
		h.crew.Close()
		h.crew = nil
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
	// Not before all ranks have pinned what they gather batches into.
	if err := h.allocate(h.l.memory.pin); err != nil {
		return err
	}
	for _, l := range h.l.ranks {
		l.source.(*hostSource).memory = h.memory
	}
	return h.resident.fill(ctx, []*resident{&h.resident})
}

// prefetch begins to gather the batch, into staging or, if the host can write to that,
// the frame. assemble waits for it.
func (h *hostSource) prefetch(ctx context.Context, j *job) error {
	switch {
	case j.numbers == nil || j.plan.Rows == 0:
		return nil
	case h.free == nil:
		j.gathered = h.gather(j.frame.stored.Bytes(), j.numbers)
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
	j.gathered = h.gather(j.staging.Bytes(), j.numbers)
	return nil
}

// release gives the staging of a batch back.
func (h *hostSource) release(j *job) {
	if j.staging != nil {
		h.free <- j.staging
	}
}

func (h *hostSource) assemble(_ context.Context, j *job, stream gds.Stream) error {
	f := j.frame
	if j.gathered != nil {
		j.gathered.Wait()
	}
	if j.staging != nil {
		stream.CopyIn(f.raw, j.staging.Bytes()[:int64(j.plan.Rows)*h.l.joinedBytes()])
		j.staging.copied = stream.Record()
	}
	at := 0
	for _, s := range j.spans {
		stream.CopyIn(f.raw.Slice(at, at+s.Rows), h.stored(s))
		at += s.Rows
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

// gather begins to copy the given rows to dst. Rows that follow one another are no
// special case: the memory has always some on their way.
func (h *hostSource) gather(dst []byte, rows []uint32) *sync.WaitGroup {
	if h.crew == nil {
		h.crew = parallel.NewCrew(h.l.o.Threads)
	}
	size := h.l.joinedBytes()
	bytes := int64(len(rows)) * size
	h.l.assembled.Add(bytes)
	grain := min(max(bytes/int64(h.l.o.Threads), fewestGathered), mostGathered) / size
	return h.crew.For(int64(len(rows)), grain, func(lo, hi int64) {
		kernel.GatherRows(dst[lo*size:], int(size), h.memory.Bytes(), int(size), int(size), rows[lo:hi], bytes >= kernel.StreamBytes)
	})
}
