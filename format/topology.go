package format

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Topology reads and checks the topology (and weights) of a graph into memory off the Go heap; the caller closes it.
// threads 0 is parallel.Threads.
func (d *Dir) Topology(ctx context.Context, threads int) (_ *CSC, err error) {
	defer func() { err = d.explain(err) }()
	if d.Manifest.Kind != KindGraph {
		return nil, fmt.Errorf("%s is a store, which has no topology", d.path)
	}
	n, m := d.Manifest.Nodes, d.Manifest.Edges
	t := d.tables[topologyFolder]
	buf, err := d.readSingleBatch(ctx, t, threads)
	if err != nil {
		return nil, err
	}
	at, _ := arrowfile.Place(t.lengths(n)...)
	b := buf.Bytes()
	c := &CSC{Offsets: dtype.Int64s(b[:8*(n+1)]), Neighbors: dtype.Uint32s(b[at[1]:][:4*m]),
		sources: d.Manifest.SourceNodes, free: buf.Free}
	if err := d.corruptTable(ctx, t, c.check(ctx, threads)); err != nil || !d.Manifest.Weighted {
		return c.orClose(err)
	}
	t = d.tables[weightsFolder]
	weights, err := d.readSingleBatch(ctx, t, threads)
	if err != nil {
		return c.orClose(err)
	}
	c.Weights = dtype.Float32s(weights.Bytes())
	if c.Weights == nil {
		c.Weights = []float32{} // weighted, without edges
	}
	c.free = func() error { return errors.Join(buf.Free(), weights.Free()) }
	return c.orClose(d.corruptTable(ctx, t, parallel.For(ctx, threads, m, checkGrain, func(lo, hi int64) error {
		return checkWeights(lo, c.Weights[lo:hi])
	})))
}

// NewCSC is a topology of zeros in memory off the Go heap; the caller closes it.
func NewCSC(nodes, edges int64, weighted bool) (*CSC, error) {
	offsets, neighbors := 8*(nodes+1), 4*edges
	size := offsets + neighbors
	if weighted {
		size += 4 * edges
	}
	buf, err := offheap.Alloc(size)
	if err != nil {
		return nil, err
	}
	b := buf.Bytes()
	c := &CSC{Offsets: dtype.Int64s(b[:offsets]), Neighbors: dtype.Uint32s(b[offsets:][:neighbors]), free: buf.Free}
	if weighted {
		if c.Weights = dtype.Float32s(b[offsets+neighbors:]); c.Weights == nil {
			c.Weights = []float32{} // weighted, without edges
		}
	}
	return c, nil
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
	part := &t.parts[0]
	buf, err := d.Hold(ctx, path.Dir(d.Manifest.Files[part.file].Path), size, func(buf *offheap.Buffer) error {
		f, err := d.openPart(part)
		if err != nil {
			return err
		}
		defer f.Close()
		return parallel.For(ctx, threads, int64(len(part.extents)), 1, func(i, _ int64) error {
			return readExtent(f, 0, part.extents[i], buf.Bytes()[i*arrowfile.ExtentBytes:][:part.extents[i].Length])
		})
	})
	if err != nil && !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%s: %w", d.filePath(part.file), err)
	}
	return buf, err
}

// checkGrain is the number of nodes or weights that a goroutine checks at a time.
const checkGrain = 1 << 16

// checkOffsets fails unless offsets ascend from 0 to the number of edges.
func (c *CSC) checkOffsets(ctx context.Context, threads int) error {
	n, m := c.Nodes(), c.Edges()
	if n < 0 || n > MaxNodes || m > MaxEdges {
		return fmt.Errorf("it has %d nodes and %d edges, more than %d and %d", n, m, int64(MaxNodes), int64(MaxEdges))
	}
	if c.Offsets[0] != 0 || c.Offsets[n] != m {
		return fmt.Errorf("the offsets go from %d to %d, not from 0 to the number of edges, %d", c.Offsets[0],
			c.Offsets[n], m)
	}
	return parallel.For(ctx, threads, n, checkGrain, func(lo, hi int64) error {
		for v := lo; v < hi; v++ {
			if c.Offsets[v] > c.Offsets[v+1] {
				return fmt.Errorf("the offsets of node %d go from %d back to %d", v, c.Offsets[v], c.Offsets[v+1])
			}
		}
		return nil
	})
}

func (c *CSC) checkWeightCount() error {
	if c.Weights != nil && len(c.Weights) != len(c.Neighbors) {
		return fmt.Errorf("it has %d weights for %d edges", len(c.Weights), len(c.Neighbors))
	}
	return nil
}

// check fails unless the offsets ascend, and so does each list of neighbours, below Sources (a repeated neighbour is a
// parallel edge).
func (c *CSC) check(ctx context.Context, threads int) error {
	if err := c.checkOffsets(ctx, threads); err != nil {
		return err
	}
	lists := CSC{Offsets: c.Offsets, Neighbors: c.Neighbors} // weights are checked later
	return parallel.For(ctx, threads, c.Nodes(), checkGrain, func(lo, hi int64) error {
		b := lists.Range(lo, hi)
		return b.checkLists(c.Sources())
	})
}

// checkWeights fails unless the weights, from edge first on, are finite and not negative.
func checkWeights(first int64, weights []float32) error {
	for i, x := range weights {
		if !(x >= 0 && x <= math.MaxFloat32) {
			return fmt.Errorf("the weight of edge %d is %g, which is negative or not finite", first+int64(i), x)
		}
	}
	return nil
}

// streamBytes is the size of the buffers that a topology is streamed through.
const streamBytes = 1 << 20

// Topology writes a topology that is in memory: see StreamTopology.
func (w *Writer) Topology(c *CSC) error {
	if err := errors.Join(c.checkOffsets(context.Background(), 0), c.checkWeightCount()); err != nil {
		return fmt.Errorf("%s: topology: %w", w.dir, err)
	}
	degrees := make([]uint32, c.Nodes())
	for v := range degrees {
		degrees[v] = uint32(c.Offsets[v+1] - c.Offsets[v])
	}
	var weights io.Reader
	if c.Weights != nil {
		weights = bytes.NewReader(dtype.BytesOf(c.Weights))
	}
	return w.StreamTopology(degrees, bytes.NewReader(dtype.BytesOf(c.Neighbors)), weights)
}

// StreamTopology writes topology/ and, where there are weights, weights/. They need not fit in memory: node v has
// degrees[v] in-neighbours; neighbors gives them as uint32, one node after another, and weights their weights as
// float32 in the same order, or is nil if there are none.
func (w *Writer) StreamTopology(degrees []uint32, neighbors, weights io.Reader) error {
	size := topologySize{int64(len(degrees)), 0, weights != nil}
	for _, d := range degrees {
		size.edges += int64(d)
	}
	switch rows := w.layout.rows(); {
	case w.kind != KindGraph:
		return fmt.Errorf("%s: a store has no topology", w.dir)
	case size.nodes != rows:
		return fmt.Errorf("%s: the topology has %d nodes, but the layout %d rows", w.dir, size.nodes, rows)
	case size.edges > MaxEdges:
		return fmt.Errorf("%s: topology: it has %d edges, more than %d", w.dir, size.edges, int64(MaxEdges))
	}
	if err := w.reserve(func() bool { return w.topology == nil }, func() { w.topology = &size }); err != nil {
		return err
	}
	lists := listChecker{degrees: degrees, sources: cmp.Or(w.layout.SourceNodes, size.nodes)}
	err := w.writeSingleBatch(topologyTable(size.nodes, size.edges), func(out io.Writer) error {
		if err := writeOffsets(out, degrees); err != nil {
			return err
		}
		return copyChecked(out, neighbors, edgeBytes*size.edges, func(_ int64, b []byte) error {
			return lists.next(dtype.Uint32s(b))
		})
	})
	if err == nil && size.weighted {
		err = w.writeSingleBatch(weightsTable(size.edges), func(out io.Writer) error {
			return copyChecked(out, weights, edgeBytes*size.edges, func(at int64, b []byte) error {
				return checkWeights(at/edgeBytes, dtype.Float32s(b))
			})
		})
	}
	if err != nil {
		return fmt.Errorf("%s: topology: %w", w.dir, err)
	}
	return nil
}

// writeOffsets writes the offsets: the sums of the degrees before each node, and of all.
func writeOffsets(w io.Writer, degrees []uint32) error {
	offsets := make([]int64, 0, min(streamBytes/8, len(degrees)+1))
	next := int64(0)
	for _, d := range degrees {
		if offsets = append(offsets, next); len(offsets) == cap(offsets) {
			if _, err := w.Write(dtype.BytesOf(offsets)); err != nil {
				return err
			}
			offsets = offsets[:0]
		}
		next += int64(d)
	}
	_, err := w.Write(dtype.BytesOf(append(offsets, next)))
	return err
}

// copyChecked copies this many bytes from r to w, reading ahead while it writes. Before bytes are written, check is
// called with them and their offset in r.
func copyChecked(w io.Writer, r io.Reader, bytes int64, check func(at int64, b []byte) error) error {
	return parallel.Ordered(context.Background(), 1, (bytes+streamBytes-1)/streamBytes,
		func() []byte { return make([]byte, min(bytes, streamBytes)) },
		func(k int64, b []byte) ([]byte, error) {
			at := k * streamBytes
			b = b[:min(bytes-at, streamBytes)]
			if _, err := io.ReadFull(r, b); err != nil {
				return nil, err
			}
			return b, check(at, b)
		},
		func(b []byte) error { _, err := w.Write(b); return err })
}

// listChecker fails unless the in-neighbours of each node ascend and are below the number of sources. It is given them
// in order, any number at a time.
type listChecker struct {
	degrees []uint32
	sources int64
	node    int    // the node of the next in-neighbour
	seen    uint32 // in-neighbours of that node so far
	before  uint32 // the last of these
}

func (c *listChecker) next(neighbors []uint32) error {
	for len(neighbors) > 0 {
		left := c.degrees[c.node] - c.seen
		if left == 0 {
			c.node, c.seen, c.before = c.node+1, 0, 0
			continue
		}
		list := neighbors[:min(int64(left), int64(len(neighbors)))]
		for _, u := range list {
			if u < c.before || int64(u) >= c.sources {
				return fmt.Errorf("in-neighbour %d of node %d is smaller than the one before it, or not below the "+
					"%d nodes", u, c.node, c.sources)
			}
			c.before = u
		}
		c.seen += uint32(len(list))
		neighbors = neighbors[len(list):]
	}
	return nil
}
