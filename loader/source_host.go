package loader

import (
	"context"

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
type hostSource struct{ resident }

func openHost(l *Loader) (source, error) {
	return &hostSource{resident{l: l}}, nil
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

func (h *hostSource) assemble(ctx context.Context, j *job, stream gds.Stream) error {
	f := j.frame
	switch {
	case j.numbers == nil:
		at := 0
		for _, s := range j.spans {
			stream.CopyIn(f.raw.Slice(at, at+s.Rows), h.stored(s))
			at += s.Rows
		}
	case h.l.unified():
		if err := h.gather(ctx, f.stored.Bytes(), j.numbers); err != nil {
			return err
		}
	default:
		staging := f.staging()
		if err := h.gather(ctx, staging, j.numbers); err != nil {
			return err
		}
		stream.CopyIn(f.raw, staging)
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
