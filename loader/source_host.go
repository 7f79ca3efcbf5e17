package loader

import (
	"context"
	"fmt"
	"sync"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/gather"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

func init() { backends[Host] = openHost }

// hostSource holds the matrices in pinned host memory. All threads gather a batch into pinned
// memory, which is copied to the device by one operation (preprop-gnn section 4.1). Long spans
// are not gathered but copied straight to the batch on the device (section 4.2). On a unified
// device, every batch is gathered into the batch buffer itself, and with Options.Mapped the device
// gathers it from pinned memory by itself. The matrices are held once, by rank 0, for all ranks.
type hostSource struct {
	l       *Loader
	input   *resident  // of all ranks
	staging []*staging // unless the host can write to the device's memory
	free    chan *staging
	pool    *gather.Pool // while an epoch runs
}

// staging is pinned memory that a batch is gathered into. It belongs to the batch until that is released.
type staging struct {
	gds.Buffer
	gathered *sync.WaitGroup
	copied   gds.Event // to the device, or nil
	giveBack func()
}

// stagingCount is the number of stagings: one for each batch on the device, and one that is gathered meanwhile, so that
// the link is never idle. With a single buffer, nothing overlaps with computing, and one is enough.
func (l *Loader) stagingCount() int { return min(2*l.o.Buffers-1, l.o.Buffers+1) }

// stagingBytes is the size of one staging.
func (l *Loader) stagingBytes() int64 { return int64(l.o.BatchRows) * l.joinedBytes() }

func openHost(ctx context.Context, ranks Ranks) error {
	input := &resident{l: ranks[0]}
	for _, l := range ranks {
		h := &hostSource{l: l, input: input}
		l.source = source{joined: true, byNumber: l.unified(), begin: h.begin, finish: h.finish, reset: h.reset}
		switch {
		case l.o.Mapped:
			l.source.begin = nil
		case !l.unified():
			h.pinStaging()
		}
		if l.memory.Err != nil {
			return l.memory.Err
		}
	}
	// After the staging of all ranks, which is more important to lock.
	ranks[0].source.reads = input.reads
	return loadResidents(ctx, []*resident{input}, (*gds.Memory).Pin)
}

func (h *hostSource) pinStaging() {
	h.free = make(chan *staging, h.l.stagingCount())
	what := fmt.Sprintf("batches of %d rows that are gathered", h.l.o.BatchRows)
	for range cap(h.free) {
		s := &staging{Buffer: h.l.memory.Pin(what, h.l.stagingBytes())}
		s.giveBack = func() { h.free <- s }
		h.staging = append(h.staging, s)
	}
	h.reset()
}

func (h *hostSource) reset() {
	if h.pool != nil {
		h.pool.Close()
		h.pool = nil
	}
	refill(h.free, h.staging, func(s *staging) { s.copied = nil })
}

// begin starts to gather the batch, into staging or, on a unified device, into the buffer.
func (h *hostSource) begin(w *pipeline.Worker, j *job) error {
	if j.numbers == nil {
		return nil
	}
	if h.l.unified() {
		if err := h.l.takeBuffer(w, j); err != nil {
			return err
		}
		if err := h.l.buffers.AwaitRelease(w, j.buffer); err != nil {
			return err
		}
		j.state = h.gather(j.buffer.stored.Bytes(), j.numbers)
		return nil
	}
	s, err := pipeline.Take(w, h.free)
	if err != nil {
		return err
	}
	if s.copied != nil {
		if err := w.Wait(s.copied); err != nil {
			return err
		}
	}
	s.gathered = h.gather(s.Bytes(), j.numbers)
	j.state, j.released = s, s.giveBack
	return nil
}

func (h *hostSource) finish(_ *pipeline.Worker, j *job, stream gds.Stream) error {
	f := j.buffer
	switch state := j.state.(type) {
	case *sync.WaitGroup:
		state.Wait()
	case *staging:
		state.gathered.Wait()
		stream.Copy(f.raw, gds.NewTensor(state.Buffer, f.raw.Rows, f.raw.Cols, f.raw.DType))
		state.copied = stream.Record()
	}
	if h.l.o.Mapped && j.numbers != nil {
		stream.Gather(f.raw, h.input.rows(), h.l.copyIndex(f, j.numbers, stream))
	}
	at := 0
	for _, s := range j.spans {
		stream.Copy(f.raw.Slice(at, at+s.Rows), h.input.rows().Slice(int(s.First), int(s.First)+s.Rows))
		at += s.Rows
	}
	f.convert(stream)
	return nil
}

// gather starts to copy the given rows to dst.
func (h *hostSource) gather(dst []byte, rows []uint32) *sync.WaitGroup {
	if h.pool == nil {
		h.pool = gather.NewPool(h.l.o.Threads)
	}
	h.l.assembled.Add(int64(len(rows)) * h.l.joinedBytes())
	return h.pool.Start(dst, h.input.memory.Bytes(), int(h.l.joinedBytes()), rows)
}
