package machine

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Numbers of capabilities: see capabilities(7).
const (
	lockAny      = 14 // CAP_IPC_LOCK
	administrate = 21 // CAP_SYS_ADMIN
	useAny       = 24 // CAP_SYS_RESOURCE
)

// capable tells whether the process has one of some capabilities.
func capable(status string, capabilities ...int) bool {
	words := fields(status, "CapEff:")
	if len(words) == 0 {
		return false
	}
	set, err := strconv.ParseUint(words[0], 16, 64)
	return err == nil && slices.ContainsFunc(capabilities, func(c int) bool { return set>>c&1 != 0 })
}

// softLimit is a limit of the process by its name in /proc/self/limits, if there is one: else it says "unlimited".
func softLimit(fsys vfs.FS, name string) (int64, bool) {
	return field(read(fsys, "/proc/self/limits"), name)
}

// Lockable is how much more memory the process can lock: what is left of its limit. A
// process with the capability to lock any memory has no limit.
func Lockable() Limit { return lockable(vfs.OS()) }

func lockable(fsys vfs.FS) Limit {
	status := read(fsys, "/proc/self/status")
	limit, ok := softLimit(fsys, "Max locked memory")
	if !ok || capable(status, lockAny) {
		return Limit{}
	}
	kib, _ := field(status, "VmLck:")
	return Limit{units.Bytes(max(0, limit-kib<<10)), "ulimit -l"}
}

// AddressSpace is the limit of the process's address space, less what it has taken.
func AddressSpace() Limit { return addressSpace(vfs.OS()) }

func addressSpace(fsys vfs.FS) Limit {
	limit, ok := softLimit(fsys, "Max address space")
	if !ok {
		return Limit{}
	}
	kib, _ := field(read(fsys, "/proc/self/status"), "VmSize:")
	return Limit{units.Bytes(max(0, limit-max(kib<<10, runtimeBytes)-arenasBytes)), "ulimit -v"}
}

// mostThreads is how many threads the process may have in all, and what limits them ("": nothing): ulimit -u, which
// counts all threads of a user without privileges, or a cgroup.
func mostThreads(fsys vfs.FS) (most int64, by string) {
	left := cgroupLeft(fsys, "pids", pidsFiles, pidsFiles)
	limit, limited := softLimit(fsys, "Max processes")
	limited = limited && limit <= mostCounted
	if left.By == "" && !limited {
		return 0, ""
	}
	status := read(fsys, "/proc/self/status")
	if left.By != "" {
		own, _ := field(status, "Threads:")
		left.Bytes += units.Bytes(own)
	}
	user, _ := field(status, "Uid:")
	if !limited || capable(status, administrate, useAny) || user == 0 && !inUserNamespace(fsys) {
		return int64(left.Bytes), left.By
	}
	self, _ := field(status, "Pid:")
	entries, _ := fsys.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.ParseInt(e.Name(), 10, 64); err == nil && pid != self {
			status := read(fsys, path.Join("/proc", e.Name(), "status"))
			if uid, ok := field(status, "Uid:"); ok && uid == user {
				threads, _ := field(status, "Threads:")
				limit -= threads
			}
		}
	}
	left = smaller(left, Limit{units.Bytes(max(0, limit)), "ulimit -u"})
	return int64(left.Bytes), left.By
}

// inUserNamespace tells whether users are others to the kernel, which never limits the threads of its user 0.
func inUserNamespace(fsys vfs.FS) bool {
	return !slices.Equal(strings.Fields(read(fsys, "/proc/self/uid_map")), []string{"0", "0", "4294967295"})
}

var pidsFiles = cgroupFiles{limit: "pids.max", use: "pids.current"}

// mostCounted is the highest ulimit -u for which the user's threads are counted: a higher one never binds.
const mostCounted = 1 << 14
