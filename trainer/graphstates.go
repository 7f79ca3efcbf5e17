package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/gather"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/loader"
)

// graphStates are the outputs of two layers, the present one and the one before, for all nodes of a graph that comes in
// chunks. They are in host memory, unless the graph has another place for them.
type graphStates struct {
	rows     [2]loader.NodeRows
	matrices [2]hostRows
	pool     *gather.Pool
	staging  gds.Buffer // pinned, for stagingRows
	mem      gds.Memory
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

func (r *hostRows) Begin(columns int) { r.columns = columns }

func (r *hostRows) Write(first int, rows []byte) error {
	copy(r.memory.Bytes()[4*first*r.columns:], rows)
	return nil
}

// Gather copies rows; see loader.RowSource. Nodes must be in range.
func (r *hostRows) Gather(_ context.Context, dst []byte, _ gds.DType, nodes []uint32) error {
	if len(nodes) > 0 {
		r.pool.Start(dst, r.memory.Bytes(), 4*r.columns, nodes).Wait()
	}
	return nil
}

// stateColumns is the largest width of each of the two matrices, for an order of the input layer. A layer reads one
// matrix and writes the other. The first layer reads products of features, beside their products with the weights of
// self.
func (m *messagePassing) stateColumns(o order) [2]int {
	var columns [2]int
	for i, l := range m.layers {
		columns[i%2] = max(columns[i%2], l.width())
	}
	if o == multiplyFirst {
		columns[1] = max(columns[1], m.productColumns())
	}
	return columns
}

// productColumns is how many columns products of features have.
func (m *messagePassing) productColumns() int {
	if m.layers[0].self != nil {
		return 2 * m.layers[0].width()
	}
	return m.layers[0].width()
}

// allocate makes room for a row for each node, unless there is room.
func (s *graphStates) allocate(dev gds.Device, graph loader.GraphChunks, columns [2]int) (err error) {
	if s.pool == nil {
		s.pool, s.mem.Device = gather.NewPool(0), dev
		bytes := gds.Bytes(stagingRows, max(columns[0], columns[1]), gds.Float32)
		if s.staging = s.mem.Pin("rows on their way", bytes); s.mem.Err != nil {
			return s.mem.Err
		}
	}
	nodes := graph.Nodes()
	for i := range s.matrices {
		if s.rows[i] = graph.Rows(i); s.rows[i] != nil {
			continue
		}
		m := &s.matrices[i]
		s.rows[i] = m
		bytes := gds.Bytes(nodes, columns[i], gds.Float32)
		if m.pool = s.pool; bytes == 0 || m.memory != nil && int64(len(m.memory.Bytes())) >= bytes {
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
			return fmt.Errorf("the output of a layer for %d nodes: %w", nodes, err)
		}
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
	return errors.Join(append(errs, s.mem.Free())...)
}

// computeChunks copies to the device the rows of a batch of the last layer's output, for a graph that comes in chunks.
// With the first batch, it computes that output: a layer for all nodes, chunk after chunk, before the next layer.
func (n *network) computeChunks(ctx context.Context, b *loader.Batch) error {
	s, m, graph := &n.states, n.messages, b.Whole.Chunks
	if b.Index == 0 {
		if err := s.allocate(n.mem.Device, graph, m.stateColumns(m.chunkOrder(graph.Sparse()))); err != nil {
			return err
		}
		if err := n.computeLayers(ctx, graph); err != nil {
			return err
		}
	}
	rows, last := m.rows.out, s.rows[(len(m.layers)-1)%2]
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

// chunkOrder is the order of the input layer where a graph comes in chunks.
func (m *messagePassing) chunkOrder(sparse bool) order {
	all := loader.Batch{Whole: &loader.WholeGraph{}}
	if sparse {
		all.Sparse = &loader.SparseRows{}
	}
	return m.orderOf(&all)
}

// computeLayers computes a layer for all nodes, chunk after chunk, before the next. If features are multiplied first,
// that is done once for each node before.
func (n *network) computeLayers(ctx context.Context, graph loader.GraphChunks) error {
	s, m := &n.states, n.messages
	var rows loader.RowSource // nil: features
	x, scale := loader.WholeGraph{}, n.scales[0]
	eachChunk := func(what string, chunks iter.Seq2[loader.GraphChunk, error], to loader.NodeRows, columns int,
		compute func(p *pass, x operand) []gds.Tensor) error {
		to.Begin(columns)
		for chunk, err := range chunks {
			if err == nil {
				err = n.computeChunk(ctx, chunk, x, to, func(p *pass) []gds.Tensor {
					return compute(p, operand{chunk.X, scale, 0})
				})
			}
			if err != nil {
				return fmt.Errorf("%s of all nodes: %w", what, err)
			}
		}
		rows, scale = to, 1
		return nil
	}
	if m.chunkOrder(graph.Sparse()) == multiplyFirst {
		err := eachChunk("features", graph.EachRows(ctx, n.stream), s.rows[1], m.productColumns(),
			func(p *pass, x operand) []gds.Tensor { return m.layers[0].products(p, x, m.states) })
		if err != nil {
			return err
		}
		x.Products = true
	}
	for i, l := range m.layers {
		err := eachChunk(fmt.Sprintf("layer %d", i+1), graph.Each(ctx, n.stream, rows), s.rows[i%2],
			l.width(), func(p *pass, x operand) []gds.Tensor { return []gds.Tensor{m.layerOfGraph(p, l, x)} })
		if err != nil {
			return err
		}
		x.Products = false
	}
	return nil
}

// computeChunk writes the matrices that compute returns for the destinations of a chunk, side by side, to their rows.
func (n *network) computeChunk(ctx context.Context, c loader.GraphChunk, x loader.WholeGraph, to loader.NodeRows,
	compute func(p *pass) []gds.Tensor) error {
	x.Blocks = []loader.Block{c.Block}
	b := &loader.Batch{Whole: &x, Sparse: c.Sparse}
	if err := n.reserve(b); err != nil {
		return err
	}
	n.pass.train = false
	out := compute(&n.pass)
	for lo := 0; lo < c.Destinations; lo += stagingRows {
		hi := min(lo+stagingRows, c.Destinations)
		staging := gds.NewTensor(n.states.staging, hi-lo, to.Columns(), gds.Float32)
		at := 0
		for _, y := range out {
			n.stream.Copy(staging.Columns(at, at+y.Cols), y.Slice(lo, hi))
			at += y.Cols
		}
		if err := n.stream.Synchronize(ctx); err != nil {
			return err
		}
		if err := to.Write(c.First+lo, n.states.staging.Bytes()[:4*(hi-lo)*to.Columns()]); err != nil {
			return err
		}
	}
	return nil
}
