package loader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// Ranks are the loaders of devices that share each batch: rank r, on device r, brings
// what plans with Rank r and World len(ranks) give it. In host memory there is one copy
// of the matrices for all; device memory has a copy on each device, or, Sharded, a part.
// They are used beside one another, and closed together.
type Ranks []*Loader

// OpenRanks opens a loader on each device. Of the options, Device is left out; BatchRows
// and Threads are those of all ranks together.
func OpenRanks(ctx context.Context, o Options, devices []gds.Device) (Ranks, error) {
	world := len(devices)
	if world == 0 || o.BatchRows < 1 || o.Threads < 0 {
		return nil, fmt.Errorf("loader: %d devices, batches of %d rows, %d threads (want 1, 1 and 0, or more)", world, o.BatchRows, o.Threads)
	}
	o.BatchRows = (o.BatchRows-1)/world + 1
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
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
	if err := ranks[0].source.fill(ctx); err != nil {
		return nil, errors.Join(err, ranks.Close())
	}
	return ranks, nil
}

// Sets are the ranks' shares of some rows: see Loader.Set. The plan's Rank and World are
// filled in.
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

// Close closes the loaders, of which none may be in an epoch.
func (r Ranks) Close() error {
	var errs []error
	for _, l := range slices.Backward(r) { // the first has what the others use
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
