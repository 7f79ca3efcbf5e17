package preprop

import (
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// At most so many terms are laid out at a time, and sums of so many bytes made of
// them, which the second-level cache keeps. They change no result.
const (
	batchTerms = 4 * blockEdges
	sumsBytes  = 128 << 10
)

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
	lengths      []int     // of blocks
	sums         []float32 // of blocks [., features]
	total        []float32 // of the blocks before the next
	ones         []float32
}

// block is up to blockEdges terms of a row.
type block struct {
	row         int64
	first, last bool // of its row
}

func newBatch(p *propagator, dst, src *matrix, with *blend) *batch {
	f := src.features
	most := min(batchTerms, max(1, sumsBytes/4/max(1, f)))
	b := &batch{
		p: p, dst: dst, src: src, with: with,
		nodes:  make([]uint32, 0, batchTerms),
		blocks: make([]block, 0, most), lengths: make([]int, 0, most),
		sums: make([]float32, most*f), total: make([]float32, f),
		ones: slices.Repeat(unscaled, most),
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
		if len(b.nodes)+k > batchTerms || len(b.blocks) == cap(b.blocks) {
			if err := b.flush(); err != nil {
				return 0, err
			}
		}
		at := len(b.nodes)
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
		b.blocks = append(b.blocks, block{row: v, first: first == 0, last: last})
		b.lengths = append(b.lengths, k)
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
	b.sum()
	f, start := b.src.features, 0 // of the rows to store next, which follow each other
	for i, k := range b.blocks {
		sum := b.sums[i*f:][:f]
		if !k.first {
			for j, x := range b.total {
				sum[j] += x
			}
		}
		end := i + 1
		if !k.last {
			end = i
		}
		if !k.last || i+1 == len(b.blocks) || b.blocks[i+1].row != k.row+1 {
			if start < end {
				if err := b.store(b.blocks[start].row, b.sums[start*f:end*f], end-start); err != nil {
					return err
				}
			}
			start = i + 1
		}
		if !k.last {
			copy(b.total, sum)
		}
	}
	b.nodes, b.blocks, b.lengths = b.nodes[:0], b.blocks[:0], b.lengths[:0]
	return nil
}

// sum adds up the terms of each block.
func (b *batch) sum() {
	c, byNode := b.p.t, true
	if b.coefficients != nil {
		c, byNode = b.coefficients, false
	}
	f := b.src.features
	switch x := b.src.rows(0, b.p.graph.Nodes()); b.src.dtype {
	case dtype.Float32:
		kernel.SumFloat32(b.sums, dtype.Float32s(x), f, b.nodes, b.lengths, c, byNode)
	case dtype.Float16:
		kernel.SumFloat16(b.sums, dtype.Uint16s(x), f, b.nodes, b.lengths, c, byNode)
	case dtype.BFloat16:
		kernel.SumBFloat16(b.sums, dtype.Uint16s(x), f, b.nodes, b.lengths, c, byNode)
	}
}

// store finishes and stores rows, from row v on, whose terms are added up.
func (b *batch) store(v int64, totals []float32, rows int) error {
	factors := b.ones[:rows]
	if b.p.s != nil {
		factors = b.p.s[v:][:rows]
	}
	if b.with != nil {
		for i, s := range factors {
			b.with.add(totals[i*b.src.features:][:b.src.features], s, b.total, v+int64(i))
		}
		factors = b.ones[:rows]
	}
	return b.dst.setRows(v, totals, factors)
}
