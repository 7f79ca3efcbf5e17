package rng

import (
	"math"
	"math/bits"
	"slices"
	"testing"
)

// The vectors of the reference splitmix64.c by Vigna, for two seeds.
func TestMixIsTheOutputFunctionOfSplitMix64(t *testing.T) {
	for seed, want := range map[uint64][]uint64{
		0: {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec, 0x1b39896a51a8749b},
		1234567: {6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
			16408922859458223821},
	} {
		state := seed
		for i, w := range want {
			state += golden
			if got := Mix(state); got != w {
				t.Errorf("output %d of seed %d is %#x, want %#x", i, seed, got, w)
			}
		}
	}
}

func TestAStreamIsSplitMix64SeededByTheFirstOutputOfItsSeed(t *testing.T) {
	state := uint64(6457827717110365317) // the first output of seed 1234567
	for i := range uint64(1000) {
		state += golden
		if got, want := Hash(1234567, i), Mix(state); got != want {
			t.Fatalf("number %d is %#x, want %#x", i, got, want)
		}
	}
}

// These values are part of the format: computed by the formulas of the comments
// in exact integers elsewhere.
func TestValuesNeverChange(t *testing.T) {
	for _, c := range []struct{ seed, i, want uint64 }{
		{0, 0, 0xa706dd2f4d197e6f},
		{0, 1, 0xb382a305f4414f5e},
		{1, 0, 0x5e41ab087439611e},
		{42, 1000000, 0x8505da9e8a915c81},
		{math.MaxUint64, math.MaxUint64, 0x445018e305810b78},
	} {
		if got := Hash(c.seed, c.i); got != c.want {
			t.Errorf("Hash(%d, %d) is %#x, want %#x", c.seed, c.i, got, c.want)
		}
	}
	for _, c := range []struct {
		seed  uint64
		label string
		want  uint64
	}{
		{0, "", 0},
		{0, "a", 0x6ce9d0792142f0fa},
		{42, "rows", 0xcefda3286383fba7},
		{42, "row", 0x3005037f07e26c22},
		{1, "é", 0x6766ec2a910d6ebe},
	} {
		if got := Derive(c.seed, c.label); got != c.want {
			t.Errorf("Derive(%d, %q) is %#x, want %#x", c.seed, c.label, got, c.want)
		}
	}
	for _, c := range []struct {
		seed, i uint64
		want    float64
	}{
		{0, 0, -0.4387214756878968},
		{7, 1, -1.0013831968636933},
		{42, 123456789, 1.4104971990517476},
	} {
		if got := Normal(c.seed, c.i); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Normal(%d, %d) is %v, want %v", c.seed, c.i, got, c.want)
		}
	}
}

func TestMixIsABijection(t *testing.T) {
	// Inverses of the multipliers by Newton's iteration, of the shifts by repetition.
	inverse := func(a uint64) uint64 {
		x := a
		for range 6 {
			x *= 2 - a*x
		}
		return x
	}
	unshift := func(x uint64, by int) uint64 {
		y := x
		for range 64/by + 1 {
			y = x ^ y>>by
		}
		return y
	}
	unmix := func(x uint64) uint64 {
		x = unshift(x, 31) * inverse(0x94d049bb133111eb)
		x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9)
		return unshift(x, 30)
	}
	for i := range uint64(10000) {
		for _, x := range []uint64{i, ^i, i * golden} {
			if got := unmix(Mix(x)); got != x {
				t.Fatalf("%#x comes back as %#x", x, got)
			}
		}
	}
}

// Over 4096 inputs the share of flips has a standard deviation of 0.0078; the
// worst of 4096 pairs of bits may be 6 of them away.
func TestEachInputBitFlipsEachOutputBitHalfTheTime(t *testing.T) {
	const inputs = 4096
	for in := range 64 {
		var flips [64]int
		for i := range uint64(inputs) {
			d := Mix(Hash(3, i)) ^ Mix(Hash(3, i)^1<<in)
			for ; d != 0; d &= d - 1 {
				flips[bits.TrailingZeros64(d)]++
			}
		}
		for out, n := range flips {
			if share := float64(n) / inputs; math.Abs(share-0.5) > 6*0.5/math.Sqrt(inputs) {
				t.Errorf("input bit %d flips output bit %d in a share of %.3f", in, out, share)
			}
		}
	}
}

// Chi-square with 255 degrees of freedom has mean 255 and standard deviation
// 22.6; the seeds are fixed, and 5 standard deviations are allowed.
func TestHashesAreUniformInAllTheirBits(t *testing.T) {
	const n = 1 << 16
	for _, stream := range []struct {
		name string
		at   func(i uint64) uint64
	}{
		{"positions of one seed", func(i uint64) uint64 { return Hash(42, i) }},
		{"seeds at one position", func(i uint64) uint64 { return Hash(i, 42) }},
		{"changes from seed to seed", func(i uint64) uint64 { return Hash(1, i) ^ Hash(2, i) }},
		{"changes from position to position", func(i uint64) uint64 { return Hash(1, i) ^ Hash(1, i+1) }},
		{"labels", func(i uint64) uint64 {
			return Derive(5, string([]byte{byte(i), byte(i >> 8), byte(i >> 16)}))
		}},
	} {
		var counts [8][256]int
		for i := range uint64(n) {
			h := stream.at(i)
			for b := range counts {
				counts[b][byte(h>>(8*b))]++
			}
		}
		for b := range counts {
			chi := 0.0
			for _, c := range counts[b] {
				d := float64(c) - n/256
				chi += d * d / (n / 256)
			}
			if math.Abs(chi-255) > 5*math.Sqrt(2*255) {
				t.Errorf("%s: byte %d has a chi-square of %.0f", stream.name, b, chi)
			}
		}
	}
}

func TestDerivedStreamsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for _, label := range []string{"", "a", "b", "ab", "ba", "a\x00", "\x00", "\x00\x00", "row", "rows"} {
		for seed := range uint64(100) {
			d := Derive(seed, label)
			if other, ok := seen[d]; ok {
				t.Errorf("%q and %q give the same stream", label, other)
			}
			seen[d] = label
		}
	}
}

func TestFloatsStayBelowOne(t *testing.T) {
	for _, c := range []struct {
		h   uint64
		f64 float64
		f32 float32
	}{
		{0, 0, 0},
		{1<<11 - 1, 0, 0},
		{1 << 11, 0x1p-53, 0},
		{1 << 40, 0x1p-24, 0x1p-24},
		{1 << 63, 0.5, 0.5},
		{math.MaxUint64, 1 - 0x1p-53, 1 - 0x1p-24},
	} {
		if got := Float64(c.h); got != c.f64 {
			t.Errorf("Float64(%#x) is %v, want %v", c.h, got, c.f64)
		}
		if got := Float32(c.h); got != c.f32 {
			t.Errorf("Float32(%#x) is %v, want %v", c.h, got, c.f32)
		}
	}
}

// The tolerances are 5 standard errors of each estimate; that of the
// Kolmogorov-Smirnov distance is its 0.1 % point.
func TestNormalHasTheMomentsAndTheShapeOfItsName(t *testing.T) {
	const n = 1 << 18
	x := make([]float64, n)
	var m1, m2, m3, m4, lag float64
	for i := range x {
		v := Normal(9, uint64(i))
		x[i] = v
		m1 += v
		m2 += v * v
		m3 += v * v * v
		m4 += v * v * v * v
		if i > 0 {
			lag += v * x[i-1]
		}
	}
	for _, c := range []struct {
		name            string
		got, want, vary float64
	}{
		{"mean", m1 / n, 0, 1},
		{"second moment", m2 / n, 1, 2},
		{"third moment", m3 / n, 0, 15},
		{"fourth moment", m4 / n, 3, 96},
		{"correlation of neighbours", lag / n, 0, 1},
	} {
		if math.Abs(c.got-c.want) > 5*math.Sqrt(c.vary/n) {
			t.Errorf("the %s is %.5f, want %g", c.name, c.got, c.want)
		}
	}
	slices.Sort(x)
	distance := 0.0
	for i, v := range x {
		p := math.Erfc(-v/math.Sqrt2) / 2
		distance = max(distance, p-float64(i)/n, float64(i+1)/n-p)
	}
	if distance > 1.95/math.Sqrt(n) {
		t.Errorf("the Kolmogorov-Smirnov distance is %.5f", distance)
	}
}

// The tolerance is 5 standard errors of each share.
func TestExponentialExceedsXInAShareOfExpMinusX(t *testing.T) {
	const n = 1 << 16
	for _, x := range []float64{0, 0.01, 0.5, 1, 3} {
		above := 0.0
		for i := range uint64(n) {
			if Exponential(Hash(4, i)) >= x {
				above++
			}
		}
		if p := math.Exp(-x); math.Abs(above/n-p) > 5*math.Sqrt(p*(1-p)/n) {
			t.Errorf("a share of %.5f is %v or more, want %.5f", above/n, x, p)
		}
	}
	if Exponential(0) != 0 || math.IsInf(Exponential(math.MaxUint64), 0) {
		t.Error("the ends are not 0 and a finite number")
	}
}

func TestLogAndCosineAgreeWithTheLibrary(t *testing.T) {
	const tolerance = 8.0 / (1 << 53)
	for i := range uint64(200_000) {
		u := 1 - Float64(Hash(1, i))
		if i%2 == 1 {
			u = math.Ldexp(u, -int(i%53)) // small ones too
		}
		if got, want := log(u), math.Log(u); math.Abs(got-want) > tolerance*max(math.Abs(want), 1e-3) {
			t.Fatalf("log(%v) is %v, the library says %v", u, got, want)
		}
		v := Float64(Hash(2, i))
		if got, want := cosTurn(v), math.Cos(2*math.Pi*v); math.Abs(got-want) > tolerance {
			t.Fatalf("cosTurn(%v) is %v, the library says %v", v, got, want)
		}
	}
	for v, want := range map[float64]float64{0: 1, 0.25: 0, 0.5: -1, 0.75: 0, 0.125: math.Sqrt2 / 2} {
		if got := cosTurn(v); math.Abs(got-want) > tolerance {
			t.Errorf("cosTurn(%v) is %v, want %v", v, got, want)
		}
	}
	if log(1) != 0 {
		t.Errorf("log(1) is %v", log(1))
	}
}
