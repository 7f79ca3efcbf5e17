package gdstest

import (
	"bytes"
	"math"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

var elementwiseTests = []test{
	{"Axpy adds a multiple", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			vx, vy := b.normal(rows*cols), b.normal(rows*cols)
			x, y := b.floats(shifted, rows, cols, vx), b.floats(l, rows, cols, vy)
			const alpha = 0.7
			b.stream.Axpy(alpha, x.Tensor, y.Tensor)
			b.expect(b.read(y), rows*cols, func(i int) (float64, float64) {
				p, q := float64(float32(alpha))*float64(vx[i]), float64(vy[i])
				return p + q, unit * (2*math.Abs(p) + math.Abs(q))
			})
		})
	}},
	{"ReLU keeps what is above zero, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			values := b.normal(rows * cols)
			src, dst := b.floats(l, rows, cols, values), b.floats(strided, rows, cols, nil)
			b.stream.ReLU(dst.Tensor, src.Tensor)
			b.stream.ReLU(src.Tensor, src.Tensor)
			want := func(i int) (float64, float64) { return max(float64(values[i]), 0), 0 }
			b.expect(b.read(dst), rows*cols, want)
			b.expect(b.read(src), rows*cols, want)
		})
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
	{"ReLUGrad passes where the output is above zero, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			vg, vo := b.normal(rows*cols), b.normal(rows*cols)
			for i := range vo {
				if i%3 == 0 {
					vo[i] = 0
				}
			}
			grad, out, dst := b.floats(l, rows, cols, vg), b.floats(l, rows, cols, vo),
				b.floats(strided, rows, cols, nil)
			b.stream.ReLUGrad(dst.Tensor, grad.Tensor, out.Tensor, 2.5)
			b.stream.ReLUGrad(grad.Tensor, grad.Tensor, out.Tensor, 2.5)
			want := func(i int) (float64, float64) {
				if vo[i] > 0 {
					return 2.5 * float64(vg[i]), unit * math.Abs(2.5*float64(vg[i]))
				}
				return 0, 0
			}
			b.expect(b.read(dst), rows*cols, want)
			b.expect(b.read(grad), rows*cols, want)
		})
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
	{"Mul multiplies, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			vx, vy := b.normal(rows*cols), b.normal(rows*cols)
			x, y, dst := b.floats(l, rows, cols, vx), b.floats(shifted, rows, cols, vy),
				b.floats(strided, rows, cols, nil)
			b.stream.Mul(dst.Tensor, x.Tensor, y.Tensor)
			b.stream.Mul(x.Tensor, x.Tensor, y.Tensor)
			want := func(i int) (float64, float64) {
				v := float64(vx[i]) * float64(vy[i])
				return v, unit * math.Abs(v)
			}
			b.expect(b.read(dst), rows*cols, want)
			b.expect(b.read(x), rows*cols, want)
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
		// Of n elements p*n are dropped, with standard deviation sqrt(n*p*(1-p));
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
