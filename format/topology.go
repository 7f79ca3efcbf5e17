package format

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Topology reads and checks the topology (and weights) of a graph into memory
// off the Go heap; the caller closes it. threads 0 is parallel.Threads.
func (d *Dir) Topology(ctx context.Context, threads int) (_ *CSC, err error) {
	defer func() { err = d.explain(err) }()
	if d.Manifest.Kind != KindGraph {
		return nil, fmt.Errorf("%s is a store, which has no topology", d.path)
	}
	n, m := d.Manifest.Nodes, d.Manifest.Edges
	t := d.table(topologyFolder)
	buf, err := d.readSingleBatch(ctx, t, threads)
	if err != nil {
		return nil, err
	}
	at, _ := arrowfile.Place(t.lengths(n)...)
	b := buf.Bytes()
	c := &CSC{Offsets: dtype.Int64s(b[:8*(n+1)]), Neighbors: dtype.Uint32s(b[at[1]:][:4*m]), free: buf.Free}
	if err := d.corruptTable(ctx, t, c.check(ctx, threads)); err != nil || !d.Manifest.Weighted {
		return c.orClose(err)
	}
	t = d.table(weightsFolder)
	weights, err := d.readSingleBatch(ctx, t, threads)
	if err != nil {
		return c.orClose(err)
	}
	c.Weights = dtype.Float32s(weights.Bytes())
	if c.Weights == nil {
		c.Weights = []float32{} // weighted, without edges
	}
	c.free = func() error { return errors.Join(buf.Free(), weights.Free()) }
	return c.orClose(d.corruptTable(ctx, t, c.checkWeights(ctx, threads)))
}

// orClose is c; where there is an error, it closes c.
func (c *CSC) orClose(err error) (*CSC, error) {
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// corruptTable turns the error of a check into damage of a table of one chunk.
func (d *Dir) corruptTable(ctx context.Context, t *table, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &CorruptError{d.filePath(t.parts[0].file), 0, err.Error()}
}

// readSingleBatch reads a table of one record batch, or none, into one buffer.
func (d *Dir) readSingleBatch(ctx context.Context, t *table, threads int) (*offheap.Buffer, error) {
	if t.chunks == 0 {
		return offheap.Alloc(0)
	}
	size, _ := t.dataBytes(0)
	buf, err := offheap.Alloc(size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.filePath(t.parts[0].file), err)
	}
	f, err := d.openPart(&t.parts[0])
	if err != nil {
		return nil, errors.Join(err, buf.Free())
	}
	defer f.Close()
	extents := t.parts[0].extents
	err = parallel.For(ctx, threads, int64(len(extents)), 1, func(i, _ int64) error {
		return readExtent(f, 0, extents[i], buf.Bytes()[i*arrowfile.ExtentBytes:][:extents[i].Length])
	})
	if err != nil {
		return nil, errors.Join(err, buf.Free())
	}
	return buf, nil
}

// checkGrain is the number of nodes or weights that a goroutine checks at a time.
const checkGrain = 1 << 16

// check fails unless offsets ascend from 0 to m and each list of neighbours
// ascends below n (a repeated neighbour is a parallel edge).
func (c *CSC) check(ctx context.Context, threads int) error {
	n, m := c.Nodes(), c.Edges()
	if n < 0 || n > MaxNodes || m > MaxEdges {
		return fmt.Errorf("it has %d nodes and %d edges, more than %d and %d", n, m, int64(MaxNodes), int64(MaxEdges))
	}
	if c.Offsets[0] != 0 || c.Offsets[n] != m {
		return fmt.Errorf("the offsets go from %d to %d, not from 0 to the number of edges, %d", c.Offsets[0], c.Offsets[n], m)
	}
	if err := parallel.For(ctx, threads, n, checkGrain, func(lo, hi int64) error {
		for v := lo; v < hi; v++ {
			if c.Offsets[v] > c.Offsets[v+1] {
				return fmt.Errorf("the offsets of node %d go from %d back to %d", v, c.Offsets[v], c.Offsets[v+1])
			}
		}
		return nil
	}); err != nil {
		return err
	}
	lists := CSC{Offsets: c.Offsets, Neighbors: c.Neighbors} // the weights are yet to be checked
	return parallel.For(ctx, threads, n, checkGrain, func(lo, hi int64) error {
		b := lists.Block(lo, hi)
		return b.checkLists(n)
	})
}

// checkWeights fails unless there is a weight for each edge, finite and not
// negative, or none at all.
func (c *CSC) checkWeights(ctx context.Context, threads int) error {
	if c.Weights != nil && len(c.Weights) != len(c.Neighbors) {
		return fmt.Errorf("it has %d weights for %d edges", len(c.Weights), len(c.Neighbors))
	}
	return parallel.For(ctx, threads, int64(len(c.Weights)), checkGrain, func(lo, hi int64) error {
		return checkWeights(lo, c.Weights[lo:hi])
	})
}

// checkWeights fails unless the weights, from edge first on, are finite and not
// negative.
func checkWeights(first int64, weights []float32) error {
	for i, x := range weights {
		if !(x >= 0 && x <= math.MaxFloat32) {
			return fmt.Errorf("the weight of edge %d is %g, which is negative or not finite", first+int64(i), x)
		}
	}
	return nil
}
