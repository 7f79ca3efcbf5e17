package preprop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// job makes matrices of a store, panel by panel. What it makes goes to the store at
// once where one panel has all columns, else through pieces in scratch files.
type job struct {
	*Options
	fsys     *vfs.Count // of scratch files
	graph    *format.Dir
	nodes    []uint32          // of the store's rows
	matrices []format.MatrixID // of the store
	chains   []*chain
	columns  span // to be made, of all
	plan     *Plan
	scratch  string // folder

	pieces   pieces
	have     [][]span                 // pieces that are there, by matrix
	finished map[format.MatrixID]bool // matrices of the store that are
	store    *format.Writer           // nil: matrices go to pieces
	collect  func(m *matrix)          // or, where there is one, here

	hopSeconds []float64 // by matrix
	edges      []int64
	gathered   int64 // bytes of rows that were added up
}

// chain is the hops from+1 to hops of an operator, each made from the one before.
type chain struct {
	operator   Operator
	input      *input // hop from
	from, hops int
}

func (c *chain) id(hop int) format.MatrixID {
	return format.MatrixID{Operator: c.operator.String(), Hop: hop}
}

func (j *job) number(id format.MatrixID) int { return slices.Index(j.matrices, id) }

// lacks tells whether columns of a matrix are to be made yet.
func (j *job) lacks(id format.MatrixID, s span) bool {
	return !j.finished[id] && (j.store != nil || len(missing(s, j.have[j.number(id)])) > 0)
}

// lastLacking is the last hop of a chain that lacks columns, or 0.
func (j *job) lastLacking(c *chain, s span) int {
	for hop := c.hops; hop > c.from; hop-- {
		if j.lacks(c.id(hop), s) {
			return hop
		}
	}
	return 0
}

// toLoad tells whether columns of a chain's input are needed: to make hops of, or to
// be stored themselves.
func (j *job) toLoad(c *chain, s span) bool {
	return j.lastLacking(c, s) > 0 || c.input.ID == format.Input && j.lacks(format.Input, s)
}

// todo cuts the columns that any matrix lacks into panels.
func (j *job) todo() []span {
	lacking := make([]bool, j.columns.end)
	for k, id := range j.matrices {
		if !j.lacks(id, j.columns) {
			continue
		}
		rest := []span{j.columns}
		if j.store == nil {
			rest = missing(j.columns, j.have[k])
		}
		for _, s := range rest {
			for c := s.first; c < s.end; c++ {
				lacking[c] = true
			}
		}
	}
	var panels []span
	for c := j.columns.first; c < j.columns.end; c++ {
		if !lacking[c] {
			continue
		}
		if n := len(panels) - 1; n >= 0 && panels[n].end == c && panels[n].width() < j.plan.PanelColumns {
			panels[n].end++
		} else {
			panels = append(panels, span{c, c + 1})
		}
	}
	return panels
}

// run makes what is lacking, but for assembling pieces.
func (j *job) run(ctx context.Context) error {
	panels := j.todo()
	if len(panels) == 0 {
		return nil
	}
	j.chains = slices.DeleteFunc(j.chains, func(c *chain) bool { // with its input
		return !j.toLoad(c, j.columns)
	})
	e := &engine{job: j, propagators: map[Operator]*propagator{}, needs: map[string][]nodeSet{}}
	defer e.close()
	if err := e.prepare(ctx); err != nil {
		return err
	}
	if err := e.allocate(panels); err != nil {
		return err
	}
	strips, err := j.strips(ctx, panels)
	if err != nil {
		return err
	}
	for i, s := range panels {
		e.label = ""
		if len(panels) > 1 {
			e.label = fmt.Sprintf(", panel %d of %d", i+1, len(panels))
		}
		if err := e.panel(ctx, s, strips); err != nil {
			return err
		}
		for _, in := range j.inputs() { // room for pieces
			if slices.Contains(strips[in], s) {
				if err := j.fsys.Remove(j.stripPath(in, s)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// strips cuts inputs where that is planned, and tells which strips of each there are.
func (j *job) strips(ctx context.Context, panels []span) (map[*input][]span, error) {
	out := map[*input][]span{}
	for _, in := range j.inputs() {
		found, err := j.foundStrips(in)
		if err != nil {
			return nil, err
		}
		var rest []span
		for _, s := range panels {
			rest = append(rest, missing(s, found)...)
		}
		const direct = 2 // panels that are sooner read from where the input is
		if j.plan.Strips && len(rest) > direct {
			if err := in.cut(ctx, j.fsys, rest, func(s span) string { return j.stripPath(in, s) }, j.Threads, j.Progress); err != nil {
				return nil, err
			}
			found = append(found, rest...)
		}
		out[in] = found
	}
	return out, nil
}

// inputs are what the job starts from, each once.
func (j *job) inputs() []*input {
	var out []*input
	for _, c := range j.chains {
		if !slices.Contains(out, c.input) {
			out = append(out, c.input)
		}
	}
	return out
}

func (j *job) stripPath(in *input, s span) string {
	return filepath.Join(j.scratch, fmt.Sprintf("strip-%d-%d-%d", j.number(in.ID), s.first, s.end))
}

func (j *job) foundStrips(in *input) ([]span, error) {
	return foundSpans(j.fsys, j.scratch, in.Layout.Features, func(s span) string { return j.stripPath(in, s) },
		func(s span) int64 {
			shape := chunkBlocks(in.Matrix, int64(s.width()*in.dtype.Size()))
			return shape.size()
		})
}

// write stores a matrix, or a piece of one, if it is lacking.
func (j *job) write(ctx context.Context, m *matrix) error {
	if !j.lacks(m.id, m.span()) {
		return nil
	}
	if j.store != nil {
		err := m.write(ctx, j.store, j.nodes, j.Threads, j.Progress)
		j.finished[m.id] = err == nil
		return err
	}
	k := j.number(m.id)
	if j.collect != nil {
		j.collect(m)
	} else if err := m.writeSpill(ctx, j.fsys, j.pieces.path(k, m.span()), j.pieces.blockRows, j.nodes, j.Threads); err != nil {
		return err
	}
	j.have[k] = append(j.have[k], m.span())
	return nil
}

// assemble puts the matrices together that the store lacks.
func (j *job) assemble(ctx context.Context, store *format.Writer) error {
	for k, id := range j.matrices {
		if j.finished[id] {
			continue
		}
		if err := j.pieces.assemble(ctx, store, k, j.have[k], j.Threads, j.Progress); err != nil {
			return err
		}
		j.finished[id] = true
	}
	return nil
}

// engine is what panels are made with.
type engine struct {
	*job
	topologies  topologies
	propagators map[Operator]*propagator // by base
	needs       map[string][]nodeSet     // by graph: of the longest chain of products
	kept        *matrix                  // input, if it stays; nil: none
	turns       [2]*matrix               // hops take turns in these
	spares      []*matrix                // of series
	label       string
}

func (e *engine) close() error {
	err := e.topologies.Close()
	for _, p := range e.propagators {
		err = errors.Join(err, p.buf.Free())
	}
	for _, m := range append(e.spares, e.kept, e.turns[0], e.turns[1]) {
		if m != nil {
			err = errors.Join(err, m.buf.Free())
		}
	}
	return err
}

// prepare makes the graphs and factors of operators, and finds the rows that are
// needed.
func (e *engine) prepare(ctx context.Context) error {
	chains := slices.DeleteFunc(slices.Clone(e.chains), func(c *chain) bool { return e.lastLacking(c, e.columns) == 0 })
	longest := map[string]int{}
	for _, c := range chains {
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
	for _, c := range chains {
		base, graph := c.operator.base(), c.operator.Graph
		if e.propagators[base] == nil {
			p, err := newPropagator(ctx, e.topologies[graph], base, e.Threads)
			if err != nil {
				return err
			}
			e.propagators[base] = p
		}
		if e.needs[graph] == nil {
			if e.needs[graph], err = e.propagators[base].needed(ctx, stored, longest[graph], e.Threads); err != nil {
				return err
			}
		}
	}
	return nil
}

// allocate makes the matrices of panels.
func (e *engine) allocate(panels []span) error {
	widest, spares, hops := 0, 0, 0
	for _, s := range panels {
		widest = max(widest, s.width())
	}
	for _, c := range e.chains {
		spares = max(spares, c.operator.series().spares(e.DType))
		hops = max(hops, c.hops-c.from)
	}
	var err error
	add := func(t format.DType) *matrix {
		if err != nil {
			return nil
		}
		var m *matrix
		m, err = newMatrix(e.graph.Manifest.Nodes, widest, t)
		return m
	}
	if e.turns[0] = add(e.DType); hops > 0 {
		e.turns[1] = add(e.DType)
	}
	if e.plan.InputInMemory {
		e.kept = add(e.DType)
	}
	for range spares {
		if m := add(format.Float32); m != nil {
			e.spares = append(e.spares, m)
		}
	}
	return err
}

// panel makes columns of all hops.
func (e *engine) panel(ctx context.Context, s span, strips map[*input][]span) error {
	for _, m := range append(e.spares, e.kept, e.turns[0], e.turns[1]) {
		if m != nil {
			m.first, m.features = s.first, s.width()
		}
	}
	var keeps *input // what is in e.kept
	for _, c := range e.chains {
		if !e.toLoad(c, s) {
			continue
		}
		x := e.turns[0]
		if e.kept != nil {
			x = e.kept
		}
		if x != e.kept || keeps != c.input {
			if err := e.load(ctx, c.input, x, strips[c.input]); err != nil {
				return err
			}
			keeps = c.input
		}
		if c.input.ID == format.Input {
			if err := e.write(ctx, x); err != nil {
				return err
			}
		}
		if err := e.hops(ctx, c, e.lastLacking(c, s), x); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) load(ctx context.Context, in *input, m *matrix, strips []span) error {
	if len(missing(m.span(), strips)) > 0 {
		return in.load(ctx, m, e.Threads, e.Progress)
	}
	return in.loadStrips(ctx, m, e.fsys, strips, func(s span) string { return e.stripPath(in, s) }, e.Threads, e.Progress)
}

// hops makes and writes the hops of a chain up to last; x holds its input.
func (e *engine) hops(ctx context.Context, c *chain, last int, x *matrix) error {
	if last == 0 {
		return nil
	}
	p, terms := e.propagators[c.operator.base()], c.operator.series()
	products := terms.products()
	need := e.needs[c.operator.Graph]
	need = need[len(need)-(c.hops-c.from)*products:]
	for hop := c.from + 1; hop <= last; hop++ {
		y := e.turns[0]
		if x == y {
			y = e.turns[1]
		}
		cost := p.graph.Nodes() + p.graph.Edges()
		task := e.Progress.Start(fmt.Sprintf("%s hop %d of %d%s", c.operator, hop, c.hops, e.label), int64(products)*cost*x.rowBytes(), progress.Bytes)
		start := time.Now()
		edges := int64(0)
		var err error
		for i := 1; i <= products && err == nil; i++ {
			dst, src, with := terms.step(i, x, y, e.spares)
			dst.id = c.id(hop)
			var added int64
			added, err = p.hop(ctx, dst, src, with, need[(hop-c.from-1)*products+i-1], e.Threads, func(cost int64) { task.Add(cost * x.rowBytes()) })
			edges += added
			e.gathered += added * src.rowBytes()
		}
		task.Done()
		if err != nil {
			return err
		}
		k := e.number(c.id(hop))
		e.hopSeconds[k] += time.Since(start).Seconds()
		e.edges[k] = edges
		if err := e.write(ctx, y); err != nil {
			return err
		}
		x = y
	}
	return nil
}
