package preprop

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// ticking is a clock that goes on by a tick each time it is looked at, as it is between
// blocks: by it, a checkpoint of the small matrices of a test is always due.
func ticking(ticks *atomic.Int64) func() time.Time {
	return func() time.Time { return time.Unix(0, 0).Add(time.Duration(ticks.Add(1)) * tick) }
}

const tick = time.Second

// stopped is a clock by which no time passes: no checkpoint is due, however slow the machine is.
func stopped() time.Time { return time.Unix(0, 0) }

// slotJobs are jobs whose products are several blocks each.
func slotJobs() map[string]Options {
	return map[string]Options{
		"two operators": {Hops: 2, Operators: []operator.Operator{{Name: operator.Sym},
			{Name: operator.RW, Graph: operator.Reverse}}, Threads: 1},
		"all rows": {Hops: 2, Operators: allOperators[:1], Rows: format.RowsAll, Threads: 1},
		"a series": {Hops: 2, Operators: []operator.Operator{{Name: operator.Heat, Parameter: 0.5,
			Tolerance: 0.01}}, Rows: format.RowsAll, DType: format.Float16, Threads: 1},
	}
}

func slotGraph(t *testing.T) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	randomGraph(0, 14_000, 2).write(t, fsys, "graph")
	return fsys
}

func TestAJobInSlotsEndsInThreeTimesItsTime(t *testing.T) {
	graph := slotGraph(t)
	for name, o := range slotJobs() {
		budgets := []int64{0, least(t, graph, o)}
		for i, budget := range append(budgets, -1) { // -1: another one each time
			disk, ticks := graph.CrashClone(), new(atomic.Int64)
			if o.clock, o.MemoryBytes = ticking(ticks), max(budget, 0); i == 1 {
				o.Planned = outOfCore
			}
			want := propagated(t, disk, "whole", o)
			whole := time.Duration(ticks.Load()) * tick
			slot := max(whole/4, 6*tick)
			most := int(3 * whole / slot)
			slots := 1
			for ; ; slots++ {
				ticks.Store(0)
				o.MaxTime = slot
				if budget < 0 {
					o.MemoryBytes = budgets[slots%2]
				}
				r, err := Propagate(context.Background(), disk, "graph", "store", o)
				if err == nil {
					if slots > 1 && !r.Resumed {
						t.Errorf("%s %d: nothing was gone on with", name, i)
					}
					break
				}
				if !errors.Is(err, ErrMaxTime) || !errors.Is(err, ErrUnfinished) || errors.Is(err, ErrTooShort) {
					t.Fatalf("%s %d, slot %d: %v", name, i, slots, err)
				}
				if slots > most {
					t.Fatalf("%s %d: not done in %d slots of %v, alone it takes %v", name, i, slots, slot, whole)
				}
			}
			if slots < 3 || !sameFiles(files(t, disk, "store"), want) {
				t.Errorf("%s %d: %d slots of %v for %v, or another store: %v", name, i, slots, slot, whole,
					sameFiles(files(t, disk, "store"), want))
			}
			o.MaxTime = 0
		}
	}
}

// killing lets everything fail once so many files that keep progress are there.
type killing struct {
	*vfs.Fault
	left int
}

type killingFile struct {
	vfs.PendingFile
	fsys *killing
}

func isProgress(name string) bool {
	return slices.ContainsFunc([]string{"checkpoint-", "result-", "features~"}, func(prefix string) bool {
		return strings.HasPrefix(path.Base(name), prefix)
	})
}

func (k *killing) Create(name string) (vfs.PendingFile, error) {
	f, err := k.Fault.Create(name)
	if err == nil && isProgress(name) {
		return &killingFile{f, k}, nil
	}
	return f, err
}

func (k *killing) CreateDirect(name string, bytes int64) (vfs.PendingFile, error) {
	f, err := k.Fault.CreateDirect(name, bytes)
	if err == nil && isProgress(name) {
		return &killingFile{f, k}, nil
	}
	return f, err
}

func (f *killingFile) Commit() error { return f.fsys.committed(f.PendingFile.Commit()) }

func (k *killing) committed(err error) error {
	if k.left--; k.left == 0 {
		k.FailFrom(k.Operations()+1, syscall.EIO)
	}
	return err
}

func TestAJobKilledAfterEachUnitOfProgressEndsInAsManyStarts(t *testing.T) {
	if testing.Short() {
		t.Skip("the starts of one thread race no more than slots do")
	}
	graph := slotGraph(t)
	for name, o := range slotJobs() {
		for _, budget := range []int64{0, least(t, graph, o)} {
			if o.MemoryBytes, o.clock = budget, ticking(new(atomic.Int64)); budget > 0 {
				o.Planned = outOfCore
			}
			alone := &killing{Fault: vfs.NewFault(graph.CrashClone())}
			if _, err := Propagate(context.Background(), alone, "graph", "store", o); err != nil {
				t.Fatal(err)
			}
			want, units := files(t, alone, "store"), -alone.left
			disk := graph.CrashClone()
			starts := 1
			for ; ; starts++ {
				k := &killing{Fault: vfs.NewFault(disk), left: 1}
				_, err := Propagate(context.Background(), k, "graph", "store", o)
				if disk = disk.CrashClone(); err == nil {
					break
				}
				if starts > units+len(want) {
					t.Fatalf("%s, budget %d: not done in %d starts, alone it does %d units", name, budget, starts,
						units)
				}
			}
			if starts < units/2 || !sameFiles(files(t, disk, "store"), want) {
				t.Errorf("%s, budget %d: %d starts for %d units, or another store", name, budget, starts, units)
			}
		}
	}
}

// A job with more memory may have all columns in one panel, and a checkpoint some of them.
func TestACheckpointOfAPanelServesAJobOfOnePanel(t *testing.T) {
	disk, o := slotGraph(t), slotJobs()["a series"]
	want := propagated(t, disk.CrashClone(), "store", o)
	small, fewer := o, o
	small.MemoryBytes, small.Planned, small.clock = least(t, disk, o), outOfCore, ticking(new(atomic.Int64))
	fewer.Hops = 1 // else the first file to be written is one of hop 0
	propagated(t, disk, "store", fewer)
	killed := &killing{Fault: vfs.NewFault(disk), left: 1}
	if _, err := Propagate(context.Background(), killed, "graph", "store", small); err == nil {
		t.Fatal("it was not killed")
	}
	disk = disk.CrashClone()
	found := slices.Collect(maps.Keys(files(t, disk, "store")))
	if !slices.ContainsFunc(found, func(file string) bool { return strings.Contains(file, "checkpoint-") }) {
		t.Fatalf("no checkpoint in %v", found)
	}
	r, err := Propagate(context.Background(), disk, "graph", "store", o)
	if err != nil || r.Plan.Panels != 1 || !sameFiles(files(t, disk, "store"), want) {
		t.Errorf("%v, or several panels or another store", err)
	}
}

// withoutCheckpoints lets a plan write none.
func withoutCheckpoints(p *Plan) { p.DropCheckpoints() }

func TestFinishedHopsOfAllRowsAreReadBack(t *testing.T) {
	graph := vfs.NewMem()
	randomGraph(0, 3000, 3).write(t, graph, "graph")
	o := Options{Hops: 3, Operators: allOperators[:1], Rows: format.RowsAll, Threads: 1, Planned: withoutCheckpoints}
	want := propagated(t, graph.CrashClone(), "store", o)
	for _, budget := range []int64{0, least(t, graph, o)} {
		o.MemoryBytes = budget
		disk := graph.CrashClone()
		word := map[bool]string{true: "hop-3", false: "result-3-"}[budget == 0]
		if _, err := Propagate(context.Background(), refusing{disk, word}, "graph", "store", o); !errors.Is(err,
			ErrUnfinished) {
			t.Fatal(err)
		}
		r, err := Propagate(context.Background(), disk, "graph", "store", o)
		if err != nil || !sameFiles(files(t, disk, "store"), want) {
			t.Fatalf("budget %d: %v, or another store", budget, err)
		}
		if edges := r.EdgesProcessed; budget == 0 && (edges[0] != 0 || edges[1] != 0) || edges[2] == 0 {
			t.Errorf("budget %d: terms added up again: %v", budget, edges)
		}
	}
}

func TestADamagedCheckpointIsNotGoneOnWith(t *testing.T) {
	disk := slotGraph(t)
	o := slotJobs()["two operators"]
	want := propagated(t, disk, "whole", o)
	ticks := new(atomic.Int64)
	o.clock, o.MaxTime = ticking(ticks), 30*tick
	if _, err := Propagate(context.Background(), disk, "graph", "store", o); !errors.Is(err, ErrMaxTime) {
		t.Fatal(err)
	}
	o.MaxTime = 0
	found := 0
	for name, content := range files(t, disk, "store") {
		if !strings.Contains(name, "checkpoint-") {
			continue
		}
		found++
		for _, at := range []int{0, len(content) / 2, len(content) - 1, -1} {
			clone := disk.CrashClone()
			damaged := content[:len(content)/2]
			if at >= 0 {
				damaged = append([]byte(nil), content...)
				damaged[at] ^= 16
			}
			overwrite(t, clone, name, damaged)
			if _, err := Propagate(context.Background(), clone, "graph", "store", o); err != nil ||
				!sameFiles(files(t, clone, "store"), want) {
				t.Errorf("damaged at %d: %v, or another store", at, err)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d checkpoints, want 1", found)
	}
}

// cloning keeps what a process would have left that was killed when it began to write the first matrix: the next
// hop, which is computed meanwhile, may begin when this is on disk already.
type cloning struct{ fsys, left *vfs.Mem }

func (k *cloning) Start(label string, total int64, unit progress.Unit) progress.Task {
	if strings.HasPrefix(label, "write ") && k.left == nil {
		k.left = k.fsys.CrashClone()
	}
	return progress.Silent.Start(label, total, unit)
}

func TestAJobThatKeepsNothingSaysThatItHadTooLittleTime(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 3).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 1, clock: stopped}
	ctx, cancel := context.WithCancel(context.Background())
	var left atomic.Int64
	left.Store(1)
	o.Progress = stopper{&left, cancel}
	if _, err := Propagate(ctx, fsys, "graph", "store", o); !errors.Is(err, context.Canceled) ||
		!errors.Is(err, ErrTooShort) || !strings.Contains(err.Error(), "still reading the graph") {
		t.Errorf("ended before the first hop: %v", err)
	}
	// Killed processes cannot say so: the next does.
	notes := []string{}
	o.Note = func(text string) { notes = append(notes, text) }
	disk := fsys
	for range 4 { // the third is the first that finds two starts that saved nothing
		killed := &cloning{fsys: disk}
		o.Progress = killed
		if _, err := Propagate(context.Background(), disk, "graph", "store", o); err != nil {
			t.Fatal(err)
		}
		disk = killed.left
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "the last 2 starts") ||
		!strings.Contains(notes[1], "the last 3 starts of this job saved nothing") {
		t.Errorf("notes %q", notes)
	}
}
