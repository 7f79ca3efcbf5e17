package preprop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// least is the smallest budget that will do.
func least(t *testing.T, fsys vfs.FS, o Options) int64 {
	t.Helper()
	all := budgets(t, fsys, o)
	return all[len(all)-1]
}

func TestAJobGoesOnAfterACrashAtAnyOperation(t *testing.T) {
	graph := vfs.NewMem()
	randomGraph(1, 50, 3).write(t, graph, "graph")
	o := Options{Hops: 1, Operators: []operator.Operator{{Name: operator.RW, Graph: operator.Undirected}}, Threads: 1}
	series := Options{Hops: 1, Operators: []operator.Operator{{Name: operator.Heat, Parameter: 0.5, Tolerance: 0.01}},
		Threads: 1, clock: ticking(new(atomic.Int64))}
	for _, o := range []Options{o, series} { // with checkpoints the second, between products
		budget := least(t, graph, o)
		if o.clock == nil {
			crashAtAnyOperation(t, graph, 0, o)
		}
		crashAtAnyOperation(t, graph, budget, o)
	}
}

func crashAtAnyOperation(t *testing.T, graph *vfs.Mem, budget int64, o Options) {
	t.Helper()
	want := propagated(t, graph.CrashClone(), "whole", o)
	if o.MemoryBytes = budget; budget > 0 {
		o.Planned = outOfCore
	}
	resumed, goesOn := 0, false
	seen := vfs.Disks{}
	for n := int64(1); ; n += failureStep() {
		disk := graph.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailFrom(n, syscall.EIO)
		_, faultErr := Propagate(context.Background(), fault, "graph", "store", o)
		i := int(n % 2) // each operation with one way to crash, so that neighbours have both
		crashed := []*vfs.Mem{disk.CrashClone(), disk.CrashCloneKeeping(uint64(n))}[i]
		if _, statusErr := JobStatus(crashed, "store", ""); statusErr != nil && !errors.Is(statusErr, fs.ErrNotExist) {
			t.Errorf("budget %d, crash at operation %d: status: %v", budget, n, statusErr)
		}
		if seen.Add(crashed, 0) {
			result, err := Propagate(context.Background(), crashed, "graph", "store", o)
			if err != nil {
				t.Fatalf("budget %d, crash %d at operation %d: %v", budget, i, n, err)
			}
			if goesOn = result.Resumed; !sameFiles(files(t, crashed, "store"), want) {
				t.Fatalf("budget %d, crash %d at operation %d: another store", budget, i, n)
			}
		}
		if goesOn {
			resumed++
		}
		if fault.Operations() < n {
			if faultErr != nil {
				t.Fatal(faultErr)
			}
			break
		}
	}
	if int64(resumed)*failureStep() < 10 {
		t.Errorf("budget %d: %d jobs went on with something", budget, resumed)
	}
}

func TestAFullDiskEndsAJobThatGoesOnOnceThereIsRoom(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 2000, 20).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 2}
	want := propagated(t, fsys, "whole", o)
	o.MemoryBytes = least(t, fsys, o)
	used, err := usedBytes(fsys, "")
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for room := int64(600_000); ; room += 20_000 {
		fsys.SetCapacity(used + room)
		_, err := Propagate(context.Background(), optimist{fsys}, "graph", "store", o)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("room for %d bytes: %v", room, err)
		}
		full++
	}
	if full < 3 || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("the disk was full %d times; the store is what it should be: %v", full,
			sameFiles(files(t, fsys, "store"), want))
	}
}

// A write beside the hops that finds the disk full ends the job, whatever is due at that moment: it is not taken for
// a checkpoint that found no room, which a job does without.
func TestAMatrixThatFindsNoRoomEndsTheJob(t *testing.T) {
	graph := slotGraph(t)
	for name, o := range slotJobs() {
		for _, files := range []string{"hop-", "result-"} {
			o := o
			if o.clock = ticking(new(atomic.Int64)); files == "result-" {
				o.MemoryBytes, o.Planned = least(t, graph, o), outOfCore
			}
			for n := int32(1); n < 12; n++ {
				o.clock = ticking(new(atomic.Int64))
				full := &fullOnce{FS: graph.CrashClone(), files: files}
				full.left.Store(n)
				_, err := Propagate(context.Background(), full, "graph", "store", o)
				if full.left.Load() > 0 { // there are fewer files
					if n == 1 {
						t.Errorf("%s: no %s file was written", name, files)
					}
					break
				}
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%s, no room for %s file %d: %v", name, files, n, err)
				}
			}
		}
	}
}

// fullOnce has no room for one of the files whose path has this text.
type fullOnce struct {
	vfs.FS
	files string
	left  atomic.Int32
}

func (f *fullOnce) CreateDirect(path string, bytes int64) (vfs.PendingFile, error) {
	if strings.Contains(path, f.files) && f.left.Add(-1) == 0 {
		return nil, syscall.ENOSPC
	}
	return f.FS.(vfs.DirectCreator).CreateDirect(path, bytes)
}

// optimist always has room, so that nothing is refused beforehand.
type optimist struct{ vfs.FS }

func (optimist) FreeBytes(string) (int64, error) { return 1 << 50, nil }

func (o optimist) CreateDirect(path string, bytes int64) (vfs.PendingFile, error) {
	return o.FS.(vfs.DirectCreator).CreateDirect(path, bytes)
}

func TestStatusTellsWhatAnUnfinishedJobHasMade(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 600, 11).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "whole", o)
	makeHalf(t, fsys, "store", 11, o)
	status, err := JobStatus(fsys, "store", "")
	if err != nil || !status.Unfinished || status.Complete || status.Running || status.DoneColumns != 3*6 ||
		status.Columns != 3*11 || status.Operators != "sym to hop 2" {
		t.Errorf("after 6 of 11 columns: %+v, %v", status, err)
	}
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil || !r.Resumed || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("gone on with: %+v, %v", r, err)
	}
	status, err = JobStatus(fsys, "store", "")
	if err != nil || status.Unfinished || !status.Complete {
		t.Errorf("at the end: %+v, %v", status, err)
	}
}

func TestJobsThatAreAtWorkAreLeftAlone(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	makeHalf(t, fsys, "store", 4, o)
	lock, err := fsys.Lock("store/.job/lock")
	if err != nil {
		t.Fatal(err)
	}
	if status, err := JobStatus(fsys, "store", ""); err != nil || !status.Running {
		t.Errorf("status %+v, %v", status, err)
	}
	before := files(t, fsys, "store")
	for _, force := range []bool{false, true} {
		o.Force = force
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("a job beside another, force %v: %v", force, err)
		}
	}
	if err := lock.Close(); err != nil || !sameFiles(files(t, fsys, "store"), before) {
		t.Errorf("the store has changed, or %v", err)
	}
	o.Force = false
	if r, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil || !r.Resumed {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

func TestAFinishedJobRunAgainDoesNothingAndAnotherIsRefusedByName(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	randomGraph(2, 300, 4).write(t, fsys, "other")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "store", o)
	if r, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil || !r.AlreadyComplete ||
		r.BytesWritten != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
	// One that is unfinished, too.
	makeHalf(t, fsys, "unfinished", 4, o)
	for _, c := range []struct {
		graph  string
		change func(o *Options)
		says   string
	}{
		{"graph", func(o *Options) { o.Hops = 3 }, "operators: sym to hop 2 there, sym to hop 3 asked for"},
		{"graph", func(o *Options) { o.Operators = allOperators[1:2] },
			"operators: sym to hop 2 there, rw to hop 2 asked for"},
		{"graph", func(o *Options) { o.Rows = format.RowsAll }, "--rows: labeled there, all asked for"},
		{"graph", func(o *Options) { o.DType = format.Float16 }, "--dtype: float32 there, float16 asked for"},
		{"graph", func(o *Options) { o.Seed = 9 }, "--seed: 0 there, 9 asked for"},
		{"graph", func(o *Options) { o.Split = 1 }, "--split: 0 there, 1 asked for"},
		{"graph", func(o *Options) { o.ChunkRows = 7 }, "there, 7 asked for"},
		{"other", func(o *Options) {}, "of another graph, or the graph has changed: fingerprint: "},
	} {
		for _, dir := range []string{"store", "unfinished"} {
			if dir == "store" && strings.HasPrefix(c.says, "operators") {
				continue // they are added
			}
			other := o
			c.change(&other)
			_, err := Propagate(context.Background(), fsys, c.graph, dir, other)
			if !errors.Is(err, ErrOptions) && !errors.Is(err, format.ErrExists) || err == nil ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v does not say %q", dir, err, c.says)
			}
		}
	}
	if !sameFiles(files(t, fsys, "store"), want) {
		t.Error("the store has changed")
	}
	force := o
	force.Hops, force.Force = 1, true
	if r, err := Propagate(context.Background(), fsys, "graph", "unfinished", force); err != nil || r.Resumed {
		t.Errorf("by force: %+v, %v", r, err)
	}
	short := propagated(t, fsys, "short", Options{Hops: 1, Operators: allOperators[:1]})
	if !sameFiles(files(t, fsys, "unfinished"), short) {
		t.Error("by force: another store")
	}
}

func TestDamagedPiecesAreFoundAndMadeAgain(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 600, 4).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "whole", o)
	makeHalf(t, fsys, "store", 4, o)
	results := 0
	for name, content := range files(t, fsys, "store") {
		if !strings.Contains(name, "result-") {
			continue
		}
		results++
		for _, at := range []int{0, len(content) / 2, len(content) - 1} {
			clone := fsys.CrashClone()
			damaged := append([]byte(nil), content...)
			damaged[at] ^= 4
			f, err := clone.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(damaged); err != nil {
				t.Fatal(err)
			}
			if err := f.Commit(); err != nil {
				t.Fatal(err)
			}
			if _, err := Propagate(context.Background(), clone, "graph", "store", o); !errors.Is(err,
				format.ErrCorrupt) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s damaged at %d: %v", name, at, err)
			}
			if _, err := Propagate(context.Background(), clone, "graph", "store", o); err != nil ||
				!sameFiles(files(t, clone, "store"), want) {
				t.Errorf("%s damaged at %d: afterwards: %v", name, at, err)
			}
		}
	}
	if results != 2 {
		t.Errorf("%d result files, want 2", results)
	}
}

func TestGrownStoresAreThoseMadeAtOnce(t *testing.T) {
	for seed, rows := range []string{format.RowsAll, format.RowsLabeled} {
		graph := vfs.NewMem()
		randomGraph(uint64(seed), 700, 5).write(t, graph, "graph")
		o := Options{Hops: 1, Operators: allOperators[:1], Rows: rows, Threads: 2,
			DType: []format.DType{format.Float32, format.Float16}[seed], Seed: 3, Split: 1, ChunkRows: 64}
		both := append(allOperators[:1:1], someSeries[0])
		said := func(hops int, operators []operator.Operator) Options {
			more := o
			more.Hops, more.Operators = hops, operators
			return more
		}
		left := Defaulted{Hops: true, Operators: true, Split: true, Seed: true}
		for _, c := range []struct {
			name string
			asks []Options
			want Options
		}{
			{"hops", []Options{said(3, allOperators[:1])}, said(3, allOperators[:1])},
			{"hops twice, and again", []Options{said(2, allOperators[:1]), said(3, allOperators[:1]),
				said(3, allOperators[:1])}, said(3, allOperators[:1])},
			{"hops alone", []Options{{Hops: 3, Defaulted: Defaulted{Operators: true, Split: true, Seed: true}}},
				said(3, allOperators[:1])},
			{"an operator", []Options{said(1, both)}, said(1, both)},
			{"an operator alone", []Options{{Hops: 7, Operators: someSeries[:1],
				Defaulted: Defaulted{Hops: true, Split: true, Seed: true}}}, said(1, both)},
			{"both, in another order", []Options{said(2, []operator.Operator{both[1], both[0]})}, said(2, both)},
			{"the other operator first", []Options{said(2, both[1:]), said(2, both[:1])}, said(2, both)},
			{"nothing", []Options{{Hops: 7, Operators: someSeries, Defaulted: left}}, o},
		} {
			wanted := propagated(t, graph.CrashClone(), "store", c.want)
			for _, budget := range []int64{0, least(t, graph, c.want)}[:2-seed] {
				disk := graph.CrashClone()
				before := propagated(t, disk, "store", o)
				for _, more := range c.asks {
					more.Threads, more.MemoryBytes = 2, budget
					if _, err := Propagate(context.Background(), disk, "graph", "store", more); err != nil {
						t.Fatalf("%s, %s: %v", rows, c.name, err)
					}
				}
				after := files(t, disk, "store")
				if !sameFiles(after, wanted) {
					t.Errorf("%s, seed %d, %s, budget %d: another store", rows, seed, c.name, budget)
				}
				for name, content := range before {
					if strings.Contains(name, "part-") && string(after[name]) != string(content) {
						t.Errorf("%s: %s has changed", c.name, name)
					}
				}
			}
		}
	}
}

func TestWhatAStoreHasBeyondWhatIsAskedForStaysAndIsTold(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 300, 3).write(t, fsys, "graph")
	o := Options{Hops: 3, Operators: []operator.Operator{{Name: operator.Sym}, {Name: operator.RW}}, Threads: 1}
	before := propagated(t, fsys, "store", o)
	for _, c := range []struct {
		hops      int
		operators []operator.Operator
		beyond    string
	}{
		{3, o.Operators, "[]"},
		{2, o.Operators, "[sym hop 3 rw hop 3]"},
		{1, o.Operators[1:], "[sym hops 1 to 3 rw hops 2 to 3]"},
		{0, nil, "[sym hops 1 to 3 rw hops 1 to 3]"},
	} {
		less := o
		less.Hops, less.Operators = c.hops, c.operators
		r, err := Propagate(context.Background(), fsys, "graph", "store", less)
		if err != nil || !r.AlreadyComplete || !r.Complete || r.BytesWritten != 0 || fmt.Sprint(r.Beyond) != c.beyond {
			t.Errorf("%d hops of %v: %+v, %v, want beyond %s", c.hops, c.operators, r, err, c.beyond)
		}
	}
	if !sameFiles(files(t, fsys, "store"), before) {
		t.Error("the store has changed")
	}
	// More of one operator: the other keeps what it has.
	one := Options{Hops: 4, Operators: o.Operators[1:], Threads: 1}
	r, err := Propagate(context.Background(), fsys, "graph", "store", one)
	if err != nil || fmt.Sprint(r.Operators, r.OperatorHops, r.Hops, len(r.HopSeconds),
		r.Beyond) != "[sym rw] [3 4] 4 7 [sym hops 1 to 3]" {
		t.Errorf("more of one: %+v, %v", r, err)
	}
	// So an operator that comes later gets as many as the longest has, unless it is said.
	later := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Col}}, Threads: 1,
		Defaulted: Defaulted{Hops: true}}
	if r, err = Propagate(context.Background(), fsys, "graph", "store", later); err != nil ||
		fmt.Sprint(r.Operators, r.OperatorHops) != "[sym rw col] [3 4 4]" {
		t.Errorf("a further one: %+v, %v", r, err)
	}
}

// publishing is a file system on which, once, another process does something just before a lock is taken.
type publishing struct {
	vfs.FS
	before func()
}

func (p *publishing) Lock(path string) (io.Closer, error) {
	if do := p.before; do != nil {
		p.before = nil
		do()
	}
	return p.FS.Lock(path)
}

func TestAStoreThatChangesBeforeItIsLockedIsLookedAtAgain(t *testing.T) {
	graph := vfs.NewMem()
	randomGraph(1, 300, 3).write(t, graph, "graph")
	of := func(hops int) Options { return Options{Hops: hops, Operators: allOperators[:1], Threads: 1} }
	want := propagated(t, graph.CrashClone(), "store", of(3))
	for _, c := range []struct{ first, other, mine int }{
		{1, 2, 3}, // the other adds a part of it
		{1, 3, 2}, // more
		{1, 3, 3}, // the same
		{0, 3, 3}, // there was no store
		{0, 2, 3},
	} {
		disk := graph.CrashClone()
		if c.first > 0 {
			propagated(t, disk, "store", of(c.first))
		}
		other := &publishing{FS: disk, before: func() { propagated(t, disk, "store", of(c.other)) }}
		r, err := Propagate(context.Background(), other, "graph", "store", of(c.mine))
		if err != nil || !r.Complete || !sameFiles(files(t, disk, "store"), want) {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
}

func TestGrowingGoesOnAfterACrashAndReadersSeeACompleteStore(t *testing.T) {
	graph := vfs.NewMem()
	randomGraph(1, 40, 2).write(t, graph, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	more := o
	more.Hops = 2
	want := propagated(t, graph.CrashClone(), "store", more)
	propagated(t, graph, "store", o)
	seen := vfs.Disks{}
	for n := int64(1); ; n += failureStep() {
		disk := graph.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailFrom(n, syscall.EIO)
		_, err := Propagate(context.Background(), fault, "graph", "store", more)
		if fault.Operations() < n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		crashed := disk.CrashClone() // each operation with one way to crash, so that neighbours have all
		if n%3 > 0 {
			crashed = disk.CrashCloneKeeping(uint64(n % 3))
		}
		if !seen.Add(crashed, 0) {
			continue
		}
		store, err := format.OpenStore(crashed, "store")
		if err != nil {
			t.Fatalf("crash at operation %d: %v", n, err)
		}
		store.Close()
		if _, err := Propagate(context.Background(), crashed, "graph", "store", more); err != nil {
			t.Fatalf("crash at operation %d: %v", n, err)
		}
		if !maps.EqualFunc(files(t, crashed, "store"), want, bytes.Equal) {
			t.Fatalf("crash at operation %d: another store", n)
		}
	}
}

// refusing does not create what has a word in its path.
type refusing struct {
	vfs.FS
	word string
}

func (r refusing) Create(path string) (vfs.PendingFile, error) {
	if strings.Contains(path, r.word) {
		return nil, &fs.PathError{Op: "create", Path: path, Err: syscall.EACCES}
	}
	return r.FS.Create(path)
}

func (r refusing) MkdirAll(path string) error {
	if strings.Contains(path, r.word) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.EACCES}
	}
	return r.FS.MkdirAll(path)
}

func TestAScratchFolderThatCannotBeMadeCostsNothingThatIsDone(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1, Scratch: "elsewhere"}
	want := propagated(t, fsys, "whole", o)
	for range 2 {
		if _, err := Propagate(context.Background(), refusing{fsys, "elsewhere"}, "graph", "store", o); !errors.Is(err,
			fs.ErrPermission) {
			t.Errorf("no scratch folder: %v", err)
		}
	}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil ||
		!sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("once it can be made: %v, or another store", err)
	}
}

func TestScratchFilesDoNotLieInGraphOrStore(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	for _, folder := range []string{"graph", "graph/in/it", "store", "store/.job", "./x/../store"} {
		o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1, Scratch: folder}
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, ErrOptions) {
			t.Errorf("scratch files in %s: %v", folder, err)
		}
	}
}

func TestGrowingKeepsTheMatricesThatAreFinished(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	of := func(hops int) Options { return Options{Hops: hops, Operators: allOperators[:1], Threads: 1} }
	want := propagated(t, fsys, "whole", of(3))
	propagated(t, fsys, "store", of(1))
	if _, err := Propagate(context.Background(), refusing{fsys, "hop-3"}, "graph", "store", of(3)); !errors.Is(err,
		ErrUnfinished) {
		t.Errorf("without a third hop: %v", err)
	}
	if s, err := JobStatus(fsys, "store", ""); err != nil || s.Finished != 3 {
		t.Errorf("status: %+v, %v", s, err)
	}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", of(2)); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "remove store/.job to give it up") {
		t.Errorf("another growth: %v", err)
	}
	r, err := Propagate(context.Background(), refusing{fsys, "hop-2"}, "graph", "store", of(3))
	if err != nil || !r.Resumed || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("gone on with: %+v, %v", r, err)
	}
	r, err = Propagate(context.Background(), fsys, "graph", "store", of(4))
	if err != nil || r.Resumed {
		t.Errorf("a further hop: %+v, %v", r, err)
	}
}

func TestGrowingReadsOnlyWhatItStartsFrom(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 2000, 40).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:2], Rows: format.RowsAll, Threads: 1}
	propagated(t, fsys, "store", o)
	o.Operators = allOperators[:3]
	o.Planned = func(p *Plan) { p.InputFiles, p.ResultFiles, p.PanelColumns = true, true, 13 }
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	// column files of an input, and of results
	if matrix := int64(2000 * 40 * 4); err != nil || r.ScratchBytes < 2*matrix || r.ScratchBytes > 2*matrix+4<<10 {
		t.Errorf("%+v, %v", r, err)
	}
}

// vfsWithout is a copy of a file system without a directory.
func vfsWithout(t *testing.T, fsys *vfs.Mem, dir string) *vfs.Mem {
	t.Helper()
	clone := fsys.CrashClone()
	if err := clone.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return clone
}

func TestWhatCannotBeAddedIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	propagated(t, fsys, "store", Options{Hops: 2, Operators: allOperators[:1], Threads: 1})
	propagated(t, fsys, "bare", Options{Threads: 1})
	for _, c := range []struct {
		name, store string
		o           Options
	}{
		{"fewer hops than none", "store", Options{Hops: -1, Operators: allOperators[:1]}},
		{"more hops than any store has", "store", Options{Hops: 1 << 20, Operators: allOperators[:1]}},
		{"an operator twice", "store", Options{Hops: 3,
			Operators: []operator.Operator{allOperators[0], allOperators[0]}}},
		{"hops of no operator", "bare", Options{Hops: 1}},
	} {
		if _, err := Propagate(context.Background(), fsys, "graph", c.store, c.o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	r, err := Propagate(context.Background(), fsys, "graph", "bare",
		Options{Hops: 2, Operators: allOperators[:1], Defaulted: Defaulted{Hops: true, Operators: true}})
	if err != nil || r.AlreadyComplete || !sameFiles(files(t, fsys, "bare"), files(t, fsys, "store")) {
		t.Errorf("what is the default of a store without operators: %+v, %v", r, err)
	}
}

func TestBudgetsAreKeptOrRefusedWithTheLeastThatWillDo(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 3000, 8).write(t, fsys, "graph")
	for _, o := range []Options{
		{Hops: 2, Operators: allOperators[:1], Threads: 1},
		{Hops: 2, Operators: someSeries, Threads: 3, DType: format.Float16},
		{Hops: 1, Operators: allOperators, Threads: 2, Rows: format.RowsAll},
		{Threads: 1},
	} {
		for _, budget := range budgetsFrom(t, fsys, o) {
			o.DryRun, o.MemoryBytes = true, budget
			r, err := Propagate(context.Background(), fsys, "graph", "store", o)
			if err != nil && !errors.Is(err, machine.ErrDoesNotFit) || err == nil && budget > 0 &&
				r.MemoryBytes > budget {
				t.Errorf("%+v: plan %+v, %v", o, r, err)
			}
		}
	}
}

// budgetsFrom is some amounts about what a job needs.
func budgetsFrom(t *testing.T, fsys vfs.FS, o Options) []int64 {
	t.Helper()
	o.DryRun = true
	whole, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for part := int64(1); part <= 40; part++ {
		out = append(out, plan.ProcessBytes+(whole.MemoryBytes-plan.ProcessBytes)*part/40)
	}
	return out
}
