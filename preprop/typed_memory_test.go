package preprop

import (
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
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

func TestPlansOfTypedGraphsCountTheRowsOnce(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomTyped(t, fsys, "short", 300)
	memory, table := map[string]int64{}, map[string]int64{}
	for _, dir := range []string{"short", "long"} {
		if dir == "long" {
			g.papers.rows.OrigID = slices.Repeat([]string{strings.Repeat("x", 10_000)}, 300)
			g.write(t, fsys, dir)
		}
		o := Options{Operators: allOperators[:1], Hops: 2, Threads: 1, Rows: format.RowsAll,
			DryRun: true}
		r, err := Propagate(t.Context(), fsys, dir, "store", o)
		if err != nil {
			t.Fatal(err)
		}
		d, err := format.OpenTarget(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		memory[dir], table[dir] = r.Plan.MemoryBytes, plan.PickedBytes(&d.Manifest, 300)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if more, want := memory["long"]-memory["short"], table["long"]-table["short"]; more < want || more >= 2*want {
		t.Errorf("rows of %d bytes more, plans of %d more", want, more)
	}
}
