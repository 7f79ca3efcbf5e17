package preprop

import (
	"context"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
)

func TestWhatWouldMakeAJobFasterFollowsFromItsAccount(t *testing.T) {
	for _, c := range []struct {
		engine.TimeAccount
		hops   float64
		panels int
		want   string
	}{
		{engine.TimeAccount{Reading: 1, Waiting: 1}, 3, 1, "cores"},
		{engine.TimeAccount{Reading: 1, Waiting: 3, Writing: 60}, 3, 1, "disk"},
		{engine.TimeAccount{Writing: 60}, 3, 1, "cores"}, // it was done beside the hops
		{engine.TimeAccount{Publishing: 4}, 3, 8, "memory"},
		{engine.TimeAccount{}, 3, 8, "cores"},
	} {
		if got := c.Of(c.hops, c.panels); got.Faster != c.want || got.Hops != c.hops || got.Writing != c.Writing {
			t.Errorf("%+v, %g s of hops, %d panels: %+v, want %s", c.TimeAccount, c.hops, c.panels, got, c.want)
		}
	}
}

// Planning, preparing, reading, hops, waiting and publishing do not overlap, so they add up to no more than the whole.
func TestThePartsOfAnAccountAreWithinTheWhole(t *testing.T) {
	for _, planned := range []func(*Plan){nil, outOfCore} {
		fsys := vfs.NewMem()
		randomGraph(0, 20_000, 16).write(t, fsys, "graph")
		r, err := Propagate(context.Background(), fsys, "graph", "store",
			Options{Hops: 2, Operators: allOperators[:2], Rows: format.RowsAll, Planned: planned})
		if err != nil {
			t.Fatal(err)
		}
		a := r.Time
		if sum := a.Planning + a.Preparing + a.Reading + a.Hops + a.Waiting + a.Publishing; sum > r.Seconds {
			t.Errorf("%g s of %g s: %+v", sum, r.Seconds, a)
		}
		if a.Planning <= 0 || a.Preparing <= 0 || a.Reading <= 0 || a.Hops <= 0 || a.Writing <= 0 || a.Publishing <= 0 {
			t.Errorf("a part took no time: %+v", a)
		}
	}
}
