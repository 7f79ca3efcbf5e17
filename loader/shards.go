package loader

import (
	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

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
