package gdstest

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
)

var optimizerTests = []test{
	{"Adam follows Algorithm 1 over several steps", func(b *fixture) {
		for _, decay := range []float32{0, 0.01} {
			for _, n := range []int{1, 5, 1000, 70_001} {
				b.at(fmt.Sprintf("n=%d,decay=%v", n, decay), func(b *fixture) { adamSteps(b, n, decay) })
			}
		}
	}},
	{"ClipNorm shortens vectors that are too long", func(b *fixture) {
		for _, n := range []int{0, 1, 3, 20_000, 70_001} {
			values, squares := b.normal(n), 0.0
			for _, v := range values {
				squares += float64(v) * float64(v)
			}
			norm := math.Sqrt(squares)
			for _, part := range []float64{0.25, 2} {
				b.at(fmt.Sprintf("n=%d,part=%v", n, part), func(b *fixture) {
					x := b.floats(shifted, 1, n, values)
					b.stream.ClipNorm(x.Tensor, float32(part*norm))
					b.expect(b.read(x), n, func(i int) (float64, float64) {
						want := min(part, 1) * float64(values[i])
						if part > 1 {
							return want, 0
						}
						return want, 4 * unit * math.Abs(want)
					})
				})
			}
		}
	}},
	{"ClipNorm does not hide what is no number", func(b *fixture) {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x := b.floats(dense, 1, 2, []float32{1, float32(v)})
			b.stream.ClipNorm(x.Tensor, 1)
			if got := b.read(x)[1]; !math.IsNaN(float64(got)) {
				b.Errorf("%v becomes %v", v, got)
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
		o := gds.AdamOptions{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: decay,
			Step: step}
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
