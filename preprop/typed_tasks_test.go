package preprop

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// wideTyped writes the graph of randomTyped with 40 features of authors and 20 of papers: 3 and 2 lines of 64 bytes.
func wideTyped(t *testing.T, fsys vfs.FS, papers int) {
	t.Helper()
	g := randomTyped(t, vfs.NewMem(), "narrow", papers)
	random := rand.New(rand.NewPCG(3, 5))
	for name, width := range map[string]int{"author": 40, "paper": 20} {
		g.widths[name], g.x[name] = width, randomFeatures(random, g.nodes[name], width)
	}
	g.write(t, fsys, "graph")
}

// typedOptions are of stores of all kinds.
var typedOptions = []Options{
	{Hops: 2, ChunkRows: 16},
	{Hops: 1, Rows: format.RowsAll, DType: format.Float16, Operators: []operator.Operator{{Name: operator.Sym}}},
	{Hops: 2, LabelHops: 2, Split: 1, Seed: 3},
	{Hops: 2, RelationsSubsets: 3},
	{Metapaths: []string{"paper<venue<paper<author", "paper<author"}, LabelHops: 1, ChunkRows: 7},
}

func TestTasksOfATypedGraphInAnyOrderTwiceAndAtTheSameTimeMakeTheSameStore(t *testing.T) {
	seeds := 2 * uint64(len(typedOptions))
	if testing.Short() {
		seeds /= 2
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 2))
		var fsys vfs.FS = vfs.NewMem()
		if seed%8 == 0 {
			fsys = vfs.OS()
			t.Chdir(t.TempDir())
		}
		wideTyped(t, fsys, 100)
		o := typedOptions[seed%uint64(len(typedOptions))]
		o.Threads = 2
		want := propagated(t, fsys, "want", o)
		if o.Hops == 2 && int(seed) < len(typedOptions) { // an existing store
			before := o
			before.Hops, before.RelationsSubsets, before.Metapaths = 0, 0, []string{"paper<author", "paper<cites.paper"}
			if o.LabelHops > 0 {
				before.LabelHops = 2
			}
			if o.RelationsSubsets == 0 {
				if _, err := Propagate(context.Background(), fsys, "graph", "store", before); err != nil {
					t.Fatal(err)
				}
			}
		}
		o.Tasks, o.Scratch = 1+random.IntN(6), "scratch"
		if seed%3 == 1 {
			o.Device = always(0, nil)
		}
		if err := fsys.MkdirAll(o.Scratch); err != nil {
			t.Fatal(err)
		}
		list, err := ListTasks(context.Background(), fsys, "graph", "store", o)
		if err != nil {
			t.Fatal(err)
		}
		needs := map[string]int64{}
		for _, task := range list {
			needs[task.Name] = task.MemoryBytes
		}
		inRandomOrder(t, random, o.Tasks, func(name string) bool {
			o.MemoryBytes = needs[name] // 0: there is nothing to do
			var group sync.WaitGroup
			for range 1 + random.IntN(2) {
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
			if s, err := JobStatus(fsys, "store", ""); strings.HasPrefix(name, "write") && (err != nil || s.Columns == 0 ||
				s.DoneColumns != s.Columns) {
				t.Errorf("seed %d, after %s: %+v, %v", seed, name, s, err)
			}
			return true
		})
		if t.Failed() || !sameFiles(files(t, fsys, "store"), want) {
			t.Fatalf("seed %d, %d tasks: another store", seed, o.Tasks)
		}
		if left := files(t, fsys, "scratch"); len(left) > 0 {
			t.Errorf("seed %d: scratch files are left: %d", seed, len(left))
		}
	}
}

func TestSharesOfATypedGraphAreAllColumnsOnceAndNearlyEven(t *testing.T) {
	fsys := vfs.NewMem()
	wideTyped(t, fsys, 100)
	for tasks := 1; tasks < 9; tasks++ {
		job, err := openTaskJob(fsys, "graph", "store", Options{Hops: 2, LabelHops: 2, Tasks: tasks})
		if err != nil {
			t.Fatal(err)
		}
		columns, pieces := map[string]int{}, map[int]int{}
		for _, s := range job.shares {
			columns[s.root.key] += s.Width()
			pieces[s.task]++
			if s.End < s.root.source.Features && s.Width()%16 != 0 {
				t.Errorf("%d tasks: columns %d to %d of %s are no whole lines", tasks, s.First, s.End, s.root.key)
			}
		}
		if columns["author"] != 40 || columns["paper"] != 20 || columns["paper:labels"] != 4 {
			t.Errorf("%d tasks: %v", tasks, columns)
		}
		if want := min(tasks, len(job.shares)); len(pieces) != want {
			t.Errorf("%d tasks have %d shares: %v", tasks, len(job.shares), pieces)
		}
		if err := job.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestATaskOfATypedGraphThatMustWaitOrDiffersSaysSo(t *testing.T) {
	fsys := vfs.NewMem()
	wideTyped(t, fsys, 100)
	o := Options{Hops: 1, Threads: 1, Tasks: 2}
	checkWaitingTasks(t, fsys, o, 8)
	o.From = "want"
	if _, err := RunTask(context.Background(), fsys, "graph", "store", "rows", o); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "leave out --from") {
		t.Errorf("with an earlier store: %v", err)
	}
}

func TestNodesThatAreNotThoseOfTheTypedGraphAreRefused(t *testing.T) {
	for _, name := range []string{"author", "paper"} {
		fsys := vfs.NewMem()
		randomTyped(t, fsys, "graph", 60)
		randomTyped(t, fsys, "other", 30)
		if err := fsys.RemoveAll("graph/nodes/" + name); err != nil {
			t.Fatal(err)
		}
		if err := fsys.MkdirAll("graph/nodes/" + name); err != nil {
			t.Fatal(err)
		}
		for path, content := range files(t, fsys, "other/nodes/"+name) {
			path = "graph" + strings.TrimPrefix(path, "other")
			if err := errors.Join(fsys.MkdirAll(filepath.Dir(path)), vfs.WriteFile(fsys, path, content)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Propagate(context.Background(), fsys, "graph", "store", Options{Hops: 1})
		_, taskErr := ListTasks(context.Background(), fsys, "graph", "store", Options{Hops: 1, Tasks: 2})
		for _, err := range []error{err, taskErr} {
			if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "it is not the one that types.json names") {
				t.Errorf("%s of another graph: %v", name, err)
			}
		}
	}
}

func TestScratchFilesOfATypedJobAreWhereTheUserSays(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 60)
	o := Options{Hops: 2, LabelHops: 2, MaxTime: 1 << 40} // with which no matrix stays in memory alone
	want := propagated(t, fsys, "whole", o)
	if err := fsys.MkdirAll("scratch"); err != nil {
		t.Fatal(err)
	}
	o.Scratch = "scratch"
	resumed := 0
	for k := int64(1); ; k += 5 {
		ctx, cancel := context.WithCancel(context.Background())
		var left atomic.Int64
		left.Store(k)
		o.Progress = stopper{&left, cancel}
		_, err := Propagate(ctx, fsys, "graph", "store", o)
		cancel()
		if o.Progress = nil; left.Load() > 0 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		elsewhere := o
		elsewhere.Scratch = "graph"
		if _, err := Propagate(context.Background(), fsys, "graph", "store", elsewhere); !errors.Is(err, ErrOptions) {
			t.Errorf("scratch files in the graph: %v", err)
		}
		r, err := Propagate(context.Background(), fsys, "graph", "store", o)
		if err != nil || !sameFiles(files(t, fsys, "store"), want) {
			t.Fatalf("cancelled at task %d: %v, or another store", k, err)
		}
		if r.Resumed {
			resumed++
		}
		if remain := files(t, fsys, "scratch"); len(remain) > 0 {
			t.Errorf("cancelled at task %d: %d scratch files are left", k, len(remain))
		}
		if err := fsys.RemoveAll("store"); err != nil {
			t.Fatal(err)
		}
	}
	if resumed == 0 {
		t.Error("no job went on")
	}
}
