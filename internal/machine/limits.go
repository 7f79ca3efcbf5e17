package machine

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Address space that Go's runtime takes beside what it uses: at its start, without which it ends the process
// (or works by accident), and ahead of a growing heap.
const (
	runtimeBytes      = 1200 << 20
	arenasBytes       = 128 << 20
	leastAddressSpace = runtimeBytes + arenasBytes + ProgramBytes
)

// A process has more threads than those that compute: the runtime's, and one for each read or write that waits.
const (
	threadsBeside = 16
	threadsEach   = 3
)

// leastOpenFiles is what any job opens at a time, with what the runtime opens to wait for them.
const leastOpenFiles = 24

// Threads is the number of threads worth running: as many as there are processors, or fewer where limits of the
// system leave no room for them.
func Threads() int {
	n := parallel.Threads()
	if most, by := mostThreads(vfs.OS()); by != "" {
		n = min(n, max(1, int(most-threadsBeside)/threadsEach))
	}
	return n
}

// CheckLimits returns ErrDoesNotFit where limits of the system have no room for any job, or for so many threads:
// the runtime would end the process.
func CheckLimits(threads int) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < leastOpenFiles {
		return fmt.Errorf("the program alone %w: it opens up to %d files, and ulimit -n allows %d", ErrDoesNotFit,
			leastOpenFiles, files.Cur)
	}
	// the runtime opens what its timers need now: later, without a file left, it would end the process
	time.Sleep(time.Nanosecond)
	if space := AddressSpace(); space.By != "" && space.Bytes < ProgramBytes {
		return fmt.Errorf("the program alone %w: needs %s of address space at least, with what Go's runtime "+
			"reserves, and %s allows less",
			ErrDoesNotFit, leastAddressSpace, space.By)
	}
	need := int64(threadsEach*threads + threadsBeside)
	if most, by := mostThreads(vfs.OS()); by != "" && most < need {
		return fmt.Errorf("--threads %d %w: needs room for %d threads, some to wait for files, and %s has room for %d",
			threads, ErrDoesNotFit, need, by, most)
	}
	return nil
}

// BudgetOf is the budget of a run that may use as much as somebody says, or, where asked.Bytes is 0, as Budget.
func BudgetOf(asked Limit) Limit {
	if asked.Bytes == 0 {
		return Budget()
	}
	return smaller(asked, AddressSpace())
}
