package bench

import (
	"testing"

	"github.com/hopfeed/hopfeed/format"
)

// An edge with a weight takes 8 bytes of a cache of lists, one without 4, and what says where a list is 8.
func TestTheDefaultDucatiCacheIsAQuarterOfRowsAndLists(t *testing.T) {
	l := format.Layout{Features: 4, DType: format.Float32}
	for weighted, want := range map[bool]string{false: "ducati:1600", true: "ducati:2600"} {
		m := &format.Manifest{Nodes: 100, Edges: 1000, Weighted: weighted}
		if got := quarterCache(m, l); got != want {
			t.Errorf("weighted %t: %s, want %s", weighted, got, want)
		}
	}
}
