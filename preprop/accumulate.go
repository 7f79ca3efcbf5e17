package preprop

import (
	"context"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
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

// add lays out a row.
func (b *batch) add(t terms) error {
	for first := 0; ; first += blockEdges {
		k := min(blockEdges, t.len()-first)
		if len(b.nodes)+k > batchTerms || len(b.blocks) == cap(b.blocks) {
			if err := b.flush(); err != nil {
				return err
			}
		}
		b.layOut(t, first, k)
		if first+k == t.len() {
			return nil
		}
	}
}

// layOut lays out a block: k terms of a row, from first on.
func (b *batch) layOut(t terms, first, k int) {
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
	b.blocks = append(b.blocks, block{row: int64(t.node), first: first == 0, last: first+k == t.len()})
	b.lengths = append(b.lengths, k)
}

// hubBlocks is how many blocks a row has at most that one goroutine computes, and
// how many several compute at a time. It changes no result.
const hubBlocks = 64

// addHub computes a row of many blocks together with other goroutines, so that no
// core waits for the one that met it.
func (b *batch) addHub(ctx context.Context, t terms, pool *batches, threads int) error {
	if err := b.flush(); err != nil {
		return err
	}
	f := b.src.features
	sums, total := make([]float32, hubBlocks*f), b.sums[:f]
	clear(total)
	for first := 0; first < t.len(); first += hubBlocks * blockEdges {
		n := min(hubBlocks*blockEdges, t.len()-first)
		err := parallel.For(ctx, threads, int64(n), blockEdges, func(lo, hi int64) error {
			one := pool.get()
			one.layOut(t, first+int(lo), int(hi-lo))
			one.sum()
			copy(sums[int(lo)/blockEdges*f:], one.sums[:f])
			one.reset()
			pool.put(one)
			return nil
		})
		if err != nil {
			return err
		}
		for at := 0; at < n; at += blockEdges {
			for j, x := range sums[at/blockEdges*f:][:f] {
				total[j] += x
			}
		}
	}
	return b.store(int64(t.node), total, 1)
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
	b.reset()
	return nil
}

func (b *batch) reset() {
	b.nodes, b.blocks, b.lengths = b.nodes[:0], b.blocks[:0], b.lengths[:0]
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
