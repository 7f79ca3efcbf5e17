package machine

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Memory is how much more memory the process can use before the system swaps:
// pages that are free, purgeable or cache of files.
func Memory() Limit {
	free := Limit{math.MaxInt64, "nothing known"}
	if total, err := unix.SysctlUint64("hw.memsize"); err == nil {
		free = Limit{units.Bytes(total), "physical memory"}
	}
	page, err := unix.SysctlUint64("hw.pagesize")
	if err != nil {
		return free
	}
	var pages uint64
	for _, name := range []string{"vm.page_free_count", "vm.page_purgeable_count", "vm.page_pageable_external_count"} {
		n, err := unix.SysctlUint32(name)
		if err != nil {
			return free
		}
		pages += uint64(n)
	}
	return smaller(free, Limit{units.Bytes(pages * page), "available memory"})
}

// Lockable is how much memory a process of the user can lock.
func Lockable() Limit {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil || r.Cur > math.MaxInt64-1 {
		return Limit{}
	}
	return Limit{units.Bytes(r.Cur), "ulimit -l"}
}

// AddressSpace is without a limit: this system keeps none.
func AddressSpace() Limit { return Limit{} }

func mostThreads(vfs.FS) (most int64, by string) { return 0, "" }

// PeakRSS is the most memory that the process has had resident, in bytes.
func PeakRSS() int64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Maxrss
}

// ResetPeakRSS makes PeakRSS count from now on. It tells whether the system can: this one cannot.
func ResetPeakRSS() bool { return false }

// NUMANodes is the number of parts of memory that are near to some of the processors and far from others.
func NUMANodes() int { return 1 }
