package preprop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// makeHalf lets a job end after the first half of its columns, which are in result files.
func makeHalf(t *testing.T, fsys vfs.FS, store string, features int, o Options) {
	t.Helper()
	o.Planned = outOfCore
	second := fmt.Sprintf("-%d-%d%s", (features+1)/2, features, folder.Suffix)
	if _, err := Propagate(context.Background(), refusing{fsys, second}, "graph", store, o); !errors.Is(err,
		ErrUnfinished) {
		t.Fatalf("half of the columns: %v", err)
	}
}

// halfDone is a file system with a graph, and a store: half of its columns are made, in these scratch files.
func halfDone(t *testing.T, store, scratch string) (fsys *vfs.Mem, o Options, want map[string][]byte) {
	t.Helper()
	fsys = vfs.NewMem()
	randomGraph(1, 300, 4).write(t, fsys, "graph")
	o = Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	want = propagated(t, fsys, "whole", o)
	o.Scratch = scratch
	for range 2 { // the second finds the half done
		makeHalf(t, fsys, store, 4, o)
	}
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
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "other") || errors.Is(err, ErrUnfinished) ||
				!strings.HasSuffix(err.Error(), "start anew with --force)") {
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

func TestAJobThatAddsToAStoreIsGivenUpAsItsErrorSays(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 300, 4).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, fsys, "whole", o)
	first := o
	first.Hops = 1
	propagated(t, fsys, "store", first)
	o.Scratch = "scratch"
	makeHalf(t, fsys, "store", 4, o)
	if err := fsys.Rename("scratch", "lost"); err != nil {
		t.Fatal(err)
	}
	_, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if !errors.Is(err, ErrOptions) || !strings.HasSuffix(err.Error(), "remove store/.job to give it up)") {
		t.Fatalf("without its scratch files: %v", err)
	}
	if err := fsys.RemoveAll("store/.job"); err != nil {
		t.Fatal(err)
	}
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil || !r.Complete || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("given up: %+v, %v, or another store", r, err)
	}
}

func TestAScratchFolderThatTheJobMadeGoesWithIt(t *testing.T) {
	for _, made := range []bool{true, false} {
		fsys, o, _ := halfDone(t, "store", "new/scratch")
		if !made { // by the job, but before it
			o.Scratch = "mine"
			if err := fsys.MkdirAll("mine"); err != nil {
				t.Fatal(err)
			}
			o.Force = true // another scratch folder
		}
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Stat("new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("made by the job: the folder around the scratch folder is left (%v)", err)
		}
		if _, err := fsys.Stat("mine"); (err == nil) == made {
			t.Errorf("made before the job: %v", err)
		}
	}
}

func TestAJobThatSeesTheStoreByAnotherPathGoesOn(t *testing.T) {
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
	makeHalf(t, fsys, "second", 4, o)
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
		o.Force, o.Scratch = true, scratch
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

func TestHalfWrittenFilesOfKilledJobsAreRemoved(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 6).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	for _, folder := range []string{"", "scratch"} {
		o.Scratch = folder
		store := "store" + folder
		makeHalf(t, fsys, store, 6, o)
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
		if results != 2 {
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
