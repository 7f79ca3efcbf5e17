// Package machine tells what the process may use of the machine that it runs
// on. Nothing that it says may influence output bytes.
package machine

import (
	"fmt"

	"github.com/hopfeed/hopfeed/internal/units"
)

// ProgramBytes is the memory of the process before it holds any data: code (14 MiB), the
// Go runtime, stacks, and a heap of small things with what the collector has yet to free.
const ProgramBytes units.Bytes = 48 << 20

// Limit is an amount of memory and what it is that limits it.
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

// Fits returns ErrDoesNotFit if what, which takes so many bytes beside the program, exceeds the limit.
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
