package format

import (
	"context"
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// streamBytes is how much of a topology that is streamed is in memory.
const streamBytes = 1 << 20

// StreamTopology is Topology for what memory does not hold: node v has
// degrees[v] in-neighbours, and neighbors gives those of all nodes, one node after
// another, as they are stored. So does weights, which is nil where there are none.
func (w *Writer) StreamTopology(degrees []uint32, neighbors, weights io.Reader) error {
	if w.kind != KindGraph {
		return fmt.Errorf("%s: a store has no topology", w.dir)
	}
	n, m := int64(len(degrees)), int64(0)
	if rows := w.layout.rows(); n != rows {
		return fmt.Errorf("%s: a topology of %d nodes for %d rows", w.dir, n, rows)
	}
	for _, d := range degrees {
		m += int64(d)
	}
	if m > MaxEdges {
		return fmt.Errorf("%s: topology: %d edges (at most %d)", w.dir, m, int64(MaxEdges))
	}
	if err := w.claim(func() bool { return w.topology == nil }, func() { w.topology = &topologySize{n, m, weights != nil} }); err != nil {
		return err
	}
	lists := listCheck{degrees: degrees}
	err := w.single(topologyTable(n, m), func(out io.Writer) error {
		if err := writeOffsets(out, degrees); err != nil {
			return err
		}
		return copyChecked(out, neighbors, 4*m, func(_ int64, b []byte) error { return lists.next(dtype.Uint32s(b)) })
	})
	if err == nil && weights != nil {
		err = w.single(weightsTable(m), func(out io.Writer) error {
			return copyChecked(out, weights, 4*m, func(at int64, b []byte) error { return checkWeights(at/4, dtype.Float32s(b)) })
		})
	}
	if err != nil {
		return fmt.Errorf("%s: topology: %w", w.dir, err)
	}
	return nil
}

// writeOffsets writes where the list of each node begins, and where the last ends.
func writeOffsets(w io.Writer, degrees []uint32) error {
	offsets := make([]int64, 0, streamBytes/8)
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

// copyChecked copies that many bytes, and lets check see them before, with the
// place where they begin. It reads ahead while it writes.
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

// listCheck sees neighbours go by, and fails unless each list ascends below n.
type listCheck struct {
	degrees []uint32
	node    int    // whose list the next neighbour belongs to
	seen    uint32 // neighbours of that list
	before  uint32 // the last of these
}

func (c *listCheck) next(neighbors []uint32) error {
	for len(neighbors) > 0 {
		left := c.degrees[c.node] - c.seen
		if left == 0 {
			c.node, c.seen, c.before = c.node+1, 0, 0
			continue
		}
		list := neighbors[:min(int64(left), int64(len(neighbors)))]
		for _, u := range list {
			if u < c.before || int64(u) >= int64(len(c.degrees)) {
				return fmt.Errorf("neighbour %d of node %d is out of order, or not below %d", u, c.node, len(c.degrees))
			}
			c.before = u
		}
		c.seen += uint32(len(list))
		neighbors = neighbors[len(list):]
	}
	return nil
}
