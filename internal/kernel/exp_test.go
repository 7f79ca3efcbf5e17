package kernel

import (
	"math"
	"os"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// expLoop is the loop that Exp documents.
func expLoop(dst, src []float32, less float32) float32 {
	var sums [16]float32
	for i, v := range src {
		dst[i] = exp(v - less)
		sums[i%16] += dst[i]
	}
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[n+i]
		}
	}
	return sums[0]
}

func TestExponentialsAreThoseOfThePlainLoop(t *testing.T) {
	with(t, func(t *testing.T) {
		for n := range 100 {
			end, _ := fenced(t, 4*n)
			_, start := fenced(t, 4*n)
			for seed := range uint64(8) {
				x, out := as[float32](end), as[float32](start)
				less := float32(0)
				for i := range x {
					switch x[i] = someBits(seed, uint64(i)); seed {
					case 1, 2, 3: // where results are ordinary
						x[i] = float32(200*rng.Float64(rng.Hash(seed, uint64(i))) - 110)
					case 4:
						less = ordinary(seed, uint64(n))
					}
				}
				want := make([]float32, n)
				sum := expLoop(want, x, less)
				most := float32(math.Inf(-1))
				for _, v := range x {
					if v > most {
						most = v
					}
				}
				if got := Max(x); got != most {
					t.Fatalf("the largest of %v is %v, not %v", x, most, got)
				}
				if got := Exp(out, x, less); !same(got, sum) {
					t.Fatalf("seed %d, sum of %d: %v, want %v", seed, n, got, sum)
				}
				if got := Exp(x, x, less); !same(got, sum) {
					t.Fatalf("seed %d, sum of %d in place: %v, want %v", seed, n, got, sum)
				}
				for i, v := range want {
					if !same(out[i], v) || !same(x[i], v) {
						t.Fatalf("seed %d, number %d of %d: %v, in place %v, want %v", seed, i, n, out[i], x[i], v)
					}
				}
			}
		}
	})
}

// TestExponentialsAreWithinAnUlp compares with math.Exp in float64: all float32 at some distance from one
// another, and all around the ends of the range. HOPFEED_ALL_FLOATS=1 compares all that there are.
func TestExponentialsAreWithinAnUlp(t *testing.T) {
	worst, at := 0.0, float32(0)
	check := func(bits uint32) {
		x := math.Float32frombits(bits)
		got, want := exp(x), math.Exp(float64(x))
		switch {
		case x != x:
			if got == got {
				t.Fatalf("exp(NaN) is %v", got)
			}
		case got < 0 || math.Signbit(float64(got)):
			t.Fatalf("exp(%v) is %v", x, got)
		case float32(want) == got: // infinities and zero among them
			if e := ulps(got, want); e > worst {
				worst, at = e, x
			}
		default:
			if math.IsInf(float64(got), 0) {
				got, want = math.MaxFloat32, want-0x1p104 // as if the next number were there
			}
			if e := ulps(got, want); !(e < 1) {
				t.Fatalf("exp(%v) (%#x) is %v, %.3f ulp from %v", x, bits, got, e, want)
			} else if e > worst {
				worst, at = e, x
			}
		}
	}
	step := uint32(1009)
	if os.Getenv("HOPFEED_ALL_FLOATS") != "" {
		step = 1
	}
	for bits := uint32(0); ; bits += step {
		check(bits)
		if bits > math.MaxUint32-step {
			break
		}
	}
	for _, x := range []float32{expLeast, expMost, 88.72284, -87.33655, -103.97208, 0, 1, -1, 0.34657359, -0.34657359,
		float32(math.Inf(1)), float32(math.Inf(-1))} {
		for d := range uint32(2000) {
			check(math.Float32bits(x) - 1000 + d)
		}
	}
	t.Logf("the largest error is %.3f ulp, of exp(%v)", worst, at)
}

// ulps is how far a number is from the exact one, in distances of float32 there.
func ulps(got float32, want float64) float64 {
	if math.IsInf(want, 1) || want > math.MaxFloat32 && math.IsInf(float64(got), 1) {
		return 0
	}
	_, exponent := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(exponent-24, -149))
}
