package preprop

import (
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
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// typedJob makes the store of a typed graph. Its steps, one product each, are jobs like those of plain graphs, with
// stores of their own in the scratch folder of the whole; the store takes their matrices over.
type typedJob struct {
	fsys               *vfs.PastCache
	graphDir, storeDir string
	typed              *format.Typed
	order              []*typedMatrix      // inputs before what is made of them
	labels             *product.Labels     // loaded once a matrix of labels is made
	table              *format.RowTable    // of the store, as all steps that make rows of it have
	regions            []format.RegionSize // of the store
	target             *format.Dir         // the nodes of the target type
	options            Options
	normalize          operator.Operator // Sym or RW
	layout             format.Layout
	want               target                               // of the whole store
	sizes              map[format.Relation]*format.Manifest // of relations that were opened

	existing *format.Dir   // the complete store that the job adds to; nil: none
	earlier  *typedEarlier // nil: no Options.From
	beyond   []string      // metapaths that it has and the options do not ask for

	store   *format.Writer
	reserve engine.Reserve // of matrices, which steps hand on
	// by the plan, of steps, and whether a matrix is written that would have stayed in memory
	seconds             map[*typedMatrix]float64
	computes            map[*typedMatrix]*plan.DevicePlan // products of steps: by the plan, then of those that ran
	device              gds.Device                        // is lent to the steps that use it; nil: it is not open
	inOnePanel, written map[*typedMatrix]bool
	scratch             string
	prefix              string // of the folders of steps: other jobs have others
}

func propagateTyped(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, o Options) (*Result, error) {
	t, err := openTypedJob(fsys, graphDir, storeDir, o)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if err := t.plan(ctx); err != nil {
		return nil, err
	}
	if err := t.findSame(ctx); err != nil {
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
	if err := t.make(ctx, r); err != nil {
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
	r.BytesRead, r.BytesWritten = t.fsys.Read().Bytes(), t.fsys.Written().Bytes()
	r.ScratchBytes = max(0, r.BytesWritten-r.Plan.StoreBytes)
	r.Paths = filePaths(t.fsys.Read(), t.fsys.Written())
	recordTook(t.fsys, storeDir, t.existing != nil, r)
	return r, nil
}

// openTypedJob checks the options, and finds the metapaths.
func openTypedJob(fsys vfs.FS, graphDir, storeDir string, o Options) (_ *typedJob, err error) {
	fail := func(text string, args ...any) (*typedJob, error) {
		return nil, fmt.Errorf("%s: %w: %w", graphDir, ErrOptions, fmt.Errorf(text, args...))
	}
	t := &typedJob{fsys: vfs.NewPastCache(fsys), graphDir: graphDir, storeDir: storeDir,
		sizes: map[format.Relation]*format.Manifest{}}
	if t.typed, err = format.OpenTyped(t.fsys, graphDir); err != nil {
		return nil, err
	}
	if err := checkApart(fsys, graphDir, storeDir); err != nil {
		return nil, err
	}
	if err := t.openExisting(&o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if err := t.openEarlier(&o); err != nil {
		return nil, err
	}
	if o.Defaulted.Operators || len(o.Operators) == 0 {
		o.Operators = []operator.Operator{{Name: operator.RW}}
	}
	t.normalize = o.Operators[0]
	switch {
	case len(o.Operators) > 1 || t.normalize != (operator.Operator{Name: t.normalize.Name}) ||
		t.normalize.Name != operator.RW && t.normalize.Name != operator.Sym:
		return fail("of a typed graph, --operator is rw (the mean over each relation, the default) or sym")
	case o.Scratch != "":
		return fail("--scratch is for graphs of one type (leave it out)")
	case vfs.IsURL(storeDir):
		return fail("the store of a typed graph is made on a local disk (give another output, and copy it)")
	}
	matrices := newTypedMatrices(t.typed)
	switch {
	case len(o.Metapaths) > 0 && o.RelationsSubsets > 0:
		return fail("--metapaths and --relations-subsets are for one store after the other (leave out one of them)")
	case o.RelationsSubsets < 0:
		return fail("--relations-subsets %d: must not be negative", o.RelationsSubsets)
	case o.RelationsSubsets > 0:
		found, err := matrices.addSubsets(o.RelationsSubsets, o.Hops, o.Seed)
		if err != nil {
			return fail("%w", err)
		}
		if found < o.RelationsSubsets && o.Note != nil {
			o.Note(fmt.Sprintf("there are %d subsets of relations", found))
		}
	case len(o.Metapaths) > 0:
		o.Hops = 0
		for _, text := range o.Metapaths {
			hops, err := matrices.add(text)
			if err != nil {
				return fail("%w", err)
			}
			o.Hops = max(o.Hops, hops)
		}
	case t.earlier != nil && o.Defaulted.Hops:
		if o.Hops, err = matrices.addStored(&t.earlier.store.Manifest); err != nil {
			return fail("%w", err)
		}
	case !o.Defaulted.Hops || t.existing == nil:
		if err := matrices.addAllPaths(o.Hops); err != nil {
			return fail("%w", err)
		}
	}
	if err := t.keepMetapaths(matrices); err != nil {
		return fail("%w", err)
	}
	if matrices.haveHops() && t.normalize.Name != operator.RW {
		return fail("over subsets of relations, --operator is rw, the mean (give another directory for %s)", t.normalize.Name)
	}
	t.order = matrices.inOrder()
	if t.target, err = t.typed.OpenNodes(t.fsys, graphDir, t.typed.Target); err != nil {
		return nil, err
	}
	t.options, err = (&Options{Rows: o.Rows, Nodes: o.Nodes, Hardware: o.Hardware, DType: o.DType,
		ChunkRows: o.ChunkRows, Split: o.Split, Seed: o.Seed, Threads: o.Threads, MemoryBytes: o.MemoryBytes,
		Force: o.Force, DryRun: o.DryRun, Note: o.Note, Progress: o.Progress, MaxTime: o.MaxTime, Device: o.Device,
		MetapathsPlanned: o.MetapathsPlanned, clock: o.clock, begun: o.begun,
	}).withDefaults(&t.target.Manifest, t.target.Layout().DType)
	t.options.Hops = o.Hops
	if err == nil {
		err = t.planLabels(o.LabelHops, o.labelPaths)
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
	if t.device != nil {
		err = errors.Join(err, t.device.Close())
	}
	if t.earlier != nil {
		err = errors.Join(err, t.earlier.store.Close())
	}
	return err
}

// operator is the operator of a metapath, or of a hop of a subset, and id its matrix.
func (t *typedJob) operator(n *typedMatrix, metapath string) operator.Operator {
	return operator.Operator{Name: t.normalize.Name, NoLoops: true, Metapath: metapath, Labels: n.labels}
}

func (t *typedJob) id(n *typedMatrix, metapath string) format.MatrixID {
	return format.MatrixID{Operator: t.operator(n, metapath).String(), Hop: 1}
}

// plan chooses the rows, and sets layout and target.
func (t *typedJob) plan(ctx context.Context) (err error) {
	own, _ := t.typed.Type(t.typed.Target)
	widest := own.Features
	var operators []operator.Operator
	widths := map[string]int{}
	for _, n := range t.order {
		for _, name := range n.stored {
			widest = max(widest, n.source.Features)
			operators = append(operators, t.operator(n, name))
			widths[t.operator(n, name).String()] = n.source.Features
		}
	}
	if len(operators) == 0 && own.Features == 0 {
		return fmt.Errorf("%s: %w: no type with features leads to %s within %d hops", t.graphDir, ErrOptions,
			t.typed.Target, t.options.Hops)
	}
	slices.SortFunc(operators, operator.Compare)
	for _, o := range operators {
		t.want.Operators = append(t.want.Operators, format.Operator{Name: o.String(), Hops: 1,
			Features: widths[o.String()]})
	}
	t.table, err = storeRows(ctx, t.target, &t.options, func(sizes []format.RegionSize, rows int64) error {
		if rows == 0 {
			return fmt.Errorf("%s: %w: no node of type %s has a label or is in a split, so there is nothing to store (to "+
				"store all, say --rows all)", t.graphDir, ErrOptions, t.typed.Target)
		}
		t.regions, t.layout = sizes, format.NewLayout(sizes, t.options.ChunkRows, widest, t.options.DType)
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
		digest := sha256.Sum256([]byte(t.want.String()))
		t.scratch, t.prefix = scratchInStore(t.storeDir), fmt.Sprintf("step-%x-", digest[:6])
		return nil
	})
	return err
}

// newResult lists what the store shall have.
func (t *typedJob) newResult() *Result {
	r := &Result{Nodes: t.target.Manifest.Nodes, Features: t.want.Features, Operators: []string{}, OperatorHops: []int{},
		ProductsPerHop: []int{}, TruncationErrors: []float64{}, Hops: t.options.Hops, Rows: t.want.StoredRows,
		DType: t.want.DType, HopSeconds: []float64{}, EdgesProcessed: []int64{}, Beyond: append([]string{}, t.beyond...),
		MemoryBudgetBytes: t.options.MemoryBytes, Output: t.storeDir, LabelHops: t.options.LabelHops}
	if t.earlier != nil {
		r.From = t.earlier.taken
	}
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
	subsets := map[string]bool{}
	for _, n := range t.order {
		for _, name := range n.stored {
			bytes := t.want.StoredRows * int64(n.source.Features*t.options.DType.Size())
			r.Metapaths = append(r.Metapaths, Metapath{Name: n.title(name), Features: n.source.Features, Bytes: bytes})
			if spelled, _, isHop := strings.Cut(name, "="); isHop {
				subsets[spelled] = true
			}
		}
	}
	r.RelationsSubsets = len(subsets)
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
	if err := t.chooseDevice(r); err != nil {
		return err
	}
	if err := t.planSteps(r); err != nil {
		return err
	}
	t.sayDevices(r)
	return nil
}

// planSteps plans all steps.
func (t *typedJob) planSteps(r *Result) error {
	t.seconds, t.inOnePanel, t.written = map[*typedMatrix]float64{}, map[*typedMatrix]bool{}, map[*typedMatrix]bool{}
	t.computes = map[*typedMatrix]*plan.DevicePlan{}
	r.Plan.MemoryBytes, r.Plan.Seconds = 0, 0
	whole := map[string]float64{} // of metapaths, each with the steps that it shares with others
	for _, n := range t.order {
		if len(n.relations) == 0 {
			continue
		}
		g, err := t.mergedManifest(n.relations)
		if err != nil {
			return err
		}
		layout, rows := t.layout, t.want.StoredRows
		layout.Features, layout.Widths = n.source.Features, nil
		if !n.leaf() {
			rows = g.Nodes
			layout = t.between(n)
		}
		id := t.id(n, n.name)
		w, err := newWork(g, &t.target.Manifest, layout, rows, []format.MatrixID{id}, t.options.Threads)
		if err != nil {
			return err
		}
		input := layout
		input.ChunkRows = format.ChunkRowsFor(0, n.source.Features, t.options.DType)
		w.Held = t.tableBytes()
		w.Sequences = []*plan.Sequence{{Operator: t.operator(n, n.name), Hops: 1}}
		w.Inputs, w.Loads = []format.Layout{input}, []int{1}
		p, err := t.options.planOf(w)
		if err != nil {
			return fmt.Errorf("metapath %s: %w", n.title(n.name), err)
		}
		t.seconds[n], t.inOnePanel[n] = p.Seconds, p.Panels == 1
		if r.Plan.MemoryBytes = max(r.Plan.MemoryBytes, p.MemoryBytes); t.unfinished(n) {
			r.Plan.Seconds += p.Seconds
			t.computes[n] = p.Device
		}
		for _, one := range n.madeOf() {
			for _, name := range n.stored {
				whole[n.title(name)] += t.seconds[one]
			}
		}
		if n.labels && len(n.stored) > 0 {
			if err := t.checkLabelMemory(n); err != nil {
				return err
			}
		}
	}
	for i := range r.Metapaths {
		r.Metapaths[i].Seconds = whole[r.Metapaths[i].Name]
	}
	return nil
}

// tableBytes is the memory of the rows of the store, which are held all the time.
func (t *typedJob) tableBytes() int64 { return plan.PickedBytes(&t.target.Manifest, t.want.StoredRows) }

// between is the layout of a matrix of all nodes, which others are made of.
func (t *typedJob) between(n *typedMatrix) format.Layout {
	return format.NewLayout([]format.RegionSize{{Name: format.RegionRest, Rows: n.head.Nodes}}, 0, n.source.Features,
		t.options.DType)
}

// checkSpace fails unless the disk has room for the store, and for what is on the way to it.
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
	held, most, merged, done := int64(0), int64(0), map[string]int64{}, map[*typedMatrix]bool{}
	size := func(n *typedMatrix) int64 {
		if n.leaf() || len(n.relations) == 0 && !n.labels {
			return 0
		}
		return n.head.Nodes * int64(n.source.Features*t.options.DType.Size())
	}
	for _, n := range t.order {
		held += size(n)
		most, done[n] = max(most, held), true
		for _, x := range n.spent(done) {
			held -= size(x)
		}
		if len(n.relations) > 1 {
			g, err := t.mergedManifest(n.relations)
			if err != nil {
				return 0, err
			}
			merged[relationsKey(n.relations)] = 8*g.Nodes + 8*g.Edges
		}
	}
	for _, one := range merged {
		most += one
	}
	return bytes, machine.CheckSpace(t.fsys, t.storeDir, bytes+most)
}

// create begins the store, or goes on with an interrupted job.
func (t *typedJob) create() (err error) {
	o := format.CreateOptions{Force: t.options.Force, Job: t.want.String(), Widths: t.layout.Widths,
		Locked: func() error {
			if t.options.Force {
				return t.removeSteps(t.prefix)
			}
			return errors.Join(removeStep(t.fsys, t.repairDir()), checkUnchanged(t.fsys, t.storeDir, t.existing))
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
			err = removeStep(t.fsys, filepath.Join(t.scratch, e.Name()))
		}
	}
	return err
}

// removeStep removes the store of a step and, where that is of a typed graph too, those of its steps.
func removeStep(fsys *vfs.PastCache, dir string) error {
	steps := &typedJob{fsys: fsys, scratch: scratchInStore(dir)}
	if err := steps.removeSteps(""); err != nil {
		return err
	}
	return format.Remove(fsys, dir)
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
func (t *typedJob) make(ctx context.Context, r *Result) error {
	t.reserve.LimitBytes = r.Plan.MemoryBytes
	defer t.reserve.Free()
	r.Resumed = t.started()
	if _, err := t.store.Scratch(); err != nil {
		return err
	}
	if t.existing == nil {
		if err := t.store.Rows(t.table); err != nil {
			return err
		}
	}
	if err := t.takeOver(ctx); err != nil {
		return err
	}
	if !t.want.NoInput && !t.store.Finished(format.Input) {
		x, err := t.target.Matrix(format.Input)
		if err == nil {
			in := engine.NewInput(x, nil, 0)
			in.Content = t.typed.Target
			err = t.storeMatrix(ctx, r, t.target.Path(), in, []format.MatrixID{format.Input}, nil, nil)
		}
		if err != nil {
			return err
		}
	}
	done := map[*typedMatrix]bool{}
	for _, n := range t.order {
		if t.unfinished(n) {
			err := t.makeMatrix(ctx, r, n)
			if errors.Is(err, errNotInMemory) {
				err = t.writeInstead(ctx, r, n)
			}
			if err != nil {
				return err
			}
		}
		done[n] = true
		for _, x := range n.spent(done) {
			t.reserve.Forget(x.key)
			if err := t.removeBetween(x); err != nil {
				return err
			}
		}
	}
	if err := t.reserve.Free(); err != nil {
		return err
	}
	t.sayDevices(r)
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
