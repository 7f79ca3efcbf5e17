package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is what all threads of the process have spent on processors so far, in the kernel too.
func CPUTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
