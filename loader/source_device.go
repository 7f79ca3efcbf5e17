package loader

import (
	"context"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

func init() { backends[Device] = openDevice }

// deviceSource holds the matrices in device memory. A batch is gathered by row numbers; long spans
// are copied, and a batch of a single span is a view, unless batches are Owned.
type deviceSource struct {
	*resident
	ranks []*resident // of all ranks: see assembleShard
}

func openDevice(ctx context.Context, ranks Ranks) error {
	all := make([]*resident, len(ranks))
	for rank, l := range ranks {
		d := &deviceSource{&resident{l: l}, all}
		l.source = source{joined: true, finish: d.finish, reads: d.reads}
		if err := d.allocate(l.memory.Alloc); err != nil {
			return err
		}
		all[rank] = d.resident
	}
	return all[0].fill(ctx, all)
}

func (d *deviceSource) finish(_ *pipeline.Worker, j *job, stream gds.Stream) error {
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
		stream.Gather(f.raw, d.rows(), d.l.copyIndex(f, numbers, stream))
		f.convert(stream)
	case len(spans) == 1 && f.stored == f.features && !d.l.o.Owned:
		d.l.setMatrices(&j.batch, rows(spans[0]))
	default:
		at := 0
		for _, s := range spans {
			f.storeRows(at, rows(s), stream)
			at += s.Rows
		}
	}
	return nil
}
