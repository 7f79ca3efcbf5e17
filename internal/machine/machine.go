// Package machine tells what the process may use of the machine that it runs
// on. Nothing that it says may influence output bytes.
package machine

import (
	"runtime"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Threads is the number of threads worth running: the processors that the
// affinity mask allows, or the cgroup's CPU quota if that is less. The Go
// runtime counts both when the program starts.
func Threads() int { return runtime.GOMAXPROCS(0) }

// Limit is an amount of memory and what it is that limits it.
type Limit struct {
	Bytes units.Bytes
	By    string // "free memory", "cgroup /sys/fs/cgroup/job", ...; "" where nothing limits
}

// least is the smaller limit; an empty By means that there is none.
func least(a, b Limit) Limit {
	if b.By != "" && (a.By == "" || b.Bytes < a.Bytes) {
		return b
	}
	return a
}
