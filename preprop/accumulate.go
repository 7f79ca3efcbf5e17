package preprop

import (
	"context"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// A batch has at most batchTerms terms, and sums of at most sumsBytes, which fit the
// second-level cache. Neither changes any result.
const (
	batchTerms = 4 * blockEdges
	sumsBytes  = 128 << 10
)

// batch computes rows of dst from src. It lists the terms of many rows before it adds them
// up, so that the processor can fetch the rows of src for the next terms while it adds.
type batch struct {
	p        *propagator
	dst, src *matrix
	with     *blend // nil: none

	nodes        []uint32  // of the terms
	coefficients []float32 // of the terms; nil without weights: they are p.t of the nodes
	blocks       []block
	lengths      []int     // terms of each block
	sums         []float32 // of each block [len(blocks), features]
	total        []float32 // sum of the earlier blocks of a row
	ones         []float32
}

// block is up to blockEdges consecutive terms of a row.
type block struct {
	row         int64
	first, last bool // whether it is the first or last of its row
}

// batchBlocks is the most blocks of a batch with rows of so many columns.
func batchBlocks(features int) int { return min(batchTerms, max(1, sumsBytes/4/max(1, features))) }

// batchBytes bounds the memory of a batch, with the sums of a hub.
func batchBytes(features int, weighted bool) int64 {
	terms := 4 * batchTerms
	if weighted {
		terms *= 2
	}
	const block = 16 + 8 + 4 // with its length and its one
	return int64(terms) + int64(batchBlocks(features))*int64(block+4*features) + 4*int64(1+hubBlocks)*int64(features)
}

func newBatch(p *propagator, dst, src *matrix, with *blend) *batch {
	f := src.features
	most := batchBlocks(f)
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

// add lists the terms of a row.
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

// layOut lists a block: k terms of a row, from term first on.
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

// hubBlocks is the largest number of blocks of a row that one goroutine computes. A row
// with more is computed by several goroutines, as many blocks at a time. It changes no
// result.
const hubBlocks = 64

// addHub computes a row of more than hubBlocks blocks with several goroutines, so that the
// other cores need not wait for one.
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

// splice fills part with elements of list from index first on, counted after put is
// inserted at index loop. Nothing is inserted if loop is negative.
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

// flush computes and stores the rows whose terms are listed. It fails at the first row that
// cannot be stored.
func (b *batch) flush() error {
	b.sum()
	f, start := b.src.features, 0 // first block of the consecutive rows to store next
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

// store scales, blends and stores rows from row v on, whose terms are added up in totals.
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
