package loader

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// Sharded, ranks hold the loader's rows in turn: row i is row i/k of rank i mod k, so
// that rows that follow one another, as in evaluation, are held by all alike. Each rank
// is given what it holds of a batch, as far as that goes (chunk.Plan.Holder), and the
// rest comes from the devices that hold it: about sqrt((k-1)b/2π)/k of b rows, tens at
// most, so that each may be a copy of its own.

// holder is the rank that holds a row of the set.
func (s *Set) holder(row int64) int {
	if s.list != nil {
		row = int64(s.list[row])
	} else {
		row += s.at
	}
	return int(row % s.l.parts)
}

// divide finds the first rows of a share, so many of which are held, in this rank's
// memory, and lists the others, which are not.
func (d *deviceSource) divide(share []chunk.Span, held int) (near []chunk.Span, far []int64) {
	for _, s := range share {
		for row := s.First; row < s.First+int64(s.Rows); row++ {
			if held == 0 {
				far = append(far, row)
				continue
			}
			held--
			near = chunk.AppendSpan(near, chunk.Span{First: row / d.l.parts, Rows: 1})
		}
	}
	return near, far
}

// assembleShard gathers the rows near by, while those of other ranks are copied to
// pinned memory, and puts these behind them. Their loaders have no part in it, so that
// no rank ever waits for another's.
func (d *deviceSource) assembleShard(ctx context.Context, j *job, stream gds.Stream, near []chunk.Span, far []int64) error {
	f, held := j.frame, j.plan.Rows-len(far)
	size := d.l.joinedBytes()
	pinned := f.staging()[int64(held)*size:]
	if d.peers == nil {
		d.peers = make([]gds.Stream, len(d.l.ranks))
	}
	for i, row := range far {
		holder := int(row % d.l.parts)
		if d.peers[holder] == nil {
			var err error
			if d.peers[holder], err = d.l.ranks[holder].o.Device.NewStream(); err != nil {
				return err
			}
		}
		at := int(row / d.l.parts)
		d.peers[holder].CopyOut(pinned[int64(i)*size:][:size], d.rank(holder).rows().Slice(at, at+1))
	}
	stream.Gather(f.raw.Slice(0, held), d.rows(), f.copyIndex(chunk.AppendRows(nil, near), stream))
	for holder, peer := range d.peers {
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

// reset ends what is on its way from other devices.
func (d *deviceSource) reset() {
	for _, peer := range d.peers {
		if peer != nil {
			_ = peer.Close() // what failed has been told by assembleShard
		}
	}
	d.peers = nil
}
