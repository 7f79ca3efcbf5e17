package preprop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// engine computes the panels of a job. It holds the topologies and, for one panel at a
// time, the matrices.
type engine struct {
	*job
	topologies    topologies
	propagators   map[Operator]*propagator // by Operator.base
	neededNodes   map[string][]nodeSet     // by Operator.Graph: for each product of the sequence that has most
	inputBuffer   *matrix                  // holds the input for several sequences; nil: each loads it
	hopBuffers    [2]*matrix               // a hop is made from one into the other; without hops the second is nil
	seriesBuffers []*matrix                // float32, for terms of series
	panelColumns  int                      // of the widest panel
	kept          *input                   // of which a matrix has the columns of the first panel since it was cut
	back          writeback
	device        *deviceEngine // computes products; nil: the processor does
	firstUse      firstUse
	label         string // which panel it is, for progress
}

func (e *engine) close() error {
	e.firstUse.stop()
	err := errors.Join(e.back.close(), e.topologies.Close())
	if e.device != nil {
		err = errors.Join(err, e.device.close())
	}
	for _, p := range e.propagators {
		err = errors.Join(err, p.buf.Free())
	}
	for _, m := range e.matrices() {
		err = errors.Join(err, m.buf.Free())
	}
	return err
}

// matrices are all that there are.
func (e *engine) matrices() []*matrix {
	all := append([]*matrix{e.inputBuffer, e.hopBuffers[0], e.hopBuffers[1]}, e.seriesBuffers...)
	return slices.DeleteFunc(all, func(m *matrix) bool { return m == nil })
}

// prepare opens or derives the topologies, computes the factors of operators, and finds
// which nodes each product needs.
func (e *engine) prepare(ctx context.Context) error {
	unfinished := slices.DeleteFunc(slices.Clone(e.sequences), func(c *hopSequence) bool { return e.lastUnfinished(c, e.columns) == 0 })
	longest := map[string]int{}
	for _, c := range unfinished {
		longest[c.operator.Graph] = max(longest[c.operator.Graph], (c.hops-c.from)*c.operator.series().products())
	}
	var err error
	if e.topologies, err = e.openTopologies(ctx, longest); err != nil {
		return err
	}
	var stored nodeSet
	if int64(len(e.nodes)) < e.graph.Manifest.Nodes {
		stored = newNodeSet(e.graph.Manifest.Nodes)
		for _, v := range e.nodes {
			stored.add(int64(v))
		}
	}
	for _, c := range unfinished {
		base, graph := c.operator.base(), c.operator.Graph
		if e.propagators[base] == nil {
			p, err := newPropagator(ctx, e.topologies[graph], base, e.Threads)
			if err != nil {
				return err
			}
			e.propagators[base] = p
		}
		if e.neededNodes[graph] == nil {
			if e.neededNodes[graph], err = e.propagators[base].needed(ctx, stored, longest[graph], e.Threads); err != nil {
				return err
			}
		}
	}
	if d := e.plan.Device; len(unfinished) > 0 && d != nil && d.Name != CPU {
		e.device, err = openDevice(e.plan.work.device, d, e.plan.work, e.Threads)
	}
	return err
}

// panelMatrices is how many matrices of the stored type, and of float32, the panels of these
// sequences need.
func panelMatrices(sequences []*hopSequence, stored format.DType, inputInMemory bool) (hops, series int) {
	hops = 1
	for _, c := range sequences {
		if c.hops > c.from {
			hops = 2
		}
		series = max(series, c.operator.series().buffers(stored))
	}
	if inputInMemory {
		hops++
	}
	return hops, series
}

// matricesCost is what the matrices of a panel take, which are held as long as there are panels.
func (w *work) matricesCost(p *Plan) cost {
	hops, series := panelMatrices(w.sequences, w.stored.DType, p.InputInMemory)
	matrix := w.nodes * int64(p.PanelColumns)
	first := loading
	if p.InputKept {
		first = cutting
	}
	return cost{memory: during(first, lastPanel, matrix*int64(hops*w.stored.DType.Size()+4*series))}
}

// allocate allocates the matrices, as wide as the widest panel, and begins to use their memory.
func (e *engine) allocate(panels []columnRange) error {
	widest := 0
	for _, s := range panels {
		widest = max(widest, s.width())
	}
	hops, series := panelMatrices(e.sequences, e.DType, e.plan.InputInMemory)
	var err error
	add := func(t format.DType) *matrix {
		if err != nil {
			return nil
		}
		var m *matrix
		m, err = newMatrix(e.graph.Manifest.Nodes, widest, t)
		return m
	}
	if e.plan.InputInMemory {
		e.inputBuffer = add(e.DType)
		hops--
	}
	for i := range hops {
		e.hopBuffers[i] = add(e.DType)
	}
	for range series {
		if m := add(format.Float32); m != nil {
			e.seriesBuffers = append(e.seriesBuffers, m)
		}
	}
	e.panelColumns = widest
	e.firstUse.start(e.matrices(), e.Threads)
	return err
}

// setColumns sets which columns the matrices have.
func (e *engine) setColumns(s columnRange) {
	for _, m := range e.matrices() {
		m.first, m.features = s.first, s.width()
	}
}

// panel makes and writes the columns s of all hops.
func (e *engine) panel(ctx context.Context, s columnRange, inputFiles map[*input][]columnRange) error {
	e.setColumns(s)
	var loaded *input // is in e.inputBuffer
	for _, c := range e.sequences {
		if e.pace.savedAny && e.pace.mustStop(ctx, e.writingBytes()) {
			return errors.Join(endCause(ctx), e.finishWrite())
		}
		if e.back.matrix != nil && e.back.matrix.id == c.input.ID { // whether it is needed shows when it is written
			if err := e.finishWrite(); err != nil {
				return err
			}
		}
		if !e.needsInput(c, s) {
			continue
		}
		if hop := e.hopBuffers; e.back.matrix != nil && e.back.matrix.buf == hop[0].buf && hop[1] != nil {
			e.hopBuffers = [2]*matrix{hop[1], hop[0]} // the input is read into the other one meanwhile
		}
		if e.device != nil {
			e.device.forget()
		}
		last := e.lastUnfinished(c, s)
		at, x, y, err := e.resume(ctx, c, s, last)
		if err != nil {
			return err
		}
		if x == nil {
			if x = e.hopBuffers[0]; e.inputBuffer != nil {
				x = e.inputBuffer
			}
			if x != e.inputBuffer || loaded != c.input {
				if err := e.mayChange(x); err != nil {
					return err
				}
				if e.kept != c.input {
					if err := timed(&e.account.reading, func() error { return e.load(ctx, c.input, x, inputFiles[c.input]) }); err != nil {
						return err
					}
				}
				loaded, e.kept = c.input, nil
			}
			if c.input.ID == format.Input {
				if err := e.write(x); err != nil {
					return err
				}
			}
			if y = e.hopBuffers[0]; x == y {
				y = e.hopBuffers[1]
			}
			if last > 0 {
				at = position{e.number(c.id(c.from + 1)), 1, 0}
			}
		}
		if err := e.hops(ctx, c, at, last, x, y); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) load(ctx context.Context, in *input, m *matrix, inputFiles []columnRange) error {
	if len(missing(m.columns(), inputFiles)) > 0 {
		return in.load(ctx, m, e.Threads, e.Progress)
	}
	return in.loadFromFiles(ctx, m, e.fsys, inputFiles, func(s columnRange) string { return e.inputFilePath(in, s) }, e.Threads, e.Progress)
}

// hops makes and writes the hops of a sequence, from a position up to hop last. x holds
// the input of the first of them, and y its rows that are computed.
func (e *engine) hops(ctx context.Context, c *hopSequence, at position, last int, x, y *matrix) error {
	_ = timed(&e.account.firstUse, func() error { e.firstUse.finish(ctx, e.Threads); return nil })
	e.pace.beginHops()
	for first := e.number(c.id(c.from + 1)); last > 0 && at.matrix <= first+last-c.from-1; at = (position{at.matrix + 1, 1, 0}) {
		hop := c.from + 1 + at.matrix - first
		if err := e.hop(ctx, c, hop, at, x, y); err != nil {
			return err
		}
		if x = y; x == e.hopBuffers[0] {
			y = e.hopBuffers[1]
		} else {
			y = e.hopBuffers[0]
		}
		if hop == last {
			break
		}
		next := position{at.matrix + 1, 1, 0}
		state := e.savedMatrices(c.operator.series(), next, x, y)
		if e.pace.mustStop(ctx, stateBytes(state)+e.writingBytes()) {
			return e.end(ctx, next, state)
		}
	}
	return nil
}

// hop makes and writes one hop of a sequence, from a position in it.
func (e *engine) hop(ctx context.Context, c *hopSequence, hop int, at position, x, y *matrix) error {
	p, terms := e.propagators[c.operator.base()], c.operator.series()
	products, n := terms.products(), e.graph.Manifest.Nodes
	need := e.neededNodes[c.operator.Graph]
	need = need[len(need)-(c.hops-hop+1)*products:]
	task := e.Progress.Start(fmt.Sprintf("%s hop %d of %d%s", c.operator, hop, c.hops, e.label), int64(products)*(p.graph.Nodes()+p.graph.Edges())*x.rowBytes(), progress.Bytes)
	y.id = c.id(hop)
	if err := e.mayChange(y); err != nil {
		task.Done()
		return err
	}
	start, paused := time.Now(), time.Duration(0)
	begun := e.writingBytes()
	for at.product <= products {
		dst, src, with := terms.step(at.product, x, y, e.seriesBuffers)
		dst.id = c.id(hop)
		state := stateBytes(e.savedMatrices(terms, position{at.matrix, at.product, n}, x, y))
		// mustStop looks at ctx between blocks, so that those that were begun are finished.
		done := func(cost int64, canSave bool) bool {
			task.Add(cost * x.rowBytes())
			return e.pace.mustStop(ctx, state+begun) || canSave && e.plan.CheckpointBytes > 0 && e.pace.checkpointDue(state)
		}
		var added, reached int64
		var err error
		if e.device != nil {
			added, reached, err = e.device.product(context.WithoutCancel(ctx), p, dst, src, with, need[at.product-1], at.row, done)
		} else {
			added, reached, err = p.hopFrom(context.WithoutCancel(ctx), dst, src, with, need[at.product-1], at.row, e.Threads, func(cost int64) bool { return done(cost, true) })
		}
		e.edges[at.matrix] += added
		e.gathered += added * src.rowBytes()
		if err != nil {
			task.Done()
			if errors.Is(err, ErrDevice) { // the matrices are in memory of the host
				err = e.save(ctx, err, at, e.savedMatrices(terms, at, x, y))
			}
			return err
		}
		if at.row = reached; at.row == n {
			at.product, at.row = at.product+1, 0
		}
		if at.product <= products {
			if err := timed(&paused, func() error { return e.pause(ctx, at, e.savedMatrices(terms, at, x, y)) }); err != nil {
				task.Done()
				return err
			}
		}
	}
	task.Done()
	e.hopSeconds[at.matrix] += (time.Since(start) - paused).Seconds()
	return e.write(y)
}

// stateBytes is the size of a checkpoint of matrices.
func stateBytes(matrices []savedMatrix) int64 {
	total := int64(0)
	for _, s := range matrices {
		total += s.rows * s.m.rowBytes()
	}
	return total
}

// pause writes a checkpoint if it is time for one, or ends the job if it is time for that;
// the error is then why it ends.
func (e *engine) pause(ctx context.Context, at position, state []savedMatrix) error {
	if e.pace.mustStop(ctx, stateBytes(state)+e.writingBytes()) {
		return e.end(ctx, at, state)
	}
	if e.plan.CheckpointBytes == 0 || !e.pace.checkpointDue(stateBytes(state)) {
		return nil // only a goroutine that looked a moment ago has found that it was time
	}
	if err := e.finishWrite(); err != nil { // no checkpoint makes up for that
		return err
	}
	err := e.saveCheckpoint(ctx, at, state)
	if errors.Is(err, syscall.ENOSPC) { // there may still be room for the results
		e.plan.CheckpointBytes, err = 0, nil
	}
	return err
}

// end writes a last checkpoint if that is worth its time, and returns why the job ends.
func (e *engine) end(ctx context.Context, at position, state []savedMatrix) error {
	if m := e.back.matrix; m != nil {
		e.Note(fmt.Sprintf("stopping once %s is written: to interrupt again ends at once", m.id))
	}
	why := e.save(ctx, endCause(ctx), at, state)
	if !e.pace.savedAny {
		why = fmt.Errorf("%w: %w", why, e.pace.tooShort(stateBytes(state)))
	}
	return why
}

// save finishes what is being written and writes a checkpoint, if that is worth its time, of a job that ends
// because of why, which it returns.
func (e *engine) save(ctx context.Context, why error, at position, state []savedMatrix) error {
	if err := e.finishWrite(); err != nil {
		return fmt.Errorf("%w (and a matrix could not be written: %w)", why, err)
	}
	if e.plan.CheckpointBytes > 0 && e.pace.worthSaving(stateBytes(state)) {
		if err := e.saveCheckpoint(context.WithoutCancel(ctx), at, state); err != nil {
			why = fmt.Errorf("%w (and the last checkpoint could not be written: %w)", why, err)
		}
	}
	return why
}
