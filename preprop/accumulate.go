package preprop

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// batchTerms is how many terms are laid out at a time. It changes no result.
const batchTerms = 4 * blockEdges

// batch computes rows of dst from src. It lays out the terms of many rows, one
// after another, before it adds them up, so that the rows of src that the next
// terms need are on their way from memory while those of a term are added.
type batch struct {
	p        *propagator
	dst, src *matrix
	with     *blend // nil: none

	nodes        []uint32
	coefficients []float32 // nil without weights: they are those of the operator
	blocks       []block
	sum, total   []float32
}

// block is up to blockEdges terms of a row.
type block struct {
	row         int64
	terms       int
	first, last bool // of its row
}

func newBatch(p *propagator, dst, src *matrix, with *blend) *batch {
	b := &batch{
		p: p, dst: dst, src: src, with: with,
		nodes: make([]uint32, 0, batchTerms),
		sum:   make([]float32, src.features), total: make([]float32, src.features),
	}
	if p.graph.Weighted() {
		b.coefficients = make([]float32, batchTerms)
	}
	return b
}

// add lays out row v, which is in the block, and returns how many terms it has.
func (b *batch) add(from *format.Block, v int64) (int, error) {
	t := b.p.terms(from, v)
	for first := 0; ; first += blockEdges {
		k := min(blockEdges, t.len()-first)
		at := len(b.nodes)
		if at+k > batchTerms {
			if err := b.flush(); err != nil {
				return 0, err
			}
			at = 0
		}
		b.nodes = b.nodes[:at+k]
		nodes := b.nodes[at:]
		splice(nodes, t.neighbors, t.node, t.loop, first)
		if t.weights != nil {
			c := b.coefficients[at:][:k]
			splice(c, t.weights, 1, t.loop, first)
			if b.p.t != nil {
				for i, u := range nodes {
					c[i] = float32(c[i] * b.p.t[u])
				}
			}
		}
		last := first+k == t.len()
		b.blocks = append(b.blocks, block{row: v, terms: k, first: first == 0, last: last})
		if last {
			return t.len(), nil
		}
	}
}

// splice fills part with list from place first on, after put was inserted at
// place loop, unless that is negative.
func splice[T uint32 | float32](part, list []T, put T, loop, first int) {
	switch at := loop - first; {
	case loop < 0 || at >= len(part):
		copy(part, list[first:])
	case at < 0:
		copy(part, list[first-1:])
	default:
		copy(part[:at], list[first:])
		part[at] = put
		copy(part[at+1:], list[loop:])
	}
}

// flush computes the rows that are laid out. It fails at the first that cannot
// be stored.
func (b *batch) flush() error {
	at := 0
	for _, k := range b.blocks {
		sum := b.sum
		if k.first {
			sum = b.total // +0 and the sum of the first block are that sum
		}
		clear(sum)
		b.accumulate(sum, at, k.terms)
		at += k.terms
		if !k.first {
			for j, x := range sum {
				b.total[j] += x
			}
		}
		if k.last {
			if err := b.finish(k.row); err != nil {
				return err
			}
		}
	}
	b.nodes, b.blocks = b.nodes[:0], b.blocks[:0]
	return nil
}

// finish stores row v, whose terms are added up.
func (b *batch) finish(v int64) error {
	s := float32(1)
	if b.p.s != nil {
		s = b.p.s[v]
	}
	if b.with == nil {
		return b.dst.setRow(v, b.total, s)
	}
	kernel.ScaleFloat32(b.sum, b.total, s)
	b.with.add(b.sum, b.total, v)
	return b.dst.setRow(v, b.sum, 1)
}

// accumulate adds the terms [at, at+k) to sum.
func (b *batch) accumulate(sum []float32, at, k int) {
	nodes, stride := b.nodes[at:], b.src.features
	c, byNode := b.p.t, true
	if b.coefficients != nil {
		c, byNode = b.coefficients[at:], false
	}
	switch x := b.src.rows(0, b.p.graph.Nodes()); b.src.dtype {
	case dtype.Float32:
		kernel.AddFloat32(sum, dtype.Float32s(x), stride, nodes, k, c, byNode)
	case dtype.Float16:
		kernel.AddFloat16(sum, dtype.Uint16s(x), stride, nodes, k, c, byNode)
	case dtype.BFloat16:
		kernel.AddBFloat16(sum, dtype.Uint16s(x), stride, nodes, k, c, byNode)
	}
}
