package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// pass is a rank's share of a batch on its way through a model.
type pass struct {
	gds.Stream
	*loader.Batch
	scales    []float32 // of the input matrices
	trainRows int64     // of an epoch of training
	train     bool      // drop out, and prepare for backward
	seed      uint64    // of dropout, for this step and rank
	// meet replaces a vector [1,n] of a layer by the sum of the vectors of all ranks; n is at most the number of
	// parameters of the model. All ranks must call it, even those without rows, anywhere in forward and backward of a
	// training pass: work that is enqueued before it sees the rank's own vector, later work sees the sum. It returns
	// false if the program has to end, since another rank has failed: see group.run.
	meet func(vector gds.Tensor) bool

	// For a model that reads a graph:
	order order        // of the input layer
	block loader.Block // the block of the layer, in a pass over a whole graph
	chunk int          // rows at chunkLevel, in a pass over a whole graph
}

// begin starts a pass of a batch.
func (p *pass) begin(b *loader.Batch, m *messagePassing) {
	p.Batch, p.block, p.chunk = b, loader.Block{}, 0
	if m != nil {
		p.order = m.orderOf(b)
	}
	if b.Whole != nil && b.Whole.Chunks == nil {
		p.block = b.Whole.LayerBlock(0)
		p.chunk = min(chunkRows, p.block.Sources)
	}
}

// input is input matrix i, with its scale.
func (p *pass) input(i int) operand { return operand{p.X[i], p.scales[i], 0} }

// eachChunk calls do for consecutive ranges of rows; chunkLevel has the rows of the range.
func (p *pass) eachChunk(rows int, do func(lo, hi int)) {
	for lo := 0; lo < rows; lo += chunkRows {
		hi := min(lo+chunkRows, rows)
		p.chunk = hi - lo
		do(lo, hi)
	}
}

// chunkRows is how many nodes of a whole graph are computed at a time if their activations are not kept.
const chunkRows = 8192

// The level of an activation says which nodes it has rows for. Level 0 has the rows of a batch, level i > 0 the sources
// of the i-th block from the end.
const (
	graphLevel  = -1                        // all nodes of a whole graph, or the sources of a chunk of one
	chunkLevel  = -2                        // at most chunkRows of the destinations
	targetLevel = -3                        // all nodes of a whole graph, or the destinations of a chunk of one
	columnLevel = -4                        // the columns of sparse features
	partLevel   = -5                        // and below: partLevel-k has part k of the destinations of the first block
	typeLevel   = partLevel - 2*maxMatrices // and below: typeLevel-k has the rows of matrix k, the inputs of type k
)

// rowsAt is how many rows a level has in the pass.
func (p *pass) rowsAt(level int) int {
	switch {
	case level == 0:
		return p.Rows
	case level == graphLevel:
		return p.block.Sources
	case level == targetLevel:
		return p.block.Destinations
	case level == chunkLevel:
		return p.chunk
	case level == columnLevel && p.Sparse != nil:
		return p.Sparse.Cols
	case level > 0 && len(p.Blocks) > 0:
		return p.Blocks[len(p.Blocks)-level].Sources
	case level <= typeLevel && len(p.Blocks) > 0:
		if k := typeLevel - level; k < len(p.X) {
			return p.X[k].Rows
		}
		return 0
	case level <= partLevel && len(p.Blocks) > 0:
		k, parts := partLevel-level, p.Blocks[0].Parts
		return int(parts[k+1] - parts[k])
	}
	return 0
}

// activation is the output of a layer, [rows, cols], and the gradient with respect to it.
type activation struct {
	rows, cols int                // rows that there is memory for
	level      int                // see graphLevel
	when       func(p *pass) bool // tells whether a pass uses it; nil: all do
	scratch    bool               // has no gradient
	out, grad  gds.Tensor
	ofGraph    *activation // its first columns are used instead in passes over a whole graph; nil: none are
	mem        gds.Memory  // if it grows
}

// grows tells whether memory grows with the batches. Otherwise there is memory for the largest batch from the start.
func (a *activation) grows() bool { return a.level != 0 || a.when != nil }

// value is the output for the rows of a pass.
func (a *activation) value(p *pass) gds.Tensor {
	if p.Whole != nil && a.ofGraph != nil {
		return a.ofGraph.out.Slice(0, p.rowsAt(a.ofGraph.level)).Columns(0, a.cols)
	}
	return a.out.Slice(0, p.rowsAt(a.level))
}

// gradient is the gradient with respect to the output for the rows of a pass.
func (a *activation) gradient(p *pass) gds.Tensor { return a.grad.Slice(0, p.rowsAt(a.level)) }

// allocate makes room for rows.
func (a *activation) allocate(mem *gds.Memory, rows int, train bool) {
	a.rows, a.out = rows, mem.Matrix("activations", rows, a.cols, gds.Float32)
	if train && !a.scratch {
		a.grad = mem.Matrix("gradients", rows, a.cols, gds.Float32)
	}
}

// reserve begins the pass of a batch, and makes room for it in the activations that grow. If memory has to grow, it
// waits for all work. What grows again takes a quarter more where there is memory for that: let it be the last time.
func (n *network) reserve(b *loader.Batch) error {
	p := &n.pass
	p.begin(b, n.messages)
	n.growing = n.growing[:0]
	again := false
	for _, a := range n.activations {
		// A batch of blocks has rows at levels from 0 on, a whole graph has them below 0.
		if a.grows() && (a.when == nil || a.when(p)) && p.rowsAt(a.level) > a.rows &&
			(a.level != 0 || len(b.Blocks) > 0) {
			n.growing, again = append(n.growing, a), again || a.rows > 0
		}
	}
	if len(n.growing) == 0 {
		return nil
	}
	if n.mem.Device != nil {
		if err := n.stream.Synchronize(context.Background()); err != nil {
			return err
		}
	}
	if again && b.Whole == nil && n.grow(gds.Room) == nil { // a plan knows passes over a graph
		return nil
	}
	return n.grow(func(rows int64) int64 { return rows })
}

// grow gives the activations that grow room for the rows of the pass, or more. After an error they have no memory.
func (n *network) grow(room func(rows int64) int64) error {
	err := n.freeGrowing()
	for _, a := range n.growing {
		if err == nil {
			a.allocate(&a.mem, int(room(int64(n.pass.rowsAt(a.level)))), n.task.train)
			err = a.mem.Err
		}
	}
	if err != nil {
		err = errors.Join(err, n.freeGrowing())
	}
	return err
}

func (n *network) freeGrowing() (err error) {
	for _, a := range n.growing {
		err = errors.Join(err, a.mem.Free())
		a.rows, a.mem = 0, gds.Memory{Device: n.mem.Device}
	}
	return err
}

// inputRows is how many rows each matrix of a batch has.
func inputRows(b *loader.Batch) int {
	switch {
	case b.Whole != nil && (b.Whole.Chunks != nil || b.Whole.Inputs.Cols > 0):
		return b.X[0].Rows // of any nodes
	case b.Whole != nil:
		return b.Whole.LayerBlock(0).Sources
	case len(b.Blocks) > 0:
		return b.Blocks[0].Sources
	}
	return b.Rows
}

// checkBlocks returns an error unless the network can compute the blocks of a batch.
func (n *network) checkBlocks(b *loader.Batch) error {
	want := n.blocks
	if w := b.Whole; w != nil {
		var fits bool
		if w.Chunks != nil {
			fits = len(w.Nodes) == b.Rows
		} else {
			first := w.Blocks[0]
			all := len(w.Blocks) == 1 && first.Destinations == first.Sources
			fits = (all || len(w.Blocks) == want) && (w.Inputs.Cols == 0 || w.Inputs.Cols == first.Sources)
		}
		if !fits || want == 0 || b.Blocks != nil || b.NodeIDs.Cols != b.Rows {
			return fmt.Errorf("%d nodes of a whole graph and %d blocks, for %s", b.NodeIDs.Cols, len(b.Blocks),
				n.spec.Model)
		}
		return nil
	}
	if len(b.Blocks) != want && (b.Rows > 0 || b.Blocks != nil) {
		return fmt.Errorf("%d blocks, but %s has %d layers along edges", len(b.Blocks), n.spec.Model, want)
	}
	if b.Apart && n.messages != nil && n.messages.own {
		return fmt.Errorf("%s reads the rows of destinations, which are not among the sources of these blocks",
			n.spec.Model)
	}
	for i, block := range b.Blocks {
		next := b.Rows
		if i+1 < want {
			next = b.Blocks[i+1].Sources
		}
		if block.Destinations != next || !b.Apart && block.Sources < block.Destinations {
			return fmt.Errorf("block %d goes from %d sources to %d destinations, but %d are wanted", i, block.Sources,
				block.Destinations, next)
		}
		parts := block.Parts
		if i%2 == 0 && n.parts > 0 && (len(parts) != n.parts+1 || int(parts[n.parts]) != block.Destinations) {
			return fmt.Errorf("block %d has the parts %v, but %d are wanted", i, parts, n.parts)
		}
	}
	if n.parts == 0 || len(b.Blocks) == 0 {
		return nil
	}
	types := b.Blocks[0].Parts[n.parts-len(b.X):] // the last parts: a type has a matrix and a part
	for i, x := range b.X {
		if destinations := int(types[i+1] - types[i]); destinations > x.Rows {
			return fmt.Errorf("a type has %d destinations, but %d rows", destinations, x.Rows)
		}
	}
	return nil
}
