package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/preprop/device"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// engine computes the panels of a job. It holds the topologies and, for one panel at a time, the matrices.
type engine struct {
	*Job
	topologies  Topologies
	propagators map[operator.Operator]*product.Propagator // by Operator.Base
	// by Operator.Graph: for each product of the sequence that has most
	neededNodes map[string][]product.NodeSet
	storedLists map[string]*product.StoredLists // by Operator.Graph, where the last products read them
	matrices    []*product.Matrix               // all
	inputBuffer *product.Matrix                 // holds the input for several sequences; nil: each loads it
	// a hop is made from one into the other; without hops the second is nil
	hopBuffers    [2]*product.Matrix
	seriesBuffers []*product.Matrix // float32, for terms of series
	panelColumns  int               // of the widest panel
	// whose first panel is in a matrix since the input was cut; nil: none
	kept       *Input
	reserved   []*product.Matrix // by matrix, taken from the reserve until they are allocated; nil: none
	whole      bool              // one panel has all columns
	inputFiles map[*Input]*ColumnFiles
	back       writeback
	device     *device.Engine // computes products; nil: the processor does
	firstUse   sync.WaitGroup // of the memory of matrices
	label      string         // which panel it is, for progress
}

func (e *engine) close() error {
	e.firstUse.Wait()
	err := errors.Join(e.back.close(), e.topologies.Close())
	for _, lists := range e.storedLists {
		err = errors.Join(err, lists.Close())
	}
	if e.device != nil {
		err = errors.Join(err, e.device.Close())
	}
	for _, p := range e.propagators {
		err = errors.Join(err, p.Edges.Close(), p.Buf.Free())
	}
	for _, m := range append(e.matrices, e.reserved...) {
		if m != nil {
			err = errors.Join(err, m.Buf.Free())
		}
	}
	return err
}

// prepare opens or derives the topologies, computes the factors of operators, and finds which nodes each product needs.
func (e *engine) prepare(ctx context.Context) error {
	unfinished := slices.DeleteFunc(slices.Clone(e.Sequences), func(c *HopSequence) bool {
		return e.LastUnfinished(c, e.Columns) == 0
	})
	longest := map[string]int{}
	for _, c := range unfinished {
		longest[c.Operator.Graph] = max(longest[c.Operator.Graph], c.Products())
	}
	var err error
	if e.topologies, err = e.openTopologies(ctx, longest); err != nil {
		return err
	}
	var stored product.NodeSet
	if int64(len(e.Nodes)) < e.Graph.Manifest.Nodes {
		stored = product.NewNodeSet(e.Graph.Manifest.Nodes)
		for _, v := range e.Nodes {
			stored.Add(int64(v))
		}
	}
	for _, graph := range slices.Sorted(maps.Keys(longest)) {
		if err := e.prepareGraph(ctx, graph, unfinished, stored, longest[graph]); err != nil {
			return err
		}
	}
	if err := e.findOwnLabels(ctx, unfinished); err != nil {
		return err
	}
	if d := e.Plan.Device; len(unfinished) > 0 && d != nil && d.Name != plan.CPU {
		e.device, err = device.Open(e.Plan.Work.Device, d, e.Plan.Work, e.Threads)
	}
	return err
}

// prepareGraph computes the factors of the operators of an Operator.Graph, which nodes each of so many products needs
// for the rows of the stored nodes, and copies their lists, in walks over the topology together.
func (e *engine) prepareGraph(ctx context.Context, graph string, sequences []*HopSequence, stored product.NodeSet,
	products int) error {
	topology := e.topologies[graph]
	room, _, held := e.Plan.Work.HeldShares(e.Plan)
	works := []func(walk product.WalkAll) error{func(walk product.WalkAll) (err error) {
		e.neededNodes[graph], err = product.Needed(topology, stored, products, walk)
		return err
	}}
	if stored != nil && room[graph] > 0 {
		works = append(works, func(walk product.WalkAll) error {
			lists, err := product.NewStoredLists(topology, stored, room[graph], e.Threads, walk)
			if lists != nil {
				e.storedLists[graph] = lists
			}
			return err
		})
	}
	begun := map[operator.Operator]bool{}
	for _, c := range sequences {
		base := c.Operator.Base()
		if c.Operator.Graph != graph || begun[base] {
			continue
		}
		begun[base] = true
		works = append(works, func(walk product.WalkAll) error {
			p, err := product.NewPropagator(ctx, topology, base, e.Threads, walk)
			if err != nil {
				return err
			}
			e.propagators[base] = p
			if !e.Plan.FactorsByEdge {
				return nil
			}
			path := filepath.Join(e.Scratch, "factors-"+base.String()) + folder.Suffix
			return p.ListFactors(ctx, e.Fsys, path, held[base], e.Threads, walk)
		})
	}
	return product.WalkTogether(ctx, topology, e.Threads, works...)
}

// findOwnLabels computes what rows of the store have without the nodes' own labels.
func (e *engine) findOwnLabels(ctx context.Context, unfinished []*HopSequence) error {
	if e.Labels == nil || e.Columns.End <= e.Labels.First {
		return nil
	}
	e.own = e.Labels.Own(e.Nodes, e.DType)
	task := e.Progress.Start("leave own labels out", int64(len(unfinished)), progress.Items)
	defer task.Done()
	for _, c := range unfinished {
		graph, inMemory := e.topologies[c.Operator.Graph].(*product.MemoryTopology)
		if !inMemory {
			return fmt.Errorf("%s: labels are propagated with the topology in memory", c.Operator)
		}
		var products []product.Level
		var ids []format.MatrixID
		for hop := 1; hop <= min(c.Hops, e.Labels.Hops); hop++ {
			products = append(products, product.Level{Propagator: e.propagators[c.Operator.Base()], CSC: graph.CSC})
			ids = append(ids, c.ID(hop))
		}
		if err := e.Labels.Compute(ctx, e.own, products, e.Nodes, e.DType, ids, e.Threads); err != nil {
			return err
		}
		task.Add(1)
	}
	return nil
}

// allocate allocates the matrices that the reserve did not have, and begins to use their memory, until ctx ends.
func (e *engine) allocate(ctx context.Context) error {
	hops, _ := plan.PanelMatrices(e.Plan.Work.Sequences, e.DType, e.Plan.InputInMemory)
	var fresh []*product.Matrix
	for i, bytes := range e.matrixBytes(e.panelColumns) {
		m := e.reserved[i]
		if m == nil {
			buf, err := offheap.Alloc(bytes)
			if err != nil {
				return err
			}
			m = &product.Matrix{Buf: buf}
			fresh = append(fresh, m)
		}
		if m.DType = e.DType; i >= hops {
			m.DType = format.Float32
		}
		e.matrices = append(e.matrices, m)
	}
	e.reserved = nil
	stored := e.matrices[:hops]
	if e.Plan.InputInMemory {
		e.inputBuffer, stored = stored[0], stored[1:]
	}
	copy(e.hopBuffers[:], stored)
	e.seriesBuffers = e.matrices[hops:]
	e.useMemory(ctx, fresh)
	return nil
}

// useMemory begins to take the memory of matrices from the machine, on all cores, which on a virtual one takes as long
// as a hop: while the input is read, since cores wait for the disk then. e.firstUse waits for the end.
func (e *engine) useMemory(ctx context.Context, fresh []*product.Matrix) {
	const pieceBytes = 16 << 20
	var pieces [][]byte
	for _, m := range fresh {
		pieces = slices.AppendSeq(pieces, slices.Chunk(m.Buf.Bytes(), pieceBytes))
	}
	next := new(atomic.Int64)
	for range e.Threads { // each gets memory from the host of a virtual machine by itself
		e.firstUse.Go(func() {
			for ctx.Err() == nil {
				k := next.Add(1) - 1
				if k >= int64(len(pieces)) || offheap.Populate(pieces[k]) != nil {
					return
				}
			}
		})
	}
}

// setColumns sets which columns the matrices have.
func (e *engine) setColumns(s product.ColumnRange) {
	for _, m := range e.matrices {
		m.First, m.Features = s.First, s.Width()
	}
}

// panel makes and writes the columns s of all hops.
func (e *engine) panel(ctx context.Context, s product.ColumnRange) error {
	e.setColumns(s)
	var loaded *Input // is in e.inputBuffer
	for _, c := range e.Sequences {
		if e.Pace.SavedAny && e.Pace.mustStop(ctx, e.writingBytes()) {
			return errors.Join(endCause(ctx), e.finishWrite())
		}
		if e.back.matrix != nil && e.back.matrix.ID == c.Input.ID { // whether it is needed shows when it is written
			if err := e.finishWrite(); err != nil {
				return err
			}
		}
		if !e.needsInput(c, s) {
			continue
		}
		if hop := e.hopBuffers; e.back.matrix != nil && e.back.matrix.Buf == hop[0].Buf && hop[1] != nil &&
			e.sources() == e.Graph.Manifest.Nodes {
			e.hopBuffers = [2]*product.Matrix{hop[1], hop[0]} // the input is read into the other one meanwhile
		}
		if e.device != nil {
			e.device.Forget()
		}
		last := e.LastUnfinished(c, s)
		at, x, y, err := e.resume(ctx, c, s, last)
		if err != nil {
			return err
		}
		if x == nil {
			if x = e.hopBuffers[0]; e.inputBuffer != nil {
				x = e.inputBuffer
			}
			if x != e.inputBuffer || loaded != c.Input {
				if err := e.mayChange(x); err != nil {
					return err
				}
				if e.kept != c.Input {
					if err := Timed(&e.Account.Reading, func() error { return e.load(ctx, c.Input, x) }); err != nil {
						return err
					}
				}
				loaded, e.kept = c.Input, nil
			}
			if e.unfinished(x.ID, s) {
				if err := e.write(x); err != nil {
					return err
				}
			}
			if y = e.hopBuffers[0]; x == y {
				y = e.hopBuffers[1]
			}
			if last > 0 {
				at = position{e.number(c.ID(c.From + 1)), 1, 0}
			}
		}
		if err := e.hops(ctx, c, at, last, x, y); err != nil {
			return err
		}
	}
	return nil
}

// load fills a matrix with its columns of an input, from column files if they have all of them.
func (e *engine) load(ctx context.Context, in *Input, m *product.Matrix) error {
	if len(product.Missing(m.Columns(), e.inputFiles[in].Have)) > 0 {
		return in.Load(ctx, m, e.Threads, e.Progress)
	}
	m.ID = in.ID
	return e.inputFiles[in].load(ctx, m, e.Threads, e.Progress)
}

// hops makes and writes the hops of a sequence, from a position up to hop last. x holds the input of the first of
// them, and y its rows that are computed.
func (e *engine) hops(ctx context.Context, c *HopSequence, at position, last int, x, y *product.Matrix) error {
	_ = Timed(&e.Account.FirstUse, func() error { e.firstUse.Wait(); return nil })
	e.Pace.beginHops()
	if last == 0 {
		return nil
	}
	first := e.number(c.ID(c.From + 1))
	for {
		hop := c.From + 1 + at.matrix - first
		if err := e.hop(ctx, c, hop, at, x, y); err != nil {
			return err
		}
		if x = y; x == e.hopBuffers[0] {
			y = e.hopBuffers[1]
		} else {
			y = e.hopBuffers[0]
		}
		if hop >= last {
			return nil
		}
		at = position{at.matrix + 1, 1, 0}
		state := e.savedMatrices(c.Series(), at, x, y)
		if e.Pace.mustStop(ctx, stateBytes(state)+e.writingBytes()) {
			return e.end(ctx, at, state)
		}
	}
}

// hop makes and writes one hop of a sequence, from a position in it.
func (e *engine) hop(ctx context.Context, c *HopSequence, hop int, at position, x, y *product.Matrix) error {
	p, terms := e.propagators[c.Operator.Base()], c.Series()
	products, n := terms.Products(), e.Graph.Manifest.Nodes
	need := e.neededNodes[c.Operator.Graph]
	need = need[len(need)-(c.Hops-hop+1)*products:]
	task := e.Progress.Start(fmt.Sprintf("%s hop %d of %d%s", c.Operator, hop, c.Hops, e.label),
		int64(products)*(p.Graph.Nodes()+p.Graph.Edges())*x.RowBytes(), progress.Bytes)
	y.ID = c.ID(hop)
	if err := e.mayChange(y); err != nil {
		task.Done()
		return err
	}
	start, paused := time.Now(), 0.0
	begun := e.writingBytes()
	for at.product <= products {
		dst, src := operator.Step(terms, at.product, x, y, e.seriesBuffers)
		with := product.BlendOf(terms, at.product, x)
		dst.ID = c.ID(hop)
		state := stateBytes(e.savedMatrices(terms, position{at.matrix, at.product, n}, x, y))
		// mustStop looks at ctx between node ranges, so a range that was begun is finished.
		done := func(cost int64, canSave bool) bool {
			task.Add(cost * x.RowBytes())
			return e.Pace.mustStop(ctx, state+begun) || canSave && e.Plan.CheckpointBytes > 0 &&
				e.Pace.checkpointDue(state)
		}
		if lists := e.storedLists[c.Operator.Graph]; lists != nil && hop == c.Hops && at.product == products {
			p = p.Over(lists)
		}
		var added, reached int64
		var err error
		if e.device != nil {
			added, reached, err = e.device.Product(context.WithoutCancel(ctx), p, dst, src, with, need[at.product-1],
				at.row, done)
		} else {
			added, reached, err = p.HopFrom(context.WithoutCancel(ctx), dst, src, with, need[at.product-1], at.row,
				e.Threads, func(cost int64) bool { return done(cost, true) })
		}
		e.Edges[at.matrix] += added
		e.Gathered += added * src.RowBytes()
		if err != nil {
			task.Done()
			if errors.Is(err, device.ErrDevice) { // the matrices are in memory of the host
				err = e.save(ctx, err, at, e.savedMatrices(terms, at, x, y))
			}
			return err
		}
		if at.row = reached; at.row == n {
			at.product, at.row = at.product+1, 0
		}
		if at.product <= products {
			if err := Timed(&paused, func() error {
				return e.pause(ctx, at, e.savedMatrices(terms, at, x, y))
			}); err != nil {
				task.Done()
				return err
			}
		}
	}
	task.Done()
	e.HopSeconds[at.matrix] += time.Since(start).Seconds() - paused
	return e.write(y)
}

// stateBytes is the size of a checkpoint of matrices.
func stateBytes(matrices []savedMatrix) int64 {
	total := int64(0)
	for _, s := range matrices {
		total += s.rows * s.m.RowBytes()
	}
	return total
}

// pause writes a checkpoint if it is time for one, or ends the job if it is time for that; the error is then why it
// ends.
func (e *engine) pause(ctx context.Context, at position, state []savedMatrix) error {
	if e.Pace.mustStop(ctx, stateBytes(state)+e.writingBytes()) {
		return e.end(ctx, at, state)
	}
	if e.Plan.CheckpointBytes == 0 || !e.Pace.checkpointDue(stateBytes(state)) {
		return nil // another goroutine looked a moment earlier and found the checkpoint due
	}
	if err := e.finishWrite(); err != nil { // no checkpoint makes up for that
		return err
	}
	err := e.saveCheckpoint(ctx, at, state)
	if errors.Is(err, syscall.ENOSPC) { // there may still be room for the results
		e.Plan.CheckpointBytes, err = 0, nil
	}
	return err
}

// end writes a last checkpoint if that is worth its time, and returns why the job ends.
func (e *engine) end(ctx context.Context, at position, state []savedMatrix) error {
	if m := e.back.matrix; m != nil {
		e.Note(fmt.Sprintf("stopping once %s is written: to interrupt again ends at once", m.ID))
	}
	why := e.save(ctx, endCause(ctx), at, state)
	if !e.Pace.SavedAny {
		why = fmt.Errorf("%w: %w", why, e.Pace.TooShort(stateBytes(state)))
	}
	return why
}

// save ends a job because of the error why, and returns why: it finishes the write on its way, and writes a
// checkpoint if that is worth its time.
func (e *engine) save(ctx context.Context, why error, at position, state []savedMatrix) error {
	if err := e.finishWrite(); err != nil {
		return fmt.Errorf("%w (and a matrix could not be written: %w)", why, err)
	}
	if e.Plan.CheckpointBytes > 0 && e.Pace.worthSaving(stateBytes(state)) {
		if err := e.saveCheckpoint(context.WithoutCancel(ctx), at, state); err != nil {
			why = fmt.Errorf("%w (and the last checkpoint could not be written: %w)", why, err)
		}
	}
	return why
}
