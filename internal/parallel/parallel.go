// Package parallel runs loops on several goroutines.
package parallel

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// For calls body on consecutive ranges [lo, hi) that cover [0, n), at most grain long, from up to threads goroutines
// (0: parallel.Threads). It returns when all calls have, with the first error; after an error or the end of ctx no
// further range is started. Ranges are the same for any number of threads.
func For(ctx context.Context, threads int, n, grain int64, body func(lo, hi int64) error) error {
	grain = max(min(grain, n), 1) // the sum below must not overflow
	ranges := (n + grain - 1) / grain
	if threads <= 0 {
		threads = Threads()
	}
	if int64(threads) > ranges {
		threads = int(ranges)
	}
	var next atomic.Int64
	work := func(ctx context.Context) error {
		for {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			i := next.Add(1) - 1
			if i >= ranges {
				return nil
			}
			if err := body(i*grain, min(n, (i+1)*grain)); err != nil {
				return err
			}
		}
	}
	if threads <= 1 {
		return work(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	for range threads {
		g.Go(func() error { return work(ctx) })
	}
	return g.Wait()
}
