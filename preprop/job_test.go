package preprop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
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
	o := Options{Hops: 2, Operators: []Operator{{Name: RW, Graph: Undirected}}, Threads: 1}
	want := propagated(t, graph.CrashClone(), "whole", o)
	for _, budget := range []int64{0, least(t, graph, o)} {
		o.MemoryBytes = budget
		resumed := 0
		for n := int64(1); ; n++ {
			disk := graph.CrashClone()
			fault := vfs.NewFault(disk)
			fault.FailFrom(n, syscall.EIO)
			_, err := Propagate(context.Background(), fault, "graph", "store", o)
			for i, crashed := range []*vfs.Mem{disk.CrashClone(), disk.CrashCloneKeeping(uint64(n))} {
				if _, statusErr := JobStatus(crashed, "store", ""); statusErr != nil && !errors.Is(statusErr, fs.ErrNotExist) {
					t.Errorf("budget %d, crash at operation %d: status: %v", budget, n, statusErr)
				}
				result, err := Propagate(context.Background(), crashed, "graph", "store", o)
				if err != nil {
					t.Fatalf("budget %d, crash %d at operation %d: %v", budget, i, n, err)
				}
				if result.Resumed {
					resumed++
				}
				if !sameFiles(files(t, crashed, "store"), want) {
					t.Fatalf("budget %d, crash %d at operation %d: another store", budget, i, n)
				}
			}
			if fault.Operations() < n {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		if resumed < 20 {
			t.Errorf("budget %d: %d jobs went on with something", budget, resumed)
		}
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
	for room := int64(600_000); ; room += 40_000 {
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
		t.Errorf("the disk was full %d times; the store is what it should be: %v", full, sameFiles(files(t, fsys, "store"), want))
	}
}

// optimist always has room, so that nothing is refused beforehand.
type optimist struct{ vfs.FS }

func (optimist) FreeBytes(string) (int64, error) { return 1 << 50, nil }

func TestShardsInAnyOrderMakeTheSameStore(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 5))
		fsys := vfs.NewMem()
		randomGraph(seed, 600, 11).write(t, fsys, "graph")
		o := Options{Hops: 2, Operators: allOperators[:2], Threads: 1}
		want := propagated(t, fsys, "whole", o)
		o.MemoryBytes = []int64{0, least(t, fsys, o)}[seed%2]
		o.Scratch = []string{"", "scratch"}[seed/2%2]
		count := []int{2, 3, 11}[seed/2]
		published := 0
		for k, index := range random.Perm(count) {
			o.Shard = Shard{index, count}
			if random.IntN(2) == 0 { // killed once
				ctx, cancel := context.WithCancel(context.Background())
				left := 1 + random.IntN(5)
				o.Progress = stopper{&left, cancel}
				if _, err := Propagate(ctx, fsys, "graph", "store", o); err == nil && left <= 0 {
					t.Errorf("seed %d: a cancelled shard is no error", seed)
				}
				cancel()
				o.Progress = nil
			}
			r, err := Propagate(context.Background(), fsys, "graph", "store", o)
			if err != nil {
				t.Fatalf("seed %d, shard %v: %v", seed, o.Shard, err)
			}
			if r.Published {
				published++
			}
			if last := k == count-1; r.Published != last {
				t.Errorf("seed %d, after %d of %d shards: published %v", seed, k+1, count, r.Published)
			}
		}
		if !sameFiles(files(t, fsys, "store"), want) {
			t.Errorf("seed %d, %d shards: another store", seed, count)
		}
		if left := files(t, fsys, "scratch"); len(left) > 0 {
			t.Errorf("seed %d: %d scratch files are left", seed, len(left))
		}
	}
}

func TestShardsAtTheSameTimeMakeTheSameStore(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 600, 11).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "whole", o)
	const count = 4
	var wg sync.WaitGroup
	errs := make([]error, count)
	for index := range count {
		wg.Go(func() {
			mine := o
			mine.Shard = Shard{index, count}
			_, errs[index] = Propagate(context.Background(), fsys, "graph", "store", mine)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if !sameFiles(files(t, fsys, "store"), want) {
		t.Error("another store")
	}
}

func TestWhatShardsHaveMadeIsFinishedByAWholeJobOrAssembled(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 600, 11).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "whole", o)
	shard := o
	shard.Shard = Shard{1, 3}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", shard); err != nil {
		t.Fatal(err)
	}
	status, err := JobStatus(fsys, "store", "")
	if err != nil || !status.Unfinished || status.Complete || status.Running || status.DoneColumns != 3*4 || status.Columns != 3*11 || status.Operators != "sym to hop 2" {
		t.Errorf("after a shard of 4 of 11 columns: %+v, %v", status, err)
	}
	assemble := o
	assemble.Assemble = true
	if _, err := Propagate(context.Background(), fsys, "graph", "store", assemble); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "columns 0 to 2 are not done") {
		t.Errorf("assembled too early: %v", err)
	}
	for _, change := range []func(o *Options){func(o *Options) { o.Force = true }, func(o *Options) { o.Shard = Shard{0, 3} }} {
		contradiction := assemble
		change(&contradiction)
		if _, err := Propagate(context.Background(), fsys, "graph", "store", contradiction); !errors.Is(err, ErrOptions) {
			t.Errorf("assembled with %+v: %v", contradiction, err)
		}
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
	shard := o
	shard.Shard = Shard{0, 2}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", shard); err != nil {
		t.Fatal(err)
	}
	lock, err := fsys.Lock("store/" + format.ScratchFolder + "/shard-1-of-2.lock")
	if err != nil {
		t.Fatal(err)
	}
	if status, err := JobStatus(fsys, "store", ""); err != nil || !status.Running || fmt.Sprint(status.Shards) != "[1-of-2]" {
		t.Errorf("status %+v, %v", status, err)
	}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "shard 1-of-2") {
		t.Errorf("a whole job beside a shard: %v", err)
	}
	shard.Shard = Shard{1, 2}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", shard); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("the same shard twice: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := Propagate(context.Background(), fsys, "graph", "store", shard); err != nil || !r.Published {
		t.Errorf("the last shard: %v", err)
	}
}

func TestAFinishedJobRunAgainDoesNothingAndAnotherIsRefusedByName(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	randomGraph(2, 300, 4).write(t, fsys, "other")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "store", o)
	if r, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil || !r.AlreadyComplete || r.BytesWritten != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
	// One that is unfinished, too.
	shard := o
	shard.Shard = Shard{0, 2}
	if _, err := Propagate(context.Background(), fsys, "graph", "unfinished", shard); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		graph  string
		change func(o *Options)
		says   string
	}{
		{"graph", func(o *Options) { o.Hops = 3 }, "operators: sym to hop 2 there, sym to hop 3 asked for"},
		{"graph", func(o *Options) { o.Operators = allOperators[1:2] }, "operators: sym to hop 2 there, rw to hop 2 asked for"},
		{"graph", func(o *Options) { o.Rows = format.RowsAll }, "rows: labeled there, all asked for"},
		{"graph", func(o *Options) { o.DType = format.Float16 }, "dtype: float32 there, float16 asked for"},
		{"graph", func(o *Options) { o.Seed = 9 }, "seed: 0 there, 9 asked for"},
		{"graph", func(o *Options) { o.Split = 1 }, "split: 0 there, 1 asked for"},
		{"graph", func(o *Options) { o.ChunkRows = 7 }, "there, 7 asked for"},
		{"other", func(o *Options) {}, "of another graph"},
	} {
		for _, dir := range []string{"store", "unfinished"} {
			other := o
			c.change(&other)
			_, err := Propagate(context.Background(), fsys, c.graph, dir, other)
			if !errors.Is(err, ErrOptions) && !errors.Is(err, format.ErrExists) || err == nil || !strings.Contains(err.Error(), c.says) {
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
	o.Shard = Shard{0, 2}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
		t.Fatal(err)
	}
	pieces := 0
	for name, content := range files(t, fsys, "store") {
		if !strings.Contains(name, "piece-") {
			continue
		}
		pieces++
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
			last := o
			last.Shard.Index = 1
			if _, err := Propagate(context.Background(), clone, "graph", "store", last); !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s damaged at %d: %v", name, at, err)
			}
			last.Shard = Shard{}
			if _, err := Propagate(context.Background(), clone, "graph", "store", last); err != nil || !sameFiles(files(t, clone, "store"), want) {
				t.Errorf("%s damaged at %d: afterwards: %v", name, at, err)
			}
		}
	}
	if pieces != 2 {
		t.Errorf("%d pieces, want 2", pieces)
	}
}

func TestGrownStoresAreThoseMadeAtOnce(t *testing.T) {
	for _, rows := range []string{format.RowsLabeled, format.RowsAll} {
		for seed := range uint64(2) {
			graph := vfs.NewMem()
			randomGraph(seed, 700, 5).write(t, graph, "graph")
			o := Options{Hops: 1, Operators: allOperators[:1], Rows: rows, Threads: 2, DType: []format.DType{format.Float32, format.Float16}[seed], Seed: 3, Split: 1, ChunkRows: 64}
			both := append(allOperators[:1:1], someSeries[0])
			for _, c := range []struct {
				name string
				adds []Growth
				want Options
			}{
				{"hops", []Growth{{Hops: 2}}, Options{Hops: 3, Operators: allOperators[:1]}},
				{"hops twice", []Growth{{Hops: 1}, {Hops: 1}}, Options{Hops: 3, Operators: allOperators[:1]}},
				{"an operator", []Growth{{Operators: someSeries[:1]}}, Options{Hops: 1, Operators: both}},
				{"both", []Growth{{Hops: 1, Operators: someSeries[:1]}}, Options{Hops: 2, Operators: both}},
			} {
				want := o
				want.Hops, want.Operators = c.want.Hops, c.want.Operators
				wanted := propagated(t, graph.CrashClone(), "store", want)
				for _, budget := range []int64{0, least(t, graph, want)} {
					disk := graph.CrashClone()
					before := propagated(t, disk, "store", o)
					for _, add := range c.adds {
						if _, err := Grow(context.Background(), disk, "graph", "store", add, Options{Threads: 2, MemoryBytes: budget}); err != nil {
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
}

func TestGrowingGoesOnAfterACrashAndReadersSeeACompleteStore(t *testing.T) {
	graph := vfs.NewMem()
	randomGraph(1, 40, 2).write(t, graph, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	more := o
	more.Hops = 2
	want := propagated(t, graph.CrashClone(), "store", more)
	propagated(t, graph, "store", o)
	for n := int64(1); ; n++ {
		disk := graph.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailFrom(n, syscall.EIO)
		_, err := Grow(context.Background(), fault, "graph", "store", Growth{Hops: 1}, Options{Threads: 1})
		if fault.Operations() < n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		for i, crashed := range []*vfs.Mem{disk.CrashClone(), disk.CrashCloneKeeping(1), disk.CrashCloneKeeping(2)} {
			store, err := format.OpenStore(crashed, "store")
			if err != nil {
				t.Fatalf("crash %d at operation %d: %v", i, n, err)
			}
			hops := store.Manifest.Operators[0].Hops
			store.Close()
			if hops == 1 {
				if _, err := Grow(context.Background(), crashed, "graph", "store", Growth{Hops: 1}, Options{Threads: 1}); err != nil {
					t.Fatalf("crash %d at operation %d: %v", i, n, err)
				}
			}
			found := files(t, crashed, "store")
			if next, ok := found["store/.job/index.arrow"]; ok && string(found["store/index.arrow"]) != string(want["store/index.arrow"]) {
				found["store/index.arrow"] = next // where readers look until it is renamed
			}
			delete(found, "store/index.arrow"+vfs.TempSuffix)
			if !sameFiles(found, want) {
				t.Fatalf("crash %d at operation %d: another store", i, n)
			}
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
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1, Shard: Shard{0, 2}}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
		t.Fatal(err)
	}
	before := files(t, fsys, "store")
	o.Shard, o.Scratch = Shard{}, "elsewhere"
	if _, err := Propagate(context.Background(), refusing{fsys, "elsewhere"}, "graph", "store", o); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no scratch folder: %v", err)
	}
	if !sameFiles(files(t, fsys, "store"), before) {
		t.Error("what a shard had done has changed")
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
	o := Options{Hops: 3, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "whole", o)
	o.Hops = 1
	propagated(t, fsys, "store", o)
	if _, err := Grow(context.Background(), refusing{fsys, "hop-3"}, "graph", "store", Growth{Hops: 2}, Options{Threads: 1}); !errors.Is(err, ErrUnfinished) {
		t.Errorf("without a third hop: %v", err)
	}
	if s, err := JobStatus(fsys, "store", ""); err != nil || s.Finished != 1 {
		t.Errorf("status: %+v, %v", s, err)
	}
	if _, err := Grow(context.Background(), fsys, "graph", "store", Growth{Hops: 1}, Options{Threads: 1}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "remove store/.job to give it up") {
		t.Errorf("another growth: %v", err)
	}
	r, err := Grow(context.Background(), refusing{fsys, "hop-2"}, "graph", "store", Growth{Hops: 2}, Options{Threads: 1})
	if err != nil || !r.Resumed || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("gone on with: %+v, %v", r, err)
	}
	r, err = Grow(context.Background(), fsys, "graph", "store", Growth{Hops: 1}, Options{Threads: 1})
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
	r, err := Grow(context.Background(), fsys, "graph", "store", Growth{Operators: allOperators[2:3]}, Options{
		Threads: 1, MemoryBytes: least(t, fsys, o), Planned: func(p *Plan) { p.Strips = true },
	})
	if matrix := int64(2000 * 40 * 4); err != nil || r.Panels < 3 || r.ScratchBytes < 2*matrix || r.ScratchBytes > 2*matrix+4<<10 { // strips of one, and pieces
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhatCannotBeAddedIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 4).write(t, fsys, "graph")
	randomGraph(2, 300, 4).write(t, fsys, "other")
	propagated(t, fsys, "store", Options{Hops: 2, Operators: allOperators[:1], Threads: 1})
	propagated(t, fsys, "bare", Options{Threads: 1})
	for _, c := range []struct {
		name, graph, store string
		add                Growth
	}{
		{"nothing", "graph", "store", Growth{}},
		{"fewer hops", "graph", "store", Growth{Hops: -1}},
		{"more hops than any store has", "graph", "store", Growth{Hops: 1 << 20}},
		{"an operator that is there", "graph", "store", Growth{Operators: allOperators[:1]}},
		{"to a store of another graph", "other", "store", Growth{Hops: 1}},
		{"an operator without hops", "graph", "bare", Growth{Operators: allOperators[:1]}},
	} {
		if _, err := Grow(context.Background(), fsys, c.graph, c.store, c.add, Options{Threads: 1}); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestBudgetsAreKeptOrRefusedWithTheLeastThatWillDo(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 3000, 8).write(t, fsys, "graph")
	for _, o := range []Options{
		{Hops: 2, Operators: allOperators[:1], Threads: 1},
		{Hops: 2, Operators: someSeries, Threads: 3, DType: format.Float16},
		{Hops: 1, Operators: allOperators, Threads: 2, Rows: format.RowsAll, Shard: Shard{1, 2}},
		{Threads: 1},
	} {
		for _, budget := range budgetsFrom(t, fsys, o) {
			o.DryRun, o.MemoryBytes = true, budget
			r, err := Propagate(context.Background(), fsys, "graph", "store", o)
			if err != nil && !errors.Is(err, machine.ErrDoesNotFit) || err == nil && budget > 0 && r.MemoryBytes > budget {
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
		out = append(out, processBytes+(whole.MemoryBytes-processBytes)*part/40)
	}
	return out
}
