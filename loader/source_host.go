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
		for m, matrix := range h.matrices {
			at := 0
			for _, s := range j.plan.Spans {
				first := s.First * h.l.rowBytes()
				stream.CopyIn(f.raw[m].Slice(at, at+s.Rows), matrix.Bytes()[first:first+int64(s.Rows)*h.l.rowBytes()])
				at += s.Rows
			}
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
		stream.CopyIn(f.allRaw, staging)
	}
	f.convert(stream)
	return nil
}

// gatherBytes is about what one thread gathers at a time.
const gatherBytes = 128 << 10

// gather copies the given rows of each matrix to dst, matrix after matrix.
func (h *hostSource) gather(ctx context.Context, dst []byte, rows []uint32) error {
	n, size := int64(len(rows)), h.l.rowBytes()
	grain := max(gatherBytes/size, 1)
	ranges := (n + grain - 1) / grain // of each matrix
	return parallel.For(ctx, h.l.o.Threads, ranges*int64(len(h.matrices)), 1, func(i, _ int64) error {
		m, lo := i/ranges, i%ranges*grain
		kernel.GatherRows(dst[(m*n+lo)*size:], int(size), h.matrices[m].Bytes(), int(size), int(size), rows[lo:min(lo+grain, n)])
		return nil
	})
}

// copySpans copies the spans of a batch, of each matrix, to dst.
func (h *hostSource) copySpans(ctx context.Context, dst []byte, b chunk.Batch) error {
	size, spans := h.l.rowBytes(), int64(len(b.Spans))
	starts := make([]int64, spans) // within the batch
	for i := range spans - 1 {
		starts[i+1] = starts[i] + int64(b.Spans[i].Rows)
	}
	return parallel.For(ctx, h.l.o.Threads, spans*int64(len(h.matrices)), 1, func(i, _ int64) error {
		m, s := i/spans, b.Spans[i%spans]
		from := h.matrices[m].Bytes()[s.First*size:][:int64(s.Rows)*size]
		copy(dst[(m*int64(b.Rows)+starts[i%spans])*size:], from)
		return nil
	})
}
