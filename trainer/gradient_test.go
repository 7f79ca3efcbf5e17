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

// copyOf is a copy of an activation, which a layer may change in place.
func copyOf(b *builder, x *activation) *activation {
	y := b.activation(0, x.cols)
	b.add(func(p *pass) { p.Copy(y.value(p), x.value(p)) }, func(p *pass) { p.Copy(x.gradient(p), y.gradient(p)) })
	return y
}

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

// eluDropout is ELU, then dropout as gds.Ops defines it.
func eluDropout(x rows64, p float32, seed uint64) rows64 {
	y := x.clone()
	for i, row := range y {
		for j, v := range row {
			if v < 0 {
				v = math.Expm1(v)
			}
			row[j] = v / (1 - float64(p))
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

// loss64 is the sum of the losses of rows, by the definition of a loss.
func loss64(name string, out rows64, data *toy, units []float64) (sum float64) {
	if name == "cross-entropy" {
		return crossEntropy64(out, data.labels)
	}
	for i, row := range out {
		for j, v := range row {
			at := i*len(row) + j
			switch name {
			case "bce":
				switch p := 1 / (1 + math.Exp(-v)); data.several[at] {
				case 0:
					sum -= math.Log(1-p) / float64(len(row))
				case 1:
					sum -= math.Log(p) / float64(len(row))
				}
			default:
				if label := float64(data.values[at]); label == label {
					e := math.Abs(v-label) / units[j]
					if name == "mse" {
						e *= e
					}
					sum += e / float64(len(row))
				}
			}
		}
	}
	return sum
}

// product is x W^T.
func (v *values64) product(out int, x rows64) rows64 {
	w := v.take(out * len(x[0]))
	y := make(rows64, len(x))
	for i, row := range x {
		for o := range out {
			y[i] = append(y[i], inner64(w[o*len(row):][:len(row)], row))
		}
	}
	return y
}

func inner64(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

func softmax64(x []float64) (p []float64) {
	sum := 0.0
	for _, v := range x {
		p = append(p, math.Exp(v))
		sum += math.Exp(v)
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// tokens64 are the rows of x cut into tokens of width elements, one below the other, and rowsOf the same back.
func tokens64(x rows64, width int) (tokens rows64) {
	for _, row := range x {
		for token := range slices.Chunk(row, width) {
			tokens = append(tokens, slices.Clone(token))
		}
	}
	return tokens
}

func rowsOf(tokens rows64, count int) (x rows64) {
	for row := range slices.Chunk(tokens, count) {
		x = append(x, slices.Concat(row...))
	}
	return x
}

// normal64 is gain * (x - mean) / sqrt(variance + epsilon) + shift of some numbers.
func normal64(x []float64) (y []float64) {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	for _, v := range x {
		y = append(y, (v-mean)/math.Sqrt(variance+normEpsilon))
	}
	return y
}

// affineColumns multiplies columns by a gain, and adds a shift.
func (v *values64) affineColumns(x rows64) rows64 {
	gain, shift := v.take(len(x[0])), v.take(len(x[0]))
	y := x.clone()
	for _, row := range y {
		for j := range row {
			row[j] = gain[j]*row[j] + shift[j]
		}
	}
	return y
}

// layerNorm is layerNorm on tokens that are rows.
func (v *values64) layerNorm(x rows64) rows64 {
	var y rows64
	for _, row := range x {
		y = append(y, normal64(row))
	}
	return v.affineColumns(y)
}

// batchNorm is batchNorm in training, and skips the running mean and variance.
func (v *values64) batchNorm(x rows64) rows64 {
	y := x.clone()
	for j := range x[0] {
		var column []float64
		for _, row := range x {
			column = append(column, row[j])
		}
		for i, value := range normal64(column) {
			y[i][j] = value
		}
	}
	y = v.affineColumns(y)
	v.take(2 * len(x[0]))
	return y
}

// attention is attention on tokens that are rows, count of each row.
func (v *values64) attention(x rows64, count, heads int) rows64 {
	width := len(x[0])
	size := width / heads
	qkv, attended := v.affine(3*width, x), make(rows64, len(x))
	for first := 0; first < len(x); first += count {
		for t := first; t < first+count; t++ {
			for h := range heads {
				part := func(token, which int) []float64 { return qkv[token][which*width+h*size:][:size] }
				var scores []float64
				for u := first; u < first+count; u++ {
					scores = append(scores, inner64(part(t, 0), part(u, 1))/math.Sqrt(float64(size)))
				}
				out := make([]float64, size)
				for u, weight := range softmax64(scores) {
					for i, value := range part(first+u, 2) {
						out[i] += weight * value
					}
				}
				attended[t] = append(attended[t], out...)
			}
		}
	}
	return v.affine(width, attended)
}

// recursiveAttention is recursiveAttention on tokens that are rows, count of each row, with a dropout.
func (v *values64) recursiveAttention(x rows64, count int, p float32, seed uint64) (z rows64) {
	width := len(x[0])
	a, b, c, slope := v.take(width), v.take(width), v.take(1)[0], v.take(1)[0]
	weighed := func(weights []float64, tokens rows64) []float64 {
		sum := make([]float64, width)
		for t, weight := range weights {
			for j, value := range tokens[t] {
				sum[j] += weight * value
			}
		}
		return sum
	}
	for tokens := range slices.Chunk(x, count) {
		var scores []float64
		for t, token := range tokens {
			history := token
			if t > 0 {
				history = weighed(softmax64(scores), tokens)
			}
			score := inner64(a, history) + inner64(b, token) + c
			if score < 0 {
				score *= slope
			}
			scores = append(scores, score)
		}
		weights := softmax64(scores)
		for t := range weights {
			weights[t] /= 1 - float64(p)
			if rng.Float32(rng.Hash(seed, uint64(len(z)*count+t))) < p {
				weights[t] = 0
			}
		}
		z = append(z, weighed(weights, tokens))
	}
	return z
}

// mlp is mlp.
func (v *values64) mlp(s Spec, layers int, x rows64, seed uint64) rows64 {
	hidden, dropout := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	for i := range layers {
		x = reluDropout(v.affine(hidden, x), dropout, rng.Hash(seed, uint64(i+1)))
	}
	return v.affine(s.Classes, x)
}

// hopLayers is hopLayers.
func (v *values64) hopLayers(s Spec, x []rows64, seed uint64) rows64 {
	joined := make(rows64, len(x[0]))
	for hop := range 10 {
		var xs []rows64
		for i, id := range s.Matrices {
			if id.Hop == hop {
				xs = append(xs, x[i])
			}
		}
		if len(xs) > 0 {
			for i, row := range v.affine(s.Settings.integer("hidden"), xs...) {
				joined[i] = append(joined[i], row...)
			}
		}
	}
	return reluDropout(joined, float32(s.Settings["dropout"]), rng.Hash(seed, 0))
}

// operatorHops are the matrices of the operators of gradientCases, the input first.
func operatorHops(s Spec, x []rows64) (operators [][]rows64) {
	for _, name := range []string{"sym", "rw"} {
		hops := []rows64{x[0]}
		for i, id := range s.Matrices {
			if id.Operator == name {
				hops = append(hops, x[i])
			}
		}
		if len(hops) > 1 {
			operators = append(operators, hops)
		}
	}
	if len(operators) == 0 {
		return [][]rows64{{x[0]}}
	}
	return operators
}

// narsSums are the matrices that NARS adds up in the cases of gradientCases, by hop.
func narsSums(s Spec) [][]int {
	switch len(s.Matrices) {
	case 1:
		return [][]int{{0}}
	case 4: // two operators
		return [][]int{{0}, {1, 3}, {2}}
	case 6: // subsets
		return [][]int{{0}, {2, 4}, {1, 5}, {3}}
	}
	panic("no such case")
}

// logits64 are models on standardized matrices.
var logits64 = map[string]func(s Spec, v values64, x []rows64, seed uint64) rows64{
	"gcn": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		return v.messagePassing(s, x[0], s.Settings["residual"] == 1, seed, 1, convolve64)
	},
	"sage": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		return v.messagePassing(s, x[0], true, seed, 1, convolve64)
	},
	"rgcn": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		return v.messagePassing(s, x[0], true, seed, 1, convolve64)
	},
	"gat": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		return v.messagePassing(s, x[0], s.Settings["residual"] == 1, seed,
			s.Settings.integer("heads"), func(v *values64, b toyBlock, x rows64, out int) rows64 {
				return v.attendAlong64(b, x, out, s.Settings.integer("heads"))
			})
	},
	"sgc": func(s Spec, v values64, x []rows64, _ uint64) rows64 { return v.affine(s.Classes, x...) },
	"ssgc": func(s Spec, v values64, x []rows64, _ uint64) rows64 {
		var means []rows64
		for _, hops := range operatorHops(s, x) {
			mean, alpha := hops[0].clone(), s.Settings["alpha"]
			for i, row := range mean {
				for j := range row {
					sum := 0.0
					for _, hop := range hops[1:] {
						sum += hop[i][j]
					}
					if len(hops) > 1 {
						row[j] = alpha*row[j] + (1-alpha)*sum/float64(len(hops)-1)
					}
				}
			}
			means = append(means, mean)
		}
		return v.affine(s.Classes, means...)
	},
	"sign": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		return v.mlp(s, s.Settings.integer("layers")-2, v.hopLayers(s, x, seed), seed)
	},
	"gamlp": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		hidden := s.Settings.integer("hidden")
		hops := v.hopLayers(s, x, seed)
		z := v.recursiveAttention(tokens64(hops, hidden), len(hops[0])/hidden, float32(s.Settings["hop-dropout"]),
			rng.Hash(seed, attentionDropout))
		return v.mlp(s, s.Settings.integer("layers")-2, z, seed)
	},
	"sehgnn": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		hidden, dropout, count := s.Settings.integer("hidden"), float32(s.Settings["dropout"]), len(x)
		layers := func(xs []rows64, id uint64) (tokens rows64) {
			joined := make(rows64, len(x[0]))
			for _, x := range xs {
				for i, row := range v.affine(hidden, x) {
					joined[i] = append(joined[i], row...)
				}
			}
			normal := rowsOf(v.layerNorm(tokens64(joined, hidden)), count)
			return tokens64(reluDropout(normal, dropout, rng.Hash(seed, id)), hidden)
		}
		h := layers(x, projectionDropout)
		xs := make([]rows64, count)
		for i, token := range h {
			xs[i%count] = append(xs[i%count], token)
		}
		h = layers(xs, tokenDropout)
		attended, beta := v.attention(h, count, s.Settings.integer("heads")), v.take(hidden)
		for i, row := range h {
			for j := range row {
				row[j] += beta[j] * attended[i][j]
			}
		}
		y := reluDropout(v.affine(hidden, rowsOf(h, count)), dropout, rng.Hash(seed, fusionDropout))
		return v.mlp(s, s.Settings.integer("layers")-2, y, seed)
	},
	"nars": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		hidden := s.Settings.integer("hidden")
		var sums []rows64
		for _, sum := range narsSums(s) {
			width := len(x[sum[0]][0])
			v.take(width) // what centring adds
			y := make(rows64, len(x[0]))
			for i := range y {
				y[i] = make([]float64, width)
			}
			for _, matrix := range sum {
				for j, a := range v.take(width) {
					for i := range y {
						y[i][j] += a * x[matrix][i][j]
					}
				}
			}
			sums = append(sums, y)
		}
		joined := make(rows64, len(x[0]))
		for _, sum := range sums {
			for i, row := range v.affine(hidden, sum) {
				joined[i] = append(joined[i], row...)
			}
		}
		joined = reluDropout(joined, float32(s.Settings["dropout"]), rng.Hash(seed, 0))
		return v.mlp(s, s.Settings.integer("layers")-2, joined, seed)
	},
	"hoga": func(s Spec, v values64, x []rows64, seed uint64) rows64 {
		hidden, dropout := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
		operators := operatorHops(s, x)
		count := 0
		for _, hops := range operators {
			count = max(count, len(hops))
		}
		var tokens rows64 // all operators' side by side
		for i := range x[0] {
			for t := range count {
				var token []float64
				for _, hops := range operators {
					token = append(token, hops[min(t, len(hops)-1)][i]...)
				}
				tokens = append(tokens, token)
			}
		}
		h := v.product(hidden, tokens)
		v.take(count * hidden) // what centring adds
		for layer := range s.Settings.integer("layers") {
			gates := v.product(hidden, h)
			h = v.attention(h, count, s.Settings.integer("heads"))
			for i, row := range h {
				for j := range row {
					row[j] *= gates[i][j]
				}
			}
			h = tokens64(reluDropout(rowsOf(v.layerNorm(h), count), dropout, rng.Hash(seed, uint64(layer+1))), hidden)
		}
		w := v.take(hidden)
		var z rows64
		for row := range slices.Chunk(h, count) {
			sum, scores := slices.Clone(row[0]), []float64{}
			for _, token := range row[1:] {
				scores = append(scores, 3+inner64(w, token)) // that h_0 adds cancels out
			}
			for t, weight := range softmax64(scores) {
				for j, value := range row[t+1] {
					sum[j] += weight * value
				}
			}
			z = append(z, sum)
		}
		y := v.batchNorm(reluDropout(v.affine(hidden, z), 0, 0))
		for i, row := range y {
			for j := range row {
				row[j] /= 1 - float64(dropout)
				if rng.Float32(rng.Hash(rng.Hash(seed, 0), uint64(i*len(row)+j))) < dropout {
					row[j] = 0
				}
			}
		}
		return v.affine(s.Classes, y)
	},
}

// sumAlong64 is A x for the edges of a block.
func sumAlong64(b toyBlock, x rows64) rows64 {
	y := make(rows64, b.Destinations)
	for v := range y {
		y[v] = make([]float64, len(x[0]))
	}
	b.eachEdge(func(v, u int, weight float64) {
		for j, value := range x[u] {
			y[v][j] += weight * value
		}
	})
	return y
}

// attendAlong64 is edgeAttention.
func (v *values64) attendAlong64(b toyBlock, x rows64, out, heads int) rows64 {
	w, bias, a := v.take(out*len(x[0])), v.take(out), v.take(2*out)
	zero := values64(slices.Concat(w, make([]float64, out)))
	z := zero.affine(out, x)
	size := out / heads
	y := make(rows64, b.Destinations)
	for d := range y {
		y[d] = slices.Clone(bias)
		for h := range heads {
			of := func(row []float64, which int) float64 {
				return inner64(a[which*out+h*size:][:size], row[h*size:][:size])
			}
			var exponents []float64
			index := b.Indices[b.Offsets[d]:b.Offsets[d+1]]
			for _, u := range index {
				e := of(z[u], 0) + of(z[d], 1)
				exponents = append(exponents, max(e, 0.2*e))
			}
			for i, alpha := range softmax64(exponents) {
				for j := range size {
					y[d][h*size+j] += alpha * z[index[i]][h*size+j]
				}
			}
		}
	}
	return y
}

// messagePassing is a model on toyBlocks, with a convolution.
func (v *values64) messagePassing(s Spec, x rows64, self bool, seed uint64, heads int,
	convolve func(v *values64, b toyBlock, x rows64, out int) rows64) rows64 {
	layers, hidden := s.Settings.integer("layers"), s.Settings.integer("hidden")
	asPrinted := s.Settings["as-printed"] == 1
	for i, b := range toyBlocks(layers, len(x)-layers*toyMoreSources) {
		out, last := hidden, asPrinted && i == layers-1
		if last {
			out = heads * s.Classes
		}
		y := convolve(v, b, x, out)
		if self {
			for d, row := range v.product(out, x[:b.Destinations]) {
				for j, value := range row {
					y[d][j] += value
				}
			}
		}
		if last {
			return meanOfHeads64(y, heads)
		}
		if s.Settings["norm"] == 1 {
			y = v.layerNorm(y)
		}
		activation := reluDropout
		if asPrinted && s.Model == "gat" {
			activation = eluDropout
		}
		x = activation(y, float32(s.Settings["dropout"]), rng.Hash(seed, uint64(i+1)))
	}
	return v.affine(s.Classes, x)
}

// meanOfHeads64 is the mean of the heads' parts of each row.
func meanOfHeads64(x rows64, heads int) (y rows64) {
	for _, row := range x {
		mean := make([]float64, len(row)/heads)
		for j, value := range row {
			mean[j%len(mean)] += value / float64(heads)
		}
		y = append(y, mean)
	}
	return y
}

// convolve64 is sumConvolution.
func convolve64(v *values64, b toyBlock, x rows64, out int) rows64 {
	return v.affine(out, sumAlong64(b, x))
}

// compareGradient compares a gradient with central differences of f at values.
func compareGradient(t *testing.T, what string, gradient []float32, values []float64, f func() float64) {
	t.Helper()
	if len(gradient) != len(values) {
		t.Fatalf("%s: a gradient of %d for %d values", what, len(gradient), len(values))
	}
	if largest := compareElements(t, what, gradient, values, f); largest < 0.01 {
		t.Errorf("%s: the largest gradient is %v: the test could not tell", what, largest)
	}
}

// compareElements returns the largest difference.
func compareElements(t *testing.T, what string, gradient []float32, values []float64,
	f func() float64) (largest float64) {
	t.Helper()
	for i, v := range values {
		const h = 1e-5 // differences are good to some 1e-10: 2^-53 / h and h^2 of curvature
		values[i] = v + h
		above := f()
		values[i] = v - h
		below := f()
		values[i] = v
		want, got := (above-below)/(2*h), float64(gradient[i])
		// In float32, sums of some dozens of terms near 1 that cancel are good to some 1e-6.
		if !(math.Abs(want-got) <= 1e-4*(math.Abs(want)+math.Abs(got))+4e-6) {
			t.Errorf("%s: element %d of %d: gradient %v, difference %v", what, i, len(values), got, want)
		}
		largest = max(largest, math.Abs(want))
	}
	return largest
}

// compareLearnt compares the gradient of the parameters that are learnt.
func compareLearnt(t *testing.T, where string, p parameters, gradient []float32, values []float64, f func() float64) {
	t.Helper()
	largest := 0.0
	for _, q := range p.list {
		if !q.fixed {
			lo, hi := q.first, q.first+q.rows*q.cols
			largest = max(largest, compareElements(t, q.name+where, gradient[lo:hi], values[lo:hi], f))
		}
	}
	if largest < 0.01 {
		t.Errorf("the largest gradient%s is %v: the test could not tell", where, largest)
	}
}

// someValues are initial values, and a little more, so that none is zero or one.
func someValues(p parameters, seed uint64) []float32 {
	values := p.initial(seed)
	for _, q := range p.list {
		for i := q.first; i < q.first+q.rows*q.cols && !q.fixed; i++ {
			values[i] += 0.1 * float32(rng.Normal(seed, uint64(i)))
		}
	}
	return values
}

func widen(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

func TestGradientsOfModelsAreThoseOfTheirDefinition(t *testing.T) {
	for name, loss := range losses {
		seen := map[string][]float32{} // gradients that agree with the definition
		for i, c := range slices.Concat(gradientCases, gradientCases, gradientCases) {
			discrete, sparse := i < len(gradientCases), i >= 2*len(gradientCases)
			if aggregation, _ := AggregationOf(c.spec.Model); sparse && aggregation == "" {
				continue
			}
			t.Run(fmt.Sprintf("%s, %s, discrete=%t, sparse=%t", c.name, name, discrete, sparse), func(t *testing.T) {
				const rows, seed = 9, 99
				globalRows := 12 // as if another rank had the other three
				if c.alone {
					globalRows = rows
				}
				c.spec.Features, c.spec.Classes, c.spec.Target = 3, 4, loss.target
				dev := openDevice(t, host.Options{Discrete: discrete})
				task, err := Options{Loss: name}.task(c.spec, true)
				if err != nil {
					t.Fatal(err)
				}
				n, err := newNetwork(dev, c.spec, rows+2, task)
				if err != nil {
					t.Fatal(err)
				}
				defer n.close()
				layers := n.blocks
				sources := rows + layers*toyMoreSources // of the first block, or the rows themselves
				data := noiseFor(11, sources, c.spec)
				data.layers, data.labels, data.sparse = layers, data.labels[:rows], sparse
				for i := range data.x[0] {
					if sparse && i%5 != 3 {
						data.x[0][i] = 0
					}
				}
				for i := range data.labels {
					if float64(i) < c.mixed*rows {
						data.labels[i] = -1
					}
				}
				data = data.withTarget(loss.target, 4)
				inputs := make([]InputScale, len(c.spec.Matrices))
				x := make([]rows64, len(inputs)) // standardized
				for k := range inputs {
					in, width := InputScale{Scale: 0.5 + 0.25*float32(k)}, data.width(k)
					for j := range width {
						in.Mean = append(in.Mean, []float32{0.5, -0.25, 0.125 * float32(k)}[j%3])
						in.Factor = append(in.Factor, []float32{2, 1, 0.5}[j%3])
					}
					if layers > 0 {
						in.Mean = make([]float32, width)
					}
					inputs[k] = in
					for i := range sources {
						row := make([]float64, width)
						for j := range row {
							centred := float64(data.x[k][i*width+j]) - float64(in.Mean[j])
							row[j] = float64(in.Scale) * float64(in.Factor[j]) * centred
						}
						x[k] = append(x[k], row)
					}
				}
				initial := someValues(n.params, 6)
				means, units := make([]float64, 4), []float64{1, 1, 1, 1}
				if n.rescaled != nil {
					means, units = []float64{4, 8, 12, 16}, []float64{0.5, 1, 2, 4}
					for j := range units {
						initial[n.rescaled.mean.first+j], initial[n.rescaled.unit.first+j] = float32(means[j]),
							float32(units[j])
					}
				}
				if err := n.upload(n.params.value, initial); err != nil {
					t.Fatal(err)
				}
				if err := n.setInputs(inputs); err != nil {
					t.Fatal(err)
				}
				n.restore() // the values are for standardized features, as the gradient is
				n.stream.Fill(n.lossSum, 0)
				alone := group{ranks: []*network{n}}
				_, err = alone.eachBatch(t.Context(), []Epocher{data.feed(dev, rows)}, 0, 0,
					func(n *network, b *loader.Batch) {
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
					out := logits64[n.spec.Model](n.spec, values, x, seed)
					for _, row := range out {
						for j := range row {
							row[j] = means[j] + units[j]*row[j]
						}
					}
					return loss64(name, out, data, units) / float64(globalRows)
				}
				if want := lossOf(); math.Abs(float64(loss)/float64(globalRows)/want-1) > 1e-5 {
					t.Errorf("loss %v, want %v", loss/float32(globalRows), want)
				}
				if key := fmt.Sprint(c.name, sparse); !sameBits(gradient, seen[key]) {
					compareLearnt(t, "", n.params, gradient, values, lossOf)
					seen[key] = gradient
				}
			})
		}
	}
}

// layerFixture is layers by themselves, with an input x of so many columns.
type layerFixture struct {
	*testing.T
	n    *network
	x, y *activation
}

func newLayerFixture(t *testing.T, rows, columns int, build func(b *builder, x *activation) *activation) *layerFixture {
	b := &builder{}
	f := &layerFixture{T: t, x: b.activation(0, columns)}
	f.y = build(b, f.x)
	f.n = &network{task: taskFor(t, true), builder: *b, batchRows: rows, spec: Spec{Features: 1},
		mem: gds.Memory{Device: openDevice(t, host.Options{Discrete: true})}}
	if err := f.n.allocate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.n.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *layerFixture) pass(rows int, train bool) *pass {
	return &pass{Stream: f.n.stream, Batch: &loader.Batch{Rows: rows, GlobalRows: rows}, trainRows: 1000, train: train,
		meet: func(gds.Tensor) bool { return true }}
}

func (f *layerFixture) forward(p *pass) {
	for _, l := range f.n.layers {
		l.forward(p)
	}
}

func (f *layerFixture) backward(p *pass) {
	for _, l := range slices.Backward(f.n.layers) {
		l.backward(p)
	}
}

func (f *layerFixture) upload(to gds.Tensor, values []float32) {
	f.Helper()
	if err := gds.Upload(f.n.mem.Device, f.n.stream, to, values); err != nil {
		f.Fatal(err)
	}
}

func (f *layerFixture) download(from gds.Tensor) []float32 {
	f.Helper()
	values := make([]float32, from.Rows*from.Cols)
	if err := gds.Download(f.n.mem.Device, f.n.stream, values, from); err != nil {
		f.Fatal(err)
	}
	return values
}

// TestGradientsOfLayersAreThoseOfTheirDefinition checks each layer by itself: the gradients of its
// inputs and parameters, where the loss is a sum over its outputs with different weights.
func TestGradientsOfLayersAreThoseOfTheirDefinition(t *testing.T) {
	const rows, seed = 7, 5
	for _, c := range []struct {
		name    string
		in, out int // columns
		build   func(b *builder, x *activation) (y *activation)
		twin    func(v values64, x rows64) rows64
	}{
		{
			"linear", 5, 3,
			func(b *builder, x *activation) *activation {
				return b.dense(newLinear(&b.params, "linear", 3, 5), x, 0)
			},
			func(v values64, x rows64) rows64 { return v.affine(3, x) },
		},
		{
			"linear on two inputs that are scaled", 5, 3,
			func(b *builder, x *activation) *activation {
				l, y := newLinear(&b.params, "linear", 3, 5), b.activation(0, 3)
				xs := func(p *pass) []operand {
					x := x.value(p)
					return []operand{{x.Columns(0, 2), 0.5, 0}, {x.Columns(2, 5), 3, 2}}
				}
				b.add(func(p *pass) { l.forward(p, y.value(p), xs(p)...) }, func(p *pass) {
					gx, gy := x.gradient(p), y.gradient(p)
					l.backward(p, gy, xs(p)...)
					p.Gemm(false, false, 0.5, gy, l.weight.value.Columns(0, 2), 0, gx.Columns(0, 2))
					p.Gemm(false, false, 3, gy, l.weight.value.Columns(2, 5), 0, gx.Columns(2, 5))
				})
				return y
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
			"linear that two layers read their input by", 6, 3,
			func(b *builder, x *activation) *activation {
				l := newLinear(&b.params, "linear", 3, 6)
				return b.dense(newProduct(&b.params, "product", 3, 3),
					b.multiply(b.dense(l, x, 1), b.dense(l, x, 0)), 0)
			},
			func(v values64, x rows64) rows64 {
				y := v.affine(3, x)
				for _, row := range y {
					for j := range row {
						row[j] *= row[j]
					}
				}
				return v.product(3, y)
			},
		},
		{
			"linear on each of two tokens", 6, 6,
			func(b *builder, x *activation) *activation {
				return b.dense(newLinear(&b.params, "linear", 3, 3), x, 0)
			},
			func(v values64, x rows64) rows64 { return rowsOf(v.affine(3, tokens64(x, 3)), 2) },
		},
		{
			"ReLU and dropout", 6, 6,
			func(b *builder, x *activation) *activation {
				y := copyOf(b, x)
				b.relu(dropout{0.3, 2}, y)
				return y
			},
			func(_ values64, x rows64) rows64 { return reluDropout(x, 0.3, rng.Hash(seed, 2)) },
		},
		{
			"ELU and dropout", 6, 6,
			func(b *builder, x *activation) *activation {
				y := copyOf(b, x)
				b.elu(dropout{0.3, 2}, y)
				return y
			},
			func(_ values64, x rows64) rows64 { return eluDropout(x, 0.3, rng.Hash(seed, 2)) },
		},
		{
			"mean of three heads", 6, 2,
			func(b *builder, x *activation) *activation { return b.meanOfHeads(x, 3) },
			func(_ values64, x rows64) rows64 { return meanOfHeads64(x, 3) },
		},
		{
			"layer normalisation of three tokens", 15, 15,
			func(b *builder, x *activation) *activation {
				y, _ := b.layerNorm("norm", x, 5)
				return y
			},
			func(v values64, x rows64) rows64 { return rowsOf(v.layerNorm(tokens64(x, 5)), 3) },
		},
		{
			"batch normalisation", 4, 4,
			func(b *builder, x *activation) *activation { return b.batchNorm("norm", x) },
			func(v values64, x rows64) rows64 { return v.batchNorm(x) },
		},
		{
			"attention of two heads among three tokens", 12, 12,
			func(b *builder, x *activation) *activation { return b.attention("attention", x, 3, 2, 0) },
			func(v values64, x rows64) rows64 { return rowsOf(v.attention(tokens64(x, 4), 3, 2), 3) },
		},
		{
			"recursive attention", 20, 5,
			func(b *builder, x *activation) *activation { return b.recursiveAttention(x, 4, 0.3) },
			func(v values64, x rows64) rows64 {
				return v.recursiveAttention(tokens64(x, 5), 4, 0.3, rng.Hash(seed, attentionDropout))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newLayerFixture(t, rows, c.in, c.build)
			x, allX := random64(1, rows, c.in)
			weights, _ := random64(2, rows, c.out)
			initial := someValues(f.n.params, 8)
			if err := f.n.upload(f.n.params.value, initial); err != nil {
				t.Fatal(err)
			}
			p := f.pass(rows, true)
			p.seed = seed
			f.upload(f.x.value(p), x.flat())
			f.forward(p)
			out := f.download(f.y.value(p))
			f.upload(f.y.gradient(p), weights.flat())
			f.backward(p)
			values := widen(initial)
			for i, want := range c.twin(values, x).flat() {
				if got := out[i]; math.Abs(float64(got-want)) > 1e-5*(1+math.Abs(float64(want))) {
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
			compareGradient(t, "input", f.download(f.x.gradient(p)), allX, sum)
			grad := f.download(f.n.params.grad)
			for _, q := range f.n.params.list {
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
	mem := gds.Memory{Device: dev}
	defer func() {
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
		if err := mem.Free(); err != nil {
			t.Error(err)
		}
	}()
	out, all := random64(1, rows, classes)
	labels := []int32{0, 3, -1, 2, 2, 1}
	upload := func(rows, cols int, kind gds.DType, data []byte) gds.Tensor {
		tensor, err := matrixOf(&mem, "test", rows, cols, kind)
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
	crossEntropy(stream, lossTensors{
		sum: sum, grad: grad, out: upload(rows, classes, gds.Float32, dtype.BytesOf(out.flat())),
		labels: upload(1, rows, gds.Int32, dtype.BytesOf(labels)),
	}, scale)
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
