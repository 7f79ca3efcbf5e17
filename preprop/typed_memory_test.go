package preprop

import (
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// typedJobOf is a job that is planned.
func typedJobOf(t *testing.T, fsys vfs.FS, storeDir string, o Options) (*typedJob, *Result) {
	t.Helper()
	m, err := openJob(fsys, "graph", storeDir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.findRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := m.newResult()
	if _, err := m.plan(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return m.(*typedJob), r
}

func TestAMatrixThatLeavesTheMemoryIsWritten(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 300)
	o := Options{Hops: 3, Threads: 2}
	want := propagated(t, fsys, "whole", o)
	for name, limit := range map[string]int64{"memory": 1 << 40, "no memory": 0} {
		o := o
		ctx, cancel := o.begin(t.Context())
		defer cancel()
		job, r := typedJobOf(t, fsys, name, o)
		inMemory := 0
		for _, n := range job.order {
			if job.staysInMemory(n) {
				inMemory++
			}
		}
		r.Plan.MemoryBytes = limit // of the reserve
		store, err := job.create()
		if err == nil {
			err = job.make(ctx, store, r)
		}
		if err == nil {
			err = job.publishStore(store)
		}
		if err != nil {
			t.Fatal(err)
		}
		written := 0
		for _, is := range job.written {
			if is {
				written++
			}
		}
		if inMemory < 3 || limit > 0 && written > 0 || limit == 0 && written < inMemory {
			t.Errorf("%s: %d matrices should stay in memory, and %d were written", name, inMemory, written)
		}
		if err := job.close(); err != nil {
			t.Fatal(err)
		}
		if !sameFiles(files(t, fsys, name), want) {
			t.Errorf("%s: another store", name)
		}
	}
}
