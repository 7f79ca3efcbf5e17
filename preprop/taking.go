package preprop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// takeAll writes all matrices. It computes the rows that may differ, one sequence after another, in matrices that have
// the needed rows alone.
func (c *changes) takeAll(ctx context.Context, all []*recomputation) error {
	c.findMoved()
	first := product.Number(c.stored(c.features))
	if err := c.checkRows(int64(len(first.Nodes)), 1, 0, 0); err != nil {
		return err
	}
	for _, r := range all { // before anything is written
		stored, series := plan.PanelMatrices([]*plan.Sequence{&r.Sequence}, c.job.DType, false)
		if err := c.checkRows(r.nodes.Count(), stored, series, r.lists); err != nil {
			return err
		}
	}
	features, err := c.graph.Matrix(format.Input)
	if err != nil {
		return err
	}
	x, err := c.newMatrix(int64(len(first.Nodes)), c.job.DType)
	if err == nil {
		defer x.Buf.Free()
		err = c.load(ctx, x, features, first, first.Nodes, func(v uint32) int64 { return int64(v) })
	}
	if err == nil {
		err = c.write(ctx, format.Input, x, first, c.stored(c.features))
	}
	for _, r := range all {
		if err != nil {
			return err
		}
		err = c.takeSequence(ctx, r, features)
	}
	return err
}

// checkRows fails unless matrices of so many rows fit in memory.
func (c *changes) checkRows(rows int64, stored, series int, edges int64) error {
	width := int64(c.layout.Features)
	bytes := rows*width*int64(stored*c.job.DType.Size()+4*series) +
		product.CompactBytes(rows, edges, c.graph.Manifest.Weighted) + 8*rows
	bytes += int64(c.job.Threads+1) * 2 * c.groupRows() * width * int64(c.job.DType.Size())
	if c.moved != nil {
		bytes += int64(len(c.moved.Nodes)) * width * int64(c.job.DType.Size())
	}
	if bytes > c.rest {
		return errLarge(rows, bytes, c.rest)
	}
	return nil
}

// findMoved finds the nodes whose rows are in another region than before. The order within regions is the same.
func (c *changes) findMoved() {
	moved, l := product.NewNodeSet(c.graph.Manifest.Nodes), c.earlier.store.Layout()
	for i, v := range c.nodes {
		if row := c.earlier.rowOf[v]; row != noRow && regionOf(&l, int64(row)) != regionOf(&c.layout, int64(i)) {
			moved.Add(int64(v))
		}
	}
	c.moved = product.Number(moved)
}

func (c *changes) newMatrix(rows int64, t format.DType) (*product.Matrix, error) {
	return product.NewMatrix(rows, c.layout.Features, t)
}

// load fills rows of a matrix, by the numbers of their nodes, from a stored one. rowOf is the row of a node there.
func (c *changes) load(ctx context.Context, m *product.Matrix, from *format.Matrix, numbers *product.Numbering,
	nodes []uint32, rowOf func(v uint32) int64) error {
	pairs := make([]uint64, len(nodes)) // row, and number
	for i, v := range nodes {
		pairs[i] = uint64(rowOf(v))<<32 | uint64(numbers.Of(int64(v)))
	}
	slices.Sort(pairs)
	var starts []int // of pairs in one chunk
	for i, chunk := 0, -1; i < len(pairs); i++ {
		if k := from.ChunkOf(int64(pairs[i] >> 32)); k != chunk {
			starts, chunk = append(starts, i), k
		}
	}
	starts = append(starts, len(pairs))
	return parallel.For(ctx, plan.DiskReaders(c.job.Threads), int64(len(starts)-1), 16, func(lo, hi int64) error {
		r, values := &format.RowReader{Matrix: from}, make([]float32, m.Features)
		for _, pair := range pairs[starts[lo]:starts[hi]] {
			row, err := r.Row(int64(pair >> 32))
			if err != nil {
				return err
			}
			at := int64(uint32(pair))
			if !product.Round(m.Rows(at, at+1), m.DType, row, from.Layout.DType, values) {
				return ErrInvalid
			}
		}
		return nil
	})
}

// takeSequence computes and writes the hops of a sequence.
func (c *changes) takeSequence(ctx context.Context, r *recomputation, features *format.Matrix) (err error) {
	task := c.job.Progress.Start(fmt.Sprintf("%s, rows that change", r.Operator), r.terms, progress.Items)
	defer task.Done()
	numbers := product.Number(r.nodes)
	topology := c.topologies[r.Operator.Graph]
	whole, err := product.NewPropagator(ctx, topology, r.Operator.Base(), c.job.Threads,
		product.Alone(ctx, topology, c.job.Threads))
	if err != nil {
		return err
	}
	p, err := whole.Within(ctx, numbers, r.rows, c.job.Threads)
	if err = errors.Join(err, whole.Buf.Free()); err != nil {
		return err
	}
	defer p.Graph.Close()
	var matrices []*product.Matrix
	defer func() {
		for _, m := range matrices {
			err = errors.Join(err, m.Buf.Free())
		}
	}()
	stored, series := plan.PanelMatrices([]*plan.Sequence{&r.Sequence}, c.job.DType, false)
	for i := range stored + series {
		t := c.job.DType
		if i >= stored {
			t = format.Float32
		}
		m, err := c.newMatrix(int64(len(numbers.Nodes)), t)
		if err != nil {
			return err
		}
		matrices = append(matrices, m)
	}
	x, y := matrices[0], matrices[1]
	if err := c.load(ctx, x, features, numbers, product.Number(r.sources[1]).Nodes,
		func(v uint32) int64 { return int64(v) }); err != nil {
		return err
	}
	terms := r.Series()
	var writing errgroup.Group // of one hop, beside the next
	defer func() { err = cmp.Or(err, writing.Wait()) }()
	for hop := 1; hop <= r.Hops; hop++ {
		id, start := r.ID(hop), time.Now()
		y.ID = id
		k := slices.Index(c.job.Matrices, id)
		for i := 1; i <= terms.Products(); i++ {
			dst, src := operator.Step(terms, i, x, y, matrices[stored:])
			dst.ID = id
			added, err := p.Hop(ctx, dst, src, product.BlendOf(terms, i, x), numbers.Numbers(r.compute[hop][i-1]),
				c.job.Threads, func(int64) {})
			if err != nil {
				return err
			}
			task.Add(added)
			c.job.Edges[k] += added
			c.job.Gathered += added * src.RowBytes()
		}
		c.job.HopSeconds[k] += time.Since(start).Seconds()
		if err := writing.Wait(); err != nil { // from the matrix that the next hop goes to
			return err
		}
		made := y
		writing = errgroup.Group{}
		writing.Go(func() error { return c.write(ctx, id, made, numbers, c.stored(r.changed[hop])) })
		if x, y = y, x; hop == r.Hops {
			break
		}
		var rest []uint32 // rows that the next hop needs and this one did not compute
		computed := r.compute[hop][terms.Products()-1]
		r.sources[hop+1].Each(func(v int64) {
			if !computed.Has(v) {
				rest = append(rest, uint32(v))
			}
		})
		from, err := c.earlier.store.Matrix(id)
		if err == nil {
			err = c.load(ctx, x, from, numbers, rest, func(v uint32) int64 { return int64(c.earlier.rowOf[v]) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// groupBytes is about how many bytes of rows are copied at a time.
const groupBytes = 4 << 20

// groupRows is how many rows are copied at a time: at least two chunks, since the chunk at the end is read twice.
func (c *changes) groupRows() int64 {
	return max(2*int64(c.layout.ChunkRows), groupBytes/int64(c.layout.Features*c.job.DType.Size()))
}

// write writes a matrix of the store: the rows of the nodes in computed from m, by their numbers, and the others from
// the earlier store.
func (c *changes) write(ctx context.Context, id format.MatrixID, m *product.Matrix, numbers *product.Numbering,
	computed product.NodeSet) error {
	taken := c.earlier.taken
	taken.Computed = append(taken.Computed, computed.Count())
	c.job.Finished[id] = true
	if c.store.Finished(id) {
		return nil
	}
	from, err := c.earlier.store.Matrix(id)
	if err != nil {
		return err
	}
	out, err := c.store.Matrix(id)
	if err != nil {
		return err
	}
	same := int64(0) // rows that are where they were
	for same < int64(len(c.nodes)) && int64(c.earlier.rowOf[c.nodes[same]]) == same &&
		!computed.Has(int64(c.nodes[same])) {
		same++
	}
	done, err := out.Adopt(from, same)
	if err != nil {
		return err
	}
	moved, err := c.newMatrix(int64(len(c.moved.Nodes)), c.job.DType)
	if err != nil {
		return err
	}
	defer moved.Buf.Free()
	there := slices.DeleteFunc(slices.Clone(c.moved.Nodes), func(v uint32) bool { return computed.Has(int64(v)) })
	if err := c.load(ctx, moved, from, c.moved, there,
		func(v uint32) int64 { return int64(c.earlier.rowOf[v]) }); err != nil {
		return err
	}
	isMoved := product.NewNodeSet(c.graph.Manifest.Nodes)
	for _, v := range there {
		isMoved.Add(int64(v))
	}
	type group struct {
		format.RowReader
		rows []byte
	}
	size, step, left := m.RowBytes(), c.groupRows(), int64(len(c.nodes))-done
	task := c.job.Progress.Start(fmt.Sprintf("write %s", id), left*size, progress.Bytes)
	defer task.Done()
	err = parallel.Ordered(ctx, c.job.Threads, (left+step-1)/step, func() *group {
		return &group{RowReader: format.RowReader{Matrix: from}, rows: make([]byte, min(step, left)*size)}
	}, func(k int64, g *group) ([]byte, error) {
		nodes := c.nodes[done+k*step : done+min((k+1)*step, left)]
		for i, v := range nodes {
			row, err := []byte(nil), error(nil)
			switch {
			case computed.Has(int64(v)):
				at := numbers.Of(int64(v))
				row = m.Rows(at, at+1)
			case isMoved.Has(int64(v)):
				at := c.moved.Of(int64(v))
				row = moved.Rows(at, at+1)
			default:
				row, err = g.Row(int64(c.earlier.rowOf[v]))
			}
			if err != nil {
				return nil, err
			}
			copy(g.rows[int64(i)*size:], row)
		}
		return g.rows[:int64(len(nodes))*size], nil
	}, func(rows []byte) error {
		task.Add(int64(len(rows)))
		return out.Write(rows)
	})
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	c.job.Pace.SavedAny = true
	return nil
}
