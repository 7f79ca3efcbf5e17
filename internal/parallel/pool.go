package parallel

import (
	"runtime"
	"sync"
)

// Pool is a fixed number of goroutines that run loops in the order in which they are given. A loop
// starts while the last ranges of the one before still run, so no goroutine sleeps between loops.
type Pool struct {
	ranges  chan func()
	running sync.WaitGroup
}

// NewPool starts the goroutines of a pool; Close ends them.
func NewPool(threads int) *Pool {
	threads = max(threads, 1)
	c := &Pool{ranges: make(chan func(), 8*threads)}
	for range threads {
		c.running.Go(func() {
			for run := range c.ranges {
				run()
				runtime.Gosched() // what waits for a processor may be what a device waits for
			}
		})
	}
	return c
}

// For starts a loop that calls body on consecutive ranges [lo, hi) that cover [0, n), at most grain
// long each. It does not wait for the calls: the WaitGroup does.
func (c *Pool) For(n, grain int64, body func(lo, hi int64)) *sync.WaitGroup {
	done := new(sync.WaitGroup)
	grain = max(min(grain, n), 1) // the sum below must not overflow
	for lo := int64(0); lo < n; lo += grain {
		hi := min(n, lo+grain)
		done.Add(1)
		c.ranges <- func() {
			defer done.Done()
			body(lo, hi)
		}
	}
	return done
}

// Close waits for all loops and ends the goroutines.
func (c *Pool) Close() {
	close(c.ranges)
	c.running.Wait()
}
