package machine

import (
	"bytes"
	"io"
	"math"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Memory is how much more memory the process can use before it swaps or is killed: what the kernel calls available, or
// what is left of the limit of one of the process's cgroups, of version 1 or 2, or of its address space.
func Memory() Limit { return memory(vfs.OS()) }

func memory(fsys vfs.FS) Limit {
	free := Limit{math.MaxInt64, "nothing known"}
	meminfo := read(fsys, "/proc/meminfo")
	if kib, ok := field(meminfo, "MemTotal:"); ok {
		free = Limit{units.Bytes(kib << 10), "physical memory"}
	}
	if kib, ok := field(meminfo, "MemAvailable:"); ok {
		free = smaller(free, Limit{units.Bytes(kib << 10), "available memory"})
	}
	return smaller(smaller(free, cgroupLeft(fsys, "memory", memoryV1, memoryV2)), addressSpace(fsys))
}

// cgroupFiles names the files of a cgroup that say what a controller counts. Reclaimable is the entry of
// memory.stat for page cache that the kernel drops before it kills.
type cgroupFiles struct{ limit, use, reclaimable string }

var (
	memoryV1 = cgroupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	memoryV2 = cgroupFiles{"memory.max", "memory.current", "inactive_file"}
)

// noLimit is below what version 1 of cgroups says of memory without a limit. Then neither use nor memory.stat, which
// takes the kernel longest, is read.
const noLimit = 1 << 62

// cgroupLeft is the limit of a controller minus its use, the least of all groups of the process.
func cgroupLeft(fsys vfs.FS, controller string, v1, v2 cgroupFiles) (left Limit) {
	for line := range strings.Lines(read(fsys, "/proc/self/cgroup")) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case controllers == "":
			left = smaller(left, groupLeft(fsys, "/sys/fs/cgroup", group, v2))
		case strings.Contains(","+controllers+",", ","+controller+","):
			left = smaller(left, groupLeft(fsys, "/sys/fs/cgroup/"+controller, group, v1))
		}
	}
	return left
}

// groupLeft is cgroupLeft of a group and the groups around it. Inside a container
// the group's path may not be there below the mount: its ancestors are.
func groupLeft(fsys vfs.FS, mount, group string, files cgroupFiles) (left Limit) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		dir := path.Join(mount, group)
		number := func(file string) (int64, error) {
			return strconv.ParseInt(strings.TrimSpace(read(fsys, path.Join(dir, file))), 10, 64)
		}
		if limit, err := number(files.limit); err == nil && limit < noLimit { // not there, or "max": no limit
			if use, err := number(files.use); err == nil {
				cache := int64(0)
				if files.reclaimable != "" {
					cache, _ = field(read(fsys, path.Join(dir, "memory.stat")), files.reclaimable)
				}
				left = smaller(left, Limit{units.Bytes(max(0, limit-max(0, use-cache))), "cgroup " + dir})
			}
		}
		if group == "/" {
			return left
		}
	}
}

// PeakRSS is the most memory that the process has had resident, in bytes.
func PeakRSS() int64 {
	kib, _ := field(read(vfs.OS(), "/proc/self/status"), "VmHWM:")
	return kib << 10
}

// ResetPeakRSS makes PeakRSS count from now on. It tells whether the system can.
func ResetPeakRSS() bool {
	fd, err := unix.Open("/proc/self/clear_refs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_, err = unix.Write(fd, []byte("5"))
	return unix.Close(fd) == nil && err == nil
}

// fields are the words that follow a name at the start of a line; nil where there is no such line.
func fields(text, name string) []string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.TrimLeft(rest, " \t") != rest {
			return strings.Fields(rest)
		}
	}
	return nil
}

// field is the first of fields, if it is a number.
func field(text, name string) (int64, bool) {
	words := fields(text, name)
	if len(words) == 0 {
		return 0, false
	}
	v, err := strconv.ParseInt(words[0], 10, 64)
	return v, err == nil
}

// read is a small file's text, or "" where it cannot be read.
func read(fsys vfs.FS, name string) string {
	f, err := fsys.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	var text bytes.Buffer
	text.Grow(4 << 10) // the kernel writes such a file anew for each read
	if _, err := text.ReadFrom(io.NewSectionReader(f, 0, 1<<20)); err != nil {
		return ""
	}
	return text.String()
}

// NUMANodes is the number of parts of memory that are near to some of the processors and far from others.
func NUMANodes() int { return numaNodes(vfs.OS()) }

func numaNodes(fsys vfs.FS) int {
	entries, _ := fsys.ReadDir("/sys/devices/system/node")
	nodes := 0
	for _, e := range entries {
		if number, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if _, err := strconv.Atoi(number); err == nil {
				nodes++
			}
		}
	}
	return max(nodes, 1)
}
