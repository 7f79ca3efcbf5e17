// Package parallel runs loops on several goroutines.
package parallel

import (
	"context"
	"runtime"
	"sync"
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

// Ordered calls fill for 0 to n-1 from up to threads goroutines, and emit with what fill returned, one after another
// in order, as soon as it is there. buffer makes what fill works with; it belongs to one call of fill and the emit
// that follows, and there are at most threads+1. It returns when all calls have, with the first error in order, or
// the cause why ctx has ended.
func Ordered[B, T any](ctx context.Context, threads int, n int64, buffer func() B, fill func(k int64, b B) (T, error),
	emit func(T) error) error {
	threads = int(max(1, min(int64(threads), n)))
	buffers := make([]B, threads+1)
	for i := range buffers {
		buffers[i] = buffer()
	}
	return OrderedIn(ctx, threads, n, buffers, fill, emit)
}

// OrderedIn is Ordered with at least one buffer of the caller's.
func OrderedIn[B, T any](ctx context.Context, threads int, n int64, buffers []B, fill func(k int64, b B) (T, error),
	emit func(T) error) error {
	type filled struct {
		buffer B
		value  T
		err    error
	}
	free := make(chan B, len(buffers))
	for _, b := range buffers {
		free <- b
	}
	g, inner := errgroup.WithContext(ctx)
	queue := make(chan chan filled, cap(free))
	running := make(chan struct{}, threads)
	g.Go(func() error {
		defer close(queue)
		for k := range n {
			select {
			case <-inner.Done():
				return context.Cause(inner)
			case running <- struct{}{}:
			}
			select {
			case <-inner.Done():
				return context.Cause(inner)
			case b := <-free:
				place := make(chan filled, 1)
				queue <- place
				g.Go(func() error {
					value, err := fill(k, b)
					<-running
					place <- filled{b, value, err}
					return nil
				})
			}
		}
		return nil
	})
	g.Go(func() error {
		for place := range queue {
			f := <-place
			if f.err == nil {
				f.err = context.Cause(inner)
			}
			if f.err == nil {
				f.err = emit(f.value)
			}
			if f.err != nil {
				return f.err
			}
			free <- f.buffer
		}
		return nil
	})
	return g.Wait()
}

// spare is how many goroutines may run in addition to the computing ones (see Beside).
const spare = 2

var processors struct {
	sync.Mutex
	computing int // 0: as many as the runtime allows
	beside    int // calls of Beside that have not ended
}

// Threads is how many goroutines that compute are worth running at a time: as SetThreads says or, before, the
// processors that the affinity mask allows, or the cgroup's CPU quota if that is less.
func Threads() int {
	processors.Lock()
	defer processors.Unlock()
	return threads()
}

func threads() int {
	switch {
	case processors.computing > 0:
		return processors.computing
	case processors.beside > 0:
		return runtime.GOMAXPROCS(0) - spare
	}
	return runtime.GOMAXPROCS(0)
}

// SetThreads sets Threads.
func SetThreads(n int) {
	processors.Lock()
	defer processors.Unlock()
	processors.computing = n
	runtime.GOMAXPROCS(n + allowance())
}

// Beside lets some more goroutines run, beside the computing ones, until end is called: goroutines that have just come
// back from the disk, and hand out the next request. Where computing takes all that may run, they wait until one is
// preempted, 10 ms later: direct reads beside the hops of a propagation came at 5 to 25 MB/s on two cores, and come at
// 200 to 290. It is not for training, whose goroutines compute in step and lose more where the system stops one of
// them.
func Beside() (end func()) {
	change := func(by int) {
		processors.Lock()
		defer processors.Unlock()
		n := threads()
		processors.beside += by
		runtime.GOMAXPROCS(n + allowance())
	}
	change(1)
	return func() { change(-1) }
}

func allowance() int {
	if processors.beside > 0 {
		return spare
	}
	return 0
}
