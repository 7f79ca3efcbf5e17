package product

import (
	"context"
	"slices"
	"sync"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Batch computes rows of dst from src. It lists the terms of many rows before it adds them up, so that the processor
// can fetch the rows of src for the next terms while it adds.
type Batch struct {
	p        *Propagator
	dst, src *Matrix
	with     *Blend // nil: none

	terms kernel.Terms // a list for each row, or for each run of one row, in one node range
	rows  []int64      // of the lists
	Sums  []float32    // of each list [cap(rows), features]
	row   []float32    // [features]
	ones  []float32    // [cap(rows)]
	Added int64        // terms that were added up
}

func NewBatch(p *Propagator, dst, src *Matrix, with *Blend) *Batch {
	f := src.Features
	most := plan.BatchRuns(f)
	return &Batch{
		p: p, dst: dst, src: src, with: with,
		terms: kernel.Terms{Lists: make([]kernel.List, 0, most)}, rows: make([]int64, 0, most),
		Sums: make([]float32, most*f), row: make([]float32, f), ones: slices.Repeat(dtype.Unscaled, most),
	}
}

// Begin begins a node range, from which rows are added until Flush.
func (b *Batch) Begin(nodes *Range) {
	b.terms.Nodes, b.terms.Edges, b.terms.Codes = nodes.Neighbors, nodes.Weights, nil
	b.terms.Factors, b.terms.Selves = b.p.T, b.p.T
	if nodes.coefficients != nil {
		b.terms.Edges, b.terms.Factors = nodes.coefficients, nil
	}
	if nodes.codes != nil {
		b.terms.Edges, b.terms.Codes, b.terms.Factors = b.p.Edges.values[:], nodes.codes, nil
	}
}

// Add lists the terms of a row of the node range, or computes the row at once if it has several runs.
func (b *Batch) Add(ctx context.Context, nodes *Range, v int64, pool *Batches, threads int) error {
	lo, hi := nodes.Offsets[v-nodes.First]-nodes.Offsets[0], nodes.Offsets[v-nodes.First+1]-nodes.Offsets[0]
	if hi-lo >= plan.RunTerms { // no room for a self-loop
		return b.addLong(ctx, nodes, v, pool, threads)
	}
	if len(b.rows) == cap(b.rows) {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	self := v
	if !b.p.Loops {
		self = -1
	}
	b.add(kernel.List{Start: lo, End: hi, Self: self}, v)
	return nil
}

func (b *Batch) add(l kernel.List, row int64) {
	b.terms.Lists, b.rows = append(b.terms.Lists, l), append(b.rows, row)
}

// addRuns lists the runs of n terms of a row, from term first on. The neighbours of the row begin at start.
func (b *Batch) addRuns(t *Terms, start int64, first, n int) {
	for end := first + n; first < end; first += plan.RunTerms {
		last := min(first+plan.RunTerms, end)
		list := kernel.List{Start: start + int64(first), End: start + int64(last), Self: -1}
		if 0 <= t.Loop && t.Loop < last { // the neighbours after it are one place on
			list.End--
			if t.Loop >= first {
				list.Self = int64(t.Node)
			} else {
				list.Start--
			}
		}
		b.add(list, int64(t.Node))
	}
}

// addLong computes a row of several runs. One of plan.HubRuns or more is computed by several goroutines, so that the
// other cores need not wait for one.
func (b *Batch) addLong(ctx context.Context, nodes *Range, v int64, pool *Batches, threads int) error {
	if err := b.Flush(); err != nil {
		return err
	}
	t, start := b.p.Terms(&nodes.NodeRange, v), nodes.Offsets[v-nodes.First]-nodes.Offsets[0]
	f, sums, group := b.src.Features, b.Sums, cap(b.rows)*plan.RunTerms
	hub := len(t.Neighbors) >= plan.HubRuns*plan.RunTerms
	if hub {
		sums, group = make([]float32, plan.HubRuns*f), plan.HubRuns*plan.RunTerms
	}
	clear(b.row)
	for first := 0; first < t.Len(); first += group {
		n := min(group, t.Len()-first)
		if !hub {
			b.addRuns(&t, start, first, n)
			b.sum()
			b.reset()
		} else if err := parallel.For(ctx, threads, int64(n), plan.RunTerms, func(lo, hi int64) error {
			one := pool.Get()
			one.Begin(nodes)
			one.addRuns(&t, start, first+int(lo), int(hi-lo))
			one.sum()
			copy(sums[int(lo)/plan.RunTerms*f:], one.Sums[:f])
			one.reset()
			pool.Put(one)
			return nil
		}); err != nil {
			return err
		}
		for at := 0; at < n; at += plan.RunTerms {
			for j, x := range sums[at/plan.RunTerms*f:][:f] {
				b.row[j] += x
			}
		}
	}
	if hub {
		b.Added += int64(t.Len()) // which the other batches have counted for themselves
	}
	return b.store(v, b.row, 1, b.Sums[:f])
}

// Splice fills part with elements of list from index first on, counted after put is inserted at index loop. Nothing
// is inserted if loop is negative.
func Splice[T uint32 | float32 | uint16](part, list []T, put T, loop, first int) {
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

// Flush computes and stores the rows whose terms are listed. It fails at the first row that cannot be stored.
func (b *Batch) Flush() error {
	b.sum()
	f := b.src.Features
	for start, end := 0, 0; start < len(b.rows); start = end {
		for end = start + 1; end < len(b.rows) && b.rows[end] == b.rows[end-1]+1; {
			end++
		}
		if err := b.store(b.rows[start], b.Sums[start*f:end*f], end-start, b.row); err != nil {
			return err
		}
	}
	b.reset()
	return nil
}

func (b *Batch) reset() { b.terms.Lists, b.rows = b.terms.Lists[:0], b.rows[:0] }

// sum adds up the terms of each list.
func (b *Batch) sum() {
	x := b.src.Rows(0, b.p.Graph.Sources())
	b.Added += int64(dtype.SumLists(b.Sums, x, b.src.DType, b.src.Features, b.src.Features, &b.terms))
	for i := range b.terms.Lists {
		b.Added += b.terms.Lists[i].End - b.terms.Lists[i].Start
	}
}

// store scales, blends and stores rows from row v on, whose terms are added up in totals. scratch has room for a row.
func (b *Batch) store(v int64, totals []float32, rows int, scratch []float32) error {
	factors := b.ones[:rows]
	if b.p.S != nil {
		factors = b.p.S[v:][:rows]
	}
	if b.with != nil {
		for i, s := range factors {
			b.with.add(totals[i*b.src.Features:][:b.src.Features], s, scratch, v+int64(i))
		}
		factors = b.ones[:rows]
	}
	return b.dst.SetRows(v, totals, factors)
}

// Blend is a step of a series, which turns a product into factor * product + theta * x.
type Blend struct {
	Factor, Theta float32
	X             *Matrix
}

// add blends row v of x into the product s * row, where row is the sum of row v's terms, and writes the result to
// row. scratch has the same length.
func (b *Blend) add(row []float32, s float32, scratch []float32, v int64) {
	dtype.Decode(scratch, b.X.Rows(v, v+1), b.X.DType)
	for j, x := range scratch {
		row[j] = float32(b.Factor*float32(s*row[j])) + float32(b.Theta*x)
	}
}

// BlendOf is the blend of the i-th product, from 1, of a hop from x; nil if there is none.
func BlendOf(s operator.Series, i int, x *Matrix) *Blend {
	if factor, theta, blends := s.Blend(i); blends {
		return &Blend{factor, theta, x}
	}
	return nil
}

// Goroutines of a loop share buffers and batches instead of taking them from a sync.Pool,
// which keeps its contents through two garbage collections: a job is many loops, one after
// another, and each would add its buffers to a heap that may double.

// Buffers is a fixed number of buffers of one size, off the Go heap.
type Buffers struct {
	buf  *offheap.Buffer
	free chan []byte
}

// NewBuffers makes n buffers. A goroutine that gets one while none is free waits.
func NewBuffers(n int, bytes int64) (*Buffers, error) {
	const align = 8
	n = max(n, 1)
	stride := (bytes + align - 1) / align * align
	buf, err := offheap.Alloc(int64(n) * stride)
	if err != nil {
		return nil, err
	}
	b := &Buffers{buf, make(chan []byte, n)}
	for i := range int64(n) {
		b.Put(buf.Bytes()[i*stride:][:bytes])
	}
	return b, nil
}

func (b *Buffers) Get() []byte       { return <-b.free }
func (b *Buffers) Put(buffer []byte) { b.free <- buffer }

func (b *Buffers) Free() error { return b.buf.Free() }

// Batches is a pool of batches that no goroutine uses at the moment; make adds to it.
type Batches struct {
	mu   sync.Mutex
	free []*Batch
	Make func() *Batch
}

func (b *Batches) Get() *Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.free); n > 0 {
		one := b.free[n-1]
		b.free = b.free[:n-1]
		return one
	}
	return b.Make()
}

func (b *Batches) Put(one *Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, one)
}
