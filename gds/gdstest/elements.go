package gdstest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

var elementTests = []test{
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
			grad, out, dst := b.floats(l, rows, cols, vg), b.floats(l, rows, cols, vo), b.floats(strided, rows, cols, nil)
			b.stream.ReLUGrad(dst.Tensor, grad.Tensor, out.Tensor)
			b.stream.ReLUGrad(grad.Tensor, grad.Tensor, out.Tensor)
			want := func(i int) (float64, float64) {
				if vo[i] > 0 {
					return float64(vg[i]), 0
				}
				return 0, 0
			}
			b.expect(b.read(dst), rows*cols, want)
			b.expect(b.read(grad), rows*cols, want)
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
	{"Adam follows Algorithm 1 over several steps", func(b *fixture) {
		for _, decay := range []float32{0, 0.01} {
			for _, n := range []int{1, 5, 1000, 70_001} {
				b.at(fmt.Sprintf("n=%d,decay=%v", n, decay), func(b *fixture) { adamSteps(b, n, decay) })
			}
		}
	}},
}

// adamSteps compares four steps with the algorithm in float64, each starting at
// what the device has, so that roundings do not pile up.
func adamSteps(b *fixture, n int, decay float32) {
	param, m, v := b.normal(n), make([]float32, n), make([]float32, n)
	dp, dm, dv := b.floats(shifted, 1, n, param), b.floats(dense, 1, n, m), b.floats(dense, 1, n, v)
	for step := 1; step <= 4; step++ {
		grad := b.normal(n)
		o := gds.AdamOptions{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: decay, Step: step}
		b.stream.Adam(dp.Tensor, b.floats(dense, 1, n, grad).Tensor, dm.Tensor, dv.Tensor, o)
		newParam, newM, newV := b.read(dp), b.read(dm), b.read(dv)
		beta1, beta2 := float64(o.Beta1), float64(o.Beta2)
		gradient := func(i int) (g, size float64) {
			d := float64(decay) * float64(param[i])
			return float64(grad[i]) + d, math.Abs(float64(grad[i])) + math.Abs(d)
		}
		b.expect(newM, n, func(i int) (float64, float64) {
			g, size := gradient(i)
			old := beta1 * float64(m[i])
			return old + (1-beta1)*g, 6 * unit * (math.Abs(old) + (1-beta1)*size)
		})
		b.expect(newV, n, func(i int) (float64, float64) {
			g, size := gradient(i)
			old := beta2 * float64(v[i])
			return old + (1-beta2)*g*g, 10 * unit * (old + (1-beta2)*size*size)
		})
		b.expect(newParam, n, func(i int) (float64, float64) {
			// From the moments as rounded; what remains is a handful of roundings.
			first := float64(newM[i]) / (1 - math.Pow(beta1, float64(step)))
			second := float64(newV[i]) / (1 - math.Pow(beta2, float64(step)))
			change := float64(o.LearningRate) * first / (math.Sqrt(second) + float64(o.Epsilon))
			return float64(param[i]) - change, unit * (12*math.Abs(change) + math.Abs(float64(param[i])))
		})
		param, m, v = newParam, newM, newV
	}
}
