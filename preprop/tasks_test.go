package preprop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// taskKinds are the kinds of tasks, and which must have ended before one begins.
var taskKinds = map[string][]string{"rows": nil, "cut": nil, "hops": {"rows", "cut"}, "write": {"hops"},
	"publish": {"write"}}

// inRandomOrder calls run with each task, again and again until it is true, in an order that respects what each needs.
func inRandomOrder(t *testing.T, random *rand.Rand, tasks int, run func(name string) (done bool)) {
	t.Helper()
	left := []string{"rows", "publish"}
	for i := range tasks {
		left = append(left, fmt.Sprintf("cut-%d", i), fmt.Sprintf("hops-%d", i), fmt.Sprintf("write-%d", i))
	}
	for len(left) > 0 {
		k := random.IntN(len(left))
		kind, _, _ := strings.Cut(left[k], "-")
		if slices.ContainsFunc(left, func(other string) bool {
			before, _, _ := strings.Cut(other, "-")
			return slices.Contains(taskKinds[kind], before)
		}) {
			continue
		}
		if run(left[k]) {
			left = slices.Delete(left, k, k+1)
		}
	}
}

// byTasks makes a store by so many tasks of each kind.
func byTasks(t *testing.T, fsys vfs.FS, store string, tasks int, o Options) map[string][]byte {
	t.Helper()
	o.Tasks = tasks
	list, err := ListTasks(context.Background(), fsys, "graph", store, o)
	for _, task := range list {
		if _, runErr := RunTask(context.Background(), fsys, "graph", store, task.Name, o); runErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", task.Name, runErr))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return files(t, fsys, store)
}

func TestTasksInAnyOrderTwiceAndAtTheSameTimeMakeTheSameStore(t *testing.T) {
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 1))
		var fsys vfs.FS = vfs.NewMem()
		if seed%6 == 0 {
			fsys = vfs.OS()
			t.Chdir(t.TempDir())
		}
		randomGraph(seed, 300+int(seed)*50, 3+int(seed)*9).write(t, fsys, "graph")
		o := Options{Hops: 1 + int(seed%3), Operators: allOperators[:1+seed%3], Threads: 2, Seed: seed,
			ChunkRows: 16 + int(seed)*3, Rows: format.RowsLabeled}
		if seed%2 == 0 {
			o.Rows, o.DType = format.RowsAll, format.Float16
		}
		if seed%4 == 1 {
			o.LabelHops = 1 + int(seed%3)
		}
		if _, err := Propagate(context.Background(), fsys, "graph", "want", o); err != nil {
			t.Fatal(err)
		}
		grows := o.Hops > 1 && seed%8 > 3 // an existing store
		if grows {
			before := o
			before.Hops, before.Operators = 1, o.Operators[1:]
			before.LabelHops = 0
			if o.LabelHops > 0 {
				before = o
				before.Operators = o.Operators[1:]
			}
			if _, err := Propagate(context.Background(), fsys, "graph", "store", before); err != nil {
				t.Fatal(err)
			}
		}
		o.Tasks = 1 + random.IntN(5)
		o.Scratch = "scratch"
		if err := fsys.MkdirAll(o.Scratch); err != nil {
			t.Fatal(err)
		}
		inRandomOrder(t, random, o.Tasks, func(name string) bool {
			var group sync.WaitGroup
			for range 1 + random.IntN(3) {
				group.Go(func() {
					if _, err := RunTask(context.Background(), fsys, "graph", "store", name, o); err != nil {
						t.Errorf("seed %d, %d tasks, %s: %v", seed, o.Tasks, name, err)
					}
				})
			}
			group.Wait()
			if r, err := RunTask(context.Background(), fsys, "graph", "store", name, o); err != nil || !r.AlreadyDone {
				t.Errorf("seed %d, %d tasks, %s once more: %+v, %v", seed, o.Tasks, name, r, err)
			}
			s, err := JobStatus(fsys, "store", "")
			written := strings.HasPrefix(name, "write") // after all hops
			if errors.Is(err, fs.ErrNotExist) {
				return true // a cut of no chunks began nothing
			}
			if err != nil || !grows && s.Tasks == s.Complete || written && (s.Columns == 0 || s.DoneColumns != s.Columns) {
				t.Errorf("seed %d, after %s: %+v, %v", seed, name, s, err)
			}
			return true
		})
		if t.Failed() || !sameFiles(files(t, fsys, "store"), files(t, fsys, "want")) {
			t.Fatalf("seed %d, %d tasks: another store", seed, o.Tasks)
		}
		if left := files(t, fsys, "scratch"); len(left) > 0 {
			t.Errorf("seed %d: scratch files are left: %d", seed, len(left))
		}
	}
}

func TestATaskThatMustWaitOrDiffersSaysSo(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 300, 6).write(t, fsys, "graph")
	checkWaitingTasks(t, fsys, Options{Hops: 1, Operators: allOperators[:1], Threads: 1, Tasks: 2}, 7)
}

// checkWaitingTasks runs tasks of a job of so many too early, by other options and without time, and then all of them.
func checkWaitingTasks(t *testing.T, fsys *vfs.Mem, o Options, tasks int) {
	t.Helper()
	run := func(name, want string) {
		t.Helper()
		_, err := RunTask(context.Background(), fsys, "graph", "store", name, o)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrOptions) && !errors.Is(err, format.ErrExists) ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	for _, name := range []string{"hops-0", "write-1", "publish"} {
		run(name, "the task rows must run first")
	}
	for _, name := range []string{"cut-2", "hops", "hops--1", "hops-01", "rows-0", "merge-0", ""} {
		run(name, "want rows, cut-I")
	}
	run("rows", "")
	run("hops-0", "another task must run first")
	run("write-0", "the tasks hops must run first")
	run("publish", "another task must run first")
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "tasks are making it") {
		t.Errorf("a whole job beside tasks: %v", err)
	}
	list, err := ListTasks(context.Background(), fsys, "graph", "store", o)
	if err != nil || !list[0].Done || list[1].Done || len(list) != tasks {
		t.Errorf("%d tasks: %+v, %v", len(list), list, err)
	}
	o.Hops = 2
	run("hops-0", "with other options")
	run("rows", "with other options")
	o.Hops = 1
	want := propagated(t, fsys, "want", o)
	o.MaxTime = 1
	for _, task := range list[1:] {
		if task.Name == "hops-0" {
			if _, err := RunTask(context.Background(), fsys, "graph", "store", task.Name, o); !errors.Is(err, ErrMaxTime) {
				t.Errorf("%s without time: %v", task.Name, err)
			}
		}
		o.MaxTime = 0
		if task.Name == "publish" { // a file that was lost is made again
			if err := fsys.Remove(format.PartPath("store/rows", 0)); err != nil {
				t.Fatal(err)
			}
		}
		run(task.Name, "")
		o.MaxTime = 1
	}
	if o.MaxTime = 0; !sameFiles(files(t, fsys, "store"), want) {
		t.Error("another store")
	}
	if list, err := ListTasks(context.Background(), fsys, "graph", "store", o); err != nil || len(list) > 0 {
		t.Errorf("of a complete store: %+v, %v", list, err)
	}
	o.Rows = format.RowsAll
	run("rows", "with other options")
}

func TestTasksPropagateTheLabelsOfTheirSplit(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(4, 2000, 5).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Rows: format.RowsAll, LabelHops: 2, Split: 1}
	if !sameFiles(byTasks(t, fsys, "store", 2, o), propagated(t, fsys, "want", o)) {
		t.Error("another store")
	}
}

func TestCutsByOtherOptionsAreNotTaken(t *testing.T) {
	for name, differ := range map[string]func(o *Options){"split": func(o *Options) { o.Split = 1 },
		"dtype": func(o *Options) { o.DType = format.BFloat16 }} {
		fsys := vfs.NewMem()
		randomGraph(4, 5000, 5).write(t, fsys, "graph")
		o := Options{Hops: 2, Operators: allOperators[:1], Rows: format.RowsAll, LabelHops: 2, DType: format.Float16,
			Tasks: 2}
		other := o
		differ(&other)
		if _, err := RunTask(context.Background(), fsys, "graph", "store", "cut-0", other); err != nil {
			t.Fatal(err)
		}
		if !sameFiles(byTasks(t, fsys, "store", o.Tasks, o), propagated(t, fsys, "want", o)) {
			t.Errorf("after a cut with another %s: another store", name)
		}
	}
}

// The environment of a process that runs a task instead of tests: which, and at which operation on the disk it kills
// itself. A process that ends prints how many operations it has done.
const (
	taskVariable  = "PREPROP_TEST_TASK"
	typedVariable = "PREPROP_TEST_TYPED" // not empty: the graph has types
	lastVariable  = "PREPROP_TEST_LAST_OPERATION"
)

func TestMain(m *testing.M) {
	name := os.Getenv(taskVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	last, err := strconv.ParseInt(os.Getenv(lastVariable), 10, 64)
	disk := &lastOperation{FS: vfs.OS(), last: last}
	if err == nil {
		_, err = RunTask(context.Background(), disk, "graph", "store", name, killedOptions(os.Getenv(typedVariable)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(disk.done.Load())
	os.Exit(0)
}

// lastOperation is a disk whose process is killed when it asks for the last operation that changes the disk.
type lastOperation struct {
	vfs.FS
	last int64
	done atomic.Int64
}

func (d *lastOperation) count() {
	if d.done.Add(1) == d.last {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (d *lastOperation) Create(path string) (vfs.PendingFile, error) {
	d.count()
	f, err := d.FS.Create(path)
	return lastWrite{f, d}, err
}

func (d *lastOperation) MkdirAll(path string) error {
	d.count()
	return d.FS.MkdirAll(path)
}

func (d *lastOperation) Remove(path string) error {
	d.count()
	return d.FS.Remove(path)
}

func (d *lastOperation) Rename(from, to string) error {
	d.count()
	return d.FS.Rename(from, to)
}

func (d *lastOperation) Lock(path string) (io.Closer, error) {
	d.count()
	return d.FS.Lock(path)
}

type lastWrite struct {
	vfs.PendingFile
	disk *lastOperation
}

func (f lastWrite) Write(p []byte) (int, error) {
	f.disk.count()
	return f.PendingFile.Write(p)
}

func (f lastWrite) WriteAt(p []byte, at int64) (int, error) {
	f.disk.count()
	return f.PendingFile.WriteAt(p, at)
}

func (f lastWrite) Commit() error {
	f.disk.count()
	return f.PendingFile.Commit()
}

func killedOptions(typed string) Options {
	if typed != "" {
		return Options{Metapaths: []string{"paper<author<paper", "paper<cites.paper<author"}, LabelHops: 1, Threads: 2,
			ChunkRows: 64, Tasks: 3, Scratch: "scratch"}
	}
	return Options{Hops: 2, Operators: allOperators[:2], Threads: 2, ChunkRows: 64, Tasks: 4, Rows: format.RowsAll,
		Scratch: "scratch"}
}

func TestTasksThatAreKilledAtAnyOperationMakeTheSameStore(t *testing.T) {
	killedTasks(t, "", func(fsys vfs.FS) { randomGraph(7, 4000, 64).write(t, fsys, "graph") })
}

func TestTasksOfATypedGraphThatAreKilledAtAnyOperationMakeTheSameStore(t *testing.T) {
	killedTasks(t, "typed", func(fsys vfs.FS) { wideTyped(t, fsys, 300) })
}

func killedTasks(t *testing.T, typed string, writeGraph func(fsys vfs.FS)) {
	want := 20 // kills
	if testing.Short() {
		want = 3
	}
	t.Chdir(t.TempDir())
	fsys := vfs.OS()
	writeGraph(fsys)
	o := killedOptions(typed)
	o.Scratch = ""
	if _, err := Propagate(context.Background(), fsys, "graph", "want", o); err != nil {
		t.Fatal(err)
	}
	if err := fsys.MkdirAll("scratch"); err != nil {
		t.Fatal(err)
	}
	random, kills := rand.New(rand.NewPCG(3, 4)), 0
	operations := map[string]int{} // the most of a task of a kind
	for round := 0; kills < want; round++ {
		if round > 0 {
			if err := os.RemoveAll("store"); err != nil {
				t.Fatal(err)
			}
		}
		inRandomOrder(t, random, o.Tasks, func(name string) bool {
			kind, _, _ := strings.Cut(name, "-")
			last := 0
			if most := operations[kind]; most > 0 && random.IntN(3) > 0 {
				last = 1 + random.IntN(most)
			}
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), taskVariable+"="+name, lastVariable+"="+strconv.Itoa(last),
				typedVariable+"="+typed)
			command.Stderr = os.Stderr
			output, err := command.Output()
			if err != nil && (last == 0 || command.ProcessState.ExitCode() != -1) {
				t.Fatalf("%s: %v", name, err)
			}
			if err != nil {
				kills++
				return false
			}
			done, err := strconv.Atoi(string(output))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			operations[kind] = max(operations[kind], done)
			return true
		})
		if !sameFiles(files(t, fsys, "store"), files(t, fsys, "want")) {
			t.Fatalf("after %d kills: another store", kills)
		}
	}
	t.Logf("at most %v operations, %d kills", operations, kills)
	entries, err := os.ReadDir("scratch")
	for _, e := range entries {
		if _, statErr := os.Stat(filepath.Join("scratch", e.Name(), "lock")); !errors.Is(statErr, fs.ErrNotExist) {
			continue // of the last task that was killed
		}
		t.Errorf("%s is left", e.Name())
	}
	if err != nil || len(entries) > 1 {
		t.Errorf("%s scratch folders are left, %v", strconv.Itoa(len(entries)), err)
	}
}
