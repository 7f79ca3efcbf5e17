package preprop

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// halfDone is a file system with a graph, and a store: the first of its two shards is
// done, with these scratch files.
func halfDone(t *testing.T, store, scratch string) (fsys *vfs.Mem, o Options, want map[string][]byte) {
	t.Helper()
	fsys = vfs.NewMem()
	randomGraph(1, 300, 4).write(t, fsys, "graph")
	o = Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	want = propagated(t, fsys, "whole", o)
	o.Scratch, o.Shard = scratch, Shard{0, 2}
	for range 2 { // the second finds its share done
		r, err := Propagate(context.Background(), fsys, "graph", store, o)
		if err != nil || r.Complete || r.AlreadyComplete {
			t.Fatalf("the first of two shards: %+v, %v", r, err)
		}
	}
	o.Shard.Index = 1
	return fsys, o, want
}

func TestAnotherScratchFolderIsRefusedOrTheOldOneIsFound(t *testing.T) {
	for _, c := range []struct {
		before, now string
		refused     bool
	}{
		{"scratch", "scratch", false},
		{"scratch", "", false}, // as recorded
		{"scratch", "./other/../scratch", false},
		{"scratch", "other", true},
		{"", "", false},
		{"", "other", true},
	} {
		fsys, o, want := halfDone(t, "store", c.before)
		o.Scratch = c.now
		_, err := Propagate(context.Background(), fsys, "graph", "store", o)
		if c.refused {
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "other") {
				t.Errorf("%q, then %q: %v", c.before, c.now, err)
			}
			o.Scratch = c.before
			_, err = Propagate(context.Background(), fsys, "graph", "store", o)
		}
		if err != nil || !sameFiles(files(t, fsys, "store"), want) {
			t.Errorf("%q, then %q: %v, or another store", c.before, c.now, err)
		}
		if left := len(files(t, fsys, "scratch")) + len(files(t, fsys, "other")); left > 0 {
			t.Errorf("%q, then %q: %d scratch files are left", c.before, c.now, left)
		}
	}
}

func TestShardsThatSeeTheStoreByAnotherPathAssembleIt(t *testing.T) {
	fsys, o, want := halfDone(t, "store", "scratch")
	for _, name := range []string{"store", "scratch"} {
		if err := fsys.Rename(name, "mounted-"+name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Propagate(context.Background(), fsys, "graph", "mounted-store", o); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "set --scratch to the name") {
		t.Errorf("scratch files by the old path: %v", err)
	}
	o.Scratch = "mounted-scratch"
	status, err := JobStatus(fsys, "mounted-store", o.Scratch)
	if err != nil || status.DoneColumns != 2*2 {
		t.Errorf("status %+v, %v", status, err)
	}
	r, err := Propagate(context.Background(), fsys, "graph", "mounted-store", o)
	if err != nil || !r.Complete || !sameFiles(files(t, fsys, "mounted-store"), want) ||
		len(files(t, fsys, o.Scratch)) > 0 {
		t.Errorf("by the new one: %+v, %v, or another store", r, err)
	}
}

func TestTwoJobsOfOneKindDoNotShareScratchFiles(t *testing.T) {
	fsys, o, want := halfDone(t, "store", "scratch")
	second := o
	second.Shard.Index = 0
	if _, err := Propagate(context.Background(), fsys, "graph", "second", second); err != nil {
		t.Fatal(err)
	}
	for _, store := range []string{"store", "second"} {
		if r, err := Propagate(context.Background(), fsys, "graph", store, o); err != nil || !r.Complete ||
			!sameFiles(files(t, fsys, store), want) {
			t.Errorf("%s: %+v, %v, or another store", store, r, err)
		}
	}
}

func TestAJobThatStartsAnewUsesNoOldPiecesAndLeavesNone(t *testing.T) {
	for _, scratch := range []string{"", "scratch", "other"} {
		fsys, o, want := halfDone(t, "store", "scratch")
		o.Shard, o.Force, o.Scratch = Shard{}, true, scratch
		o.MemoryBytes = least(t, vfsWithout(t, fsys, "store"),
			Options{Hops: 1, Operators: allOperators[:1], Threads: 1})
		r, err := Propagate(context.Background(), fsys, "graph", "store", o)
		if err != nil || r.Resumed || !sameFiles(files(t, fsys, "store"), want) {
			t.Errorf("with scratch files in %q: %+v, %v, or another store", scratch, r, err)
		}
		if left := len(files(t, fsys, "scratch")) + len(files(t, fsys, "other")); left > 0 {
			t.Errorf("with scratch files in %q: %d are left", scratch, left)
		}
	}
}

func TestAShardThatCannotSeeWhatOthersHaveDoneFails(t *testing.T) {
	fsys, o, want := halfDone(t, "store", "scratch")
	for name := range files(t, fsys, "scratch") {
		if strings.Contains(name, "result-") {
			if err := fsys.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, ErrUnseen) ||
		!strings.Contains(err.Error(), "columns 0 to 1 are finished") {
		t.Errorf("the last shard: %v", err)
	}
	o.Shard.Index = 0
	if r, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil || !r.Complete ||
		!sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("the first one again: %+v, %v, or another store", r, err)
	}
}

func TestAWholeJobAndShardsKeepEachOtherAway(t *testing.T) {
	fsys, o, _ := halfDone(t, "store", "")
	inside := "store/" + format.ScratchFolder
	// A shard begins just before a whole job has the lock.
	before := len(files(t, fsys, "store"))
	for _, force := range []bool{false, true} {
		var shard io.Closer
		other := &publishing{FS: fsys, before: func() {
			var err error
			if shard, err = fsys.Lock(inside + "/shard-1-of-2" + lockSuffix); err != nil {
				t.Error(err)
			}
		}}
		whole := o
		whole.Shard, whole.Force = Shard{}, force
		if _, err := Propagate(context.Background(), other, "graph", "store", whole); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("a whole job beside a shard, force %v: %v", force, err)
		}
		if now := len(files(t, fsys, "store")); now < before {
			t.Errorf("force %v: %d files, there were %d", force, now, before)
		}
		if err := shard.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// And the reverse: the shard does not wait.
	for _, name := range []string{"store/.job/lock", inside + "/" + unshardedLock} {
		lock, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
	}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, vfs.ErrLocked) ||
		!strings.Contains(err.Error(), "a propagation without --shard is running") {
		t.Errorf("a shard beside a whole job: %v", err)
	}
}
