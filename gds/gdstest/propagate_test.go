package gdstest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// lists are rows of terms: those of some rows follow one another, the others are in any place.
type lists struct {
	starts, ends []int64
	nodes        []uint32
	weights      []float32
}

// someLists makes rows of 0, 1, 2 ... terms in turn, up to degree; the second has long ones.
func (b *fixture) someLists(rows, sources, degree, long int) lists {
	b.seed++
	l := lists{nodes: make([]uint32, 3, 1000)}
	for i := range rows {
		n := i % (degree + 1)
		if i == 1 {
			n = long
		}
		if i%5 == 4 { // a gap
			l.nodes = append(l.nodes, 0)
		}
		l.starts = append(l.starts, int64(len(l.nodes)))
		for e := range n {
			l.nodes = append(l.nodes, uint32(rng.Hash(b.seed, uint64(i*100+e))%uint64(sources)))
		}
		l.ends = append(l.ends, int64(len(l.nodes)))
	}
	if rows > 3 { // out of order
		l.starts[0], l.starts[3] = l.starts[3], l.starts[0]
		l.ends[0], l.ends[3] = l.ends[3], l.ends[0]
	}
	l.weights = b.normal(len(l.nodes))
	return l
}

// summed are the sums of rows in the order of docs/format.md, one operation at a time.
func (l lists) summed(x, weights, ofNodes []float32, cols int) []float32 {
	out := make([]float32, len(l.starts)*cols)
	for i := range l.starts {
		for j := range cols {
			total := float32(0)
			for e := l.starts[i]; e < l.ends[i]; {
				sum := float32(0)
				for stop := min(e+1024, l.ends[i]); e < stop; e++ {
					c, u := float32(1), l.nodes[e]
					if weights != nil {
						c = weights[e]
					}
					if ofNodes != nil {
						c = float32(c * ofNodes[u])
					}
					sum += float32(c * x[int(u)*cols+j])
				}
				total += sum
			}
			out[i*cols+j] = total
		}
	}
	return out
}

// inType is values as they are after rounding to a type, and their bytes.
func inType(values []float32, t gds.DType) ([]float32, []byte) {
	content := make([]byte, len(values)*t.Size())
	dtype.Encode(content, values, t)
	rounded := make([]float32, len(values))
	dtype.Decode(rounded, content, t)
	return rounded, content
}

var productSizes = []struct{ rows, sources, degree, long int }{
	{0, 0, 0, 0}, {0, 3, 0, 0}, {1, 1, 0, 0}, {2, 5, 0, 1}, {7, 4, 3, 1024}, {9, 40, 4, 1025}, {300, 90, 9, 2500},
	{5, 30, 2, 40000},
}

// productLayouts are layouts of dense matrices.
var productLayouts = []layout{dense, shifted}

var propagationTests = []test{
	{"Propagate gives the bits of the plain loop", func(b *fixture) {
		for _, s := range productSizes {
			for n, cols := range []int{1, 3, 4, 8, 33, 100, 130} {
				if s.long > 3000 && cols > 8 {
					continue
				}
				for k, t := range floatTypes {
					l := productLayouts[(n+k)%2]
					b.at(fmt.Sprintf("rows=%d,sources=%d,degree=%d,long=%d,cols=%d,%v,%s", s.rows, s.sources, s.degree,
						s.long, cols, t, l.name), func(b *fixture) {
						b.compareProducts(l, b.someLists(s.rows, s.sources, s.degree, s.long), s.sources, cols, t)
					})
				}
			}
		}
	}},
	{"Propagate counts what is not finite as it is stored", func(b *fixture) {
		for _, t := range floatTypes {
			// Sums of two terms: fine; too large for float16; for all types; NaN; an infinity; below zero.
			x := []float32{1, 40000, math.MaxFloat32, float32(math.NaN()), float32(math.Inf(1)), -math.MaxFloat32}
			want := int64(4)
			if t == gds.Float16 {
				want = 5
			}
			l := lists{}
			for u := range x {
				l.nodes = append(l.nodes, uint32(u), uint32(u))
				l.starts, l.ends = append(l.starts, int64(2*u)), append(l.ends, int64(2*u+2))
			}
			p := b.product(dense, l)
			count := b.counts(100)
			p.NotFinite = count.Tensor
			dst := b.array(dense, len(x), 1, t, nil)
			b.stream.Propagate(dst.Tensor, b.floats(dense, len(x), 1, x).Tensor, p)
			if got := dtype.Int64s(b.bytes(count))[0]; got != 100+want {
				b.Errorf("%v: %d were counted, want %d", t, got-100, want)
			}
		}
	}},
	{"terms that are not there poison the stream", func(b *fixture) {
		for _, c := range []struct {
			name string
			l    lists
		}{
			{"before the first", lists{starts: []int64{0, -1}, ends: []int64{1, 1}, nodes: []uint32{0, 1, 1}}},
			{"ends before it starts", lists{starts: []int64{2, 0}, ends: []int64{1, 1}, nodes: []uint32{0, 1, 1}}},
			{"after the last", lists{starts: []int64{0, 2}, ends: []int64{1, 4}, nodes: []uint32{0, 1, 1}}},
			{"of no source", lists{starts: []int64{0, 2}, ends: []int64{1, 3}, nodes: []uint32{0, 1, 2}}},
			{"of no source, far down", lists{starts: []int64{0, 2}, ends: []int64{1, 3000},
				nodes: append(make([]uint32, 2999), math.MaxUint32)}},
		} {
			p := b.product(dense, c.l)
			dst := b.floats(dense, 2, 5, nil)
			src := b.floats(dense, 2, 5, make([]float32, 10))
			s := b.newStream()
			s.Propagate(dst.Tensor, src.Tensor, p)
			if err := s.Synchronize(context.Background()); err == nil ||
				!strings.Contains(err.Error(), "Propagate") {
				b.Errorf("%s: %v", c.name, err)
			}
			if err := s.Close(); err == nil {
				b.Errorf("%s: the stream closes without an error", c.name)
			}
			b.bytes(dst)
		}
	}},
}

// product uploads lists.
func (b *fixture) product(l layout, of lists) gds.Product {
	return gds.Product{
		Starts: b.array(l, 1, len(of.starts), gds.Int64, dtype.BytesOf(of.starts)).Tensor,
		Ends:   b.array(l, 1, len(of.ends), gds.Int64, dtype.BytesOf(of.ends)).Tensor,
		Nodes:  b.array(l, 1, len(of.nodes), gds.Uint32, dtype.BytesOf(of.nodes)).Tensor,
	}
}

// compareProducts compares products of all kinds of a matrix of type t with the plain loop.
func (b *fixture) compareProducts(l layout, of lists, sources, cols int, t gds.DType) {
	b.Helper()
	rows := len(of.starts)
	ofNodes, ofRows := b.normal(sources), b.normal(rows)
	x, content := inType(b.normal(sources*cols), t)
	src := b.array(l, sources, cols, t, content)
	for i, to := range floatTypes {
		p := b.product(l, of)
		var weights, nodes []float32
		if i != 1 { // both, without weights, without factors of nodes
			p.Weights, weights = b.floats(l, 1, len(of.weights), of.weights).Tensor, of.weights
		}
		if i != 2 {
			p.NodeFactors, nodes = b.floats(l, 1, sources, ofNodes).Tensor, ofNodes
		}
		want := of.summed(x, weights, nodes, cols)
		scaled := i != 0 || cols != 4
		if scaled {
			p.RowFactors = b.floats(l, 1, rows, ofRows).Tensor
		}
		blended, blendType := cols != 8, floatTypes[(i+1)%len(floatTypes)]
		z, blend := inType(b.normal(rows*cols), blendType)
		if blended {
			p.Blend, p.Factor, p.Theta = b.array(l, rows, cols, blendType, blend).Tensor, 0.3, -0.7
		}
		for k := range want {
			if scaled {
				want[k] = float32(ofRows[k/cols] * want[k])
			}
			if blended {
				want[k] = float32(0.3*want[k]) + float32(-0.7*z[k])
			}
		}
		_, bits := inType(want, to)
		dst := b.array(l, rows, cols, to, nil)
		b.stream.Propagate(dst.Tensor, src.Tensor, p)
		if got := b.bytes(dst); !bytes.Equal(got, bits) {
			b.Errorf("from %v to %v: other bits", t, to)
		}
	}
}

var floatTypes = []gds.DType{gds.Float32, gds.Float16, gds.BFloat16}
