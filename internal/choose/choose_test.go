package choose

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// The definition, with integers of any size and a list of what has been taken.
func TestSubsetIsFloydsAlgorithm(t *testing.T) {
	var taken []uint64
	for _, d := range []int64{1, 2, 63, 64, 65, 200, 5000} {
		for _, k := range []int64{1, d / 2, d} {
			if k == 0 {
				continue
			}
			got := make([]int64, k)
			Subset(got, 1000, d, 7, 11, &taken)
			var want []int64
			for j := d - k; j < d; j++ {
				r := new(big.Int).SetUint64(rng.At(7, 11+uint64(len(want))))
				e := 1000 + new(big.Int).Rsh(r.Mul(r, big.NewInt(j+1)), 64).Int64()
				if slices.Contains(want, e) {
					e = 1000 + j
				}
				want = append(want, e)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d of %d: %v, want %v", k, d, got, want)
			}
		}
	}
	if slices.Max(taken) != 0 {
		t.Error("scratch memory is not left zero")
	}
}

func TestDrawTakesEachEdgeByItself(t *testing.T) {
	got := make([]int64, 9)
	Draw(got, 5, 3, 1, 2)
	for i, e := range got {
		r := new(big.Int).SetUint64(rng.At(1, 2+uint64(i)))
		if want := 5 + new(big.Int).Rsh(r.Mul(r, big.NewInt(3)), 64).Int64(); e != want {
			t.Errorf("draw %d is %d, want %d", i, e, want)
		}
	}
}

func TestThresholdIsAFractionOfAllNumbers(t *testing.T) {
	for _, c := range [][2]int64{{0, 1}, {1, 2}, {1, 3}, {15, 16}, {math.MaxInt64 - 1, math.MaxInt64}, {5, 1 << 40}} {
		want := new(big.Int).Lsh(big.NewInt(c[0]), 64)
		want.Div(want, big.NewInt(c[1]))
		if got := new(big.Int).SetUint64(Threshold(c[0], c[1])); got.Cmp(want) != 0 {
			t.Errorf("%d of %d: %v, want %v", c[0], c[1], got, want)
		}
	}
}
