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

// ProgramBytes is the memory of the process before it holds any data: code (14 MiB), the
// Go runtime, stacks, and a heap of small things with what the collector has yet to free.
const ProgramBytes units.Bytes = 48 << 20

// Limit is an amount of memory and what it is that limits it.
type Limit struct {
	Bytes units.Bytes
	By    string // "free memory", "cgroup /sys/fs/cgroup/job", ...; "" where nothing limits
}

// smaller is the smaller limit; an empty By means that there is none.
func smaller(a, b Limit) Limit {
	if b.By != "" && (a.By == "" || b.Bytes < a.Bytes) {
		return b
	}
	return a
}
