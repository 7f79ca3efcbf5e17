package sampling

import (
	"context"
	"iter"
	"math"
	"sync"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// cacheWindow is the batches of an epoch that Cache.Begin was last called for.
type cacheWindow struct {
	s     *Set
	epoch int
	end   int // the batch after the last

	mu     sync.Mutex
	loaded loader.Traffic // of rows that were brought into the cache, and not yet counted in a batch
}

func (c *cacheWindow) takeLoaded() loader.Traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.loaded
	c.loaded = loader.Traffic{}
	return t
}

// reach begins the next window when its first batch comes.
func (c *cacheWindow) reach(ctx context.Context, stream gds.Stream, batch int) error {
	if batch < c.end {
		return nil
	}
	return c.begin(ctx, stream, batch)
}

func (c *cacheWindow) begin(ctx context.Context, stream gds.Stream, batch int) error {
	l := c.s.l
	c.end = math.MaxInt
	// Evaluation between two epochs of training leaves the cache as it is.
	if l.o.Cache == nil || c.s.plan.Order == chunk.Sequential && l.began && !l.o.Cache.Traced() {
		return nil
	}
	l.began = true
	var failed error
	load, batches := l.o.Cache.Begin(c.epoch, c.s.trace(ctx, c.epoch, batch, &failed))
	if failed != nil {
		return failed
	}
	if batches < math.MaxInt-batch {
		c.end = batch + batches
	}
	c.mu.Lock()
	c.loaded.LoadedRows += int64(len(load.Nodes))
	c.loaded.AddBytes(l.placement(), int64(len(load.Nodes))*l.rowBytes())
	c.mu.Unlock()
	if l.rows == nil {
		return nil
	}
	err := l.rows.load(ctx, stream, load)
	if err != nil {
		l.o.Cache.Forget(load.Slots)
	}
	return err
}

// trace yields the inputs of the batches from first on, which it samples for that.
func (s *Set) trace(ctx context.Context, n, first int, failed *error) iter.Seq[[]uint32] {
	return func(yield func([]uint32) bool) {
		*failed = s.visit(ctx, s.l.o.Workers, s.l.o.Samples, n, first,
			func(b *MiniBatch) bool { return yield(b.Inputs) })
	}
}
