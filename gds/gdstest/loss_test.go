package gdstest

import (
	"fmt"
	"math"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// crossEntropy is the sum of -log softmax(logits)[label] over rows with labels.
func crossEntropy(logits []float64, classes int, labels []int32) float64 {
	sum := 0.0
	for i, label := range labels {
		if label >= 0 {
			p := softmax(logits[i*classes:][:classes])
			sum -= math.Log(p[label])
		}
	}
	return sum
}

func softmax(row []float64) []float64 {
	largest := math.Inf(-1)
	for _, v := range row {
		largest = max(largest, v)
	}
	p, sum := make([]float64, len(row)), 0.0
	for j, v := range row {
		p[j] = math.Exp(v - largest)
		sum += p[j]
	}
	for j := range p {
		p[j] /= sum
	}
	return p
}

func widen(x []float32) []float64 {
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	return wide
}

// classes is n labels, every fifth negative.
func (b *fixture) classes(n, classes int) []int32 {
	b.seed++
	labels := make([]int32, n)
	for i := range labels {
		labels[i] = int32(rng.Hash(b.seed, uint64(i)) % uint64(classes))
		if i%5 == 4 {
			labels[i] = -1 - labels[i]
		}
	}
	return labels
}

// lossTolerance bounds the error of the loss, and of a softmax's elements: x
// less the largest, exponentials of up to four units error, and their sum.
func lossTolerance(row []float64) float64 {
	size := 0.0
	for _, v := range row {
		size = max(size, math.Abs(v))
	}
	return unit * (2*size + float64(len(row)) + 16)
}

var lossTests = []test{
	{"SoftmaxCrossEntropy adds the loss and sets the gradient", func(b *fixture) {
		for _, s := range [][2]int{{0, 3}, {1, 1}, {1, 2}, {7, 3}, {200, 41}, {65, 1000}} {
			for _, l := range layouts {
				for _, spread := range []float32{1, 30} {
					b.at(fmt.Sprintf("rows=%d,classes=%d,spread=%v,%s", s[0], s[1], spread, l.name), func(b *fixture) {
						softmaxCrossEntropy(b, l, s[0], s[1], spread)
					})
				}
			}
		}
	}},
	{"the loss of huge logits is finite", func(b *fixture) {
		logits := b.floats(dense, 2, 3, []float32{3e38, -3e38, 0, -3e38, -3e38, -3e38})
		loss, grad := b.floats(dense, 1, 1, []float32{0}), b.floats(dense, 2, 3, nil)
		b.stream.SoftmaxCrossEntropy(loss.Tensor, grad.Tensor, logits.Tensor, b.ints(0, 2).Tensor, gds.Tensor{},
			gds.Tensor{}, 1)
		b.expect(b.read(loss), 1, func(int) (float64, float64) { return math.Log(3), 1e-6 })
		want := []float64{0, 0, 0, 1.0 / 3, 1.0 / 3, -2.0 / 3}
		b.expect(b.read(grad), 6, func(i int) (float64, float64) { return want[i], 1e-6 })
	}},
	{"the loss of what is not a number is not a number", func(b *fixture) {
		for _, row := range [][]float32{{float32(math.NaN()), 1}, {1, float32(math.NaN())}, {float32(math.Inf(1)), 1}} {
			loss := b.floats(dense, 1, 1, []float32{0})
			b.stream.SoftmaxCrossEntropy(loss.Tensor, gds.Tensor{}, b.floats(dense, 1, 2, row).Tensor, b.ints(0).Tensor,
				gds.Tensor{}, gds.Tensor{}, 1)
			if got := b.read(loss)[0]; got == got {
				b.Errorf("the loss of %v is %v", row, got)
			}
		}
	}},
	{"a label beyond the classes is an error that names the row", func(b *fixture) {
		s := b.newStream()
		loss, logits := b.floats(dense, 1, 1, []float32{0}), b.floats(dense, 4, 3, make([]float32, 12))
		s.SoftmaxCrossEntropy(loss.Tensor, gds.Tensor{}, logits.Tensor, b.ints(0, 2, 3, -9).Tensor, gds.Tensor{},
			gds.Tensor{}, 1)
		const want = "row 2 has label 3, of 3 classes"
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), want) {
			b.Errorf("got %v, want %q in it", err, want)
		}
	}},
	{"CountCorrect counts rows whose first largest logit is at the label, and those with labels", func(b *fixture) {
		nan := float32(math.NaN())
		logits := b.floats(strided, 10, 3, []float32{
			1, 2, 3, // right
			3, 2, 1, // wrong
			2, 2, 1, // a tie: the first counts
			1, 2, 2,
			2, 2, 1, // a tie: the second does not
			1, 2, 3, // no label
			nan, 1, 2, // NaN first
			2, 1, nan, // NaN last
			nan, nan, nan,
			float32(math.Inf(-1)), -1, -2, // right
		})
		count := b.counts(100, 1<<32-2)
		b.stream.CountCorrect(count.Tensor, logits.Tensor, b.ints(2, 1, 0, 1, 1, -1, 2, 0, 0, 1).Tensor)
		if got := dtype.Int64s(b.bytes(count)); got[0] != 104 || got[1] != 1<<32+7 {
			b.Errorf("counted to %d, want 104 right of 2^32+7 with labels", got)
		}
	}},
	{"CountCorrect agrees with a plain loop on many rows", func(b *fixture) {
		const rows, classes = 1000, 7
		values, labels := b.normal(rows*classes), b.classes(rows, classes)
		right, labelled := int64(0), int64(0)
		for i, label := range labels {
			if label >= 0 {
				labelled++
			}
			best := 0
			for j := range classes {
				if values[i*classes+j] > values[i*classes+best] {
					best = j
				}
			}
			if int(label) == best {
				right++
			}
		}
		count := b.counts(0, 0)
		b.stream.CountCorrect(count.Tensor, b.floats(strided, rows, classes, values).Tensor, b.ints(labels...).Tensor)
		if got := dtype.Int64s(b.bytes(count)); got[0] != right || got[1] != labelled || right < 50 {
			b.Errorf("counted %d, want %d right of %d with labels", got, right, labelled)
		}
	}},
	{"the gradient of the loss agrees with finite differences", func(b *fixture) {
		const rows, classes, h = 6, 5, 1e-5
		values, labels := b.normal(rows*classes), b.classes(rows, classes)
		loss, grad := b.floats(dense, 1, 1, []float32{0}), b.floats(dense, rows, classes, nil)
		b.stream.SoftmaxCrossEntropy(loss.Tensor, grad.Tensor, b.floats(dense, rows, classes, values).Tensor,
			b.ints(labels...).Tensor, gds.Tensor{}, gds.Tensor{}, 0.5)
		logits := widen(values)
		b.expect(b.read(grad), rows*classes, func(i int) (float64, float64) {
			return 0.5 * slope(logits, i, h, func() float64 { return crossEntropy(logits, classes, labels) }), 1e-6
		})
	}},
	{"SoftmaxCrossEntropy weighs rows, and their classes", func(b *fixture) {
		const rows, classes, scale = 150, 4, 0.25
		values, labels, weights, rowWeights := b.normal(rows*classes), b.classes(rows, classes),
			[]float32{0.5, 2, 0, 1}, b.normal(rows)
		loss, grad := b.floats(dense, 1, 1, []float32{1}), b.floats(strided, rows, classes, nil)
		b.stream.SoftmaxCrossEntropy(loss.Tensor, grad.Tensor, b.floats(dense, rows, classes, values).Tensor,
			b.ints(labels...).Tensor, b.floats(shifted, 1, classes, weights).Tensor,
			b.floats(shifted, 1, rows, rowWeights).Tensor, scale)
		wide, want := widen(values), 1.0
		gradient := make([]float64, rows*classes)
		for i, label := range labels {
			if label >= 0 {
				row, weight := wide[i*classes:][:classes], float64(weights[label])*float64(rowWeights[i])
				want += weight * crossEntropy(row, classes, labels[i:i+1])
				for j, p := range softmax(row) {
					gradient[i*classes+j] = scale * weight * p
				}
				gradient[i*classes+int(label)] -= scale * weight
			}
		}
		b.expect(b.read(loss), 1, func(int) (float64, float64) { return want, 1e-5 })
		b.expect(b.read(grad), rows*classes, func(i int) (float64, float64) { return gradient[i], 1e-6 })
	}},
	{"SigmoidCrossEntropy adds the loss and sets the gradient", func(b *fixture) {
		for _, s := range [][2]int{{0, 3}, {1, 1}, {7, 3}, {200, 41}} {
			for _, l := range layouts {
				b.at(fmt.Sprintf("rows=%d,labels=%d,%s", s[0], s[1], l.name), func(b *fixture) {
					labels := make([]int8, s[0]*s[1])
					for i := range labels {
						labels[i] = int8(rng.Hash(b.seed, uint64(i))%3) - 1
					}
					y := b.array(l, s[0], s[1], gds.Int8, dtype.BytesOf(labels)).Tensor
					b.elementLosses(l, s[0], s[1], 3, func(at int, z float64) float64 {
						switch p := 1 / (1 + math.Exp(-z)); labels[at] {
						case 0:
							return -math.Log(1 - p)
						case 1:
							return -math.Log(p)
						}
						return 0
					}, func(loss, grad, out, rows gds.Tensor, scale float32) {
						b.stream.SigmoidCrossEntropy(loss, grad, out, y, rows, scale)
					})
				})
			}
		}
	}},
	{"SigmoidCrossEntropy of huge logits is finite, and of what is no number none", func(b *fixture) {
		for _, c := range []struct{ logit, label, loss, grad float64 }{
			{1e38, 1, 0, 0}, {1e38, 0, 1e38, 1}, {-1e38, 1, 1e38, -1}, {-1e38, 0, 0, 0},
			{-30, 0, math.Log1p(math.Exp(-30)), 1 / (1 + math.Exp(30))},
		} {
			loss, grad := b.floats(dense, 1, 1, []float32{0}), b.floats(dense, 1, 1, nil)
			label := b.array(dense, 1, 1, gds.Int8, []byte{byte(c.label)})
			b.stream.SigmoidCrossEntropy(loss.Tensor, grad.Tensor,
				b.floats(dense, 1, 1, []float32{float32(c.logit)}).Tensor, label.Tensor, gds.Tensor{}, 1)
			b.expect(b.read(loss), 1, func(int) (float64, float64) { return c.loss, 1e-6 * c.loss })
			b.expect(b.read(grad), 1, func(int) (float64, float64) { return c.grad, 1e-6 * math.Abs(c.grad) })
		}
		loss := b.floats(dense, 1, 1, []float32{0})
		b.stream.SigmoidCrossEntropy(loss.Tensor, gds.Tensor{},
			b.floats(dense, 1, 1, []float32{float32(math.NaN())}).Tensor,
			b.array(dense, 1, 1, gds.Int8, []byte{1}).Tensor, gds.Tensor{}, 1)
		if got := b.read(loss)[0]; got == got {
			b.Errorf("the loss of NaN is %v", got)
		}
	}},
	{"SquaredError and AbsoluteError add the loss and set the gradient", func(b *fixture) {
		for _, s := range [][2]int{{0, 3}, {1, 1}, {7, 3}, {200, 41}} {
			for _, l := range layouts {
				b.at(fmt.Sprintf("rows=%d,values=%d,%s", s[0], s[1], l.name), func(b *fixture) {
					labels, units := b.normal(s[0]*s[1]), make([]float32, s[1])
					for i := range labels {
						if i%4 == 1 {
							labels[i] = float32(math.NaN())
						}
					}
					for j := range units {
						units[j] = 0.5 + float32(j)
					}
					y, u := b.floats(l, s[0], s[1], labels).Tensor, b.floats(shifted, 1, s[1], units).Tensor
					of := func(power float64) func(at int, v float64) float64 {
						return func(at int, v float64) float64 {
							if label := float64(labels[at]); label == label {
								return math.Pow(math.Abs(v-label)/float64(units[at%s[1]]), power)
							}
							return 0
						}
					}
					b.elementLosses(l, s[0], s[1], 6, of(2), func(loss, grad, out, rows gds.Tensor, scale float32) {
						b.stream.SquaredError(loss, grad, out, y, u, rows, scale)
					})
					b.elementLosses(l, s[0], s[1], 6, of(1), func(loss, grad, out, rows gds.Tensor, scale float32) {
						b.stream.AbsoluteError(loss, grad, out, y, u, rows, scale)
					})
				})
			}
		}
	}},
	{"the gradient of no error is zero", func(b *fixture) {
		loss, grad := b.floats(dense, 1, 1, []float32{0}), b.floats(dense, 1, 2, nil)
		y, ones := b.floats(dense, 1, 2, []float32{3, -3}).Tensor, b.floats(dense, 1, 2, []float32{1, 1}).Tensor
		b.stream.AbsoluteError(loss.Tensor, grad.Tensor, y, y, ones, gds.Tensor{}, 1)
		b.expect(append(b.read(grad), b.read(loss)...), 3, func(int) (float64, float64) { return 0, 0 })
	}},
	{"a label above one is an error that names the row", func(b *fixture) {
		s := b.newStream()
		x := b.floats(dense, 2, 2, make([]float32, 4))
		s.SigmoidCrossEntropy(b.floats(dense, 1, 1, []float32{0}).Tensor, gds.Tensor{}, x.Tensor,
			b.array(dense, 2, 2, gds.Int8, []byte{0, 1, 1, 2}).Tensor, gds.Tensor{}, 1)
		const want = "row 1 has label 2, not 0 or 1, at place 1"
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), want) {
			b.Errorf("got %v, want %q in it", err, want)
		}
	}},
	{"the gradients of a network with dropout agree with finite differences", func(b *fixture) { networkGradients(b) }},
}

func softmaxCrossEntropy(b *fixture, l layout, rows, classes int, spread float32) {
	values, labels := b.normal(rows*classes), b.classes(rows, classes)
	for i := range values {
		values[i] *= spread
	}
	const scale, before = 0.125, 2.5
	logits, y := b.floats(l, rows, classes, values), b.ints(labels...)
	loss, grad := b.floats(shifted, 1, 1, []float32{before}), b.floats(l, rows, classes, nil)
	b.stream.SoftmaxCrossEntropy(loss.Tensor, grad.Tensor, logits.Tensor, y.Tensor, gds.Tensor{}, gds.Tensor{}, scale)
	alone := b.floats(shifted, 1, 1, []float32{before})
	b.stream.SoftmaxCrossEntropy(alone.Tensor, gds.Tensor{}, logits.Tensor, y.Tensor, gds.Tensor{}, gds.Tensor{}, scale)

	wide := widen(values)
	want := before + crossEntropy(wide, classes, labels)
	tolerance := float64(rows+2) * unit * want // of the sum
	for i := range rows {
		tolerance += lossTolerance(wide[i*classes:][:classes])
	}
	for _, a := range []*array{loss, alone} {
		b.expect(b.read(a), 1, func(int) (float64, float64) { return want, tolerance })
	}
	gradient, tolerances := make([]float64, rows*classes), make([]float64, rows)
	for i, label := range labels {
		if label >= 0 {
			row := wide[i*classes:][:classes]
			copy(gradient[i*classes:], softmax(row))
			gradient[i*classes+int(label)]--
			tolerances[i] = scale * lossTolerance(row)
		}
	}
	b.expect(b.read(grad), rows*classes, func(i int) (float64, float64) {
		return scale * gradient[i],
			tolerances[i/classes]
	})
}

// slope is the derivative of f by x[i], by differences at h to either side.
func slope(x []float64, i int, h float64, f func() float64) float64 {
	at := x[i]
	x[i] = at + h
	up := f()
	x[i] = at - h
	down := f()
	x[i] = at
	return (up - down) / (2 * h)
}

// networkGradients runs relu(dropout(x W + c)) V forward and backward on the
// device, as a trainer does, and the same forward in float64.
func networkGradients(b *fixture) {
	const (
		rows, features, hidden, classes = 9, 6, 8, 4
		p, seed, h                      = 0.3, 77, 1e-6
	)
	x, w, c, v := b.normal(rows*features), b.normal(features*hidden), b.normal(hidden), b.normal(hidden*classes)
	labels := b.classes(rows, classes)

	dx, dw, dc, dv := b.floats(strided, rows, features, x), b.floats(dense, features, hidden, w),
		b.floats(dense, 1, hidden, c), b.floats(dense, hidden, classes, v)
	pre, out := b.floats(strided, rows, hidden, nil), b.floats(dense, rows, hidden, nil)
	logits, loss := b.floats(dense, rows, classes, nil), b.floats(dense, 1, 1, []float32{0})
	s := b.stream
	s.Gemm(false, false, 1, dx.Tensor, dw.Tensor, 0, pre.Tensor)
	s.AddRow(pre.Tensor, dc.Tensor)
	s.Dropout(pre.Tensor, pre.Tensor, p, seed)
	s.ReLU(out.Tensor, pre.Tensor)
	s.Gemm(false, false, 1, out.Tensor, dv.Tensor, 0, logits.Tensor)
	gradLogits, gradOut := b.floats(dense, rows, classes, nil), b.floats(dense, rows, hidden, nil)
	gradV, gradC, gradW := b.floats(dense, hidden, classes, nil), b.floats(dense, 1, hidden, nil),
		b.floats(dense, features, hidden, nil)
	s.SoftmaxCrossEntropy(loss.Tensor, gradLogits.Tensor, logits.Tensor, b.ints(labels...).Tensor, gds.Tensor{},
		gds.Tensor{}, 1)
	s.Gemm(true, false, 1, out.Tensor, gradLogits.Tensor, 0, gradV.Tensor)
	s.Gemm(false, true, 1, gradLogits.Tensor, dv.Tensor, 0, gradOut.Tensor)
	s.ReLUGrad(gradOut.Tensor, gradOut.Tensor, out.Tensor, 1)
	s.Dropout(gradOut.Tensor, gradOut.Tensor, p, seed)
	s.SumRows(gradC.Tensor, 0, gradOut.Tensor)
	s.Gemm(true, false, 1, dx.Tensor, gradOut.Tensor, 0, gradW.Tensor)

	wideX, wideW, wideC, wideV := widen(x), widen(w), widen(c), widen(v)
	nearest := math.Inf(1) // that an argument of ReLU comes to its kink
	forward := func() float64 {
		all := make([]float64, rows*classes)
		for i := range rows {
			for k := range hidden {
				sum := wideC[k]
				for j := range features {
					sum += wideX[i*features+j] * wideW[j*hidden+k]
				}
				if rng.Float32(rng.Hash(seed, uint64(i*hidden+k))) < p {
					continue
				}
				nearest = min(nearest, math.Abs(sum))
				for j := range classes {
					all[i*classes+j] += max(sum, 0) / (1 - float64(float32(p))) * wideV[k*classes+j]
				}
			}
		}
		return crossEntropy(all, classes, labels)
	}
	// Sums of some fifty terms of about one: errors of 100 units at most; the
	// differences err by h^2 and by the loss's own last place over h, less.
	const tolerance = 1e-5
	b.expect(b.read(loss), 1, func(int) (float64, float64) { return forward(), tolerance })
	b.expect(b.read(gradV), hidden*classes, func(i int) (float64, float64) {
		return slope(wideV, i, h, forward),
			tolerance
	})
	b.expect(b.read(gradC), hidden, func(i int) (float64, float64) { return slope(wideC, i, h, forward), tolerance })
	b.expect(b.read(gradW), features*hidden,
		func(i int) (float64, float64) { return slope(wideW, i, h, forward), tolerance })
	if nearest < 10*h {
		b.Errorf("an argument of ReLU is %v from zero, where it has no derivative: take other numbers", nearest)
	}
}

// elementLosses checks a loss that is, for each row, the mean over its elements of what of gives for each
// of them: its sum, and its gradient by central differences, of rows as they are and weighed. Values are
// some spread times normal.
func (b *fixture) elementLosses(l layout, rows, cols int, spread float32, of func(at int, v float64) float64,
	call func(loss, grad, out, rows gds.Tensor, scale float32)) {
	b.Helper()
	values, weights := b.normal(rows*cols), b.normal(rows)
	for i := range values {
		values[i] *= spread
	}
	const scale, before, h = 0.125, 2.5, 1e-6
	out := b.floats(l, rows, cols, values)
	for _, weighed := range []bool{false, true} {
		var rowWeights gds.Tensor
		weight := func(int) float64 { return 1 }
		if weighed {
			rowWeights = b.floats(shifted, 1, rows, weights).Tensor
			weight = func(at int) float64 { return float64(weights[at/cols]) }
		}
		loss, grad, alone := b.floats(shifted, 1, 1, []float32{before}), b.floats(l, rows, cols, nil),
			b.floats(shifted, 1, 1, []float32{before})
		call(loss.Tensor, grad.Tensor, out.Tensor, rowWeights, scale)
		call(alone.Tensor, gds.Tensor{}, out.Tensor, rowWeights, 0)
		want, size := before, before
		for i, v := range values {
			l := weight(i) * of(i, float64(v)) / float64(cols)
			want, size = want+l, size+math.Abs(l)
		}
		for _, a := range []*array{loss, alone} {
			b.expect(b.read(a), 1, func(int) (float64, float64) { return want, 1e-6 * size })
		}
		b.expect(b.read(grad), rows*cols, func(i int) (float64, float64) {
			v := float64(values[i])
			slope := scale * weight(i) * (of(i, v+h) - of(i, v-h)) / (2 * h * float64(cols))
			return slope, 1e-6 * (1 + math.Abs(slope))
		})
	}
}
