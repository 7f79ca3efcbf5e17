package gdstest

import (
	"math"
)

const normEpsilon = 1e-3

// normal is (x - mean) / sqrt(variance + normEpsilon).
func normal(x, mean, variance float64) float64 {
	return (x - mean) / math.Sqrt(variance+float64(float32(normEpsilon)))
}

// variances are positive numbers.
func (b *fixture) variances(n int) []float32 {
	x := b.normal(n)
	for i, v := range x {
		x[i] = 0.1 + v*v
	}
	return x
}

// near is a tolerance for some terms of a size: each is made with a few roundings.
func near(terms int, size float64) float64 { return float64(terms+12) * unit * size }

var normTests = []test{
	{"SumSquares adds up squares of deviations", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			x, mean := b.normal(rows*cols), b.normal(cols)
			dst := b.floats(shifted, 1, cols, nil)
			b.stream.SumSquares(dst.Tensor, b.floats(l, rows, cols, x).Tensor, b.floats(shifted, 1, cols, mean).Tensor)
			b.expect(b.read(dst), cols, func(j int) (sum, tolerance float64) {
				for i := range rows {
					d := float64(x[i*cols+j]) - float64(mean[j])
					sum += d * d
				}
				return sum, near(rows, sum)
			})
		})
	}},
	{"NormalizeColumns normalises, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			values, mean, variance, gain, shift := b.normal(rows*cols), b.normal(cols), b.variances(cols),
				b.normal(cols), b.normal(cols)
			row := func(values []float32) *array { return b.floats(shifted, 1, cols, values) }
			src, dst := b.floats(l, rows, cols, values), b.floats(strided, rows, cols, nil)
			m, v, g, s := row(mean), row(variance), row(gain), row(shift)
			b.stream.NormalizeColumns(dst.Tensor, src.Tensor, m.Tensor, v.Tensor, g.Tensor, s.Tensor, normEpsilon)
			b.stream.NormalizeColumns(src.Tensor, src.Tensor, m.Tensor, v.Tensor, g.Tensor, s.Tensor, normEpsilon)
			want := func(i int) (float64, float64) {
				j := i % cols
				n, size := normal(float64(values[i]), float64(mean[j]), float64(variance[j])),
					normal(math.Abs(float64(values[i]))+math.Abs(float64(mean[j])), 0, float64(variance[j]))
				return float64(gain[j])*n + float64(shift[j]),
					near(0, math.Abs(float64(gain[j]))*size+math.Abs(float64(shift[j])))
			}
			b.expect(b.read(dst), rows*cols, want)
			b.expect(b.read(src), rows*cols, want)
		})
	}},
	{"NormalizeColumnsGrad is the slope of NormalizeColumns, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			x, grad, mean, variance, gain := b.normal(rows*cols), b.normal(rows*cols), b.normal(cols),
				b.variances(cols), b.normal(cols)
			row := func(values []float32) *array { return b.floats(shifted, 1, len(values), values) }
			src, g, dst := b.floats(l, rows, cols, x), b.floats(l, rows, cols, grad), b.floats(strided, rows, cols, nil)
			m, v, k, sums := row(mean), row(variance), row(gain), b.floats(shifted, 1, 2*cols, nil)
			b.stream.NormalizeColumnsSums(sums.Tensor, g.Tensor, src.Tensor, m.Tensor, v.Tensor, normEpsilon)
			at := func(i int) float64 { return normal(float64(x[i]), float64(mean[i%cols]), float64(variance[i%cols])) }
			sum, size := make([]float64, 2*cols), make([]float64, 2*cols)
			for i, v := range grad {
				j := i % cols
				ofNormal := normal(math.Abs(float64(x[i]))+math.Abs(float64(mean[j])), 0, float64(variance[j]))
				sum[j] += float64(v)
				size[j] += math.Abs(float64(v))
				sum[cols+j] += float64(v) * at(i)
				size[cols+j] += math.Abs(float64(v)) * ofNormal
			}
			b.expect(b.read(sums), 2*cols, func(j int) (float64, float64) { return sum[j], near(rows, size[j]) })
			for _, part := range []float32{0, 0.0625} {
				b.stream.NormalizeColumnsGrad(dst.Tensor, g.Tensor, src.Tensor, m.Tensor, v.Tensor, k.Tensor,
					sums.Tensor, part, normEpsilon)
				want := func(i int) (float64, float64) {
					j := i % cols
					by := float64(gain[j]) * normal(1, 0, float64(variance[j]))
					value := float64(grad[i]) - float64(part)*sum[j] - float64(part)*at(i)*sum[cols+j]
					magnitude := math.Abs(float64(grad[i])) +
						float64(part)*(size[j]+normal(math.Abs(float64(x[i]))+math.Abs(float64(mean[j])), 0,
							float64(variance[j]))*size[cols+j])
					return by * value, near(rows, math.Abs(by)*magnitude)
				}
				b.expect(b.read(dst), rows*cols, want)
				if part != 0 {
					b.stream.NormalizeColumnsGrad(g.Tensor, g.Tensor, src.Tensor, m.Tensor, v.Tensor, k.Tensor,
						sums.Tensor, part, normEpsilon)
					b.expect(b.read(g), rows*cols, want)
				}
			}
		})
	}},
	{"NormalizeRows and its backward pass are those of layer normalisation", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			if cols == 0 {
				return
			}
			x, gain, shift, grad := b.normal(rows*cols), b.normal(cols), b.normal(cols), b.normal(rows*cols)
			beforeGain, beforeShift := b.normal(cols), b.normal(cols)
			src, dst, stats := b.floats(l, rows, cols, x), b.floats(strided, rows, cols, nil),
				b.floats(dense, rows, 2, nil)
			k := b.floats(shifted, 1, cols, gain)
			b.stream.NormalizeRows(dst.Tensor, stats.Tensor, src.Tensor, k.Tensor,
				b.floats(shifted, 1, cols, shift).Tensor, normEpsilon)
			mean, variance, size := make([]float64, rows), make([]float64, rows), make([]float64, rows)
			for i := range rows {
				for _, v := range x[i*cols:][:cols] {
					mean[i] += float64(v) / float64(cols)
					size[i] = max(size[i], math.Abs(float64(v)))
				}
				for _, v := range x[i*cols:][:cols] {
					variance[i] += (float64(v) - mean[i]) * (float64(v) - mean[i]) / float64(cols)
				}
			}
			// An error of the mean changes deviations, which are divided by that of the row: where
			// that is small, as of one element, by that of epsilon.
			tolerance := func(i int) float64 { return near(cols, 4*size[i]*normal(1, 0, variance[i])) }
			at := func(i int) float64 { return normal(float64(x[i]), mean[i/cols], variance[i/cols]) }
			b.expect(b.read(stats), 2*rows, func(i int) (float64, float64) {
				if i%2 == 0 {
					return mean[i/2], near(cols, size[i/2])
				}
				inverse := normal(1, 0, variance[i/2])
				return inverse, inverse * near(cols, 1)
			})
			b.expect(b.read(dst), rows*cols, func(i int) (float64, float64) {
				g := float64(gain[i%cols])
				return g*at(i) + float64(shift[i%cols]),
					math.Abs(g)*tolerance(i/cols) + near(0, math.Abs(float64(shift[i%cols])))
			})

			gradGain, gradShift, g := b.floats(shifted, 1, cols, beforeGain), b.floats(shifted, 1, cols, beforeShift),
				b.floats(l, rows, cols, grad)
			b.stream.NormalizeRowsGrad(dst.Tensor, gradGain.Tensor, gradShift.Tensor, g.Tensor, src.Tensor,
				stats.Tensor, k.Tensor)
			h, ofNormal, most := make([]float64, rows), make([]float64, rows), make([]float64, rows)
			for i := range x {
				v := float64(grad[i]) * float64(gain[i%cols])
				h[i/cols] += v / float64(cols)
				ofNormal[i/cols] += v * at(i) / float64(cols)
				most[i/cols] = max(most[i/cols], math.Abs(v))
			}
			b.expect(b.read(dst), rows*cols, func(i int) (float64, float64) {
				row := i / cols
				inverse, n := normal(1, 0, variance[row]), math.Abs(at(i))
				want := inverse * (float64(grad[i])*float64(gain[i%cols]) - h[row] - at(i)*ofNormal[row])
				return want, inverse * most[row] * (near(cols, 2+n*n) + 3*(1+n)*tolerance(row))
			})
			for what, got := range map[string]*array{"gain": gradGain, "shift": gradShift} {
				b.expect(b.read(got), cols, func(j int) (sum, off float64) {
					sum, by := float64(beforeShift[j]), func(int) float64 { return 1 }
					if what == "gain" {
						sum, by = float64(beforeGain[j]), func(row int) float64 { return at(row*cols + j) }
					}
					size := math.Abs(sum)
					for row := range rows {
						term := float64(grad[row*cols+j])
						sum, size = sum+term*by(row), size+math.Abs(term*by(row))
						off += math.Abs(term) * tolerance(row)
					}
					return sum, off + near(rows, size)
				})
			}
			// In place.
			b.stream.NormalizeRowsGrad(g.Tensor, gradGain.Tensor, gradShift.Tensor, g.Tensor, src.Tensor, stats.Tensor,
				k.Tensor)
			inPlace := b.read(g)
			b.expect(b.read(dst), rows*cols, func(i int) (float64, float64) { return float64(inPlace[i]), 0 })
		})
	}},
}
