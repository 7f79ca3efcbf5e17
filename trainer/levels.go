package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// Levels say which nodes an activation has rows for: level 0 the rows of a batch, level i > 0 the sources of the i-th
// block from the end, and
const (
	graphLevel  = -1 // all nodes of a whole graph, or the sources of a chunk of one
	chunkLevel  = -2 // at most chunkRows of the destinations
	targetLevel = -3 // all nodes of a whole graph, or the destinations of a chunk of one
	columnLevel = -4 // the columns of sparse features
)

// use says in which passes an activation has memory.
type use int

const (
	always           use = iota
	summingFirst         // the input layer sums along edges, then multiplies
	multiplyingFirst     // the input layer multiplies, then sums along edges
	readingRows          // the input layer of a whole graph computes some dense rows of features at a time
)

// uses tells whether activations of a use have memory in the pass.
func (p *pass) uses(u use) bool {
	switch u {
	case summingFirst:
		return p.order == sumFirst
	case multiplyingFirst:
		return p.order == multiplyFirst
	case readingRows:
		return p.order == sumFirst || p.order == multiplyFirst && p.sparse == nil && p.whole != nil &&
			p.whole.Inputs.Cols > 0
	}
	return true
}

// chunkRows is how many nodes of a whole graph are computed at a time, if their activations are not kept.
const chunkRows = 8192

// levels are the activations of a network by level, without level 0. Their memory grows with the batches.
type levels []*levelMemory

type levelMemory struct {
	level, rows int
	use         use
	activations []*activation
	mem         memory
}

func (l *levels) add(a *activation) {
	for _, m := range *l {
		if m.level == a.level && m.use == a.use {
			m.activations = append(m.activations, a)
			return
		}
	}
	*l = append(*l, &levelMemory{level: a.level, use: a.use, activations: []*activation{a}})
}

func (l *levels) free() error {
	var errs []error
	for _, m := range *l {
		errs = append(errs, m.mem.free())
	}
	return errors.Join(errs...)
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
		fits := want > 0 && b.Blocks == nil && b.NodeIDs.Cols == b.Rows
		if w.Chunks != nil {
			fits = fits && len(w.Nodes) == b.Rows
		} else {
			first := w.Blocks[0]
			all := len(w.Blocks) == 1 && first.Destinations == first.Sources
			fits = fits && (all || len(w.Blocks) == want) && (w.Inputs.Cols == 0 || w.Inputs.Cols == first.Sources)
		}
		if !fits {
			return fmt.Errorf("%d nodes of a whole graph and %d blocks, for %s", b.NodeIDs.Cols, len(b.Blocks),
				n.spec.Model)
		}
		return nil
	}
	if len(b.Blocks) != want && (b.Rows > 0 || b.Blocks != nil) {
		return fmt.Errorf("%d blocks, but %s has %d layers along edges", len(b.Blocks), n.spec.Model, want)
	}
	for i, block := range b.Blocks {
		next := b.Rows
		if i+1 < want {
			next = b.Blocks[i+1].Sources
		}
		if block.Destinations != next || block.Sources < block.Destinations {
			return fmt.Errorf("block %d goes from %d sources to %d destinations, but %d are wanted", i, block.Sources,
				block.Destinations, next)
		}
	}
	return nil
}

// reserve makes room for a batch on all levels. If memory has to grow, it waits for all work.
func (n *network) reserve(b *loader.Batch) error {
	p := pass{rows: b.Rows}
	p.setGraph(b, n.messages)
	for _, m := range n.levels {
		rows := 0
		switch {
		case !p.uses(m.use):
		case m.level == columnLevel:
			rows = p.rowsAt(m.level)
		case m.level == chunkLevel && b.Whole != nil:
			rows = min(chunkRows, p.block.Sources)
		case m.level != chunkLevel && (m.level >= 0) == (b.Whole == nil) && (m.level < 0 || len(b.Blocks) > 0):
			rows = p.rowsAt(m.level)
		}
		if rows <= m.rows {
			continue
		}
		if n.mem.dev != nil {
			if err := n.stream.Synchronize(context.Background()); err != nil {
				return err
			}
		}
		if err := m.mem.free(); err != nil {
			return err
		}
		more := int64(rows)
		if m.rows > 0 && b.Whole == nil { // once more: let it be the last time; a plan knows passes over a graph
			more = gds.Room(more)
		}
		m.rows, m.mem.dev = 0, n.mem.dev
		allocate := func(rows int64) error { return m.allocate(int(rows), n.task.train) }
		if err := gds.AllocateRoom(int64(rows), more, allocate); err != nil {
			return err
		}
	}
	return nil
}

// allocate makes room for so many rows on a level that has no memory. After an error it has none.
func (m *levelMemory) allocate(rows int, train bool) error {
	for _, a := range m.activations {
		a.allocate(&m.mem, rows, train)
	}
	if err := m.mem.err; err != nil {
		return errors.Join(err, m.mem.free())
	}
	m.rows = rows
	return nil
}

// graphPass is the graph of a batch in a pass.
type graphPass struct {
	blocks []loader.Block
	whole  *loader.WholeGraph // not nil: a pass of inference for some of its nodes
	nodes  gds.Tensor         // these, uint32 [1,rows]
	first  bool               // no batch of the same epoch came before
	block  loader.Block       // of a whole graph: that of the layer
	chunk  int                // rows of the chunk of a whole graph
	sparse *loader.SparseRows // the features, if they are not dense
	order  order              // of the input layer
}

func (p *pass) setGraph(b *loader.Batch, m *messagePassing) {
	p.graphPass = graphPass{blocks: b.Blocks, whole: b.Whole, nodes: b.NodeIDs, first: b.Index == 0, sparse: b.Sparse}
	if m != nil {
		p.order = m.orderOf(b)
	}
	if b.Whole != nil && b.Whole.Chunks == nil {
		p.block = b.Whole.LayerBlock(0)
	}
}

// rowsAt is how many rows a level has in the pass.
func (p *pass) rowsAt(level int) int {
	switch {
	case level == 0:
		return p.rows
	case level == graphLevel:
		return p.block.Sources
	case level == targetLevel:
		return p.block.Destinations
	case level == chunkLevel:
		return p.chunk
	case level == columnLevel && p.sparse == nil:
		return 0
	case level == columnLevel:
		return p.sparse.Cols
	}
	return p.blocks[len(p.blocks)-level].Sources
}

// eachChunk calls do for consecutive ranges of so many rows; chunkLevel then has the rows of the range.
func (p *pass) eachChunk(rows int, do func(lo, hi int)) {
	for lo := 0; lo < rows; lo += chunkRows {
		hi := min(lo+chunkRows, rows)
		p.chunk = hi - lo
		do(lo, hi)
	}
}
