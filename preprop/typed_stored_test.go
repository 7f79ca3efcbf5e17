package preprop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// leastTyped is the least budget of memory for a job on a typed graph, as the error of any smaller one names it.
func leastTyped(t *testing.T, fsys vfs.FS, o Options) int64 {
	t.Helper()
	var lack *plan.NoRoom
	needs := func(budget int64) int64 {
		o.MemoryBytes = budget
		if _, err := Propagate(t.Context(), fsys, "graph", "store", o); !errors.As(err, &lack) {
			t.Fatalf("a budget of %d bytes: %v", budget, err)
		}
		return lack.LeastBytes
	}
	least := needs(1)
	for _, budget := range []int64{plan.ProcessBytes, least - 1} {
		if need := needs(budget); need != least {
			t.Errorf("a budget of a byte is told that %d bytes are needed, and one of %d bytes that %d are", least, budget, need)
		}
	}
	return least
}

// scratchKinds counts the kinds of scratch files in a folder: the first word of their names.
func scratchKinds(t *testing.T, fsys vfs.FS, dir string, kinds map[string]int) {
	t.Helper()
	for name := range files(t, fsys, dir) {
		kind, _, ok := strings.Cut(path.Base(name), "-")
		if ok && path.Dir(name) == dir && strings.HasSuffix(name, folder.Suffix) {
			kinds[kind]++
		}
	}
}

func TestStepsOfStoredRowsGoOnAfterACrashAtAnyOperation(t *testing.T) {
	graph := vfs.NewMem()
	wideTyped(t, graph, 1500)
	kinds := map[string]int{} // of scratch files that crashes have left
	step := int64(127)
	if testing.Short() {
		step = 287
	}
	for _, o := range []Options{
		{Metapaths: []string{"paper<author", "paper<cites.paper", "paper<author<paper"}, Rows: format.RowsAll},
		{Hops: 1, RelationsSubsets: 3}, {Hops: 1, LabelHops: 2}} {
		o.Threads, o.clock = 1, ticking(new(atomic.Int64))
		want := propagated(t, graph.CrashClone(), "whole", o)
		o.MemoryBytes = leastTyped(t, graph.CrashClone(), o)
		if err := graph.MkdirAll("scratch"); err != nil {
			t.Fatal(err)
		}
		resumed := 0
		for n := int64(1); ; n += step {
			disk := graph.CrashClone()
			fault := vfs.NewFault(disk)
			fault.FailFrom(n, syscall.EIO)
			_, faultErr := Propagate(context.Background(), fault, "graph", "store", o)
			crashed := []*vfs.Mem{disk.CrashClone(), disk.CrashCloneKeeping(uint64(n))}[n%2]
			scratchKinds(t, crashed, scratchInStore("store"), kinds)
			again := o
			slices.Reverse(again.Metapaths) // the steps come in another order
			again.clock = ticking(new(atomic.Int64))
			result, err := Propagate(context.Background(), crashed, "graph", "store", again)
			if err != nil || !sameFiles(files(t, crashed, "store"), want) {
				t.Fatalf("crash at operation %d: %v, or another store", n, err)
			}
			if result.Resumed {
				resumed++
			}
			if fault.Operations() < n {
				if faultErr != nil {
					t.Fatal(faultErr)
				}
				break
			}
		}
		if resumed < 1 {
			t.Errorf("%+v: %d jobs went on with something", o, resumed)
		}
	}
	if kinds["result"] == 0 || kinds["input"] == 0 {
		t.Errorf("scratch files that crashes have left: %v", kinds)
	}
}

// sparseTyped writes a graph of many papers, whose products are several node ranges each.
func sparseTyped(t *testing.T, fsys vfs.FS) {
	t.Helper()
	const papers, authors = 14_000, 12_000
	random := rand.New(rand.NewPCG(11, 12))
	g := &testTyped{papers: randomGraph(4, papers, 2),
		nodes:  map[string]int{"paper": papers, "author": authors, "venue": 1},
		widths: map[string]int{"paper": 2, "author": 2}, x: map[string][]float32{}, edges: map[string]*format.CSC{}}
	for name, n := range g.nodes {
		g.x[name] = randomFeatures(random, n, 2)
	}
	for _, r := range []format.Relation{{Source: "author", Destination: "paper"},
		{Source: "paper", Destination: "author"}, {Source: "paper", Name: "cites", Destination: "paper"}} {
		c := &format.CSC{Offsets: []int64{0}}
		for range g.nodes[r.Destination] {
			first := random.IntN(g.nodes[r.Source] - 2)
			c.Neighbors = append(c.Neighbors, uint32(first), uint32(first+1+random.IntN(2)))
			c.Weights = append(c.Weights, 1, random.Float32())
			c.Offsets = append(c.Offsets, int64(len(c.Neighbors)))
		}
		g.edges[r.String()], g.order = c, append(g.order, r)
	}
	g.write(t, fsys, "graph")
}

func TestATypedJobInSlotsGoesOnFromTheCheckpointsOfItsSteps(t *testing.T) {
	fsys, ticks := vfs.NewMem(), new(atomic.Int64)
	sparseTyped(t, fsys)
	o := Options{Metapaths: []string{"paper<author", "paper<cites.paper", "paper<author<paper"}, Rows: format.RowsAll,
		Threads: 1, clock: ticking(ticks)}
	want := propagated(t, fsys, "whole", o)
	kinds, slot := map[string]int{}, time.Duration(ticks.Load())*tick/8
	for slots := 1; ; slots++ {
		o.MaxTime = slot
		_, err := Propagate(context.Background(), fsys, "graph", "store", o)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrMaxTime) || slots > 100 {
			t.Fatalf("slot %d of %v: %v", slots, slot, err)
		}
		scratchKinds(t, fsys, scratchInStore("store"), kinds)
		slices.Reverse(o.Metapaths)
	}
	if kinds["checkpoint"] < 3 || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("scratch files that slots have left: %v; or another store", kinds)
	}
}

func TestTasksOfATypedGraphWithLittleMemoryMakeTheSameStore(t *testing.T) {
	fsys := vfs.NewMem()
	wideTyped(t, fsys, 1500)
	for i, o := range []Options{{Hops: 2, RelationsSubsets: 2, DType: format.Float16}, {Hops: 2, LabelHops: 2}} {
		o.Threads = 1
		want, least := propagated(t, fsys, fmt.Sprint("want-", i), o), leastTyped(t, fsys, o)
		var results []int // files that tasks have made
		for _, o.MemoryBytes = range []int64{0, least} {
			store, kinds := fmt.Sprint("store-", i, "-", o.MemoryBytes), map[string]int{}
			o.Tasks = 2
			list, err := ListTasks(t.Context(), fsys, "graph", store, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range list {
				if _, err := RunTask(t.Context(), fsys, "graph", store, task.Name, o); err != nil {
					t.Fatalf("%s: %v", task.Name, err)
				}
				if task.Name == "hops-1" {
					scratchKinds(t, fsys, path.Join(store, format.TasksFolder), kinds)
				}
			}
			if results = append(results, kinds["result"]); !sameFiles(files(t, fsys, store), want) {
				t.Errorf("%+v: another store", o)
			}
		}
		if results[0] >= results[1] {
			t.Errorf("%+v: %d result files with all memory, %d with little", o, results[0], results[1])
		}
	}
}

func TestAPropagationOfATypedGraphWritesNothingBesideItsStore(t *testing.T) {
	for _, scratch := range []string{"", "fast/disk"} {
		fsys := vfs.NewMem()
		wideTyped(t, fsys, 300)
		if _, err := Propagate(t.Context(), fsys, "graph", "store", Options{Hops: 1, Scratch: scratch}); err != nil {
			t.Fatal(err)
		}
		entries, err := fsys.ReadDir(".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "graph" && e.Name() != "store" {
				t.Errorf("--scratch %q: %s is left", scratch, e.Name())
			}
		}
	}
}
