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
		all[rank] = d.resident
	}
	return loadResidents(ctx, all, (*gds.Memory).Alloc)
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

// With Options.Sharded, k ranks hold the loader's rows in turn: row i is row i/k of rank i % k. Consecutive rows, as in
// evaluation, are thus spread evenly. A rank's share of a batch is mostly rows that it holds (chunk.Plan.Holder); the
// others, about sqrt((k-1)b/2π)/k of a batch of b rows, are copied from the devices that hold them. They are tens at
// most, so each is copied by itself.

// holder is the rank that holds a row of the set.
func (s *Set) holder(row int64) int {
	if s.list != nil {
		row = int64(s.list[row])
	} else {
		row += s.firstRow
	}
	return int(row % s.l.holders)
}

// splitShare splits a share. Its first held rows are in the memory of this rank, local says where; the
// others are remote.
func (d *deviceSource) splitShare(share []chunk.Span, held int) (local []chunk.Span, remote []int64) {
	for _, s := range share {
		for row := s.First; row < s.First+int64(s.Rows); row++ {
			if held == 0 {
				remote = append(remote, row)
				continue
			}
			held--
			local = chunk.AppendSpan(local, chunk.Span{First: row / d.l.holders, Rows: 1})
		}
	}
	return local, remote
}

// assembleShard gathers the local rows, and copies the remote ones from the memory of other
// devices. Other ranks take part with their memory alone, so no rank waits for another.
func (d *deviceSource) assembleShard(j *job, stream gds.Stream, local []chunk.Span, remote []int64) {
	f, held := j.buffer, j.plan.Rows-len(remote)
	stream.Gather(f.raw.Slice(0, held), d.rows(), d.l.copyIndex(f, chunk.AppendRows(nil, local), stream))
	for i, row := range remote {
		at := int(row / d.l.holders)
		stream.Copy(f.raw.Slice(held+i, held+i+1), d.ranks[row%d.l.holders].rows().Slice(at, at+1))
	}
	f.convert(stream)
}
