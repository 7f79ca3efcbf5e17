package gdstest

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// attention is Attention of one row in float64, with plain loops.
func attention(qkv []float64, tokens, heads int) (out, weights []float64) {
	width := len(qkv) / (3 * tokens)
	size := width / heads
	out = make([]float64, tokens*width)
	at := func(token, which, head, i int) float64 { return qkv[(token*3+which)*width+head*size+i] }
	for h := range heads {
		for t := range tokens {
			scores := make([]float64, tokens)
			for u := range scores {
				for i := range size {
					scores[u] += at(t, 0, h, i) * at(u, 1, h, i) / math.Sqrt(float64(size))
				}
			}
			p := softmax(scores)
			weights = append(weights, p...)
			for u := range tokens {
				for i := range size {
					out[t*width+h*size+i] += p[u] * at(u, 2, h, i)
				}
			}
		}
	}
	return out, weights
}

// weigh is WeighTokens of one row.
func weigh(weights, tokens []float64) []float64 {
	out := make([]float64, len(tokens)/max(len(weights), 1))
	for t, w := range weights {
		for j := range out {
			out[j] += w * tokens[t*len(out)+j]
		}
	}
	return out
}

func inner(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// attentionTolerance is for sums of some tens of terms of about one, through an exponential.
const attentionTolerance = 2e-5

var attentionTests = []test{
	{"Attention attends among the tokens of a row, and its backward pass is its slope", func(b *fixture) {
		for _, s := range []struct{ rows, tokens, heads, size int }{{0, 2, 1, 3}, {1, 1, 1, 1}, {2, 3, 1, 5},
			{3, 4, 2, 4}, {70, 2, 3, 3}, {2, 5, 1, 40}, {300, 4, 2, 33}} {
			width := s.heads * s.size
			for _, l := range layouts {
				b.at(fmt.Sprintf("rows=%d,tokens=%d,heads=%d,size=%d,%s", s.rows, s.tokens, s.heads, s.size, l.name),
					func(b *fixture) {
						cols := s.tokens * width
						x, grad := b.normal(s.rows*3*cols), b.normal(s.rows*cols)
						qkv, out := b.floats(l, s.rows, 3*cols, x), b.floats(strided, s.rows, cols, nil)
						weights := b.floats(dense, s.rows, s.heads*s.tokens*s.tokens, nil)
						b.stream.Attention(out.Tensor, weights.Tensor, qkv.Tensor, s.tokens, s.heads)
						gqkv, g := b.floats(l, s.rows, 3*cols, nil), b.floats(l, s.rows, cols, grad)
						b.stream.AttentionGrad(gqkv.Tensor, g.Tensor, weights.Tensor, qkv.Tensor, s.tokens, s.heads)
						var wantOut, wantWeights []float64
						wide, wideGrad := widen(x), widen(grad)
						for i := range s.rows {
							o, w := attention(wide[i*3*cols:][:3*cols], s.tokens, s.heads)
							wantOut, wantWeights = append(wantOut, o...), append(wantWeights, w...)
						}
						near := func(want []float64) func(i int) (float64, float64) {
							return func(i int) (float64, float64) {
								return want[i],
									attentionTolerance * (1 + math.Abs(want[i]))
							}
						}
						b.expect(b.read(weights), len(wantWeights), near(wantWeights))
						b.expect(b.read(out), len(wantOut), near(wantOut))
						got := b.read(gqkv)
						if s.rows > 3 { // differences of all rows would take long
							for i := range got {
								if i/(3*cols)%(s.rows-1) != 0 {
									got[i] = 0
								}
							}
						}
						b.expect(got, len(x), func(i int) (float64, float64) {
							row := i / (3 * cols)
							if s.rows > 3 && row%(s.rows-1) != 0 {
								return 0, 0
							}
							want := slope(wide[row*3*cols:][:3*cols], i%(3*cols), 1e-5, func() float64 {
								o, _ := attention(wide[row*3*cols:][:3*cols], s.tokens, s.heads)
								return inner(o, wideGrad[row*cols:][:cols])
							})
							return want, 4 * attentionTolerance * (1 + math.Abs(want))
						})
					})
			}
		}
	}},
	{"SoftmaxRows and its backward pass, in place or not", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			x, grad := b.normal(rows*cols), b.normal(rows*cols)
			src, g, dst := b.floats(l, rows, cols, x), b.floats(l, rows, cols, grad), b.floats(strided, rows, cols, nil)
			b.stream.SoftmaxRows(dst.Tensor, src.Tensor)
			b.stream.SoftmaxRows(src.Tensor, src.Tensor)
			wide := widen(grad)
			var p, means, sizes []float64 // sizes are the magnitudes of the terms of means
			for i := range rows {
				p = append(p, softmax(widen(x[i*cols:][:cols]))...)
				size := 0.0
				for j, v := range wide[i*cols:][:cols] {
					size += math.Abs(v) * p[i*cols+j]
				}
				means, sizes = append(means, inner(wide[i*cols:][:cols], p[i*cols:])), append(sizes, size)
			}
			want := func(i int) (float64, float64) { return p[i], near(cols, 2*p[i]) }
			b.expect(b.read(dst), rows*cols, want)
			b.expect(b.read(src), rows*cols, want)
			result := b.floats(strided, rows, cols, nil)
			b.stream.SoftmaxRowsGrad(result.Tensor, g.Tensor, dst.Tensor)
			b.stream.SoftmaxRowsGrad(g.Tensor, g.Tensor, dst.Tensor)
			want = func(i int) (float64, float64) {
				return p[i] * (wide[i] - means[i/cols]), p[i] * near(3*cols, sizes[i/cols]+math.Abs(wide[i]))
			}
			b.expect(b.read(result), rows*cols, want)
			b.expect(b.read(g), rows*cols, want)
		})
	}},
	{"SoftmaxRows of huge numbers is finite", func(b *fixture) {
		x := b.floats(dense, 2, 2, []float32{3e38, -3e38, -3e38, -3e38})
		b.stream.SoftmaxRows(x.Tensor, x.Tensor)
		want := []float64{1, 0, 0.5, 0.5}
		b.expect(b.read(x), 4, func(i int) (float64, float64) { return want[i], unit })
	}},
	{"WeighTokens adds up tokens, and its backward pass is its slope", func(b *fixture) {
		for _, s := range [][3]int{{0, 2, 3}, {1, 1, 1}, {7, 3, 5}, {300, 4, 33}, {5, 2, 300}} {
			rows, tokens, width := s[0], s[1], s[2]
			for _, l := range layouts {
				b.at(fmt.Sprintf("rows=%d,tokens=%d,width=%d,%s", rows, tokens, width, l.name), func(b *fixture) {
					x, w, grad, before := b.normal(rows*tokens*width), b.normal(rows*tokens), b.normal(rows*width),
						b.normal(rows*tokens*width)
					all, weights := b.floats(l, rows, tokens*width, x), b.floats(strided, rows, tokens, w)
					dst, g := b.floats(strided, rows, width, nil), b.floats(l, rows, width, grad)
					gw, gx := b.floats(l, rows, tokens, nil), b.floats(l, rows, tokens*width, before)
					b.stream.WeighTokens(dst.Tensor, weights.Tensor, all.Tensor)
					b.stream.WeighTokensGrad(gw.Tensor, gx.Tensor, g.Tensor, weights.Tensor, all.Tensor)
					wideX, wideW, wideGrad := widen(x), widen(w), widen(grad)
					b.expect(b.read(dst), rows*width, func(i int) (float64, float64) {
						row, size := i/width, 0.0
						for t := range tokens {
							size += math.Abs(wideW[row*tokens+t] * wideX[(row*tokens+t)*width+i%width])
						}
						return weigh(wideW[row*tokens:][:tokens], wideX[row*tokens*width:][:tokens*width])[i%width],
							near(tokens, size)
					})
					b.expect(b.read(gw), rows*tokens, func(i int) (float64, float64) {
						token, g, size := wideX[i*width:][:width], wideGrad[i/tokens*width:][:width], 0.0
						for j := range g {
							size += math.Abs(token[j] * g[j])
						}
						return inner(token, g), near(width, size)
					})
					b.expect(b.read(gx), rows*tokens*width, func(i int) (float64, float64) {
						add := wideW[i/width] * wideGrad[i/(tokens*width)*width+i%width]
						return float64(before[i]) + add, near(0, math.Abs(float64(before[i]))+math.Abs(add))
					})
				})
			}
		}
	}},
	{"Attention gives the same bits each time", func(b *fixture) {
		const rows, tokens, heads, size = 900, 4, 2, 24
		qkv := b.floats(strided, rows, 3*tokens*heads*size, b.normal(rows*3*tokens*heads*size))
		var first uint64
		for i := range 3 {
			dst, weights := b.floats(dense, rows, tokens*heads*size, nil),
				b.floats(dense, rows, heads*tokens*tokens, nil)
			b.stream.Attention(dst.Tensor, weights.Tensor, qkv.Tensor, tokens, heads)
			digest := rng.Derive(0, string(b.bytes(dst))+string(b.bytes(weights)))
			if i == 0 {
				first = digest
			} else if digest != first {
				b.Error("another result")
			}
		}
	}},
}
