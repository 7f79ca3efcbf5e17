package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// peakFile is where a child writes what it has had resident at most. It kills itself while it logs a trial for the
// killedAtTrial-th time, if there is such a variable.
const (
	peakFile      = "HOPFEED_TEST_PEAK"
	killedAtTrial = "HOPFEED_TEST_KILLED_AT_TRIAL"
)

// TestMain lets the test binary be the command, in a process of its own.
func TestMain(m *testing.M) {
	if path := os.Getenv(peakFile); path != "" {
		fsys := vfs.OS()
		if last, err := strconv.Atoi(os.Getenv(killedAtTrial)); err == nil {
			fsys = &trialsCounted{FS: fsys, do: func(n int) {
				if n == last {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}}
		}
		code := execute(context.Background(), &app{fs: fsys, stdout: os.Stdout, stderr: os.Stderr}, os.Args[1:])
		if err := os.WriteFile(path, strconv.AppendInt(nil, machine.PeakRSS(), 10), 0o666); err != nil {
			panic(err)
		}
		os.Exit(code)
	}
	debug.SetGCPercent(800) // the heap of tests is small: at the default, collections take longer than the tests
	os.Exit(m.Run())
}

// measured is an outcome with the most memory that the process had resident: all pages of
// it, those of code included, as the kernel counts them (VmHWM). Nothing is mapped from
// files but the program, so what the page cache has is not among them.
type measured struct {
	outcome
	peak units.Bytes
}

// inProcess runs a command line in a process of its own, in dir; a cgroup, unless it is
// "", is one that it shall be in from its start.
func inProcess(t *testing.T, dir, cgroup, line string) (m measured) {
	t.Helper()
	peak := filepath.Join(t.TempDir(), "peak")
	c := exec.Command(os.Args[0], strings.Fields(line)...)
	if cgroup != "" { // a shell enters it and becomes the command
		c = exec.Command("sh", append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, cgroup, os.Args[0]},
			strings.Fields(line)...)...)
	}
	var stdout, stderr bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &stdout, &stderr
	c.Env = append(os.Environ(), peakFile+"="+peak)
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	m.outcome = outcome{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	text, err := os.ReadFile(peak)
	if err != nil {
		t.Fatalf("hopfeed %s: exit status %d, and no peak: %s", line, m.code, m.stderr)
	}
	bytes, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	m.peak = units.Bytes(bytes)
	return m
}

// memoryJob is a command line whose memory is measured.
type memoryJob struct {
	name string
	line string // its output, if it has one, is new
	more bool   // with three times what it needs too, which lets it keep everything in memory
}

// atLeast is how commands say what they need.
var atLeast = regexp.MustCompile(`([\d.e+]+ [KMGT]?i?B) at least`)

// leastMemory is what a job says that it needs at least, where it may use next to nothing, and what it did with that,
// in a cgroup that has not much more.
func leastMemory(t *testing.T, dir, line string) (units.Bytes, measured) {
	t.Helper()
	least := machine.ProgramBytes
	for range 3 { // the program's needs, then those of its parts
		cgroup := memoryCgroup(t, least+kernelBytes)
		m := inProcess(t, dir, cgroup, fmt.Sprintf("%s --memory %dB", line, int64(least)))
		os.Remove(cgroup)
		if m.code == exitDone {
			return least, m
		}
		found := atLeast.FindStringSubmatch(m.stderr)
		if m.code != exitDoesNotFit || found == nil {
			t.Fatalf("%s with %s: exit status %d: %s", line, least, m.code, m.stderr)
		}
		if m.peak > machine.ProgramBytes {
			t.Errorf("%s: refusing it took %s", line, m.peak)
		}
		if err := least.Set(found[1]); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%s: what it needs at least changes each time, to %s", line, least)
	return 0, measured{}
}

// kernelBytes is what a cgroup is given beside the budget: for page tables, and for pages
// of files, of which the kernel must have some.
const kernelBytes = 8 << 20

// memoryCgroup makes a cgroup whose processes are killed when they take more than so much
// memory, page cache and kernel included; "" where that is not allowed.
func memoryCgroup(t *testing.T, limit units.Bytes) string {
	t.Helper()
	name, refused := fmt.Sprintf("hopfeed-test-%d", os.Getpid()), error(nil)
	for _, version := range []struct{ mount, limit, swap, no string }{
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max", "0"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness", "0"},
	} {
		dir := filepath.Join(version.mount, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		// which the kernel has made, if it is one
		file, err := os.OpenFile(filepath.Join(dir, version.limit), os.O_WRONLY, 0)
		if err == nil {
			_, err = fmt.Fprint(file, int64(limit))
			err = errors.Join(err, file.Close())
		}
		if err == nil {
			// else there is none
			if file, swapErr := os.OpenFile(filepath.Join(dir, version.swap), os.O_WRONLY, 0); swapErr == nil {
				_, err = file.WriteString(version.no)
				err = errors.Join(err, file.Close())
			}
		}
		if err == nil {
			return dir
		}
		os.Remove(dir)
		refused = errors.Join(refused, err)
	}
	t.Logf("no cgroup that limits memory can be made here, so that only what is resident is compared: %v", refused)
	return ""
}

// checkMemory runs a job with the least memory that it asks for, and with a quarter more and three times that, and
// compares what it had resident with that.
func checkMemory(t *testing.T, dir string, j memoryJob) {
	t.Helper()
	line := strings.ReplaceAll(j.line, "OUT", t.TempDir())
	least, m := leastMemory(t, dir, line)
	compare := func(budget units.Bytes, m measured) {
		t.Helper()
		if m.code != exitDone {
			t.Errorf("with %s, where %s is enough: exit status %d: %s", budget, least, m.code, m.stderr)
			return
		}
		t.Logf("--memory %s: %s resident at most", budget, m.peak)
		if m.peak > budget {
			t.Errorf("with --memory %s it had %s resident", budget, m.peak)
		}
	}
	compare(least, m)
	if j.more {
		for _, budget := range []units.Bytes{least * 5 / 4, 3 * least} {
			compare(budget, inProcess(t, dir, "", fmt.Sprintf("%s --memory %dB", line, int64(budget))))
		}
	}
}

// writeHub writes arrays of a graph in which node 0 is at one end of each edge, in a list
// that is longer than a block of the topology. It has classes and splits, and one more
// split, splits.npy, in a file of its own.
func writeHub(t *testing.T, dir string) {
	t.Helper()
	const nodes, splits = 400_000, 16
	edges, features, labels, parts := make([]uint32, 2*nodes), make([]float32, nodes), make([]int32, nodes),
		make([]int8, splits*nodes)
	for v := range nodes {
		edges[v], features[v], labels[v] = uint32(v), float32(v%7), int32(v%3)
		for k := range splits {
			parts[k*nodes+v] = int8((v+k)%16 - 1)
			if parts[k*nodes+v] > 2 {
				parts[k*nodes+v] = -1
			}
		}
	}
	writeArrays(t, dir, map[string]string{
		"edge_index.npy": npyText("<u4", fmt.Sprintf("(2, %d)", nodes), dtype.BytesOf(edges)),
		"node_feat.npy":  npyText("<f4", fmt.Sprintf("(%d, 1)", nodes), dtype.BytesOf(features)),
		"node_label.npy": npyText("<i4", fmt.Sprintf("(%d,)", nodes), dtype.BytesOf(labels)),
		"splits.npy":     npyText("|i1", fmt.Sprintf("(%d, %d)", splits, nodes), dtype.BytesOf(parts)),
	})
}

// writeWideRows writes arrays of a graph whose row table is larger than its features: 40
// labels and 64 splits a node, and a name.
func writeWideRows(t *testing.T, dir string) {
	t.Helper()
	const nodes, labels, splits, width = 30_000, 40, 64, 12
	features, names := make([]float32, nodes), make([]rune, 0, width*nodes)
	bits, parts := make([]int8, labels*nodes), make([]int8, splits*nodes)
	for i := range bits {
		bits[i] = int8(i * i % 2)
	}
	for i := range parts {
		parts[i] = int8(i % 3)
	}
	for v := range nodes {
		names = append(names, []rune(fmt.Sprintf("name-%07d", v))...)
	}
	writeArrays(t, dir, map[string]string{
		"edge_index.npy": npyText("<u4", "(2, 2)", dtype.BytesOf([]uint32{0, 1, 1, 2})),
		"node_feat.npy":  npyText("<f4", fmt.Sprintf("(%d, 1)", nodes), dtype.BytesOf(features)),
		"node_label.npy": npyText("|i1", fmt.Sprintf("(%d, %d)", nodes, labels), dtype.BytesOf(bits)),
		"splits.npy":     npyText("|i1", fmt.Sprintf("(%d, %d)", splits, nodes), dtype.BytesOf(parts)),
		"orig_id.npy":    npyText(fmt.Sprintf("<U%d", width), fmt.Sprintf("(%d,)", nodes), dtype.BytesOf(names)),
	})
}

func writeArrays(t *testing.T, dir string, arrays map[string]string) {
	t.Helper()
	disk := vfs.OS()
	if err := disk.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for name, data := range arrays {
		write(t, disk, filepath.Join(dir, name), data)
	}
}

// npyText is a numpy file.
func npyText(descr, shape string, data []byte) string {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(header)), byte(len(header) >> 8)}) + header + string(data)
}

func TestCommandsKeepToTheirMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the peak of a process is read from /proc, which only Linux has")
	}
	dir := t.TempDir()
	for _, line := range []string{
		"generate sbm -o graph --nodes 60000 --edges 60000 --features 32 --classes 8 --labeled 0.25 --quiet",
		"export npy graph -o arrays --quiet",
		"propagate graph -o store --hops 2 --operator sym --chunk-rows 500 --quiet",
		"train store --model sgc --hops 1 --epochs 1 --run run --quiet",
	} {
		if m := inProcess(t, dir, "", line); m.code != exitDone {
			t.Fatalf("%s: %s", line, m.stderr)
		}
	}
	writeHub(t, filepath.Join(dir, "arrays-hub"))
	writeWideRows(t, filepath.Join(dir, "arrays-wide"))
	for _, line := range []string{
		"generate sbm -o large --nodes 16000 --edges 16000 --features 512 --classes 8 --labeled 1 --quiet",
		"propagate large -o large-store --hops 1 --operator sym --chunk-rows 500 --quiet",
		"import npy arrays-hub -o hub --quiet",
		"propagate hub -o hub-store --hops 1 --operator sym --quiet",
		"train hub-store --model sgc --hops 1 --epochs 1 --run hub-run --quiet",
		"import npy arrays-wide -o wide --edge-layout 2xE --quiet",
		"propagate wide -o wide-store --hops 1 --operator sym --quiet",
		"train wide-store --model sgc --hops 1 --epochs 1 --metric roc-auc --run wide-run --quiet",
	} {
		if m := inProcess(t, dir, "", line); m.code != exitDone {
			t.Fatalf("%s: %s", line, m.stderr)
		}
	}
	var names strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&names, "user-%d,product-%d\n", i, i*7919%50_000)
	}
	if err := os.WriteFile(filepath.Join(dir, "edges.csv"), []byte(names.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, j := range []memoryJob{
		{name: "generate", line: "generate rmat -o OUT/g --nodes 30000 --edges 100000 --features 128 --force --quiet"},
		{name: "import npy", line: "import npy arrays -o OUT/g --force --quiet"},
		{name: "import csv", line: "import csv edges.csv --ids map -o OUT/g --force --quiet"},
		{name: "propagate a hub",
			line: "propagate hub -o OUT/s --hops 1 --operator sym,rw:reverse --rows all --force --quiet"},
		{name: "propagate", more: true, line: "propagate graph -o OUT/s --hops 2 --operator sym --force --quiet"},
		{name: "propagate all rows",
			line: "propagate graph -o OUT/s --hops 2 --operator sym,rw:reverse --rows all --force --quiet"},
		{name: "propagate a series",
			line: "propagate graph -o OUT/s --hops 1 --operator ppr:alpha=0.5:tolerance=0.1 --dtype float16 --force " +
				"--quiet"},
		{name: "train sgc", line: "train store --model sgc --hops 1 --epochs 1 --quiet"},
		{name: "train sgc from storage",
			line: "train store --model sgc --hops 1 --epochs 1 --placement storage --quiet"},
		{name: "train sign", line: "train store --model sign --hidden 256 --layers 2 --hops 1 --batch 3000 --epochs " +
			"1 --quiet"},
		{name: "train, of many rows with a checkpoint",
			line: "train hub-store --model sgc --hops 1 --epochs 1 --run OUT/run --force --quiet"},
		{name: "train, by a file of splits",
			line: "train hub-store --model sgc --hops 1 --epochs 1 --splits arrays-hub/splits.npy --split 3 --quiet"},
		{name: "train, by another split", line: "train hub-store --model sgc --hops 1 --epochs 1 --split 2 --quiet"},
		{name: "train on all nodes of a graph",
			line: "train graph --model gcn --sampler full --hidden 16 --epochs 1 --quiet"},
		{name: "train gat on all nodes of a graph",
			line: "train graph --model gat --sampler full --hidden 16 --epochs 1 --quiet"},
		{name: "train on samples",
			line: "train graph --model sage --fanout 5,5 --batch 512 --hidden 16 --epochs 1 --quiet"},
		{name: "train for an emulated device",
			line: "train store --model sgc --hops 1 --epochs 1 --placement host --emulate " +
				"gpu=1,mem=4MiB,link=12GiB/s --quiet"},
		{name: "bench load", line: "bench load store --rounds 1 --quiet"},
		{name: "bench ablation", line: "bench ablation store --models sgc --hops 2 --rounds 1 --epochs 1 --quiet"},
		{name: "evaluate", line: "evaluate --checkpoint hub-run hub-store --quiet"},
		{name: "train by ROC-AUC", line: "train wide-store --model sgc --hops 1 --epochs 1 --metric roc-auc --quiet"},
		{name: "evaluate by ROC-AUC", line: "evaluate --checkpoint wide-run wide-store --rows all --quiet"},
		{name: "predict rows of a store", line: "predict --checkpoint run store -o OUT/p.parquet --force --quiet"},
		{name: "predict rows with names and many columns",
			line: "predict --checkpoint wide-run wide-store -o OUT/p.arrow --force --quiet"},
		{name: "predict nodes of a hub", line: "predict --checkpoint hub-run hub -o OUT/p.csv --force --quiet"},
		{name: "train from storage, of a store larger than memory",
			line: "train large-store --model sign --hidden 16 --layers 2 --batch 1000 --epochs 1 --placement " +
				"storage --quiet"},
		{name: "propagate many splits, labels and names",
			line: "propagate wide -o OUT/s --hops 1 --operator sym --force --quiet"},
		{name: "export a store", line: "export npy wide-store -o OUT/a --force --quiet"},
		{name: "export a hub", line: "export npy hub -o OUT/a --force --quiet"},
		{name: "sample", line: "sample graph --seeds all --fanout 5,5 --quiet"},
		{name: "sample with an optimal cache", more: true,
			line: "sample graph --seeds all --fanout 5,5 --cache optimal:20000rows --quiet"},
		{name: "sample with a joint cache", line: "sample graph --seeds all --fanout 5,5 --cache ducati:1MiB --quiet"},
		{name: "sample layers of a hub",
			line: "sample hub --seeds all --fanout 3000,3000 --sampler fastgcn-flat --aggregation sym --cache " +
				"gns:1000rows --max-batches 20 --quiet"},
		{name: "sample all of a hub",
			line: "sample hub --seeds all --fanout -1,-1 --batch 100 --max-batches 20 --cache presampled:1000rows " +
				"--quiet"},
		{name: "plan", line: "plan store --model sign --quiet"},
		{name: "verify", line: "verify store --quiet"},
	} {
		t.Run(j.name, func(t *testing.T) { checkMemory(t, dir, j) })
	}
}
