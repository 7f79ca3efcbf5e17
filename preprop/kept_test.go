package preprop

import (
	"context"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Of an input that is cut, the first panel is never written, and where its rows fit, hop 0 goes to the store at
// once: fewer bytes are written, and the store is the same.
func TestAKeptInputSavesBytesAndChangesNothing(t *testing.T) {
	for _, labeled := range []int{10, 0} { // every tenth node, all
		fsys := vfs.NewMem()
		g := randomGraph(3, 4000, 24)
		for v := range g.rows.Labels {
			if labeled > 0 && v%labeled > 0 {
				g.rows.Labels[v] = -1
			}
		}
		clear(g.rows.Splits)
		g.write(t, fsys, "graph")
		o := Options{Hops: 2, Operators: allOperators[:1], Threads: 2}
		if labeled == 0 {
			o.Rows = format.RowsAll
		}
		want := propagated(t, fsys, "whole", o)
		w := workOf(t, fsys, o)
		var written []int64
		for _, kept := range []bool{false, true} {
			p := w.WithPanels(Plan{InputFiles: true, InputKept: kept}, 6)
			p.DropCheckpoints()
			if w.KeepsRows(p) != (kept && labeled > 0) {
				t.Fatalf("rows are kept: %v, every %dth", w.KeepsRows(p), labeled)
			}
			o.Planned = func(planned *Plan) { *planned = *p }
			name := map[bool]string{false: "cut", true: "kept"}[kept]
			r, err := Propagate(context.Background(), fsys, "graph", name, o)
			if err != nil {
				t.Fatal(err)
			}
			if !sameFiles(files(t, fsys, name), want) {
				t.Errorf("%s, every %dth: another store", name, labeled)
			}
			written = append(written, r.BytesWritten)
		}
		saved := int64(4000 * 6 * 4) // the first panel
		if labeled > 0 {
			saved += w.Rows * 24 * 4 // and the rows of hop 0 in result files
		}
		if got := written[0] - written[1]; got < saved || got > saved+saved/10 {
			t.Errorf("every %dth: %v bytes are written, %d fewer, want %d", labeled, written, got, saved)
		}
	}
}

// Nothing is kept by a job that goes on with columns that it has, whose matrices may be overwritten.
func TestAJobThatGoesOnKeepsNoInput(t *testing.T) {
	e := &engine.Engine{Job: &engine.Job{Plan: &Plan{InputKept: true},
		ResultColumns: [][]product.ColumnRange{{{First: 0, End: 1}}},
		Sequences:     []*engine.HopSequence{{Input: &engine.Input{}}}}}
	panels := []product.ColumnRange{{First: 0, End: 2}, {First: 2, End: 4}, {First: 4, End: 6}}
	if k, err := e.Keep(e.Sequences[0].Input, panels, slices.Clone(panels)); err != nil || k.Matrix != nil ||
		k.Rows != nil {
		t.Errorf("%+v, %v", k, err)
	}
}
