package preprop

import (
	"context"
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
