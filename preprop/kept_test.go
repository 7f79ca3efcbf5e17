package preprop

import (
	"context"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// The first panel of an input that is cut is never written: fewer bytes are written, and the store is the same.
func TestAKeptInputSavesBytesAndChangesNothing(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(3, 4000, 24).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:1], Threads: 2}
	want := propagated(t, fsys, "whole", o)
	w := workOf(t, fsys, o)
	var written []int64
	for _, kept := range []bool{false, true} {
		p := w.WithPanels(Plan{InputFiles: true, InputKept: kept}, 6)
		p.DropCheckpoints()
		o.Planned = func(planned *Plan) { *planned = *p }
		name := map[bool]string{false: "cut", true: "kept"}[kept]
		r, err := Propagate(context.Background(), fsys, "graph", name, o)
		if err != nil {
			t.Fatal(err)
		}
		if !sameFiles(files(t, fsys, name), want) {
			t.Errorf("%s: another store", name)
		}
		written = append(written, r.BytesWritten)
	}
	const saved = 4000 * 6 * 4 // the first panel
	if got := written[0] - written[1]; got < saved || got > saved+saved/10 {
		t.Errorf("%v bytes are written, %d fewer, want %d", written, got, saved)
	}
}
