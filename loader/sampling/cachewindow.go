package sampling

import (
	"context"
	"iter"
	"math"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/loader"
)

// beginWindow begins the cache for the batches of the epoch from one on: until x.windowEnd. It returns what it has
// brought into the cache.
func (x *run) beginWindow(ctx context.Context, batch int) (loaded loader.Traffic, err error) {
	l := x.s.l
	x.windowEnd = math.MaxInt
	// Evaluation between two epochs of training leaves the cache as it is.
	if l.o.Cache == nil || x.s.plan.Order == chunk.Sequential && l.began && !l.o.Cache.Traced() {
		return loaded, nil
	}
	l.began = true
	load, batches := l.o.Cache.Begin(x.n, x.s.trace(ctx, x.n, batch, &err))
	if err != nil {
		return loaded, err
	}
	if batches < math.MaxInt-batch {
		x.windowEnd = batch + batches
	}
	loaded.LoadedRows = int64(len(load.Nodes))
	loaded.AddBytes(l.placement(), loaded.LoadedRows*l.rowBytes())
	if l.rows != nil {
		if err = l.rows.load(ctx, x.stream, load); err != nil {
			l.o.Cache.Forget(load.Slots)
		}
	}
	return loaded, err
}

// trace yields the inputs of the batches from first on, which it samples for that.
func (s *Set) trace(ctx context.Context, n, first int, failed *error) iter.Seq[[]uint32] {
	return func(yield func([]uint32) bool) {
		*failed = s.visit(ctx, s.l.o.Workers, s.l.o.Samples, n, first,
			func(b *MiniBatch) bool { return yield(b.Inputs) })
	}
}
