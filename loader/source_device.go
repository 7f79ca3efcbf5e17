package loader

import (
	"context"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// deviceSource holds the matrices in device memory. A batch is gathered by row numbers; long spans
// are copied, and a batch of a single span is a view.
type deviceSource struct{ resident }

func openDevice(l *Loader) (source, error) {
	d := &deviceSource{resident: resident{l: l}}
	return d, d.allocate(l.memory.alloc)
}

func (d *deviceSource) fill(ctx context.Context) error {
	all := make([]*resident, len(d.l.ranks))
	for rank := range all {
		all[rank] = &d.rank(rank).resident
	}
	return d.resident.fill(ctx, all)
}

// rank returns the source of a rank.
func (d *deviceSource) rank(rank int) *deviceSource { return d.l.ranks[rank].source.(*deviceSource) }

func (d *deviceSource) assemble(_ context.Context, j *job, stream gds.Stream) error {
	f, numbers, spans := j.buffer, j.numbers, j.spans
	if d.l.o.Sharded {
		local, remote := d.splitShare(spans, j.plan.Rows-j.plan.Remote)
		if len(remote) > 0 {
			d.assembleShard(j, stream, local, remote)
			return nil
		}
		if spans = local; j.plan.Rows < longSpan*len(local) {
			numbers = chunk.AppendRows(nil, local)
		}
	}
	rows := func(s chunk.Span) gds.Tensor { return d.rows().Slice(int(s.First), int(s.First)+s.Rows) }
	switch {
	case numbers != nil:
		stream.Gather(f.raw, d.rows(), f.copyIndex(numbers, stream))
		f.convert(stream)
	case len(spans) == 1 && f.stored == f.features:
		f.setMatrices(d.l, rows(spans[0]))
	default:
		at := 0
		for _, s := range spans {
			f.storeRows(at, rows(s), stream)
			at += s.Rows
		}
	}
	return nil
}
