package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/gather"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/loader"
)

// graphStates are what layers put out for all nodes of a graph that comes in chunks: the layer that is computed, and
// the one before. They are in host memory.
type graphStates struct {
	matrices [2]hostRows
	pool     *gather.Pool
	staging  gds.Buffer // pinned, for stagingRows
	mem      memory
}

// stagingRows is how many rows go from a device to host memory at a time.
const stagingRows = 2048

// hostRows are rows of float32 in host memory.
type hostRows struct {
	columns int
	memory  *offheap.Buffer
	pool    *gather.Pool
}

func (r *hostRows) Columns() int { return r.columns }

// Gather copies rows; see loader.RowSource. Nodes must be in range.
func (r *hostRows) Gather(_ context.Context, dst []byte, _ gds.DType, nodes []uint32) error {
	if len(nodes) > 0 {
		r.pool.Start(dst, r.memory.Bytes(), 4*r.columns, nodes).Wait()
	}
	return nil
}

// allocate makes room for so many rows, unless there is.
func (s *graphStates) allocate(dev gds.Device, nodes, columns, layers int) (err error) {
	if s.pool == nil {
		s.pool, s.mem.dev = gather.NewPool(0), dev
		if s.staging, err = s.mem.pinned("rows on their way", gds.Bytes(stagingRows, columns, gds.Float32)); err != nil {
			return err
		}
	}
	for i := range min(2, layers) {
		m := &s.matrices[i]
		bytes := gds.Bytes(nodes, columns, gds.Float32)
		if m.memory != nil && int64(len(m.memory.Bytes())) >= bytes {
			continue
		}
		if m.memory != nil {
			err = m.memory.Free()
			m.memory = nil
		}
		if err == nil {
			m.memory, err = offheap.Alloc(bytes)
		}
		if err != nil {
			return fmt.Errorf("what a layer puts out for %d nodes: %w", nodes, err)
		}
		m.columns, m.pool = columns, s.pool
	}
	return nil
}

func (s *graphStates) free() error {
	var errs []error
	for i := range s.matrices {
		if m := s.matrices[i].memory; m != nil {
			errs = append(errs, m.Free())
		}
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return errors.Join(append(errs, s.mem.free())...)
}

// computeChunks brings the rows of a batch to the device, of what the last layer along edges puts out for a graph
// that comes in chunks. When the first batch comes, it computes that: a layer for all nodes, chunk after chunk,
// before the next.
func (n *network) computeChunks(ctx context.Context, b *loader.Batch) error {
	s, m, graph := &n.states, n.messages, b.Whole.Chunks
	last := &s.matrices[(len(m.layers)-1)%2]
	if b.Index == 0 {
		if err := s.allocate(n.mem.dev, graph.Nodes(), m.states[0].cols, len(m.layers)); err != nil {
			return err
		}
		var rows loader.RowSource // nil: features
		scale := n.scales[0]
		for i, l := range m.layers {
			to := &s.matrices[i%2]
			for chunk, err := range graph.Each(ctx, n.stream, rows) {
				if err == nil {
					err = n.computeChunk(ctx, l, chunk, scale, to)
				}
				if err != nil {
					return fmt.Errorf("layer %d of all nodes: %w", i+1, err)
				}
			}
			rows, scale = to, 1
		}
	}
	rows := m.rows.out
	for lo := 0; lo < b.Rows; lo += stagingRows {
		hi := min(lo+stagingRows, b.Rows)
		if err := n.stream.Synchronize(ctx); err != nil { // the rows before have left, and the batch before is computed
			return err
		}
		if err := last.Gather(ctx, s.staging.Bytes(), gds.Float32, b.Whole.Nodes[lo:hi]); err != nil {
			return err
		}
		n.stream.Copy(rows.Slice(lo, hi), gds.NewTensor(s.staging, hi-lo, rows.Cols, gds.Float32))
	}
	return nil
}

// computeChunk writes what a layer puts out for the destinations of a chunk to their rows.
func (n *network) computeChunk(ctx context.Context, l *messageLayer, c loader.GraphChunk, scale float32, to *hostRows) error {
	whole := &loader.WholeGraph{X: c.X, Block: c.Block}
	if err := n.reserve(&loader.Batch{Whole: whole}); err != nil {
		return err
	}
	p := &n.pass
	p.train, p.graphPass = false, graphPass{whole: whole}
	out := n.messages.layerOfGraph(p, l, operand{c.X, scale, 0})
	rowBytes := 4 * to.columns
	for lo := 0; lo < c.Destinations; lo += stagingRows {
		hi := min(lo+stagingRows, c.Destinations)
		n.stream.Copy(gds.NewTensor(n.states.staging, hi-lo, out.Cols, gds.Float32), out.Slice(lo, hi))
		if err := n.stream.Synchronize(ctx); err != nil {
			return err
		}
		copy(to.memory.Bytes()[(c.First+lo)*rowBytes:], n.states.staging.Bytes()[:(hi-lo)*rowBytes])
	}
	return nil
}
