package preprop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// step is a job that makes one matrix of the store of a typed graph, or one that others are made from: from a matrix of
// the source type, by the relation whose directory is the job's graph. A step without operators takes rows of its
// input.
type step struct {
	id     format.MatrixID
	of     *typedMatrix // that it makes, if it has an operator
	input  *engine.Input
	rows   *typedJob // that has chosen the rows, nodes of its target type; nil: all nodes, in order
	labels bool      // of training nodes

	reserve   *engine.Reserve
	content   string // of a matrix of all nodes, in the reserve
	heldBytes int64  // of memory, beside the step
}

// unfinished tells whether the store lacks rows of a matrix, or one that is made of it has yet to be made.
func (t *typedJob) unfinished(n *typedMatrix) bool {
	return len(t.missing(n)) > 0 || slices.ContainsFunc(n.users, func(user *typedMatrix) bool {
		return t.unfinished(user) && !t.isBetween(user)
	})
}

// missing lists what the store shall have and lacks of a matrix, under each of its names.
func (t *typedJob) missing(n *typedMatrix) (ids []format.MatrixID) {
	if t.isInput(n) {
		ids = append(ids, format.Input)
	}
	for _, name := range n.stored {
		ids = append(ids, t.id(n, name))
	}
	return slices.DeleteFunc(ids, func(id format.MatrixID) bool {
		return t.has(id) || t.takesOver(id) || t.isMade(id)
	})
}

// isMade tells whether the job has made a matrix, or its columns of it.
func (t *typedJob) isMade(id format.MatrixID) bool {
	if t.store != nil {
		return t.store.Finished(id)
	}
	return t.results != nil &&
		len(product.Missing(t.share, t.results[slices.Index(t.target.matrices(), id)].Have)) == 0
}

// isInput tells whether a matrix is hop 0 of the store.
func (t *typedJob) isInput(n *typedMatrix) bool {
	return len(n.relations) == 0 && !n.labels && n.head.Name == t.typed.Target
}

// isBetween tells whether an earlier run has made a matrix of all nodes.
func (t *typedJob) isBetween(n *typedMatrix) bool {
	d, err := format.OpenStore(t.fsys, t.betweenDir(n))
	return err == nil && d.Close() == nil
}

// betweenDir is where a matrix of all nodes lies while others are made of it.
func (t *typedJob) betweenDir(n *typedMatrix) string {
	return filepath.Join(t.scratch, t.prefix+"all-"+n.key)
}

func (t *typedJob) removeBetween(n *typedMatrix) error {
	if n.leaf() {
		return nil
	}
	if _, err := t.fsys.Stat(t.betweenDir(n)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return format.Remove(t.fsys, t.betweenDir(n))
}

// makeMatrix makes a matrix: of all nodes if others are made of it, and the rows that are stored.
func (t *typedJob) makeMatrix(ctx context.Context, r *Result, n *typedMatrix) (err error) {
	if n.labels && t.labels == nil {
		t.labels = t.newLabels(t.options.LabelHops)
		if err := t.loadLabels(ctx); err != nil {
			return err
		}
	}
	ids := t.missing(n)
	switch {
	case len(n.relations) == 0 && (n.labels || len(ids) == 0):
		return nil
	case len(n.relations) == 0:
		x, closeInput, err := t.openInput(n)
		if err != nil {
			return err
		}
		return errors.Join(t.storeMatrix(ctx, r, "", x, ids, n), closeInput())
	}
	edges, err := t.edgesOf(ctx, n.relations)
	if err != nil {
		return err
	}
	var x *engine.Input // of what an earlier run has made, it may be gone
	if t.written[n] = !n.leaf() && (t.written[n] || t.isBetween(n)); !t.isBetween(n) {
		var closeInputs func() error
		if x, closeInputs, err = t.inputOf(n); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeInputs()) }()
	}
	if n.leaf() {
		return t.storeMatrix(ctx, r, edges, x, ids, n)
	}
	applied, options := []operator.Operator{t.operator(n, n.name)}, t.options
	options.Rows, options.Nodes, options.Split, options.ChunkRows = format.RowsAll, nil, 0, 0
	one := &step{id: t.id(n, n.name), of: n, input: x, labels: n.labels, content: n.key, heldBytes: t.heldBytes(n)}
	if t.staysInMemory(n) {
		if err := t.makeInMemory(ctx, r, edges, applied, options, one); err != nil || len(ids) == 0 {
			return err
		}
		return t.storeMatrix(ctx, r, "", t.inMemory(n), ids, n)
	}
	d, err := t.runStep(ctx, r, t.betweenDir(n), edges, applied, options, one)
	if err != nil {
		return err
	}
	all, err := d.Matrix(t.id(n, n.name))
	if err == nil && len(ids) > 0 {
		x := engine.NewInput(all, nil, 0)
		x.Content = n.key
		err = t.storeMatrix(ctx, r, "", x, ids, n)
	}
	return errors.Join(err, d.Close())
}

// openInput opens a matrix that is read whole: features of a type, or what is made of them. The function closes it.
func (t *typedJob) openInput(x *typedMatrix) (_ *engine.Input, closeInput func() error, err error) {
	id := format.Input
	var d *format.Dir
	switch {
	case len(x.relations) > 0:
		id = t.id(x, x.name)
		d, err = format.OpenStore(t.fsys, t.betweenDir(x))
	case x.labels:
		l := t.between(x)
		y := oneHot{evenChunks{x.head.Nodes, int64(l.ChunkRows)}, t.labels, l, t.share.First}
		return &engine.Input{Chunked: y, ID: id, Layout: l, Content: x.key}, func() error { return nil }, nil
	case t.cut != nil:
		in := *t.cut
		return &in, func() error { return nil }, nil
	default:
		d, err = t.typed.OpenNodes(t.fsys, t.graphDir, x.source.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	m, err := d.Matrix(id)
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	in := engine.NewInput(m, nil, 0)
	in.Content = x.key
	return in, d.Close, nil
}

// inputOf is what a matrix is made of, and a function that closes it.
func (t *typedJob) inputOf(n *typedMatrix) (_ *engine.Input, _ func() error, err error) {
	if x := n.inputs[0]; len(n.inputs) == 1 {
		if t.staysInMemory(x) {
			return t.inMemory(x), func() error { return nil }, nil
		}
		return t.openInput(x)
	}
	var closers []func() error
	closeAll := func() (err error) {
		for _, c := range closers {
			err = errors.Join(err, c())
		}
		return err
	}
	inputs := make([]*engine.Input, len(n.inputs))
	var one *engine.Input // that has most rows a chunk
	for i, x := range n.inputs {
		if x == nil {
			continue
		}
		in, closeInput, err := t.openInput(x)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		closers, inputs[i] = append(closers, closeInput), in
		if one == nil || in.Layout.ChunkRows > one.Layout.ChunkRows {
			one = in
		}
	}
	all, in := stacked{}, *one
	for i, r := range n.relations {
		from, _ := t.typed.Type(r.Source)
		part := stackedPart{zeros{evenChunks{from.Nodes, int64(one.Layout.ChunkRows)}}, from.Nodes}
		if inputs[i] != nil {
			part.Chunked = inputs[i].Chunked
		}
		all = append(all, part)
	}
	in.Chunked, in.Content = all, ""
	return &in, closeAll, nil
}

// storeMatrix makes the stored rows of a matrix, from x by the edges in a directory or, without one, of x itself: in
// the store or in result files, under each of these ids.
func (t *typedJob) storeMatrix(ctx context.Context, r *Result, edges string, x *engine.Input, ids []format.MatrixID,
	n *typedMatrix) (err error) {
	one := &step{id: ids[0], input: x, rows: t, labels: n.labels, heldBytes: t.heldBytes(n)}
	var applied []operator.Operator
	if edges == "" {
		edges, x.ID = t.graph.Path(), ids[0] // of which nothing but the nodes is read
	} else {
		named, err := operator.Parse(ids[0].Operator)
		if err != nil {
			return err
		}
		one.of, applied = n, []operator.Operator{named}
	}
	var change func(rows []byte, s product.ColumnRange, first, end int64)
	if n.labels {
		if change, err = t.ownLabels(ctx, n); err != nil {
			return err
		}
	}
	x.FirstColumn = t.share.First
	options := t.options
	options.ChunkRows = t.layout.ChunkRows
	h, err := t.openStep(ctx, t.scratch, edges, applied, options, one)
	if err != nil {
		return err
	}
	defer h.close()
	h.share = t.share
	done := h.newResult()
	p, err := h.plan(ctx, done)
	if err != nil {
		return fmt.Errorf("%s: %w", cmp.Or(ids[0].Operator, "x"), err)
	}
	j, k := h.job, slices.Index(t.target.matrices(), ids[0])
	j.Name, j.Scratch, j.Results, j.Change = n.key+"-", t.scratch, t.results[k:k+1], change
	if err := t.runStored(ctx, h, p); err != nil {
		return fmt.Errorf("%s: %w", cmp.Or(ids[0].Operator, "x"), h.explain(ctx, err))
	}
	t.saved, done.Plan = true, *p
	h.report(done)
	t.countStep(r, one, done)
	for _, id := range ids[1:] {
		if err := t.storeAlso(id, k); err != nil {
			return err
		}
	}
	return nil
}

// runStored runs a step of stored rows.
func (t *typedJob) runStored(ctx context.Context, h *hopsJob, p *Plan) (err error) {
	j := h.job
	if t.store == nil { // in a task
		p.DropCheckpoints()
		_, _, scratch := hopsBytes(p.Work, p)
		if err := machine.CheckSpace(t.fsys, t.scratch, scratch); err != nil {
			return err
		}
		return j.Run(ctx)
	}
	if j.Checkpoints, err = j.FindCheckpoints(); err != nil {
		return err
	}
	if !j.HasPartialMatrices() { // the room for the store was there when the job began
		room := func(p *Plan) error { return machine.CheckSpace(t.fsys, t.scratch, p.ScratchBytes) }
		if err := t.fitDisk(p, room); err != nil {
			return err
		}
	}
	j.Pace.SavedAny, j.Pace.Share = t.saved, t.checkpointShare
	return h.makeMatrices(ctx, t.store)
}

// storeAlso stores a matrix that has been stored, number k, under another id.
func (t *typedJob) storeAlso(id format.MatrixID, k int) error {
	if t.store == nil {
		return t.results[k].Share(t.share, &t.results[slices.Index(t.target.matrices(), id)])
	}
	m, err := t.store.OpenFinished(t.target.matrices()[k])
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := t.store.Matrix(id)
	if err != nil {
		return err
	}
	taken, err := out.Adopt(m, t.target.StoredRows)
	if err == nil && taken < t.target.StoredRows {
		err = fmt.Errorf("%s: of %s, %d of %d rows were taken over", t.storeDir, id, taken, t.target.StoredRows)
	}
	return errors.Join(err, out.Close())
}

// runStep makes the store of a step, or goes on with it, and opens it.
func (t *typedJob) runStep(ctx context.Context, r *Result, dir, graphDir string, applied []operator.Operator,
	options Options, one *step) (*format.Dir, error) {
	d, err := format.OpenStore(t.fsys, dir)
	if err == nil { // an earlier run made it
		delete(t.computes, one.of)
		return d, nil
	}
	if !errors.Is(err, format.ErrIncomplete) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	h, err := t.openStep(ctx, dir, graphDir, applied, options, one)
	if err != nil {
		return nil, err
	}
	defer h.close()
	done, err := run(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(one.id.Operator, "x"), err)
	}
	t.countStep(r, one, done)
	return format.OpenStore(t.fsys, dir)
}

// openStep opens the edges of a step, and chooses its rows.
func (t *typedJob) openStep(ctx context.Context, dir, graphDir string, applied []operator.Operator, options Options,
	one *step) (_ *hopsJob, err error) {
	s := &jobContext{start: time.Now(), fsys: t.fsys, graphDir: graphDir, storeDir: dir}
	if s.graph, err = format.OpenRelation(s.fsys, graphDir); err != nil {
		return nil, err
	}
	options.step, options.Operators, options.Hops, options.Force = one, applied, len(applied), false
	options.LabelHops, options.Scratch = 0, ""
	one.reserve = &t.reserve
	options.Planned = func(*Plan) {}
	rows := s.graph // that the rows are nodes of
	if one.rows != nil {
		rows = one.rows.graph
	}
	if s.options, err = options.withDefaults(&rows.Manifest, options.DType); err == nil {
		err = s.chooseRows(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &hopsJob{jobContext: s}, nil
}

// countStep adds what a step has done.
func (t *typedJob) countStep(r *Result, one *step, done *Result) {
	if one.of != nil {
		t.computes[one.of] = done.Plan.Device
	}
	r.TransferredBytes += done.TransferredBytes
	r.Time.Add(done.Time)
	r.HopSeconds = append(r.HopSeconds, done.HopSeconds...)
	r.EdgesProcessed = append(r.EdgesProcessed, done.EdgesProcessed...)
	r.Plan.MemoryBytes = max(r.Plan.MemoryBytes, done.Plan.MemoryBytes)
}
