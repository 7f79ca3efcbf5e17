package sampling

import (
	"errors"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// communities is a graph of so many groups of nodes, each of whose nodes has six in-neighbours in its group and one
// anywhere. Groups are interleaved, so that the order of nodes does not tell them.
func communities(groups, size int) *format.CSC {
	n := groups * size
	c := &format.CSC{Offsets: []int64{0}}
	for v := range n {
		var list []uint32
		for k := range uint64(6) {
			list = append(list, uint32(v%groups+groups*int(rng.Hash(uint64(v), k)%uint64(size))))
		}
		list = append(list, uint32(rng.Hash(uint64(v), 99)%uint64(n)))
		slices.Sort(list)
		for _, u := range slices.Compact(list) {
			c.Neighbors, c.Weights = append(c.Neighbors, u), append(c.Weights, float32(u)+float32(v)/1000)
		}
		c.Offsets = append(c.Offsets, int64(len(c.Neighbors)))
	}
	return c
}

func TestPartitionsAreOfEqualSizeAndCutFewEdges(t *testing.T) {
	c := communities(4, 500)
	for _, parts := range []int{1, 2, 3, 4, 7} {
		of, cut, err := Partition(t.Context(), InMemory(c), parts)
		if err != nil {
			t.Fatal(err)
		}
		sizes, crossing := make([]int64, parts), int64(0)
		for v, p := range of {
			sizes[p]++
			for _, u := range c.In(int64(v)) {
				if of[u] != p {
					crossing++
				}
			}
		}
		if most := (c.Nodes() + int64(parts) - 1) / int64(parts); slices.Max(sizes) > most || crossing != cut {
			t.Errorf("%d parts have %v nodes, %d edges cross, counted as %d", parts, sizes, crossing, cut)
		}
		// At random, 1 - 1/parts of the edges cross.
		share := float64(cut) / float64(c.Edges()) / max(1-1/float64(parts), 1e-9)
		t.Logf("%d parts: %.2f of what crosses at random", parts, share)
		if parts > 1 && share > 0.7 || parts == 1 && cut > 0 || parts == 4 && share > 0.35 {
			t.Errorf("%d parts: %.2f of the edges that cross at random", parts, share)
		}
		again, _, _ := Partition(t.Context(), InMemory(c), parts)
		if !slices.Equal(of, again) {
			t.Error("another partition the second time")
		}
		before := offheap.InUse()
		within, err := WithinPartitions(t.Context(), InMemory(c), of, cut)
		if err != nil || within.Edges() != c.Edges()-cut || !within.Weighted() {
			t.Fatalf("%v, %d edges", err, within.Edges())
		}
		need := PartitionNeed(&format.Manifest{Nodes: c.Nodes(), Edges: c.Edges() - cut, Weighted: true})
		if taken := offheap.InUse() - before; taken != 8*(c.Nodes()+1+within.Edges()) || taken > need.Peak(need[0].Place) {
			t.Errorf("%d bytes are taken, %d declared", taken, need.Peak(need[0].Place))
		}
		lists, sources := make([]List, 1), make([]uint32, 10)
		weights := make([]float32, 10)
		for v := range of {
			if err := within.Lists([]uint32{uint32(v)}, lists); err != nil {
				t.Fatal(err)
			}
			if err := within.ReadLists(lists, sources, weights); err != nil {
				t.Fatal(err)
			}
			k := 0
			for i, u := range c.In(int64(v)) {
				if of[u] != of[v] {
					continue
				}
				if sources[k] != u || weights[k] != c.Weights[c.Offsets[v]+int64(i)] {
					t.Fatalf("node %d has in-neighbours %v", v, sources)
				}
				k++
			}
			if int64(k) != lists[0].Degree() {
				t.Fatalf("node %d has %d in-neighbours of its part, want %d", v, lists[0].Degree(), k)
			}
		}
		if err := within.Close(); err != nil || offheap.InUse() != before {
			t.Errorf("%v, %d bytes are left", err, offheap.InUse()-before)
		}
	}
	for _, parts := range []int{0, -1, MostPartitions + 1, 2001} {
		if _, _, err := Partition(t.Context(), InMemory(c), parts); !errors.Is(err, ErrOptions) {
			t.Errorf("%d parts: %v", parts, err)
		}
	}
}

func TestDevicesTrainOnPartitionsOfTheirOwn(t *testing.T) {
	for name, c := range map[string]struct {
		of    []uint16
		quota []int64
		own   [][]uint32
		moved int
	}{
		"a part each":              {[]uint16{0, 1, 0, 1, 2, 2}, []int64{2, 2, 2}, [][]uint32{{0, 2}, {1, 3}, {4, 5}}, 0},
		"two parts for one device": {[]uint16{0, 0, 0, 1, 2, 1}, []int64{3, 3}, [][]uint32{{0, 1, 2}, {3, 4, 5}}, 0},
		"a part that is too large": {[]uint16{1, 1, 1, 1, 1, 7}, []int64{3, 3}, [][]uint32{{0, 1, 2}, {5, 3, 4}}, 2},
		"fewer parts than devices": {[]uint16{0, 0, 1, 1, 1, 0}, []int64{2, 2, 2}, [][]uint32{{0, 1}, {2, 3}, {4, 5}}, 2},
	} {
		own, holder, moved := DealSeeds(c.of, []uint32{0, 1, 2, 3, 4, 5}, c.quota)
		if !slices.EqualFunc(own, c.own, slices.Equal) || moved != c.moved {
			t.Errorf("%s: %v, %d moved; want %v, %d", name, own, moved, c.own, c.moved)
		}
		away := 0
		for d, seeds := range own {
			for _, v := range seeds {
				if holder[c.of[v]] != d {
					away++
				}
			}
		}
		if away != moved || holder[9] != -1 {
			t.Errorf("%s: %d seeds are away from their device, of %d", name, away, moved)
		}
	}
}
