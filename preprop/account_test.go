package preprop

import (
	"context"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestWhatWouldMakeAJobFasterFollowsFromItsAccount(t *testing.T) {
	for _, c := range []struct {
		account
		hops   float64
		panels int
		want   string
	}{
		{account{reading: time.Second, waiting: time.Second}, 3, 1, "cores"},
		{account{reading: time.Second, waiting: 3 * time.Second, writing: time.Minute}, 3, 1, "disk"},
		{account{writing: time.Minute}, 3, 1, "cores"}, // it was done beside the hops
		{account{publishing: 4 * time.Second}, 3, 8, "memory"},
		{account{}, 3, 8, "cores"},
	} {
		if got := c.of(c.hops, c.panels); got.Faster != c.want || got.Hops != c.hops || got.Writing != c.writing.Seconds() {
			t.Errorf("%+v, %g s of hops, %d panels: %+v, want %s", c.account, c.hops, c.panels, got, c.want)
		}
	}
}

// Planning, preparing, reading, hops, waiting and publishing do not overlap, so they add up to no more than the whole.
func TestThePartsOfAnAccountAreWithinTheWhole(t *testing.T) {
	for _, planned := range []func(*Plan){nil, outOfCore} {
		fsys := vfs.NewMem()
		randomGraph(0, 20_000, 16).write(t, fsys, "graph")
		r, err := Propagate(context.Background(), fsys, "graph", "store", Options{Hops: 2, Operators: allOperators[:2], Rows: format.RowsAll, Planned: planned})
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
