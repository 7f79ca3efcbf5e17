package kernel

import (
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

func TestSumsOfSomeColumns(t *testing.T) {
	lengths := []int{3, 0, 1, 40}
	with(t, func(t *testing.T) {
		for _, columns := range []int{0, 1, 7, 8, 9, 16, 40, 64, 65, 127, 128, 131, 260} {
			for _, gap := range []int{0, 5} {
				for _, weighted := range []bool{false, true} {
					const rows = 23
					stride := columns + gap
					x := make([]float32, max(0, (rows-1)*stride+columns)) // nothing after the last row
					for i := range x {
						x[i] = ordinary(1, uint64(i))
					}
					var nodes []uint32
					var coefficients []float32
					for i := range 44 {
						nodes = append(nodes, uint32(rng.Hash(2, uint64(i))%rows))
						if weighted {
							coefficients = append(coefficients, ordinary(3, uint64(i)))
						}
					}
					sums := make([]float32, 3*stride+columns)
					for i := range sums {
						sums[i] = ordinary(4, uint64(i))
					}
					want := slices.Clone(sums)
					at := 0
					for l, k := range lengths {
						sum := want[l*stride:][:columns]
						clear(sum)
						for i, u := range nodes[at : at+k] {
							by := float32(1)
							if weighted {
								by = coefficients[at+i]
							}
							for j := range sum {
								sum[j] += float32(by * x[int(u)*stride+j])
							}
						}
						at += k
					}
					SumListsFloat32(sums, x, stride, columns, termsOf(nodes, lengths, coefficients, false))
					for i, v := range sums {
						if !same(v, want[i]) {
							t.Fatalf("%d columns of %d, weighted %t: number %d is %v, want %v", columns, stride,
								weighted, i, v, want[i])
						}
					}
				}
			}
		}
	})
}
