package gdstest

import (
	"bytes"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// An elementwise operation computes each element of dst from the one of src at its place and one of other, which has
// the shape of src or is a row. want gives the value and its error in units.
var elementwise = []struct {
	name    string
	row     bool // other is a row
	inPlace bool // dst is always src
	call    func(s gds.Stream, dst, src, other gds.Tensor)
	want    func(x, y float64) (value, units float64)
}{
	{name: "Axpy adds a multiple", inPlace: true,
		call: func(s gds.Stream, dst, _, other gds.Tensor) { s.Axpy(0.75, other, dst) },
		want: func(x, y float64) (float64, float64) { return x + 0.75*y, 1.5*math.Abs(y) + math.Abs(x) }},
	{name: "AddRow adds to every row", row: true, inPlace: true,
		call: func(s gds.Stream, dst, _, other gds.Tensor) { s.AddRow(dst, other) },
		want: func(x, y float64) (float64, float64) { return x + y, math.Abs(x + y) }},
	{name: "MulRow multiplies every row", row: true, inPlace: true,
		call: func(s gds.Stream, dst, _, other gds.Tensor) { s.MulRow(dst, other) },
		want: func(x, y float64) (float64, float64) { return x * y, math.Abs(x * y) }},
	{name: "Mul multiplies",
		call: func(s gds.Stream, dst, src, other gds.Tensor) { s.Mul(dst, src, other) },
		want: func(x, y float64) (float64, float64) { return x * y, math.Abs(x * y) }},
	{name: "ReLU keeps what is above zero",
		call: func(s gds.Stream, dst, src, _ gds.Tensor) { s.ReLU(dst, src) },
		want: func(x, _ float64) (float64, float64) { return max(x, 0), 0 }},
	{name: "ReLUGrad passes where the output is above zero",
		call: func(s gds.Stream, dst, src, other gds.Tensor) { s.ReLUGrad(dst, src, other, 2.5) },
		want: func(x, y float64) (float64, float64) {
			if y > 0 {
				return 2.5 * x, math.Abs(2.5 * x)
			}
			return 0, 0
		}},
	{name: "ELU is an exponential less one below zero",
		call: func(s gds.Stream, dst, src, _ gds.Tensor) { s.ELU(dst, src) },
		want: func(x, _ float64) (float64, float64) {
			if x > 0 {
				return x, 0
			}
			return math.Expm1(x), 4 // of the exponential, and of the difference from one
		}},
	{name: "ELUGrad is the derivative of ELU from its output",
		call: func(s gds.Stream, dst, src, other gds.Tensor) { s.ELUGrad(dst, src, other, 0.5) },
		want: func(x, y float64) (float64, float64) {
			if y > 0 {
				return x, 0
			}
			return x * (1 + 0.5*y), 3 * math.Abs(x) * (1 + math.Abs(y))
		}},
}

var elementwiseTests = []test{
	{"operations compute each element from those at its place, in place or not", func(b *fixture) {
		for _, o := range elementwise {
			b.at(o.name, func(b *fixture) {
				b.eachShape(func(b *fixture, l layout, rows, cols int) {
					others, otherLayout := rows, l
					if o.row {
						others, otherLayout = 1, shifted
					}
					x, y := b.normal(rows*cols), b.normal(others*cols)
					for i := range y {
						if i%3 == 0 {
							y[i] = 0
						}
					}
					src, other := b.floats(l, rows, cols, x), b.floats(otherLayout, others, cols, y)
					results := []*array{src}
					if !o.inPlace {
						dst := b.floats(strided, rows, cols, nil)
						o.call(b.stream, dst.Tensor, src.Tensor, other.Tensor)
						results = append(results, dst)
					}
					o.call(b.stream, src.Tensor, src.Tensor, other.Tensor)
					for _, got := range results {
						b.expect(b.read(got), rows*cols, func(i int) (float64, float64) {
							value, units := o.want(float64(x[i]), float64(y[i%len(y)]))
							return value, unit * units
						})
					}
				})
			})
		}
	}},
	{"ReLU knows special numbers", func(b *fixture) {
		inf := float32(math.Inf(1))
		x := b.floats(dense, 1, 5, []float32{float32(math.NaN()), inf, -inf, float32(math.Copysign(0, -1)), 1e-45})
		b.stream.ReLU(x.Tensor, x.Tensor)
		got := b.read(x)
		if got[0] == got[0] {
			b.Errorf("NaN became %v", got[0])
		}
		if got[1] != inf || got[2] != 0 || got[3] != 0 || got[4] != 1e-45 {
			b.Errorf("got %v", got)
		}
	}},
	{"PReLU has a slope below zero, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, slope := range []float32{0.25, -0.5} {
				values, grad, before := b.normal(rows*cols), b.normal(rows*cols), b.normal(1)
				src, g, dst := b.floats(l, rows, cols, values), b.floats(l, rows, cols, grad),
					b.floats(strided, rows, cols, nil)
				s, gs := b.floats(shifted, 1, 1, []float32{slope}), b.floats(shifted, 1, 1, before)
				by := func(i int) float64 {
					if values[i] > 0 {
						return 1
					}
					return float64(slope)
				}
				b.stream.PReLUGrad(dst.Tensor, gs.Tensor, g.Tensor, src.Tensor, s.Tensor)
				b.expect(b.read(dst), rows*cols, func(i int) (float64, float64) {
					want := by(i) * float64(grad[i])
					return want, unit * math.Abs(want)
				})
				sum, size := float64(before[0]), math.Abs(float64(before[0]))
				for i, v := range values {
					if v <= 0 {
						sum, size = sum+float64(v)*float64(grad[i]), size+math.Abs(float64(v)*float64(grad[i]))
					}
				}
				b.expect(b.read(gs), 1, func(int) (float64, float64) { return sum, float64(rows*cols+2) * unit * size })
				b.stream.PReLU(dst.Tensor, src.Tensor, s.Tensor)
				b.stream.PReLU(src.Tensor, src.Tensor, s.Tensor)
				want := func(i int) (float64, float64) {
					v := by(i) * float64(values[i])
					return v, unit * math.Abs(v)
				}
				b.expect(b.read(dst), rows*cols, want)
				b.expect(b.read(src), rows*cols, want)
			}
		})
	}},
	{"Dropout drops by the hash of seed and position, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, p := range []float32{0, 0.3, 0.5, 0.999} {
				values := b.normal(rows * cols)
				seed := rng.Derive(b.seed, "dropout")
				src, dst := b.floats(l, rows, cols, values), b.floats(strided, rows, cols, nil)
				b.stream.Dropout(dst.Tensor, src.Tensor, p, seed)
				b.stream.Dropout(src.Tensor, src.Tensor, p, seed)
				want := func(i int) (float64, float64) {
					if rng.Float32(rng.Hash(seed, uint64(i))) < p {
						return 0, 0
					}
					// 1-p, its inverse and the product are rounded each.
					v := float64(values[i]) / (1 - float64(p))
					return v, 3.01 * unit * math.Abs(v)
				}
				b.expect(b.read(dst), rows*cols, want)
				b.expect(b.read(src), rows*cols, want)
			}
		})
	}},
	{"ReLUDropout is ReLU, then Dropout", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			x := b.normal(rows * cols)
			src, want, dst := b.floats(l, rows, cols, x), b.floats(dense, rows, cols, nil),
				b.floats(strided, rows, cols, nil)
			b.stream.ReLU(want.Tensor, src.Tensor)
			b.stream.Dropout(want.Tensor, want.Tensor, 0.3, 5)
			b.stream.ReLUDropout(dst.Tensor, src.Tensor, 0.3, 5)
			b.stream.ReLUDropout(src.Tensor, src.Tensor, 0.3, 5)
			values := b.bytes(want)
			if !bytes.Equal(b.bytes(dst), values) || !bytes.Equal(b.bytes(src), values) {
				b.Error("other values than of both")
			}
		})
	}},
	{"Dropout drops about as many as asked for", func(b *fixture) {
		// p*n of n elements are dropped, with standard deviation sqrt(n*p*(1-p));
		// five of them are passed once in a million seeds, and this is one seed.
		const n, p = 100_000, 0.25
		ones := make([]float32, n)
		for i := range ones {
			ones[i] = 1
		}
		x := b.floats(dense, 100, n/100, ones)
		b.stream.Dropout(x.Tensor, x.Tensor, p, 12345)
		dropped := 0
		for _, v := range b.read(x) {
			if v == 0 {
				dropped++
			}
		}
		if off := math.Abs(float64(dropped) - p*n); off > 5*math.Sqrt(n*p*(1-p)) {
			b.Errorf("%d of %d dropped at p = %v", dropped, n, p)
		}
	}},
	{"Dropout with probability zero changes nothing", func(b *fixture) {
		values := b.normal(1000)
		x := b.floats(shifted, 10, 100, values)
		b.stream.Dropout(x.Tensor, x.Tensor, 0, 1)
		if !bytes.Equal(b.bytes(x), dtype.BytesOf(values)) {
			b.Error("values have changed")
		}
	}},
}
