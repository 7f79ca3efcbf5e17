package loader

import (
	"context"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// hostSource has the matrices in pinned host memory. A batch is gathered into
// pinned memory by all threads and copied to the device as one piece
// (preprop-gnn section 4.1); long spans are copied from where they are, and
// assembled on the device (section 4.2). If the device's memory is the host's, the
// batch is gathered into it.
type hostSource struct{ resident }

func openHost(ctx context.Context, l *Loader) (source, error) {
	r, err := load(ctx, l, false)
	return &hostSource{r}, err
}

func (h *hostSource) assemble(ctx context.Context, j *job, stream gds.Stream) error {
	f, unified := j.frame, h.l.unified()
	bySpan := h.l.bySpan(j)
	switch {
	case unified && bySpan && !h.l.o.BySpan:
		if err := h.copySpans(ctx, f.stored.Bytes(), j.plan); err != nil {
			return err
		}
	case bySpan:
		at := 0
		for _, s := range j.plan.Spans {
			stream.CopyIn(f.raw.Slice(at, at+s.Rows), h.stored(s))
			at += s.Rows
		}
	case unified:
		if err := h.gather(ctx, f.stored.Bytes(), f.index(j.plan.Spans)); err != nil {
			return err
		}
	default:
		staging := f.staging()
		if err := h.gather(ctx, staging, f.index(j.plan.Spans)); err != nil {
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

// gatherBytes and copyBytes are about what one thread gathers, and copies, at a
// time.
const (
	gatherBytes = 256 << 10
	copyBytes   = 4 << 20
)

// gather copies the given rows to dst.
func (h *hostSource) gather(ctx context.Context, dst []byte, rows []uint32) error {
	size := h.l.joinedBytes()
	return parallel.For(ctx, h.l.o.Threads, int64(len(rows)), max(gatherBytes/size, 1), func(lo, hi int64) error {
		h.l.assembled.Add((hi - lo) * size)
		kernel.GatherRows(dst[lo*size:], int(size), h.memory.Bytes(), int(size), int(size), rows[lo:hi])
		return nil
	})
}

// copySpans copies the rows of a batch to dst.
func (h *hostSource) copySpans(ctx context.Context, dst []byte, b chunk.Batch) error {
	size, starts := h.l.joinedBytes(), make([]int64, len(b.Spans)) // within the batch
	for i := range len(b.Spans) - 1 {
		starts[i+1] = starts[i] + int64(b.Spans[i].Rows)
	}
	return parallel.For(ctx, h.l.o.Threads, int64(b.Rows), max(copyBytes/size, 1), func(lo, hi int64) error {
		h.l.assembled.Add((hi - lo) * size)
		i, found := slices.BinarySearch(starts, lo)
		if !found {
			i--
		}
		for ; lo < hi; i++ {
			s := b.Spans[i]
			from := chunk.Span{First: s.First + lo - starts[i], Rows: int(min(hi, starts[i]+int64(s.Rows)) - lo)}
			copy(dst[lo*size:], h.stored(from))
			lo += int64(from.Rows)
		}
		return nil
	})
}
