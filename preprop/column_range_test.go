package preprop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCoverAndMissingTakeEachColumnOnce(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := columnRange{random.IntN(10), 0}
		s.end = s.first + random.IntN(20)
		var ranges []columnRange
		has := map[int]bool{}
		for range random.IntN(6) {
			first := random.IntN(30)
			from := columnRange{first, first + random.IntN(12)}
			ranges = append(ranges, from)
			for c := from.first; c < from.end; c++ {
				has[c] = true
			}
		}
		var columns []string
		at := s.first
		for _, p := range cover(s, ranges) {
			if p.first < at || p.width() <= 0 || p.first < p.source.first || p.end > p.source.end || !slices.Contains(ranges, p.source) {
				t.Fatalf("seed %d: %v of %v is covered by %v", seed, s, ranges, cover(s, ranges))
			}
			at = p.end
			for c := p.first; c < p.end; c++ {
				columns = append(columns, fmt.Sprint("has ", c))
			}
		}
		for _, p := range missing(s, ranges) {
			for c := p.first; c < p.end; c++ {
				columns = append(columns, fmt.Sprint("lacks ", c))
			}
		}
		var want []string
		for c := s.first; c < s.end; c++ {
			if has[c] {
				want = append(want, fmt.Sprint("has ", c))
			} else {
				want = append(want, fmt.Sprint("lacks ", c))
			}
		}
		slices.Sort(columns)
		slices.Sort(want)
		if !slices.Equal(columns, want) {
			t.Fatalf("seed %d: %v of %v: %v", seed, s, ranges, columns)
		}
	}
}
