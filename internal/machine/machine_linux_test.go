package machine

import (
	"path"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

const gib = 1 << 30

func TestMemoryIsTheLeastOfWhatLimits(t *testing.T) {
	const meminfo = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Limit
	}{
		{"available memory where no cgroup limits",
			map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/\n"},
			Limit{8 * gib, "available memory"}},
		{"physical memory on kernels that do not say what is available",
			map[string]string{"/proc/meminfo": "MemTotal: 16777216 kB\n"},
			Limit{16 * gib, "physical memory"}},
		{"physical memory where more is said to be available",
			map[string]string{"/proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 33554432 kB\n"},
			Limit{16 * gib, "physical memory"}},
		{"a version 2 group, cache that can be dropped not counted as used",
			map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/job\n",
				"/sys/fs/cgroup/job/memory.max":     "4294967296\n",
				"/sys/fs/cgroup/job/memory.current": "3221225472\n",
				"/sys/fs/cgroup/job/memory.stat":    "anon 2147483648\ninactive_file 1073741824\n"},
			Limit{2 * gib, "cgroup /sys/fs/cgroup/job"}},
		{"a group without limit inside a limited one",
			map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/slice/job\n",
				"/sys/fs/cgroup/slice/job/memory.max": "max\n", "/sys/fs/cgroup/slice/job/memory.current": "0\n",
				"/sys/fs/cgroup/slice/memory.max": "1073741824\n", "/sys/fs/cgroup/slice/memory.current": "0\n"},
			Limit{gib, "cgroup /sys/fs/cgroup/slice"}},
		{"a version 1 group that a container sees as its root",
			map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "9:cpu,cpuacct:/\n4:memory:/docker/abc\n",
				"/sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
				"/sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n"},
			Limit{gib, "cgroup /sys/fs/cgroup/memory"}},
		{"a group over its limit has nothing left",
			map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/\n",
				"/sys/fs/cgroup/memory.max": "1000\n", "/sys/fs/cgroup/memory.current": "2000\n"},
			Limit{0, "cgroup /sys/fs/cgroup"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := vfs.NewMem()
			for name, text := range c.files {
				if err := disk.MkdirAll(path.Dir(name)); err != nil {
					t.Fatal(err)
				}
				put(t, disk, name, text)
			}
			if got := memory(disk); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestLockableMemoryIsWhatIsLeftOfItsLimit(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max core file size        0                    unlimited            bytes     \n" +
		"Max locked memory         8388608              unlimited            bytes     \n"
	const unlimited = "Max locked memory         unlimited            unlimited            bytes     \n"
	for _, c := range []struct {
		name, status, limits string
		want                 Limit
	}{
		{"all of the limit", "VmLck:\t       0 kB\nCapEff:\t0000000000000000\n", limits, Limit{8 << 20, "ulimit -l"}},
		{"less what is locked", "VmLck:\t    2048 kB\nCapEff:\t0000000000000000\n", limits,
			Limit{6 << 20, "ulimit -l"}},
		{"nothing where more is locked than the limit is now", "VmLck:\t   16384 kB\n", limits, Limit{0, "ulimit -l"}},
		{"no limit with the capability to lock memory", "VmLck:\t       0 kB\nCapEff:\t0000000000004000\n", limits,
			Limit{}},
		{"the limit for those with all other rights", "CapEff:\t000001ffffffbfff\n", limits,
			Limit{8 << 20, "ulimit -l"}},
		{"no limit where there is none", "CapEff:\t0000000000000000\n", unlimited, Limit{}},
		{"no limit where nothing is known", "", "", Limit{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := vfs.NewMem()
			if err := disk.MkdirAll("/proc/self"); err != nil {
				t.Fatal(err)
			}
			put(t, disk, "/proc/self/status", c.status)
			put(t, disk, "/proc/self/limits", c.limits)
			if got := lockable(disk); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestThisMachineHasMemoryAndThreads(t *testing.T) {
	held := make([]byte, 32<<20)
	for i := range held {
		held[i] = 1
	}
	if rss := PeakRSS(); rss < int64(len(held)) {
		t.Errorf("peak memory is %s after %s were touched", units.Bytes(rss), units.Bytes(len(held)))
	}
	if got := Memory(); got.Bytes <= 0 || got.By == "nothing known" {
		t.Errorf("memory: %+v", got)
	}
	if got := Lockable(); got.Bytes < 0 || got.By == "" && got.Bytes != 0 {
		t.Errorf("lockable memory: %+v", got)
	}
	if Threads() < 1 {
		t.Errorf("%d threads", Threads())
	}
}

func TestNUMANodesAreCounted(t *testing.T) {
	disk := vfs.NewMem()
	if got := numaNodes(disk); got != 1 {
		t.Errorf("%d nodes where nothing is known", got)
	}
	for _, name := range []string{"node0", "node1", "nodes", "possible"} {
		if err := disk.MkdirAll("/sys/devices/system/node/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if got := numaNodes(disk); got != 2 {
		t.Errorf("%d nodes, want 2", got)
	}
}

func TestThePeakCountsFromItsReset(t *testing.T) {
	const much = 64 << 20
	fill := func() {
		p, err := unix.Mmap(-1, 0, much, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < much; i += 4096 {
			p[i] = 1
		}
		if err := unix.Munmap(p); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	high := PeakRSS()
	if !ResetPeakRSS() {
		t.Skip("this system cannot reset the peak")
	}
	if low := PeakRSS(); low > high-much/2 {
		t.Errorf("after the reset the peak is %d bytes, before it was %d", low, high)
	}
	fill()
	if again := PeakRSS(); again < much {
		t.Errorf("with %d bytes in use the peak is %d", much, again)
	}
}

func TestLimitsOfTheProcess(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             100                  200                  processes \n" +
		"Max address space         4294967296           unlimited            bytes     \n"
	status := func(uid, threads string) string {
		return "Pid:\t41\nUid:\t" + uid + "\t0\t0\t0\nThreads:\t" + threads + "\n"
	}
	const noNamespace = "         0          0 4294967295\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		most  int64
		by    string
		space Limit
	}{
		{"nothing known", nil, 0, "", Limit{}},
		{"all other threads of the user count",
			map[string]string{"self/status": status("7", "3") + "VmSize:\t 2097152 kB\nCapEff:\t0\n",
				"self/limits": limits,
				"41/status":   status("7", "3"), "42/status": status("8", "30"), "43/status": status("7", "20")}, 80,
			"ulimit -u", Limit{2*gib - arenasBytes, "ulimit -v"}},
		{"and none is left", map[string]string{"self/status": status("7", "3") + "VmSize:\t 8097152 kB\n",
			"self/limits": limits,
			"43/status":   status("7", "120")}, 0, "ulimit -u", Limit{0, "ulimit -v"}},
		{"what the runtime reserves counts, whatever it could have", map[string]string{"self/limits": limits}, 100,
			"ulimit -u", Limit{4*gib - runtimeBytes - arenasBytes, "ulimit -v"}},
		{"the kernel's user 0 has no limit",
			map[string]string{"self/status": status("0", "3"), "self/limits": limits, "self/uid_map": noNamespace,
				"43/status": status("0", "120")}, 0, "", Limit{4*gib - runtimeBytes - arenasBytes, "ulimit -v"}},
		{"user 0 of a namespace has", map[string]string{"self/status": status("0", "3"), "self/limits": limits,
			"self/uid_map": "0 1000 1\n",
			"43/status":    status("0", "20")}, 80, "ulimit -u",
			Limit{4*gib - runtimeBytes - arenasBytes, "ulimit -v"}},
		{"those with the right to any number have no limit",
			map[string]string{"self/status": "CapEff:\t0000000001000000\nVmSize:\t 2097152 kB\n",
				"self/limits": limits},
			0, "", Limit{2*gib - arenasBytes, "ulimit -v"}},
		{"a cgroup limits them too", map[string]string{"self/status": status("7", "3") + "CapEff:\t0000000001000000\n",
			"self/cgroup":                   "0::/job\n",
			"../sys/fs/cgroup/job/pids.max": "50\n", "../sys/fs/cgroup/job/pids.current": "20\n"}, 33,
			"cgroup /sys/fs/cgroup/job", Limit{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := vfs.NewMem()
			for name, text := range c.files {
				name = path.Join("/proc", name)
				if err := disk.MkdirAll(path.Dir(name)); err != nil {
					t.Fatal(err)
				}
				put(t, disk, name, text)
			}
			if most, by := mostThreads(disk); most != c.most || by != c.by {
				t.Errorf("up to %d threads by %q, want %d by %q", most, by, c.most, c.by)
			}
			if got := addressSpace(disk); got != c.space {
				t.Errorf("%+v, want %+v", got, c.space)
			}
		})
	}
}
