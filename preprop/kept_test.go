package preprop

import (
	"context"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
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
			p := w.withPanels(Plan{InputFiles: true, InputKept: kept}, 6)
			p.dropCheckpoints()
			if w.keepsRows(p) != (kept && labeled > 0) {
				t.Fatalf("rows are kept: %v, every %dth", w.keepsRows(p), labeled)
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
			saved += w.rows * 24 * 4 // and the rows of hop 0 in result files
		}
		if got := written[0] - written[1]; got < saved || got > saved+saved/10 {
			t.Errorf("every %dth: %v bytes are written, %d fewer, want %d", labeled, written, got, saved)
		}
	}
}

// Nothing is kept by a job that goes on with columns that it has, whose matrices may be overwritten.
func TestAJobThatGoesOnKeepsNoInput(t *testing.T) {
	e := &engine{job: &job{plan: &Plan{InputKept: true}, resultColumns: [][]columnRange{{{0, 1}}}, sequences: []*hopSequence{{input: &input{}}}}}
	panels := []columnRange{{0, 2}, {2, 4}, {4, 6}}
	if k, err := e.keep(e.sequences[0].input, panels, slices.Clone(panels)); err != nil || k.matrix != nil || k.rows != nil {
		t.Errorf("%+v, %v", k, err)
	}
}
