package preprop

import (
	"context"
	"errors"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// TestAStoreSaysHowLongItsPropagationTook makes a store, adds to it, does nothing, starts over, and goes on with a
// job that
// ended early.
func TestAStoreSaysHowLongItsPropagationTook(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 300, 3).write(t, fsys, "graph")
	propagate := func(fsys vfs.FS, store string, o Options) (Took, *Result) {
		t.Helper()
		o.Operators, o.Rows = allOperators[:1], format.RowsAll
		r, err := Propagate(context.Background(), fsys, "graph", store, o)
		if err != nil {
			t.Fatal(err)
		}
		return TookOf(fsys, store), r
	}
	if took := TookOf(fsys, "store"); took != (Took{}) {
		t.Errorf("of no store: %+v", took)
	}
	first, r := propagate(fsys, "store", Options{Hops: 1})
	if first.AtLeast || !(first.Seconds > 0.999*r.Seconds && first.Seconds < 1.001*r.Seconds) {
		t.Errorf("%+v of a job of %v s", first, r.Seconds)
	}
	added, _ := propagate(fsys, "store", Options{Hops: 2})
	if added.AtLeast || added.Seconds <= first.Seconds {
		t.Errorf("%+v, and with another hop %+v", first, added)
	}
	if same, _ := propagate(fsys, "store", Options{Hops: 2}); same != added {
		t.Errorf("%+v, and after nothing was done %+v", added, same)
	}
	anew, r := propagate(fsys, "store", Options{Hops: 2, Force: true})
	if anew.AtLeast || anew.Seconds > 1.001*r.Seconds {
		t.Errorf("%+v of a job of %v s that started over", anew, r.Seconds)
	}
	if _, err := Propagate(context.Background(), refusing{fsys, "hop-2"}, "graph", "unfinished",
		Options{Hops: 3, Operators: allOperators[:1], Rows: format.RowsAll}); !errors.Is(err, ErrUnfinished) {
		t.Fatal(err)
	}
	if resumed, r := propagate(fsys, "unfinished", Options{Hops: 3}); !resumed.AtLeast || !r.Resumed {
		t.Errorf("%+v of a job that went on (%v)", resumed, r.Resumed)
	}
	if err := fsys.SetAttribute("store", secondsAttribute, ""); err != nil { // as a copy has it
		t.Fatal(err)
	}
	if took, _ := propagate(fsys, "store", Options{Hops: 3}); !took.AtLeast {
		t.Errorf("%+v of a store whose first hops took unknown time", took)
	}
	for _, text := range []string{"", "+", "x", "-1", "NaN", "Inf", "0"} {
		if err := fsys.SetAttribute("store", secondsAttribute, text); err != nil || TookOf(fsys, "store") != (Took{}) {
			t.Errorf("%q is %+v, %v", text, TookOf(fsys, "store"), err)
		}
	}
}
