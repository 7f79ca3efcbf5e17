package preprop

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// step is a job that makes one matrix of the store of a typed graph, or one that others are made from, in a store of
// its own: from a matrix of the source type, by the relation whose directory is the job's graph. A step without
// operators takes rows of its input.
type step struct {
	id     format.MatrixID
	input  *format.Matrix
	rows   *format.Dir // the nodes of the type of the rows, which are chosen as Options say; nil: all nodes, in order
	labels bool        // of training nodes
}

// typedJob makes the store of a typed graph. Its steps, one relation each, are jobs like those of plain graphs, with
// stores of their own in the scratch folder of the whole; the store takes their matrices over.
type typedJob struct {
	fsys               vfs.FS
	graphDir, storeDir string
	typed              *format.Typed
	tree               *pathTree
	labelPaths         *pathTree       // nil: no labels travel
	labels             *product.Labels // loaded once a matrix of labels is made
	nodes              []uint32        // of each row
	target             *format.Dir     // the nodes of the target type
	options            Options
	normalize          operator.Operator // Sym or RW
	layout             format.Layout
	want               target // of the whole store

	existing *format.Dir // the complete store that the job adds to; nil: none
	beyond   []string    // metapaths that it has and the options do not ask for

	store   *format.Writer
	scratch string
	prefix  string // of the folders of steps: other jobs have others
}

func propagateTyped(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, o Options) (*Result, error) {
	t, err := openTypedJob(fsys, graphDir, storeDir, o)
	if err != nil {
		return nil, err
	}
	defer t.close()
	rows, err := t.plan(ctx)
	if err != nil {
		return nil, err
	}
	r := t.newResult()
	if done, err := t.complete(); err != nil || done {
		if r.AlreadyComplete, r.Complete = done, done; done {
			removeLeftovers(t.fsys, t.storeDir, t.want)
		}
		return r, err
	}
	if err := t.predict(r); err != nil {
		return nil, err
	}
	if t.options.MetapathsPlanned != nil {
		t.options.MetapathsPlanned(r.Metapaths)
	}
	if r.Plan.StoreBytes, err = t.checkSpace(); err != nil || o.DryRun {
		return r, err
	}
	start := time.Now()
	if err := t.create(); err != nil {
		return nil, err
	}
	if err := t.make(ctx, rows, r); err != nil {
		if t.started() && !errors.Is(err, ErrInvalid) {
			t.store.Suspend()
			if !errors.Is(err, ErrUnfinished) {
				err = fmt.Errorf("%s: %w: %w", storeDir, err, ErrUnfinished)
			}
			return nil, err
		}
		_ = t.removeSteps("")
		t.store.Abort()
		return nil, err
	}
	r.Complete, r.Seconds = true, time.Since(start).Seconds()
	return r, nil
}

// openTypedJob checks the options, and finds the metapaths.
func openTypedJob(fsys vfs.FS, graphDir, storeDir string, o Options) (_ *typedJob, err error) {
	fail := func(text string, args ...any) (*typedJob, error) {
		return nil, fmt.Errorf("%s: %w: %w", graphDir, ErrOptions, fmt.Errorf(text, args...))
	}
	t := &typedJob{fsys: fsys, graphDir: graphDir, storeDir: storeDir}
	if t.typed, err = format.OpenTyped(fsys, graphDir); err != nil {
		return nil, err
	}
	if err := checkApart(fsys, graphDir, storeDir); err != nil {
		return nil, err
	}
	t.tree = &pathTree{typed: t.typed, roots: map[string][]*pathNode{}}
	if err := t.openExisting(&o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if o.Defaulted.Operators || len(o.Operators) == 0 {
		o.Operators = []operator.Operator{{Name: operator.RW}}
	}
	t.normalize = o.Operators[0]
	switch {
	case len(o.Operators) > 1 || t.normalize != (operator.Operator{Name: t.normalize.Name}) ||
		t.normalize.Name != operator.RW && t.normalize.Name != operator.Sym:
		return fail("of a typed graph, --operator is rw (the mean over each relation, the default) or sym")
	case o.Scratch != "" || o.From != "":
		return fail("--scratch and --from are for graphs of one type (leave them out)")
	case vfs.IsURL(storeDir):
		return fail("the store of a typed graph is made on a local disk (give another output, and copy it)")
	}
	o.Device = nil
	if len(o.Metapaths) > 0 {
		o.Hops = 0
		for _, text := range o.Metapaths {
			relations, err := t.tree.parse(text)
			if err == nil {
				err = t.tree.add(relations)
			}
			if err != nil {
				return fail("%w", err)
			}
			o.Hops = max(o.Hops, len(relations))
		}
	} else if !o.Defaulted.Hops || t.existing == nil {
		if err := t.tree.addAll(o.Hops); err != nil {
			return fail("%w", err)
		}
	}
	if err := t.keepMetapaths(); err != nil {
		return fail("%w", err)
	}
	if t.target, err = format.OpenGraph(fsys, format.NodesDir(graphDir, t.typed.Target)); err != nil {
		return nil, err
	}
	t.options, err = (&Options{Rows: o.Rows, Nodes: o.Nodes, Hardware: o.Hardware, DType: o.DType,
		ChunkRows: o.ChunkRows, Split: o.Split, Seed: o.Seed, Threads: o.Threads, MemoryBytes: o.MemoryBytes,
		Force: o.Force, DryRun: o.DryRun, Note: o.Note, Progress: o.Progress, MaxTime: o.MaxTime,
		MetapathsPlanned: o.MetapathsPlanned, clock: o.clock, begun: o.begun,
	}).withDefaults(&t.target.Manifest, t.target.Layout().DType)
	t.options.Hops = o.Hops
	if err == nil {
		err = t.planLabels(o.LabelHops)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", graphDir, ErrOptions, err)
	}
	return t, nil
}

func (t *typedJob) close() (err error) {
	if t.target != nil {
		err = t.target.Close()
	}
	if t.existing != nil {
		err = errors.Join(err, t.existing.Close())
	}
	return err
}

// roots calls visit with the root of each tree.
func (t *typedJob) roots(visit func(root *pathNode)) {
	t.tree.each(visit)
	t.labelPaths.each(visit)
}

// stored lists the nodes whose matrices the store shall have.
func (t *typedJob) stored() []*pathNode {
	all := t.tree.stored()
	if t.labelPaths != nil {
		all = append(all, t.labelPaths.stored()...)
	}
	return all
}

// operator is the operator of a metapath, and id its matrix.
func (t *typedJob) operator(n *pathNode) operator.Operator {
	return operator.Operator{Name: t.normalize.Name, NoLoops: true, Metapath: n.name, Labels: n.labels}
}

func (t *typedJob) id(n *pathNode) format.MatrixID {
	return format.MatrixID{Operator: t.operator(n).String(), Hop: 1}
}

// plan chooses the rows, and sets layout and target.
func (t *typedJob) plan(ctx context.Context) (rows *format.RowTable, err error) {
	paths := t.stored()
	own, _ := t.typed.Type(t.typed.Target)
	if len(paths) == 0 && own.Features == 0 {
		return nil, fmt.Errorf("%s: %w: no type with features leads to %s within %d hops", t.graphDir, ErrOptions,
			t.typed.Target, t.options.Hops)
	}
	widest := own.Features
	var operators []operator.Operator
	widths := map[string]int{}
	for _, n := range paths {
		widest = max(widest, n.source.Features)
		operators = append(operators, t.operator(n))
		widths[t.operator(n).String()] = n.source.Features
	}
	slices.SortFunc(operators, operator.Compare)
	for _, o := range operators {
		t.want.Operators = append(t.want.Operators, format.Operator{Name: o.String(), Hops: 1, Features: widths[o.String()]})
	}
	return storeRows(ctx, t.target, &t.options, func(sizes []format.RegionSize, rows int64) error {
		if rows == 0 {
			return fmt.Errorf("%s: %w: no node of type %s has a label or is in a split, so there is nothing to store (to "+
				"store all, say --rows all)", t.graphDir, ErrOptions, t.typed.Target)
		}
		t.layout = format.NewLayout(sizes, t.options.ChunkRows, widest, t.options.DType)
		t.layout.Features = own.Features
		if len(widths) > 0 {
			t.layout.Widths = widths
		}
		need := plan.ProcessBytes + plan.PickedBytes(&t.target.Manifest, rows)
		if t.options.MemoryBytes > 0 && need > t.options.MemoryBytes {
			return plan.ErrDoesNotFit(t.options.MemoryBytes, need)
		}
		t.want.Graph, t.want.Rows, t.want.Split, t.want.Seed = t.typed.Fingerprint, t.options.Rows, t.options.Split,
			t.options.Seed
		t.want.DType, t.want.ChunkRows, t.want.Features = t.options.DType.String(), t.layout.ChunkRows, own.Features
		if t.options.Nodes != nil {
			t.want.Nodes = nodesDigest(t.options.Nodes)
		}
		t.want.StoredRows, t.want.NoInput, t.want.LabelHops = rows, own.Features == 0, t.options.LabelHops
		return nil
	})
}

// newResult lists what the store shall have.
func (t *typedJob) newResult() *Result {
	r := &Result{Nodes: t.target.Manifest.Nodes, Features: t.want.Features, Operators: []string{}, OperatorHops: []int{},
		ProductsPerHop: []int{}, TruncationErrors: []float64{}, Hops: t.options.Hops, Rows: t.want.StoredRows,
		DType: t.want.DType, HopSeconds: []float64{}, EdgesProcessed: []int64{}, Beyond: append([]string{}, t.beyond...),
		MemoryBudgetBytes: t.options.MemoryBytes, Output: t.storeDir, LabelHops: t.options.LabelHops}
	if r.LabelHops > 0 {
		r.LabelColumns = t.target.Manifest.OneHotColumns()
	}
	for _, relation := range t.typed.Relations {
		r.Edges += relation.Edges
	}
	for _, o := range t.want.Operators {
		r.Operators, r.OperatorHops = append(r.Operators, o.Name), append(r.OperatorHops, 1)
		r.ProductsPerHop, r.TruncationErrors = append(r.ProductsPerHop, 1), append(r.TruncationErrors, 0)
	}
	for _, n := range t.stored() {
		bytes := t.want.StoredRows * int64(n.source.Features*t.options.DType.Size())
		r.Metapaths = append(r.Metapaths, Metapath{n.title(), n.source.Features, bytes, 0})
	}
	return r
}

// complete tells whether the store is there already, with all that was asked for. It fails if the store cannot grow to
// that.
func (t *typedJob) complete() (bool, error) {
	if t.existing == nil {
		return false, nil
	}
	there := targetOf(&t.existing.Manifest)
	there.NoInput = there.Features == 0
	if there.String() == t.want.String() {
		return true, nil
	}
	grown := there
	grown.Operators = t.want.Operators
	if difference := grown.differences(t.want); difference != "" {
		return false, fmt.Errorf("%s: %w, with other options: %s (give another directory, or --force to replace it)",
			t.storeDir, format.ErrExists, difference)
	}
	return false, nil
}

// predict sets the memory and the time of the job, and fails unless each step has a plan within the memory.
func (t *typedJob) predict(r *Result) error {
	seconds := map[string]float64{} // of metapaths, each with the steps that it shares with others
	var visit func(n *pathNode, before float64) error
	visit = func(n *pathNode, before float64) error {
		d, err := format.OpenRelation(t.fsys, format.RelationDir(t.graphDir, n.relation))
		if err != nil {
			return err
		}
		defer d.Close()
		layout, rows := t.layout.Of(t.id(n)), t.want.StoredRows
		if len(n.next) > 0 {
			rows = d.Manifest.Nodes
			layout = format.NewLayout([]format.RegionSize{{Name: format.RegionRest, Rows: rows}}, 0, n.source.Features,
				t.options.DType)
		}
		w, err := newWork(&d.Manifest, &t.target.Manifest, layout, rows, []format.MatrixID{t.id(n)}, t.options.Threads)
		if err != nil {
			return err
		}
		input := layout
		input.ChunkRows = format.ChunkRowsFor(0, n.source.Features, t.options.DType)
		w.Sequences = []*plan.Sequence{{Operator: t.operator(n), Hops: 1}}
		w.Inputs, w.Loads = []format.Layout{input}, []int{1}
		p, err := t.options.planOf(w)
		if err != nil {
			return fmt.Errorf("metapath %s: %w", n.title(), err)
		}
		before += p.Seconds
		seconds[n.title()] = before
		if r.Plan.MemoryBytes = max(r.Plan.MemoryBytes, p.MemoryBytes); t.unfinished(n) {
			r.Plan.Seconds += p.Seconds
		}
		if n.labels && n.stored {
			if err := t.checkLabelMemory(n); err != nil {
				return err
			}
		}
		for _, next := range n.next {
			if err := visit(next, before); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	t.roots(func(root *pathNode) {
		if err == nil {
			err = visit(root, 0)
		}
	})
	for i := range r.Metapaths {
		r.Metapaths[i].Seconds = seconds[r.Metapaths[i].Name]
	}
	return err
}

// checkSpace fails unless the disk has room for the store, and for the matrices of a step on its way to it.
func (t *typedJob) checkSpace() (bytes int64, err error) {
	for _, id := range t.want.matrices() {
		if t.has(id) {
			continue
		}
		one, err := t.layout.MatrixBytes(id)
		if err != nil {
			return 0, err
		}
		bytes += one
	}
	between := int64(0)
	var visit func(n *pathNode, held int64)
	visit = func(n *pathNode, held int64) {
		to, _ := t.typed.Type(n.relation.Destination)
		if len(n.next) > 0 {
			held += to.Nodes * int64(n.source.Features*t.options.DType.Size())
		}
		between = max(between, held)
		for _, next := range n.next {
			visit(next, held)
		}
	}
	t.roots(func(root *pathNode) { visit(root, 0) })
	if own, _ := t.typed.Type(t.typed.Target); t.labelPaths != nil {
		between += own.Nodes * int64(t.target.Manifest.OneHotColumns()*t.options.DType.Size())
	}
	return bytes, machine.CheckSpace(t.fsys, t.storeDir, bytes+between)
}

// create begins the store, or goes on with an interrupted job.
func (t *typedJob) create() (err error) {
	digest := sha256.Sum256([]byte(t.want.String()))
	t.prefix = fmt.Sprintf("step-%x-", digest[:6])
	t.scratch = scratchInStore(t.storeDir)
	o := format.CreateOptions{Force: t.options.Force, Job: t.want.String(), Widths: t.layout.Widths,
		Locked: func() error {
			if t.options.Force {
				return t.removeSteps(t.prefix)
			}
			return checkUnchanged(t.fsys, t.storeDir, t.existing)
		}}
	if t.existing != nil {
		t.store, err = format.Extend(t.fsys, t.storeDir, o)
		return explainOtherJob(err, t.storeDir, t.want, "remove "+filepath.Dir(t.scratch)+" to give it up")
	}
	t.store, err = format.Create(t.fsys, t.storeDir, t.layout, o)
	return explainOtherJob(err, t.storeDir, t.want, "start anew with --force")
}

// removeSteps removes the stores of steps whose names do not begin with but; "": all.
func (t *typedJob) removeSteps(but string) error {
	entries, err := t.fsys.ReadDir(t.scratch)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		kept := but != "" && strings.HasPrefix(e.Name(), but)
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), "step-") && !kept {
			err = format.Remove(t.fsys, filepath.Join(t.scratch, e.Name()))
		}
	}
	return err
}

// started tells whether the job has made anything that it can go on with.
func (t *typedJob) started() bool {
	for _, id := range t.want.matrices() {
		if t.store.Finished(id) && !t.has(id) {
			return true
		}
	}
	entries, _ := t.fsys.ReadDir(t.scratch)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), t.prefix) })
}

// make makes the matrices that are missing, and publishes the store.
func (t *typedJob) make(ctx context.Context, rows *format.RowTable, r *Result) error {
	r.Resumed = t.started()
	if _, err := t.store.Scratch(); err != nil {
		return err
	}
	if t.existing == nil {
		if err := t.store.Rows(rows); err != nil {
			return err
		}
	}
	if !t.want.NoInput && !t.store.Finished(format.Input) {
		x, err := t.target.Matrix(format.Input)
		if err == nil {
			err = t.storeMatrix(ctx, r, t.target.Path(), x, nil, nil)
		}
		if err != nil {
			return err
		}
	}
	for _, n := range t.typed.Types {
		if len(t.tree.roots[n.Name]) == 0 {
			continue
		}
		d, err := format.OpenGraph(t.fsys, format.NodesDir(t.graphDir, n.Name))
		if err != nil {
			return err
		}
		x, err := d.Matrix(format.Input)
		for _, root := range t.tree.roots[n.Name] {
			if err == nil {
				err = t.visit(ctx, r, root, x)
			}
		}
		if err := errors.Join(err, d.Close()); err != nil {
			return err
		}
	}
	if err := t.makeLabels(ctx, r, rows); err != nil {
		return err
	}
	g := &t.target.Manifest
	m := &format.Manifest{
		Kind: format.KindStore, Name: t.typed.Name, Nodes: g.Nodes, Edges: r.Edges, Directed: true, Classes: g.Classes,
		ClassNames: g.ClassNames, Labels: g.Labels, Splits: g.Splits, Split: t.want.Split, RowSet: t.want.Rows,
		Seed: t.want.Seed, Operators: t.want.Operators, LabelHops: t.want.LabelHops, Input: g.Preparation(),
	}
	m.Input["graph"] = t.typed.Fingerprint
	if err := t.removeSteps(""); err != nil {
		return err
	}
	return t.store.Publish(m)
}

// unfinished tells whether the store lacks the matrix of a node, or of one below it.
func (t *typedJob) unfinished(n *pathNode) bool {
	finished := t.store != nil && t.store.Finished(t.id(n)) || t.has(t.id(n))
	return n.stored && !finished || slices.ContainsFunc(n.next, t.unfinished)
}

// visit makes the matrix of a node from x, that of the node before, and then those of the nodes below it. What these
// are made from is on disk until they are finished.
func (t *typedJob) visit(ctx context.Context, r *Result, n *pathNode, x *format.Matrix) error {
	if !t.unfinished(n) {
		return nil
	}
	relation := format.RelationDir(t.graphDir, n.relation)
	applied := []operator.Operator{t.operator(n)}
	if len(n.next) == 0 {
		return t.storeMatrix(ctx, r, relation, x, n, applied)
	}
	options := t.options
	options.Rows, options.Nodes, options.Split, options.ChunkRows = format.RowsAll, nil, 0, 0
	dir := filepath.Join(t.scratch, t.prefix+"all-"+n.folder())
	d, err := t.runStep(ctx, r, dir, relation, applied, options, &step{id: t.id(n), input: x, labels: n.labels})
	if err != nil {
		return err
	}
	all, err := d.Matrix(t.id(n))
	if err == nil && n.stored && !t.store.Finished(t.id(n)) {
		err = t.storeMatrix(ctx, r, relation, all, n, nil)
	}
	for _, next := range n.next {
		if err == nil {
			err = t.visit(ctx, r, next, all)
		}
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	return format.Remove(t.fsys, dir)
}

// storeMatrix makes the stored rows of the matrix of a node, or, if it is nil, of the input, from x by an operator or,
// without one, of x itself, and moves them to the store.
func (t *typedJob) storeMatrix(ctx context.Context, r *Result, graphDir string, x *format.Matrix, n *pathNode,
	applied []operator.Operator) error {
	options := t.options
	options.ChunkRows = t.layout.ChunkRows
	dir := filepath.Join(t.scratch, t.prefix+"rows")
	one := &step{id: format.Input, input: x, rows: t.target}
	if n != nil {
		dir += "-" + n.folder()
		one.id, one.labels = t.id(n), n.labels
	}
	id := one.id
	d, err := t.runStep(ctx, r, dir, graphDir, applied, options, one)
	if err != nil {
		return err
	}
	m, err := d.Matrix(id)
	var out *format.MatrixWriter
	if err == nil {
		out, err = t.store.Matrix(id)
	}
	if err == nil && one.labels {
		err = t.withoutOwn(ctx, out, m, n)
	} else if err == nil {
		var taken int64
		if taken, err = out.Adopt(m, d.Manifest.Rows); err == nil && taken < d.Manifest.Rows {
			err = fmt.Errorf("%s: of %s, %d of %d rows were taken over", t.storeDir, id, taken, d.Manifest.Rows)
		}
	}
	if err == nil {
		err = out.Close()
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	return format.Remove(t.fsys, dir)
}

// runStep makes the store of a step, or goes on with it, and opens it.
func (t *typedJob) runStep(ctx context.Context, r *Result, dir, graphDir string, applied []operator.Operator,
	options Options, one *step) (*format.Dir, error) {
	d, err := format.OpenStore(t.fsys, dir)
	if err == nil {
		return d, nil // an earlier run made it
	}
	if !errors.Is(err, format.ErrIncomplete) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := &jobContext{start: time.Now(), fsys: vfs.NewPastCache(t.fsys), graphDir: graphDir, storeDir: dir}
	if s.graph, err = format.OpenRelation(s.fsys, graphDir); err != nil {
		return nil, err
	}
	defer s.close()
	options.step, options.Operators, options.Hops, options.Force = one, applied, len(applied), false
	options.LabelHops = 0
	options.Planned = func(*Plan) {}
	s.options = options // by which rowsFrom goes
	if s.options, err = options.withDefaults(&s.rowsFrom().Manifest, options.DType); err != nil {
		return nil, err
	}
	if err := s.chooseRows(ctx); err != nil {
		return nil, err
	}
	done, err := s.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(one.id.Operator, "x"), err)
	}
	r.HopSeconds, r.EdgesProcessed = append(r.HopSeconds, done.HopSeconds...), append(r.EdgesProcessed,
		done.EdgesProcessed...)
	r.BytesRead, r.BytesWritten = r.BytesRead+done.BytesRead, r.BytesWritten+done.BytesWritten
	r.Plan.MemoryBytes = max(r.Plan.MemoryBytes, done.Plan.MemoryBytes)
	return format.OpenStore(t.fsys, dir)
}
