// Package machine tells what the process may use of the machine that it runs
// on. Nothing that it says may influence output bytes.
package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"golang.org/x/sys/unix"
)

// ProgramBytes is the memory of the process before it holds any data: code (14 MiB), the
// Go runtime, stacks, and a heap of small things with what the collector has yet to free.
const ProgramBytes units.Bytes = 48 << 20

// Limit is an amount of memory, and the name of the limit.
type Limit struct {
	Bytes units.Bytes
	By    string // "free memory", "cgroup /sys/fs/cgroup/job", ...; "" where nothing limits
}

// Budget is the host memory that a run may use where nobody says how much: 80 % of Memory.
// It changes from moment to moment: a run calls it once.
func Budget() Limit {
	m := Memory()
	return Limit{m.Bytes / 5 * 4, "80 % of " + m.By}
}

// Fits returns ErrDoesNotFit if the program and bytes for what exceed the limit.
func (l Limit) Fits(what string, bytes int64) error {
	need := ProgramBytes + units.Bytes(bytes)
	if l.By == "" || need <= l.Bytes {
		return nil
	}
	return fmt.Errorf("%s %w: needs %s at least, %s allows %s", what, ErrDoesNotFit, units.AtLeast(need), l.By, l.Bytes)
}

// smaller is the smaller limit; an empty By means that there is none.
func smaller(a, b Limit) Limit {
	if b.By != "" && (a.By == "" || b.Bytes < a.Bytes) {
		return b
	}
	return a
}

// ErrDoesNotFit is returned when a job needs more memory or disk than it may
// use; the text says what it would need and what there is.
var ErrDoesNotFit = errors.New("does not fit")

// CPUTime is the processor time of all threads of the process so far, in the kernel too.
func CPUTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Address space that Go's runtime takes beside what it uses: at its start, without which it ends the process
// (or works by accident), and ahead of a growing heap.
const (
	runtimeBytes      = 1200 << 20
	arenasBytes       = 128 << 20
	leastAddressSpace = runtimeBytes + arenasBytes + ProgramBytes
)

// Beside the threads that compute, a process has the runtime's, and one for each read or write that waits.
const (
	threadsBeside = 16
	threadsEach   = 3
)

// leastOpenFiles is the number of files that any job and the Go runtime open at a time.
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

// CheckLimits returns ErrDoesNotFit where limits of the system have no room for any job, or for these threads:
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

// BudgetOf is the budget of a run: what was asked for or, if asked.Bytes is 0, Budget.
func BudgetOf(asked Limit) Limit {
	if asked.Bytes == 0 {
		return Budget()
	}
	return smaller(asked, AddressSpace())
}

// CheckSpace returns ErrDoesNotFit if the disk has less space than an output needs.
func CheckSpace(fsys vfs.FS, output string, needed int64) error {
	at, err := NearestFolder(fsys, output)
	if err != nil {
		return err
	}
	free, err := fsys.FreeBytes(at)
	if err == nil && needed > free {
		err = fmt.Errorf("%w: %s needs %v of disk space, and %v is free (free space there, or use another disk)",
			ErrDoesNotFit, output, units.Bytes(needed), units.Bytes(free))
	}
	return err
}

// NearestFolder is path, or the nearest folder above it that exists. In a bucket, folders need not.
func NearestFolder(fsys vfs.FS, path string) (string, error) {
	if vfs.IsURL(path) {
		return path, nil
	}
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := fsys.Stat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path, err
		}
	}
}
