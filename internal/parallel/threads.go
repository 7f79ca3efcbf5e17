package parallel

import (
	"runtime"
	"sync"
)

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
