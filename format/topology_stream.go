package format

import (
	"context"
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// streamBytes is the size of the buffers that a topology is streamed through.
const streamBytes = 1 << 20

// StreamTopology writes a topology that need not fit in memory: node v has degrees[v]
// in-neighbours; neighbors gives those of all nodes as uint32, one node after another,
// and weights theirs as float32 in the same order, or is nil if there are none.
func (w *Writer) StreamTopology(degrees []uint32, neighbors, weights io.Reader) error {
	m := int64(0)
	for _, d := range degrees {
		m += int64(d)
	}
	lists := listChecker{degrees: degrees}
	return w.writeTopology(topologySize{int64(len(degrees)), m, weights != nil}, func(out io.Writer) error {
		if err := writeOffsets(out, degrees); err != nil {
			return err
		}
		return copyChecked(out, neighbors, 4*m, func(_ int64, b []byte) error { return lists.next(dtype.Uint32s(b)) })
	}, func(out io.Writer) error {
		return copyChecked(out, weights, 4*m, func(at int64, b []byte) error { return checkWeights(at/4, dtype.Float32s(b)) })
	})
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

// copyChecked copies this many bytes from r to w, reading ahead while it writes. Before
// bytes are written, check is called with them and their offset in r.
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

// listChecker fails unless the in-neighbours of each node ascend and are below the number
// of nodes. It is given them in order, any number at a time.
type listChecker struct {
	degrees []uint32
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
			if u < c.before || int64(u) >= int64(len(c.degrees)) {
				return fmt.Errorf("in-neighbour %d of node %d is smaller than the one before it, or not below the %d nodes", u, c.node, len(c.degrees))
			}
			c.before = u
		}
		c.seen += uint32(len(list))
		neighbors = neighbors[len(list):]
	}
	return nil
}
