package gdstest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// edges are the edges of a block, in vectors that hold some before and after them.
type edges struct {
	destinations, sources int
	offsets, indices      []uint32
	weights               []float32
}

// between makes a block whose destinations have 0, 1, 2 ... edges in turn, up to degree, and the second hub more; some
// edges come twice.
func (b *fixture) between(destinations, sources, degree, hub int) edges {
	const before, after = 3, 2
	b.seed++
	e := edges{destinations: destinations, sources: sources, offsets: []uint32{before}}
	e.indices = make([]uint32, before, 1000)
	for v := range destinations {
		n := v % (degree + 1)
		if v == 1 {
			n += hub
		}
		for i := range n {
			e.indices = append(e.indices, uint32(rng.Hash(b.seed, uint64(v*10000+i))%uint64(sources)))
		}
		e.offsets = append(e.offsets, uint32(len(e.indices)))
	}
	e.indices = append(e.indices, make([]uint32, after)...)
	e.weights = b.normal(len(e.indices))
	return e
}

// upload are offsets, indices and weights on the device.
func (b *fixture) uploadEdges(l layout, e edges) (offsets, indices, weights gds.Tensor) {
	return b.array(l, 1, len(e.offsets), gds.Uint32, dtype.BytesOf(e.offsets)).Tensor,
		b.array(l, 1, len(e.indices), gds.Uint32, dtype.BytesOf(e.indices)).Tensor,
		b.floats(l, 1, len(e.weights), e.weights).Tensor
}

// each calls do for all edges, in order.
func (e edges) each(do func(edge, v, u int)) {
	for v := range e.destinations {
		for i := e.offsets[v]; i < e.offsets[v+1]; i++ {
			do(int(i), v, int(e.indices[i]))
		}
	}
}

// sum is SumEdges, or SumEdgesGrad if it is transposed, in float64, with the sum of the terms' magnitudes.
func (e edges) sum(x []float32, cols int, transposed bool) (sum, magnitude []float64, terms []int) {
	rows := e.destinations
	if transposed {
		rows = e.sources
	}
	sum, magnitude, terms = make([]float64, rows*cols), make([]float64, rows*cols), make([]int, rows)
	e.each(func(edge, v, u int) {
		to, from := v, u
		if transposed {
			to, from = u, v
		}
		terms[to]++
		for j := range cols {
			term := float64(e.weights[edge]) * float64(x[from*cols+j])
			sum[to*cols+j] += term
			magnitude[to*cols+j] += math.Abs(term)
		}
	})
	return sum, magnitude, terms
}

// attend is AttendEdges in float64.
func (e edges) attend(values, scores []float64, cols, heads int, slope float64) (out, stats []float64) {
	out, stats = make([]float64, e.destinations*cols), make([]float64, e.destinations*2*heads)
	size := cols / heads
	for v := range e.destinations {
		index := e.indices[e.offsets[v]:e.offsets[v+1]]
		for h := range heads {
			stats[v*2*heads+2*h+1] = 1
			var exponents []float64
			for _, u := range index {
				x := scores[int(u)*2*heads+2*h] + scores[v*2*heads+2*h+1]
				if x < 0 {
					x *= slope
				}
				exponents = append(exponents, x)
			}
			if len(index) == 0 {
				continue
			}
			largest, sum := slices.Max(exponents), 0.0
			for _, x := range exponents {
				sum += math.Exp(x - largest)
			}
			stats[v*2*heads+2*h], stats[v*2*heads+2*h+1] = largest, sum
			for i, u := range index {
				alpha := math.Exp(exponents[i]-largest) / sum
				for j := h * size; j < (h+1)*size; j++ {
					out[v*cols+j] += alpha * values[int(u)*cols+j]
				}
			}
		}
	}
	return out, stats
}

// blockSizes are destinations, sources, degree and hub.
var blockSizes = [][4]int{{0, 0, 0, 0}, {0, 4, 0, 0}, {1, 1, 0, 0}, {4, 4, 0, 0}, {1, 3, 2, 0}, {7, 7, 3, 49},
	{9, 30, 4, 49}, {300, 900, 9, 49}, {2, 2, 1, 9000}, {3, 70000, 1, 300}}

var edgeTests = []test{
	{"SumEdges and its backward pass are products with a sparse matrix", func(b *fixture) {
		for _, s := range blockSizes {
			for _, cols := range []int{0, 1, 5, 16, 40, 129, 300} {
				if (s[1]+s[3])*cols > 150_000 && cols > 1 {
					continue // a twin of many elements takes long
				}
				for _, l := range layouts {
					b.at(fmt.Sprintf("destinations=%d,sources=%d,degree=%d,hub=%d,cols=%d,%s", s[0], s[1], s[2], s[3],
						cols, l.name), func(b *fixture) {
						e := b.between(s[0], s[1], s[2], s[3])
						offsets, indices, weights := b.uploadEdges(l, e)
						x, grad := b.normal(e.sources*cols), b.normal(e.destinations*cols)
						from, fromGrad := b.floats(l, e.sources, cols, x), b.floats(l, e.destinations, cols, grad)
						sum, magnitude, terms := e.sum(x, cols, false)
						sumGrad, magnitudeGrad, termsGrad := e.sum(grad, cols, true)
						for _, dstLayout := range []layout{l, strided} {
							dst, gradX := b.floats(dstLayout, e.destinations, cols, nil),
								b.floats(dstLayout, e.sources, cols, nil)
							b.stream.SumEdges(dst.Tensor, from.Tensor, offsets, indices, weights)
							b.stream.SumEdgesGrad(gradX.Tensor, fromGrad.Tensor, offsets, indices, weights)
							b.expect(b.read(dst), len(sum),
								func(i int) (float64, float64) { return sum[i], near(terms[i/cols], magnitude[i]) })
							b.expect(b.read(gradX), len(sumGrad), func(i int) (float64, float64) {
								return sumGrad[i], near(termsGrad[i/cols], magnitudeGrad[i])
							})
						}
					})
				}
			}
		}
	}},
	{"AttendEdges attends along edges, and its backward pass is its slope", func(b *fixture) {
		const leak = 0.25
		for _, s := range blockSizes {
			for _, width := range [][2]int{{1, 1}, {1, 5}, {2, 3}, {4, 16}, {3, 40}} { // heads, and columns of each
				heads, cols := width[0], width[0]*width[1]
				if (s[1]+s[3])*cols > 300_000 && cols > 1 {
					continue
				}
				for part, l := range layouts {
					b.at(fmt.Sprintf("destinations=%d,sources=%d,degree=%d,hub=%d,heads=%d,size=%d,%s", s[0], s[1], s[2],
						s[3], heads, width[1], l.name), func(b *fixture) {
						e := b.between(s[0], s[1], s[2], s[3])
						offsets, indices, _ := b.uploadEdges(l, e)
						x, y, grad := b.normal(e.sources*cols), b.normal(e.sources*2*heads),
							b.normal(e.destinations*cols)
						values, scores := b.floats(l, e.sources, cols, x), b.floats(l, e.sources, 2*heads, y)
						dst, stats := b.floats(strided, e.destinations, cols, nil),
							b.floats(dense, e.destinations, 2*heads, nil)
						gradValues, gradScores := b.floats(l, e.sources, cols, nil),
							b.floats(strided, e.sources, 2*heads, nil)
						b.stream.AttendEdges(dst.Tensor, stats.Tensor, values.Tensor, scores.Tensor, offsets, indices,
							leak)
						b.stream.AttendEdgesGrad(gradValues.Tensor, gradScores.Tensor,
							b.floats(l, e.destinations, cols, grad).Tensor, stats.Tensor,
							values.Tensor, scores.Tensor, offsets, indices, leak)
						wideX, wideY, wideGrad := widen(x), widen(y), widen(grad)
						out, wantStats := e.attend(wideX, wideY, cols, heads, leak)
						near := func(want []float64) func(i int) (float64, float64) {
							return func(i int) (float64, float64) {
								return want[i],
									attentionTolerance * (1 + float64(s[3])/1000) * (1 + math.Abs(want[i]))
							}
						}
						b.expect(b.read(dst), len(out), near(out))
						b.expect(b.read(stats), len(wantStats), near(wantStats))
						f := func() float64 {
							out, _ := e.attend(wideX, wideY, cols, heads, leak)
							return inner(out, wideGrad)
						}
						compare := func(got []float32, values []float64, cols int) {
							few, step := e.sources*cols, len(layouts) // each layout has its part of the elements
							if few > 150 {                            // differences of all elements would take long
								few, step = 12, 1
							}
							for k := part % step; k < few; k += step {
								i := k * (len(values) / few)
								want := slope(values, i, 1e-5, f)
								if !(math.Abs(float64(got[i])-want) <= 10*attentionTolerance*(1+float64(s[3])/1000)*(1+math.Abs(want))) {
									b.Fatalf("element %d of the gradient is %v, want %v", i, got[i], want)
								}
							}
						}
						compare(b.read(gradValues), wideX, cols)
						compare(b.read(gradScores), wideY, 2*heads)
					})
				}
			}
		}
	}},
	{"Operations along edges give the same bits each time", func(b *fixture) {
		const cols, heads = 48, 3
		e := b.between(900, 2000, 30, 49)
		offsets, indices, weights := b.uploadEdges(dense, e)
		values, scores := b.floats(dense, e.sources, cols, b.normal(e.sources*cols)),
			b.floats(dense, e.sources, 2*heads, b.normal(e.sources*2*heads))
		grad := b.floats(dense, e.destinations, cols, b.normal(e.destinations*cols))
		var first uint64
		for i := range 3 {
			sum, sumGrad := b.floats(dense, e.destinations, cols, nil), b.floats(dense, e.sources, cols, nil)
			out, stats := b.floats(dense, e.destinations, cols, nil), b.floats(dense, e.destinations, 2*heads, nil)
			gradValues, gradScores := b.floats(dense, e.sources, cols, nil), b.floats(dense, e.sources, 2*heads, nil)
			b.stream.SumEdges(sum.Tensor, values.Tensor, offsets, indices, weights)
			b.stream.SumEdgesGrad(sumGrad.Tensor, grad.Tensor, offsets, indices, weights)
			b.stream.AttendEdges(out.Tensor, stats.Tensor, values.Tensor, scores.Tensor, offsets, indices, 0.2)
			b.stream.AttendEdgesGrad(gradValues.Tensor, gradScores.Tensor, grad.Tensor, stats.Tensor, values.Tensor,
				scores.Tensor, offsets, indices, 0.2)
			text := ""
			for _, a := range []*array{sum, sumGrad, out, stats, gradValues, gradScores} {
				text += string(b.bytes(a))
			}
			if digest := rng.Derive(0, text); i == 0 {
				first = digest
			} else if digest != first {
				b.Error("another result")
			}
		}
	}},
	{"an edge from a source that does not exist poisons the stream", func(b *fixture) {
		e := edges{destinations: 1, sources: 2, offsets: []uint32{0, 2}, indices: []uint32{1, 2},
			weights: []float32{1, 1}}
		offsets, indices, weights := b.uploadEdges(dense, e)
		x, y := b.floats(dense, 2, 2, make([]float32, 4)), b.floats(dense, 1, 2, make([]float32, 2))
		for name, call := range map[string]func(s gds.Stream){
			"SumEdges":     func(s gds.Stream) { s.SumEdges(y.Tensor, x.Tensor, offsets, indices, weights) },
			"SumEdgesGrad": func(s gds.Stream) { s.SumEdgesGrad(x.Tensor, y.Tensor, offsets, indices, weights) },
			"AttendEdges": func(s gds.Stream) {
				s.AttendEdges(y.Tensor, y.Tensor, x.Tensor, x.Tensor, offsets, indices,
					0)
			},
		} {
			s := b.newStream()
			call(s)
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), name) {
				b.Errorf("want an error that names %s, got %v", name, err)
			}
		}
	}},
	{"AttendEdges of huge scores is finite", func(b *fixture) {
		e := edges{destinations: 1, sources: 2, offsets: []uint32{0, 2}, indices: []uint32{0, 1},
			weights: []float32{1, 1}}
		offsets, indices, _ := b.uploadEdges(dense, e)
		dst, stats := b.floats(dense, 1, 1, nil), b.floats(dense, 1, 2, nil)
		values, scores := b.floats(dense, 2, 1, []float32{3, 5}), b.floats(dense, 2, 2, []float32{1e38, 1e38, 1e30, 0})
		b.stream.AttendEdges(dst.Tensor, stats.Tensor, values.Tensor, scores.Tensor, offsets, indices, 0.2)
		b.expect(b.read(dst), 1, func(int) (float64, float64) { return 3, unit })
	}},
}
