package loader

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
)

// deviceSource has the matrices in device memory. A batch is gathered by row
// number; long spans are copied, and a batch that is one span is a view.
type deviceSource struct{ resident }

func openDevice(ctx context.Context, l *Loader) (source, error) {
	r, err := load(ctx, l, true)
	return &deviceSource{r}, err
}

// matrix is matrix m, all rows of the loader.
func (d *deviceSource) matrix(m int) gds.Tensor {
	return gds.NewTensor(d.matrices[m], int(d.l.rows), d.l.layout.Features, d.l.layout.DType)
}

func (d *deviceSource) assemble(_ context.Context, j *job, stream gds.Stream) error {
	f, spans := j.frame, j.plan.Spans
	switch {
	case len(spans) == 1 && f.stored == f.features:
		for m := range d.matrices {
			first := int(spans[0].First)
			f.batch.X[m] = d.matrix(m).Slice(first, first+j.plan.Rows)
		}
	case d.l.bySpan(j):
		for m := range d.matrices {
			at := 0
			for _, s := range spans {
				f.put(m, at, d.matrix(m).Slice(int(s.First), int(s.First)+s.Rows), stream)
				at += s.Rows
			}
		}
	default:
		index := f.copyIndex(spans, stream)
		for m := range d.matrices {
			stream.Gather(f.raw[m], d.matrix(m), index)
		}
		f.convert(stream)
	}
	return nil
}
