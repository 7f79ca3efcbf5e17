package loader

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// With Options.Sharded, k ranks hold the loader's rows in turn: row i is row i/k of rank i % k.
// Consecutive rows, as in evaluation, are thus spread evenly. A rank's share of a batch is mostly
// rows that it holds (chunk.Plan.Holder); the others, about sqrt((k-1)b/2π)/k of a batch of b
// rows, are copied from the devices that hold them. They are tens at most, so each is copied by
// itself.

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

// assembleShard gathers the local rows while remote rows are copied to pinned memory, and appends
// these. Only devices of other ranks take part, not their loaders, so no rank waits for another.
func (d *deviceSource) assembleShard(ctx context.Context, j *job, stream gds.Stream, local []chunk.Span, remote []int64) error {
	f, held := j.buffer, j.plan.Rows-len(remote)
	size := d.l.joinedBytes()
	pinned := f.remoteStaging()[int64(held)*size:]
	if d.peerStreams == nil {
		d.peerStreams = make([]gds.Stream, len(d.l.ranks))
	}
	for i, row := range remote {
		holder := int(row % d.l.holders)
		if d.peerStreams[holder] == nil {
			var err error
			if d.peerStreams[holder], err = d.l.ranks[holder].o.Device.NewStream(); err != nil {
				return err
			}
		}
		at := int(row / d.l.holders)
		d.peerStreams[holder].CopyOut(pinned[int64(i)*size:][:size], d.rank(holder).rows().Slice(at, at+1))
	}
	stream.Gather(f.raw.Slice(0, held), d.rows(), f.copyIndex(chunk.AppendRows(nil, local), stream))
	for holder, peer := range d.peerStreams {
		if peer == nil {
			continue
		}
		if err := peer.Synchronize(ctx); err != nil {
			return fmt.Errorf("rows of device %d: %w", holder, err)
		}
	}
	stream.CopyIn(f.raw.Slice(held, j.plan.Rows), pinned)
	f.convert(stream)
	return nil
}

// reset closes the streams of copies from other devices.
func (d *deviceSource) reset() {
	for _, peer := range d.peerStreams {
		if peer != nil {
			_ = peer.Close() // what failed has been told by assembleShard
		}
	}
	d.peerStreams = nil
}
