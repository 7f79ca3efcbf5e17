package trainer

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
)

// The models and layers of these tests are written a second time, in float64 and with plain loops.
// Gradients are compared with central differences of that.

// rows64 is a matrix, row by row.
type rows64 [][]float64

func (x rows64) clone() rows64 {
	y := make(rows64, len(x))
	for i, row := range x {
		y[i] = slices.Clone(row)
	}
	return y
}

func (x rows64) flat() []float32 {
	var out []float32
	for _, row := range x {
		for _, v := range row {
			out = append(out, float32(v))
		}
	}
	return out
}

// random64 are values that float32 holds exactly, also as one slice.
func random64(seed uint64, rows, cols int) (x rows64, all []float64) {
	all = make([]float64, rows*cols)
	for i := range all {
		all[i] = float64(float32(rng.Normal(seed, uint64(i))))
	}
	for row := range slices.Chunk(all, cols) {
		x = append(x, row)
	}
	return x, all
}

// values64 are parameters, taken in the order in which they were declared.
type values64 []float64

func (v *values64) take(n int) []float64 {
	taken := (*v)[:n]
	*v = (*v)[n:]
	return taken
}

// affine is x W^T + b on the concatenation of matrices.
func (v *values64) affine(out int, xs ...rows64) rows64 {
	in := 0
	for _, x := range xs {
		in += len(x[0])
	}
	w, b := v.take(out*in), v.take(out)
	y := make(rows64, len(xs[0]))
	for i := range y {
		joined := slices.Concat(columnsOf(xs, i)...)
		y[i] = slices.Clone(b)
		for o := range y[i] {
			for j, value := range joined {
				y[i][o] += w[o*in+j] * value
			}
		}
	}
	return y
}

func columnsOf(xs []rows64, row int) (parts [][]float64) {
	for _, x := range xs {
		parts = append(parts, x[row])
	}
	return parts
}

// reluDropout is ReLU, then dropout as gds.Ops defines it.
func reluDropout(x rows64, p float32, seed uint64) rows64 {
	y := x.clone()
	for i, row := range y {
		for j, v := range row {
			row[j] = max(v, 0) / (1 - float64(p))
			if rng.Float32(rng.Hash(seed, uint64(i*len(row)+j))) < p {
				row[j] = 0
			}
		}
	}
	return y
}

// crossEntropy64 is the sum of -log softmax(logits)[label] over the labelled rows.
func crossEntropy64(logits rows64, labels []int32) (sum float64) {
	for i, row := range logits {
		if labels[i] < 0 {
			continue
		}
		powers := 0.0
		for _, v := range row {
			powers += math.Exp(v)
		}
		sum += math.Log(powers) - row[labels[i]]
	}
	return sum
}

// logits64 is a model on standardized matrices.
func logits64(s Spec, v values64, x []rows64, seed uint64) rows64 {
	if s.Model == "sgc" {
		return v.affine(s.Classes, x...)
	}
	hidden, dropout := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	joined := make(rows64, len(x[0]))
	for hop := range s.lastHop() + 1 {
		var xs []rows64
		for i, id := range s.Matrices {
			if id.Hop == hop {
				xs = append(xs, x[i])
			}
		}
		if len(xs) > 0 {
			for i, row := range v.affine(hidden, xs...) {
				joined[i] = append(joined[i], row...)
			}
		}
	}
	y := reluDropout(joined, dropout, rng.Hash(seed, 0))
	for i := range s.Settings.integer("layers") - 2 {
		y = reluDropout(v.affine(hidden, y), dropout, rng.Hash(seed, uint64(i+1)))
	}
	return v.affine(s.Classes, y)
}

// compareGradient compares a gradient with central differences of f at values.
func compareGradient(t *testing.T, what string, gradient []float32, values []float64, f func() float64) {
	t.Helper()
	if len(gradient) != len(values) {
		t.Fatalf("%s: a gradient of %d for %d values", what, len(gradient), len(values))
	}
	largest := 0.0
	for i, v := range values {
		const h = 1e-5 // differences are good to some 1e-10: 2^-53 / h and h^2 of curvature
		values[i] = v + h
		above := f()
		values[i] = v - h
		below := f()
		values[i] = v
		want, got := (above-below)/(2*h), float64(gradient[i])
		if !(math.Abs(want-got) <= 1e-4*(math.Abs(want)+math.Abs(got))+1e-7) {
			t.Errorf("%s: element %d of %d: gradient %v, difference %v", what, i, len(values), got, want)
		}
		largest = max(largest, math.Abs(want))
	}
	if largest < 0.01 {
		t.Errorf("%s: the largest gradient is %v: the test could not tell", what, largest)
	}
}

func widen(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

func TestGradientsOfModelsAreThoseOfTheirDefinition(t *testing.T) {
	for _, discrete := range []bool{false, true} {
		for _, c := range gradientCases {
			t.Run(fmt.Sprintf("%s, discrete=%t", c.name, discrete), func(t *testing.T) {
				const rows, globalRows, seed = 9, 12, 99 // as if another rank had the other three
				c.spec.Features, c.spec.Classes = 3, 4
				dev := openDevice(t, host.Options{Discrete: discrete})
				n, err := newNetwork(dev, c.spec, rows+2, taskFor(t, true))
				if err != nil {
					t.Fatal(err)
				}
				defer n.close()
				data := noise(11, rows, len(c.spec.Matrices), 3, 4)
				for i := range data.labels {
					if float64(i) < c.mixed*rows {
						data.labels[i] = -1
					}
				}
				inputs := make([]InputScale, len(c.spec.Matrices))
				x := make([]rows64, len(inputs)) // standardized
				for k := range inputs {
					in := InputScale{0.5 + 0.25*float32(k), []float32{0.5, -0.25, 0.125}, []float32{2, 1, 0.5}}
					inputs[k] = in
					for i := range rows {
						row := make([]float64, 3)
						for j := range row {
							row[j] = float64(in.Scale) * float64(in.Factor[j]) * (float64(data.x[k][i*3+j]) - float64(in.Mean[j]))
						}
						x[k] = append(x[k], row)
					}
				}
				initial := n.params.initial(6)
				if err := n.upload(n.params.value, initial); err != nil {
					t.Fatal(err)
				}
				if err := n.setInputs(inputs); err != nil {
					t.Fatal(err)
				}
				n.restore() // the values are for standardized features, as the gradient is
				n.stream.Fill(n.lossSum, 0)
				alone := group{ranks: []*network{n}}
				_, err = alone.eachBatch(t.Context(), []Epocher{data.feed(dev, rows)}, 0, 0, func(n *network, b *loader.Batch) {
					b.GlobalRows = globalRows
					n.gradient(b, seed)
				}, nil)
				if err != nil {
					t.Fatal(err)
				}
				gradient, err := n.download(n.params.grad)
				if err != nil {
					t.Fatal(err)
				}
				loss, err := n.readLoss(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				values := widen(initial)
				lossOf := func() float64 {
					return crossEntropy64(logits64(n.spec, values, x, seed), data.labels) / globalRows
				}
				if want := lossOf(); math.Abs(float64(loss)/globalRows/want-1) > 1e-5 {
					t.Errorf("loss %v, want %v", loss/globalRows, want)
				}
				compareGradient(t, "parameters", gradient, values, lossOf)
			})
		}
	}
}

// TestGradientsOfLayersAreThoseOfTheirDefinition checks each layer by itself: the gradients of its
// inputs and parameters, where the loss is a sum over its outputs with different weights.
func TestGradientsOfLayersAreThoseOfTheirDefinition(t *testing.T) {
	const rows, seed = 7, 5
	for _, c := range []struct {
		name    string
		in, out int // columns
		build   func(b *builder) any
		run     func(layer any, p *pass, x, gx, y, gy gds.Tensor) // forward and backward
		twin    func(v values64, x rows64) rows64
	}{
		{
			"linear", 5, 3,
			func(b *builder) any { return newLinear(&b.parameters, "linear", 3, 5) },
			func(layer any, p *pass, x, gx, y, gy gds.Tensor) {
				l := layer.(*linear)
				l.forward(p, y, operand{x, 1})
				l.backward(p, gy, operand{x, 1})
				l.inputGradient(p, gx, gy)
			},
			func(v values64, x rows64) rows64 { return v.affine(3, x) },
		},
		{
			"linear on two inputs that are scaled", 5, 3,
			func(b *builder) any { return newLinear(&b.parameters, "linear", 3, 2, 3) },
			func(layer any, p *pass, x, gx, y, gy gds.Tensor) {
				l := layer.(*linear)
				xs := []operand{{x.Columns(0, 2), 0.5}, {x.Columns(2, 5), 3}}
				l.forward(p, y, xs...)
				l.backward(p, gy, xs...)
				p.Gemm(false, false, 0.5, gy, l.weight.value.Columns(0, 2), 0, gx.Columns(0, 2))
				p.Gemm(false, false, 3, gy, l.weight.value.Columns(2, 5), 0, gx.Columns(2, 5))
			},
			func(v values64, x rows64) rows64 {
				x = x.clone()
				for _, row := range x {
					for j := range row {
						row[j] *= []float64{0.5, 0.5, 3, 3, 3}[j]
					}
				}
				return v.affine(3, x)
			},
		},
		{
			"linear that is used twice", 6, 3,
			func(b *builder) any { return newLinear(&b.parameters, "linear", 3, 3) },
			func(layer any, p *pass, x, gx, y, gy gds.Tensor) {
				l, scratch := layer.(*linear), gx.Columns(0, 3)
				l.forward(p, y, operand{x.Columns(0, 3), 1})
				l.forward(p, scratch, operand{x.Columns(3, 6), 1})
				p.Axpy(1, scratch, y)
				for at := 0; at < 6; at += 3 {
					l.backward(p, gy, operand{x.Columns(at, at+3), 1})
					l.inputGradient(p, gx.Columns(at, at+3), gy)
				}
			},
			func(v values64, x rows64) rows64 {
				var y rows64
				for _, row := range x {
					first, second := v, v
					a, b := first.affine(3, rows64{row[:3]})[0], second.affine(3, rows64{row[3:]})[0]
					y = append(y, []float64{a[0] + b[0], a[1] + b[1], a[2] + b[2]})
				}
				return y
			},
		},
		{
			"ReLU and dropout", 6, 6,
			func(*builder) any { return nonlinearity{0.3, 2} },
			func(layer any, p *pass, x, gx, y, gy gds.Tensor) {
				l := layer.(nonlinearity)
				p.Copy(y, x)
				l.forward(p, y)
				p.Copy(gx, gy)
				l.backward(p, gx, y)
			},
			func(_ values64, x rows64) rows64 { return reluDropout(x, 0.3, rng.Hash(seed, 2)) },
		},
		{
			"centring", 4, 4,
			func(b *builder) any { return newCentring(b, "centring", 4) },
			func(layer any, p *pass, x, gx, y, gy gds.Tensor) {
				l := layer.(*centring)
				p.Copy(y, x)
				l.forward(p, y)
				p.Copy(gx, gy)
				l.backward(p, gx)
			},
			func(_ values64, x rows64) rows64 { return centred64(x) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := openDevice(t, host.Options{Discrete: true})
			b := &builder{}
			layer := c.build(b)
			n := &network{task: taskFor(t, true), params: b.parameters, batchRows: rows, mem: memory{dev: dev}, spec: Spec{Features: 1}}
			if err := n.allocate(b.activations); err != nil {
				t.Fatal(err)
			}
			defer n.close()
			x, allX := random64(1, rows, c.in)
			weights, _ := random64(2, rows, c.out)
			tensors := map[string]gds.Tensor{}
			for name, values := range map[string]rows64{"x": x, "gx": x, "y": weights, "gy": weights} {
				tensor, err := n.mem.matrix(name, rows, len(values[0]), gds.Float32)
				if err == nil {
					err = gds.Upload(dev, n.stream, tensor, values.flat())
				}
				if err != nil {
					t.Fatal(err)
				}
				tensors[name] = tensor
			}
			initial := n.params.initial(8)
			if err := n.upload(n.params.value, initial); err != nil {
				t.Fatal(err)
			}
			p := &pass{Stream: n.stream, rows: rows, globalRows: rows, train: true, seed: seed, meet: func(gds.Tensor) bool { return true }}
			c.run(layer, p, tensors["x"], tensors["gx"], tensors["y"], tensors["gy"])
			read := func(tensor gds.Tensor) []float32 {
				values := make([]float32, tensor.Rows*tensor.Cols)
				if err := gds.Download(dev, n.stream, values, tensor); err != nil {
					t.Fatal(err)
				}
				return values
			}
			values := widen(initial)
			for i, want := range c.twin(values, x).flat() {
				if got := read(tensors["y"])[i]; math.Abs(float64(got-want)) > 1e-5*(1+math.Abs(float64(want))) {
					t.Errorf("output %d is %v, want %v", i, got, want)
				}
			}
			sum := func() (total float64) {
				for i, row := range c.twin(values, x) {
					for j, v := range row {
						total += weights[i][j] * v
					}
				}
				return total
			}
			compareGradient(t, "input", read(tensors["gx"]), allX, sum)
			grad := read(n.params.grad)
			for _, q := range n.params.list {
				part := grad[q.first : q.first+q.rows*q.cols]
				if q.fixed {
					if slices.ContainsFunc(part, func(g float32) bool { return g != 0 }) {
						t.Errorf("%s, which has no gradient, has %v", q.name, part)
					}
					continue
				}
				compareGradient(t, q.name, part, values[q.first:q.first+q.rows*q.cols], sum)
			}
		})
	}
}

func TestTheLossAndItsGradientAreThoseOfTheDefinition(t *testing.T) {
	const rows, classes, scale = 6, 4, 0.125
	dev := openDevice(t, host.Options{Discrete: true})
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	mem := memory{dev: dev}
	defer func() {
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
		if err := mem.free(); err != nil {
			t.Error(err)
		}
	}()
	out, all := random64(1, rows, classes)
	labels := []int32{0, 3, -1, 2, 2, 1}
	upload := func(rows, cols int, kind gds.DType, data []byte) gds.Tensor {
		tensor, err := mem.matrix("test", rows, cols, kind)
		if err == nil {
			err = gds.Upload(dev, stream, tensor, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tensor
	}
	sum := upload(1, 1, gds.Float32, dtype.BytesOf([]float32{2}))
	grad := upload(rows, classes, gds.Float32, dtype.BytesOf(make([]float32, rows*classes)))
	crossEntropy(stream, sum, grad, upload(rows, classes, gds.Float32, dtype.BytesOf(out.flat())), upload(1, rows, gds.Int32, dtype.BytesOf(labels)), scale)
	var total [1]float32
	got := make([]float32, rows*classes)
	if err := gds.Download(dev, stream, total[:], sum); err != nil {
		t.Fatal(err)
	}
	if err := gds.Download(dev, stream, got, grad); err != nil {
		t.Fatal(err)
	}
	if want := 2 + crossEntropy64(out, labels); math.Abs(float64(total[0])-want) > 1e-5 {
		t.Errorf("sum %v, want %v", total[0], want)
	}
	compareGradient(t, "logits", got, all, func() float64 { return scale * crossEntropy64(out, labels) })
	if slices.ContainsFunc(got[2*classes:3*classes], func(g float32) bool { return g != 0 }) {
		t.Errorf("the row without a label has the gradient %v", got[2*classes:3*classes])
	}
}
