package kernel

import "testing"

// dotLoop is the loop that Dot documents.
func dotLoop(x, y []float32) float32 {
	var sums [32]float32
	whole := len(x) - len(x)%32
	for i, v := range x[:whole] {
		sums[i%32] += float32(v * y[i])
	}
	for n := 16; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[n+i]
		}
	}
	for i, v := range x[whole:] {
		sums[0] += float32(v * y[whole+i])
	}
	return sums[0]
}

func TestProductsOfVectors(t *testing.T) {
	with(t, func(t *testing.T) {
		for n := range 200 {
			for _, fill := range []func(seed, i uint64) float32{ordinary, someBits} {
				end, _ := fenced(t, 4*n)
				_, start := fenced(t, 4*n)
				x, y := as[float32](end), as[float32](start)
				for i := range x {
					x[i], y[i] = fill(1, uint64(i)), fill(2, uint64(i))
				}
				if got, want := Dot(x, y), dotLoop(x, y); !same(got, want) {
					t.Fatalf("%d products: %v, want %v", n, got, want)
				}
				dst, want := make([]float32, n+2), make([]float32, n+2)
				for i := range dst {
					dst[i] = ordinary(3, uint64(i))
					want[i] = dst[i]
				}
				expect := func(what string) {
					t.Helper()
					for i, v := range dst {
						if !same(v, want[i]) {
							t.Fatalf("%s: number %d of %d: %v, want %v", what, i-1, n, v, want[i])
						}
					}
				}
				by := ordinary(4, uint64(n))
				for _, in := range [][]float32{x, y} { // which end and start where no byte can be read
					AddScaled(dst[1:n+1], by, in)
					for i, v := range in {
						want[i+1] += float32(by * v)
					}
					expect("added")
					Scale(dst[1:n+1], by, in)
					for i, v := range in {
						want[i+1] = by * v
					}
					expect("scaled")
				}
				AddScaled(x, by, dst[1:n+1])
				Scale(y, by, dst[1:n+1])
			}
		}
	})
}
