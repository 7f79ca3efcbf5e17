package loader

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
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
	f := j.frame
	switch {
	case h.l.unified() && !h.l.o.BySpan:
		if err := h.gather(ctx, f.stored.Bytes(), f.index(j.plan.Spans)); err != nil {
			return err
		}
	case h.l.bySpan(j):
		for m, matrix := range h.matrices {
			at := 0
			for _, s := range j.plan.Spans {
				first := s.First * h.l.rowBytes()
				stream.CopyIn(f.raw[m].Slice(at, at+s.Rows), matrix.Bytes()[first:first+int64(s.Rows)*h.l.rowBytes()])
				at += s.Rows
			}
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
	matrices := make([][]byte, len(h.matrices))
	for m, buffer := range h.matrices {
		matrices[m] = buffer.Bytes()
	}
	return parallel.For(ctx, h.l.o.Threads, n*int64(len(matrices)), gatherBytes/size, func(lo, hi int64) error {
		for lo < hi {
			src, i := matrices[lo/n], lo%n
			// Rows that follow one another in both are copied as one.
			run := int64(1)
			for lo+run < hi && i+run < n && rows[i+run] == rows[i]+uint32(run) {
				run++
			}
			from := int64(rows[i]) * size
			copy(dst[lo*size:(lo+run)*size], src[from:from+run*size])
			lo += run
		}
		return nil
	})
}
