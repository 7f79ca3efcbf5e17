package product

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCoverAndMissingTakeEachColumnOnce(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := ColumnRange{random.IntN(10), 0}
		s.End = s.First + random.IntN(20)
		var ranges []ColumnRange
		has := map[int]bool{}
		for range random.IntN(6) {
			first := random.IntN(30)
			from := ColumnRange{first, first + random.IntN(12)}
			ranges = append(ranges, from)
			for c := from.First; c < from.End; c++ {
				has[c] = true
			}
		}
		var columns []string
		at := s.First
		for _, p := range Cover(s, ranges) {
			if p.First < at || p.Width() <= 0 || p.First < p.Source.First || p.End > p.Source.End ||
				!slices.Contains(ranges, p.Source) {
				t.Fatalf("seed %d: %v of %v is covered by %v", seed, s, ranges, Cover(s, ranges))
			}
			at = p.End
			for c := p.First; c < p.End; c++ {
				columns = append(columns, fmt.Sprint("has ", c))
			}
		}
		for _, p := range Missing(s, ranges) {
			for c := p.First; c < p.End; c++ {
				columns = append(columns, fmt.Sprint("lacks ", c))
			}
		}
		var want []string
		for c := s.First; c < s.End; c++ {
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
