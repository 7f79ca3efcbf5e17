package parallel

import (
	"runtime"
	"sync"
)

// Crew is goroutines that run loops, one after another as they were given. The next
// one is begun while the last parts of the one before are still at work, so that none
// of the goroutines has to wait, and to be woken, between them.
type Crew struct {
	ranges  chan func()
	running sync.WaitGroup
}

// NewCrew starts so many goroutines, which Close ends.
func NewCrew(threads int) *Crew {
	threads = max(threads, 1)
	c := &Crew{ranges: make(chan func(), 8*threads)}
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

// For has body called on consecutive ranges [lo, hi) that cover [0, n), at most grain
// long. It returns before they are done, with what to wait for.
func (c *Crew) For(n, grain int64, body func(lo, hi int64)) *sync.WaitGroup {
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

// Close returns when all loops have ended.
func (c *Crew) Close() {
	close(c.ranges)
	c.running.Wait()
}
