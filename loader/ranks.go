package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Ranks are the loaders of devices that share each batch: rank r, on device r, brings the share of a plan with Rank r
// and World len(ranks). In host memory there is one copy of the matrices for all ranks; each device has a copy or, if
// Sharded, a part. Ranks may be used concurrently, and are closed together.
type Ranks []*Loader

// OpenRanks opens a loader on each device. Options.Device is not used; BatchRows and Threads are
// for all ranks together.
func OpenRanks(ctx context.Context, o Options, devices []gds.Device) (Ranks, error) {
	world := len(devices)
	if world == 0 || o.BatchRows < 1 || o.Threads < 0 {
		return nil, fmt.Errorf("loader: %d devices, batches of %d rows, %d threads (want 1, 1 and 0, or more)", world,
			o.BatchRows, o.Threads)
	}
	o.BatchRows = (o.BatchRows-1)/world + 1
	if o.Threads == 0 {
		o.Threads = parallel.Threads()
	}
	o.Threads = max(1, o.Threads/world)
	o.Sharded = o.Sharded && world > 1
	ranks := make(Ranks, world)
	for rank, device := range devices {
		o.Device = device
		l, err := open(ctx, o, ranks, rank)
		if err != nil {
			return nil, errors.Join(err, ranks[:rank].Close())
		}
		ranks[rank] = l
	}
	err := backends[o.Placement](ctx, ranks)
	if err == nil && o.BySpan && ranks[0].source.wholeChunks {
		err = fmt.Errorf("loader: from %s chunks are read, not rows one by one", o.Placement)
	}
	if err != nil {
		return nil, errors.Join(err, ranks.Close())
	}
	return ranks, nil
}

// Sets makes the set of each rank: see Loader.Set. It sets the plan's Rank and World.
func (r Ranks) Sets(rows Rows, plan chunk.Plan) ([]*Set, error) {
	sets := make([]*Set, len(r))
	plan.World = len(r)
	for rank, l := range r {
		plan.Rank = rank
		var err error
		if sets[rank], err = l.Set(rows, plan); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

// Close waits for the work on the last batches, and releases buffers and files of all loaders. While one of them runs
// an epoch, or batches are held, it returns ErrInUse and closes none: ranks read from one another.
func (r Ranks) Close() error {
	var cancel []func()
	for _, l := range r {
		c, err := l.buffers.BeginClose()
		if err != nil {
			for _, c := range cancel {
				c()
			}
			return err
		}
		cancel = append(cancel, c)
	}
	var errs []error
	for _, l := range slices.Backward(r) { // the first has what the others use
		errs = append(errs, l.release())
	}
	return errors.Join(errs...)
}
