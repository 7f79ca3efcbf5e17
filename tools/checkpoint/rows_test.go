package checkpoint

import (
	"math"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

func TestLabelsTellWhetherNodesAreTheSame(t *testing.T) {
	// Labels of n nodes; a tenth has none.
	draw := func(seed uint64, n, of int) []int32 {
		labels := make([]int32, n)
		for i := range labels {
			if labels[i] = -1; rng.Hash(seed, uint64(2*i))%10 > 0 {
				labels[i] = math.MaxInt32 - int32(min(rng.Hash(seed, uint64(2*i+1))%uint64(of),
					rng.Hash(seed, uint64(i))%uint64(of)))
			}
		}
		return labels
	}
	same := func(first, second []int32) bool {
		var counts [2]int
		var a, b []int32
		for i := range first {
			for k, label := range []int32{first[i], second[i]} {
				if label >= 0 {
					counts[k]++
				}
			}
			if first[i] >= 0 && second[i] >= 0 {
				a, b = append(a, first[i]), append(b, second[i])
			}
		}
		return sameNodes(int64(len(first)), counts[0], counts[1], a, b)
	}
	for n := 200; n < 2000; n += 137 {
		for _, classes := range []int{2, 3, 10} {
			first, other := draw(1, n, classes), draw(uint64(n), n, classes)
			if same(first, other) {
				t.Errorf("%d nodes of %d classes are the same as others", n, classes)
			}
			for what, change := range map[string]func(i int, label int32) int32{
				"nothing has changed":       func(_ int, label int32) int32 { return label },
				"a fifth has another label": func(i int, label int32) int32 { return label - int32(1-min(1, i%5)) },
				"half of the labels are gone": func(i int, label int32) int32 {
					return max(-1,
						label-int32(i%2)*math.MaxInt32-int32(i%2))
				},
			} {
				again := slices.Clone(first)
				for i, label := range again {
					if label >= 0 {
						again[i] = change(i, label)
					}
				}
				if !same(first, again) || !same(again, first) {
					t.Errorf("%d nodes of %d classes are others where %s", n, classes, what)
				}
			}
		}
	}
	if sameNodes(3, 1, 1, nil, nil) {
		t.Error("nodes without labels in common are the same")
	}
}
