package preprop

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

func TestAccumulateIsThePlainLoopBitForBit(t *testing.T) {
	const n = 50
	random := rand.New(rand.NewPCG(1, 2))
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, features := range []int{1, 2, 3, 4, 7, 16, 33} {
			m, err := newMatrix(n, features, dt)
			if err != nil {
				t.Fatal(err)
			}
			values := make([]float32, n*features)
			for i := range values {
				values[i] = float32(random.NormFloat64())
			}
			dtype.Encode(m.buf.Bytes(), values, dt)
			dtype.Decode(values, m.buf.Bytes(), dt)
			add := accumulator(m)
			for _, k := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 1023, 1024} {
				nodes, coefficients := make([]uint32, k), make([]float32, k)
				for i := range nodes {
					nodes[i], coefficients[i] = random.Uint32N(n), float32(random.NormFloat64())
				}
				want := make([]float32, features)
				for j := range want {
					for i, u := range nodes {
						want[j] += float32(coefficients[i] * values[int(u)*features+j])
					}
				}
				const guard = 12345
				padded := make([]float32, features+2) // sums start as what must be cleared
				for i := range padded {
					padded[i] = guard
				}
				add(padded[1:features+1:features+1], nodes, coefficients)
				for j, got := range padded[1 : features+1] {
					if math.Float32bits(got) != math.Float32bits(want[j]) {
						t.Fatalf("%v, %d features, %d rows: column %d is %g, want %g", dt, features, k, j, got, want[j])
					}
				}
				if padded[0] != guard || padded[features+1] != guard {
					t.Fatalf("%v, %d features, %d rows: wrote outside of the sum", dt, features, k)
				}
			}
			m.buf.Free()
		}
	}
}
