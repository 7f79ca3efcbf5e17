package parallel

import (
	"runtime"
	"sync/atomic"
)

// spare is how many goroutines may run beside those that compute: such as have just come back from the disk, and
// hand out the next request. Where all are taken by computing, they wait until one is preempted, 10 ms later:
// direct reads beside the hops of a propagation came at 5 to 25 MB/s on two cores, and come at 200 to 290.
const spare = 2

var computing atomic.Int64 // 0: as many as the runtime allows

// Threads is how many goroutines that compute are worth running at a time: those of SetThreads or, before, the
// processors that the affinity mask allows, or the cgroup's CPU quota if that is less.
func Threads() int {
	if n := computing.Load(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

// SetThreads sets Threads, and lets some more goroutines run beside them.
func SetThreads(n int) {
	computing.Store(int64(n))
	runtime.GOMAXPROCS(n + spare)
}
