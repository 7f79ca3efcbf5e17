package loader

import (
	"context"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// deviceSource has the matrices in device memory. A batch is gathered by row
// number; long spans are copied, and a batch that is one span is a view.
type deviceSource struct{ resident }

func openDevice(ctx context.Context, l *Loader) (source, error) {
	r, err := load(ctx, l, true)
	return &deviceSource{r}, err
}

func (d *deviceSource) assemble(_ context.Context, j *job, stream gds.Stream) error {
	f, spans := j.frame, j.plan.Spans
	rows := func(s chunk.Span) gds.Tensor { return d.rows().Slice(int(s.First), int(s.First)+s.Rows) }
	switch {
	case len(spans) == 1 && f.stored == f.features:
		f.show(d.l, rows(spans[0]))
	case d.l.bySpan(j):
		at := 0
		for _, s := range spans {
			f.put(at, rows(s), stream)
			at += s.Rows
		}
	default:
		stream.Gather(f.raw, d.rows(), f.copyIndex(spans, stream))
		f.convert(stream)
	}
	return nil
}
