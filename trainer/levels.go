package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// Levels say which nodes the rows of an activation are of. Level 0 are the rows of a batch, and level i > 0 the
// sources of the blocks that are i before the end. Others are:
const (
	graphLevel  = -1 // all nodes of a whole graph, or the sources of a chunk of one
	chunkLevel  = -2 // some of the destinations, at most chunkRows
	targetLevel = -3 // all nodes of a whole graph, or the destinations of a chunk of one
)

// chunkRows is how many nodes of a whole graph are computed at a time, where what is computed of them is not kept.
const chunkRows = 8192

// levels are the activations of a network by level, but for level 0. Their memory grows with the batches.
type levels struct {
	layers int // of a model on blocks, and so blocks of a batch; 0: another model
	list   []*levelMemory
}

type levelMemory struct {
	level, rows int
	activations []*activation
	mem         memory
}

func (l *levels) add(a *activation) {
	for _, m := range l.list {
		if m.level == a.level {
			m.activations = append(m.activations, a)
			return
		}
	}
	l.list = append(l.list, &levelMemory{level: a.level, activations: []*activation{a}})
}

func (l *levels) free() error {
	var errs []error
	for _, m := range l.list {
		errs = append(errs, m.mem.free())
	}
	return errors.Join(errs...)
}

// inputRows is how many rows each matrix of a batch has.
func inputRows(b *loader.Batch) int {
	switch {
	case b.Whole != nil:
		return b.Whole.Sources
	case len(b.Blocks) > 0:
		return b.Blocks[0].Sources
	}
	return b.Rows
}

// checkBlocks returns an error unless the blocks of a batch are those that the network computes.
func (n *network) checkBlocks(b *loader.Batch) error {
	want := n.levels.layers
	if b.Whole != nil {
		if w := b.Whole; want == 0 || b.Blocks != nil || w.Destinations != w.Sources || b.NodeIDs.Cols != b.Rows || w.Chunks != nil && len(w.Nodes) != b.Rows {
			return fmt.Errorf("%d of the %d nodes of a whole graph, %d sources and %d blocks, for %s", b.NodeIDs.Cols, w.Destinations, w.Sources, len(b.Blocks), n.spec.Model)
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
			return fmt.Errorf("block %d goes from %d sources to %d destinations, but %d are wanted", i, block.Sources, block.Destinations, next)
		}
	}
	return nil
}

// reserve makes room for a batch on all levels. Where it has to grow, it waits for all work.
func (n *network) reserve(b *loader.Batch) error {
	p := pass{rows: b.Rows}
	p.setGraph(b)
	for _, m := range n.levels.list {
		rows := 0
		switch {
		case m.level == chunkLevel && b.Whole != nil:
			rows = min(chunkRows, b.Whole.Destinations)
		case m.level != chunkLevel && (m.level > 0) == (b.Whole == nil) && (m.level < 0 || len(b.Blocks) > 0):
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
		if m.rows > 0 { // once more: let it be the last time
			more = gds.Room(more)
		}
		m.rows, m.mem.dev = 0, n.mem.dev
		if err := gds.AllocateRoom(int64(rows), more, func(rows int64) error { return m.allocate(int(rows), n.task.train) }); err != nil {
			return err
		}
	}
	return nil
}

// allocate makes room for so many rows on a level that has none. After an error there is none again.
func (m *levelMemory) allocate(rows int, train bool) (err error) {
	for _, a := range m.activations {
		if a.out, err = m.mem.matrix("activations", rows, a.cols, gds.Float32); err == nil && train && !a.scratch {
			a.grad, err = m.mem.matrix("gradients", rows, a.cols, gds.Float32)
		}
		if err != nil {
			return errors.Join(err, m.mem.free())
		}
	}
	m.rows = rows
	return nil
}

// graphPass is what a pass knows of the graph of its batch.
type graphPass struct {
	blocks []loader.Block
	whole  *loader.WholeGraph // not nil: a pass of inference for some of its nodes
	nodes  gds.Tensor         // these, uint32 [1,rows]
	first  bool               // no batch of the same epoch came before
	chunk  int                // rows of the chunk of a whole graph
}

func (p *pass) setGraph(b *loader.Batch) {
	p.graphPass = graphPass{blocks: b.Blocks, whole: b.Whole, nodes: b.NodeIDs, first: b.Index == 0}
}

// rowsAt is how many rows a level has in the pass.
func (p *pass) rowsAt(level int) int {
	switch {
	case level == 0:
		return p.rows
	case level == graphLevel:
		return p.whole.Sources
	case level == targetLevel:
		return p.whole.Destinations
	case level == chunkLevel:
		return p.chunk
	}
	return p.blocks[len(p.blocks)-level].Sources
}

// eachChunk calls do for consecutive ranges of the nodes of a whole graph. In it, chunkLevel are these nodes.
func (p *pass) eachChunk(do func(lo, hi int)) {
	n := p.whole.Destinations
	for lo := 0; lo < n; lo += chunkRows {
		hi := min(lo+chunkRows, n)
		p.chunk = hi - lo
		do(lo, hi)
	}
}
