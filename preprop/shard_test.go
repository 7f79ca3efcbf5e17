package preprop

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// TestShardsDoNotReadEachOthersTopologies lets two turn edges round on disk at the same time.
func TestShardsDoNotReadEachOthersTopologies(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 500, 4).write(t, fsys, "graph")
	graph, err := format.OpenGraph(fsys, "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	given, err := graph.OpenTopology(context.Background(), plan.StreamRangeBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	if err := fsys.MkdirAll("scratch"); err != nil {
		t.Fatal(err)
	}
	make := func(index int) product.Topology {
		j := &engine.Job{Threads: 1, Process: Shard{index, 2}.name(), Fsys: vfs.NewPastCache(fsys), Graph: graph,
			Plan: &Plan{}, Scratch: "scratch"}
		made, err := j.Derive(context.Background(), &product.DiskTopology{TopologyFile: given}, operator.Reverse)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	first, second := make(0), make(1)
	if n := len(files(t, fsys, "scratch")); n != 2 {
		t.Errorf("%d scratch files, want one of each", n)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil || len(files(t, fsys, "scratch")) > 0 {
		t.Errorf("at the end: %v, %d scratch files", err, len(files(t, fsys, "scratch")))
	}
}

func TestShardsWithColumnsInCommonAreNotAtWorkTogether(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 6).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1, Shard: Shard{0, 3}}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
		t.Fatal(err)
	}
	lock, err := fsys.Lock("store/" + format.ScratchFolder + "/shard-1-of-2.lock")
	if err != nil {
		t.Fatal(err)
	}
	o.Shard.Index = 1
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, vfs.ErrLocked) ||
		!strings.Contains(err.Error(), "shard 1-of-2") {
		t.Errorf("a third beside a half: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
		t.Errorf("a third after a half: %v", err)
	}
}

func TestHalfWrittenFilesOfKilledShardsAreRemoved(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 6).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1, Shard: Shard{0, 3}}
	for _, folder := range []string{"", "scratch"} {
		o.Scratch, o.Shard.Index = folder, 0
		store := "store" + folder
		if _, err := Propagate(context.Background(), fsys, "graph", store, o); err != nil {
			t.Fatal(err)
		}
		results := 0
		for path, content := range files(t, fsys, ".") {
			if strings.Contains(path, "result-") && strings.HasPrefix(path, "store/") == (folder == "") {
				results++
				// not committed: as a killed process leaves it
				left, err := fsys.Create(strings.Replace(path, "-0-", "-5-", 1))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := left.Write(content); err != nil {
					t.Fatal(err)
				}
			}
		}
		if o.Shard.Index = 1; results != 2 {
			t.Fatalf("%d result files, want 2", results)
		}
		if _, err := Propagate(context.Background(), fsys, "graph", store, o); err != nil {
			t.Fatal(err)
		}
		for path := range files(t, fsys, ".") {
			if strings.HasSuffix(path, vfs.TempSuffix) {
				t.Errorf("scratch folder %q: %s is left", folder, path)
			}
		}
	}
}
