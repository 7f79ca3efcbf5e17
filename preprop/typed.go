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

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// typedJob makes the store of a typed graph in steps. A step computes one product or takes rows, as a plain job
// does. If it makes stored rows, it writes them to the store; if it makes the rows of all nodes, it makes a store of
// its own in the scratch folder of the whole job.
type typedJob struct {
	*jobContext // of the whole store; graph is the nodes of the target type (format.OpenTarget)
	typed       *format.Typed
	order       []*typedMatrix                       // inputs before what is made of them
	normalize   operator.Operator                    // Sym or RW
	sizes       map[format.Relation]*format.Manifest // of relations that were opened
	layouts     map[string]format.Layout             // of the features of types that were opened

	store   *format.Writer
	cut     *engine.Input        // of a task, the features of its columns; nil: the graph has them
	results []engine.ColumnFiles // of the store's matrices: of a task, or where they do not go to the store at once
	reserve engine.Reserve       // of matrices, which steps hand on
	// by the plan, of steps, and whether a matrix is written that would have stayed in memory
	seconds             map[*typedMatrix]float64
	computes            map[*typedMatrix]*plan.DevicePlan // products of steps: by the plan, then of those that ran
	device              gds.Device                        // is lent to the steps that use it; nil: it is not open
	inOnePanel, written map[*typedMatrix]bool
	computing           float64 // seconds of the plan beside reading and writing
	saved               bool    // a step that has ended has left what it made
	checkpointShare     float64 // of the time of steps that write to the store
	prefix              string  // of the folders of steps: other jobs have others
}

func newTypedJob(s *jobContext) *typedJob {
	return &typedJob{jobContext: s, typed: s.graph.Typed, sizes: map[format.Relation]*format.Manifest{},
		layouts: map[string]format.Layout{}}
}

func (t *typedJob) context() *jobContext { return t.jobContext }

// setOptions checks the options, and finds the metapaths.
func (t *typedJob) setOptions(o Options) error {
	fail := func(text string, args ...any) error {
		return fmt.Errorf("%s: %w: %w", t.graphDir, ErrOptions, fmt.Errorf(text, args...))
	}
	if err := t.takeExisting(&o); err != nil {
		return err
	}
	if o.From != "" && t.existing == nil {
		if err := t.openEarlier(&o); err != nil {
			return err
		}
		if err := o.takeNormalization(&t.earlier.store.Manifest); err != nil {
			return err
		}
	}
	if o.Defaulted.Operators || len(o.Operators) == 0 {
		o.Operators = []operator.Operator{{Name: operator.RW}}
	}
	t.normalize = o.Operators[0]
	if len(o.Operators) > 1 || t.normalize != (operator.Operator{Name: t.normalize.Name}) ||
		t.normalize.Name != operator.RW && t.normalize.Name != operator.Sym {
		return fail("of a typed graph, --operator is rw (the mean over each relation, the default) or sym")
	}
	matrices := newTypedMatrices(t.typed)
	switch {
	case o.Hops < 0 || o.Hops > format.MaxHops:
		return fail("%d hops: there can be 0 to %d", o.Hops, format.MaxHops)
	case len(o.Metapaths) > 0 && o.Hops > 0 && !o.Defaulted.Hops:
		return fail("--hops %d is for all metapaths up to that length, --metapaths names some (leave out one of them)",
			o.Hops)
	case len(o.Metapaths) > 0 && o.RelationsSubsets > 0:
		return fail("--metapaths and --relations-subsets contradict each other (leave out one of them; a second " +
			"propagation adds what the other names to the same store)")
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
		hops, err := matrices.addStored(&t.earlier.store.Manifest)
		if err != nil {
			return fail("%w", err)
		}
		o.Hops = hops
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
	if own, _ := t.typed.Type(t.typed.Target); own.Features > 0 {
		if _, err := matrices.features(own.Name); err != nil { // hop 0
			return fail("%w", err)
		}
	}
	t.order = matrices.inOrder()
	hops, labelHops := o.Hops, o.LabelHops
	o.Operators, o.Hops, o.LabelHops, o.Metapaths, o.RelationsSubsets = nil, 0, 0, nil, 0
	var err error
	t.options, err = o.withDefaults(&t.graph.Manifest, t.graph.Layout().DType)
	t.options.Hops = hops
	if err == nil {
		err = t.planLabels(labelHops, o.labelPaths)
	}
	if err != nil {
		return fail("%w", err)
	}
	if err := t.setMatrices(); err != nil || t.existing == nil {
		return err
	}
	t.setTarget(regionSizes(t.existing.Layout()), t.existing.Manifest.Rows)
	t.complete, err = t.isComplete()
	return err
}

// findRows chooses the rows, and finds what an earlier store has of them.
func (t *typedJob) findRows(ctx context.Context) error {
	var lack *plan.NoRoom
	if err := t.chooseRows(ctx); errors.As(err, &lack) {
		return cmp.Or(t.predict(t.newResult()), err) // which names what the whole job needs
	} else if err != nil {
		return err
	}
	return t.findSame(ctx)
}

func (t *typedJob) close() error { return errors.Join(t.jobContext.close(), t.closeDevice()) }

func (t *typedJob) closeDevice() error {
	if t.device == nil {
		return nil
	}
	return t.device.Close()
}

// operator is the operator of a metapath, or of a hop of a subset, and id its matrix.
func (t *typedJob) operator(n *typedMatrix, metapath string) operator.Operator {
	return operator.Operator{Name: t.normalize.Name, NoLoops: true, Metapath: metapath, Labels: n.labels}
}

// width is how many columns of a matrix are made.
func (t *typedJob) width(n *typedMatrix) int { return cmp.Or(t.share.Width(), n.source.Features) }

func (t *typedJob) id(n *typedMatrix, metapath string) format.MatrixID {
	return format.MatrixID{Operator: t.operator(n, metapath).String(), Hop: 1}
}

// setMatrices lists what the store shall have beside hop 0.
func (t *typedJob) setMatrices() error {
	for _, n := range t.order {
		for _, name := range n.stored {
			t.matrices = append(t.matrices, format.Operator{Name: t.operator(n, name).String(), Hops: 1,
				Features: n.source.Features})
		}
	}
	if len(t.matrices) == 0 && t.graph.Manifest.Features == 0 {
		return fmt.Errorf("%s: %w: no type with features leads to %s within %s", t.graphDir, ErrOptions,
			t.typed.Target, units.Count(int64(t.options.Hops), "hop"))
	}
	slices.SortFunc(t.matrices, func(a, b format.Operator) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// newResult lists what the store shall have.
func (t *typedJob) newResult() *Result {
	r := t.jobContext.newResult(&t.graph.Manifest)
	if t.earlier != nil {
		r.From = t.earlier.taken
	}
	subsets := map[string]bool{}
	for _, n := range t.order {
		for _, name := range n.stored {
			bytes := t.target.StoredRows * int64(n.source.Features*t.options.DType.Size())
			r.Metapaths = append(r.Metapaths, Metapath{Name: n.title(name), Features: n.source.Features, Bytes: bytes})
			if spelled, _, isHop := strings.Cut(name, "="); isHop {
				subsets[spelled] = true
			}
		}
	}
	r.RelationsSubsets = len(subsets)
	return r
}

// isComplete tells whether the store is there already, with all that was asked for. It fails if the store cannot grow
// to that.
func (t *typedJob) isComplete() (bool, error) {
	there := targetOf(&t.existing.Manifest)
	there.NoInput = there.Features == 0
	if there.String() == t.target.String() {
		return true, nil
	}
	there.Operators = t.target.Operators
	return false, t.checkGrows(there, t.target)
}

// plan plans all steps, and says what computes each metapath. It fails unless each has a plan within the memory.
func (t *typedJob) plan(_ context.Context, r *Result) (*Plan, error) {
	if err := t.findScratch(); err != nil {
		return nil, err
	}
	if err := t.predict(r); err != nil {
		return nil, err
	}
	if t.options.MetapathsPlanned != nil {
		t.options.MetapathsPlanned(r.Metapaths)
	}
	return &r.Plan, nil
}

// predict sets the memory and the time of the steps.
func (t *typedJob) predict(r *Result) error {
	if err := t.chooseDevice(r); err != nil {
		return err
	}
	if err := t.planSteps(r); err != nil {
		return err
	}
	t.sayDevices(r)
	return t.planDisk(&r.Plan)
}

// planSteps plans all steps. If some do not fit in the memory, the error is that of the one which needs most.
func (t *typedJob) planSteps(r *Result) error {
	t.seconds, t.inOnePanel, t.written = map[*typedMatrix]float64{}, map[*typedMatrix]bool{}, map[*typedMatrix]bool{}
	t.computes = map[*typedMatrix]*plan.DevicePlan{}
	r.Plan.MemoryBytes, r.Plan.Seconds, r.Plan.ReadBytes, r.Plan.WrittenBytes, t.computing = t.choosingBytes(), 0, 0, 0, 0
	whole := map[string]float64{} // of metapaths, each with the steps that it shares with others
	var most *plan.NoRoom
	var lack error
	fits := func(n *typedMatrix, err error) (bool, error) {
		var one *plan.NoRoom
		if !errors.As(err, &one) {
			return err == nil, err
		}
		if most == nil || one.LeastBytes > most.LeastBytes {
			most, lack = one, fmt.Errorf("metapath %s: %w", n.title(n.name), err)
		}
		return false, nil
	}
	for _, n := range t.order {
		works, err := t.works(n)
		if err != nil {
			return err
		}
		for _, w := range works {
			p, err := t.options.planOf(w)
			if ok, err := fits(n, err); err != nil {
				return err
			} else if ok {
				t.addPlan(&r.Plan, n, p)
			}
		}
		if n.labels && len(n.stored) > 0 {
			bytes, err := t.labelMemory(n)
			if _, err := fits(n, err); err != nil {
				return err
			}
			r.Plan.MemoryBytes = max(r.Plan.MemoryBytes, bytes)
		}
		for _, one := range n.madeOf() {
			for _, name := range n.stored {
				whole[n.title(name)] += t.seconds[one]
			}
		}
	}
	for i := range r.Metapaths {
		r.Metapaths[i].Seconds = whole[r.Metapaths[i].Name]
	}
	return lack
}

// addPlan adds the plan of a step of a matrix to that of the job.
func (t *typedJob) addPlan(all *Plan, n *typedMatrix, p *Plan) {
	all.MemoryBytes = max(all.MemoryBytes, p.MemoryBytes)
	pending, applies := len(t.missing(n)) > 0, len(p.Work.Sequences) > 0
	if applies {
		t.seconds[n], t.inOnePanel[n], pending = p.Seconds, p.Panels == 1, t.unfinished(n)
	}
	if !pending {
		return
	}
	if applies {
		t.computes[n] = p.Device
	}
	read, written := p.ReadBytes, p.WrittenBytes
	if p.Work.ResultFiles { // another task reads them
		read, written, _ = hopsBytes(p.Work, p)
	}
	all.Seconds, all.ReadBytes, all.WrittenBytes = all.Seconds+p.Seconds, all.ReadBytes+read, all.WrittenBytes+written
	t.computing += max(0, p.Seconds-float64(p.ReadBytes)/p.Rates.Read-float64(p.WrittenBytes)/p.Rates.Write)
}

// works describes the steps of a matrix: its product, of the stored rows or, if others are made of it, of all nodes;
// and what takes the stored rows of those.
func (t *typedJob) works(n *typedMatrix) (all []*plan.Work, err error) {
	add := func(g *format.Manifest, input, layout format.Layout, stored bool, products ...*plan.Sequence) error {
		rows := g.Nodes
		if stored {
			rows = t.target.StoredRows
		}
		w, err := newWork(g, layout, rows, []format.MatrixID{format.Input}, t.options.Threads)
		if err != nil {
			return err
		}
		if w.Held = t.heldBytes(n); stored {
			w.PickedBytes, w.ResultFiles = 0, t.share.Width() > 0 // the rows are held
		}
		w.Sequences, w.Inputs, w.Loads = products, []format.Layout{input}, []int{1}
		all = append(all, w)
		return nil
	}
	stored := t.layout
	stored.Features, stored.Widths = t.width(n), nil
	if len(n.relations) > 0 {
		g, err := t.mergedManifest(n.relations)
		if err != nil {
			return nil, err
		}
		input, err := t.inputLayout(n.inputs...)
		if err != nil {
			return nil, err
		}
		layout := stored
		if !n.leaf() {
			layout = t.between(n)
		}
		if err := add(g, input, layout, n.leaf(), &plan.Sequence{Operator: t.operator(n, n.name), Hops: 1}); err != nil {
			return nil, err
		}
	}
	if len(n.relations) == 0 && t.isInput(n) || len(n.relations) > 0 && !n.leaf() && len(n.stored) > 0 {
		input, err := t.inputLayout(n)
		if err != nil {
			return nil, err
		}
		if err := add(&format.Manifest{Nodes: n.head.Nodes}, input, stored, true); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// inputLayout is the layout of the matrices that one is made of: that of the one with most rows a chunk.
func (t *typedJob) inputLayout(inputs ...*typedMatrix) (most format.Layout, err error) {
	for _, x := range inputs {
		if x == nil {
			continue
		}
		one := t.between(x)
		if len(x.relations) == 0 && !x.labels {
			if one, err = t.featureLayout(x.source.Name); err != nil {
				return most, err
			}
		}
		if one.ChunkRows > most.ChunkRows {
			most = one
		}
	}
	return most, nil
}

// featureLayout is the layout of the features of a type, or of the columns of them that a task has cut.
func (t *typedJob) featureLayout(nodeType string) (format.Layout, error) {
	l, known := t.layouts[nodeType]
	if !known {
		d, err := t.typed.OpenNodes(t.fsys, t.graphDir, nodeType)
		if err != nil {
			return l, err
		}
		if l, err = d.Layout().Of(format.Input), d.Close(); err != nil {
			return l, err
		}
		t.layouts[nodeType] = l
	}
	if t.share.Width() > 0 {
		l.Features, l.DType = t.share.Width(), t.options.DType
	}
	return l, nil
}

// choosingBytes is the memory of the job while it chooses the rows of the store, before any step.
func (t *typedJob) choosingBytes() int64 {
	return plan.ProcessBytes + plan.PickedBytes(&t.graph.Manifest, t.target.StoredRows)
}

// heldBytes is the memory that is held beside a step which makes a matrix: rows, and of labels what leaves the own ones
// out.
func (t *typedJob) heldBytes(n *typedMatrix) int64 {
	held := plan.HeldBytes(&t.graph.Manifest, t.target.StoredRows)
	if n.labels {
		held += t.newLabels(1).Bytes(t.graph.Manifest.Nodes, t.layout.Regions[0].Rows, 1, t.options.Threads)
	}
	return held
}

// between is the layout of a matrix of all nodes, which others are made of.
func (t *typedJob) between(n *typedMatrix) format.Layout {
	return format.NewLayout([]format.RegionSize{{Name: format.RegionRest, Rows: n.head.Nodes}}, 0, t.width(n),
		t.options.DType)
}

// planDisk sets the bytes of the store, and the most at a time of what is on the way to it.
func (t *typedJob) planDisk(p *Plan) error {
	for _, id := range t.target.matrices() {
		if t.has(id) {
			continue
		}
		one, err := t.layout.MatrixBytes(id)
		if err != nil {
			return err
		}
		p.StoreBytes += one
	}
	held, most, merged, done := int64(0), int64(0), map[string]int64{}, map[*typedMatrix]bool{}
	size := func(n *typedMatrix) int64 {
		if n.leaf() || len(n.relations) == 0 {
			return 0
		}
		return n.head.Nodes * int64(t.width(n)*t.options.DType.Size())
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
				return err
			}
			merged[relationsKey(n.relations)] = 8*g.Nodes + 8*g.Edges
		}
	}
	for _, one := range merged {
		most += one
	}
	p.ScratchBytes, p.DiskBytes = most, p.StoreBytes+most
	return nil
}

// findScratch finds the folder of the job's scratch files, which need not be there yet.
func (t *typedJob) findScratch() error {
	digest := sha256.Sum256([]byte(t.target.String()))
	t.scratch, t.prefix = scratchInStore(t.storeDir), fmt.Sprintf("step-%x-", digest[:6])
	at, err := readScratchRecord(t.fsys, t.storeDir)
	if at != nil && at.Parent != "" {
		t.scratch = at.folder(t.scratchParent(at))
	}
	return err
}

// isStep tells whether an entry of a folder of scratch files is the store of a step.
func isStep(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), "step-") }

// removeSteps removes the stores of steps in a folder of scratch files.
func removeSteps(fsys vfs.FS, scratch string) error {
	entries, err := fsys.ReadDir(scratch)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil && isStep(e) {
			err = removeStep(fsys, filepath.Join(scratch, e.Name()))
		}
	}
	return err
}

// removeStep removes the store of a step and, where that is of a typed graph too, those of its steps.
func removeStep(fsys vfs.FS, dir string) error {
	if err := removeSteps(fsys, scratchInStore(dir)); err != nil {
		return err
	}
	return format.Remove(fsys, dir)
}

// make makes the matrices that are missing.
func (t *typedJob) make(ctx context.Context, store *format.Writer, r *Result) (err error) {
	t.store, r.Resumed = store, t.hasResults(store)
	if t.scratch, err = t.scratchFolder(store); err != nil {
		return err
	}
	if err := t.removeHalfWritten(t.scratch); err != nil {
		return err
	}
	if t.checkpointShare, err = t.countStart(store); err != nil {
		return err
	}
	if t.results, err = findResults(t.fsys, t.scratch, t.target, t.nodes); err != nil {
		return err
	}
	if t.existing == nil {
		if err := store.Rows(t.table); err != nil {
			return err
		}
	}
	if err := t.takeOver(ctx); err != nil {
		return err
	}
	if err := t.makeAll(ctx, r); err != nil {
		return err
	}
	t.sayDevices(r)
	return removeSteps(t.fsys, t.scratch)
}

// report counts as scratch files all that was written beside the store.
func (t *typedJob) report(r *Result) {
	r.ScratchBytes = max(0, r.BytesWritten-r.Plan.StoreBytes)
	r.Time = r.Time.Of(r.Time.Hops, 1)
}

// makeAll makes the matrices that are missing.
func (t *typedJob) makeAll(ctx context.Context, r *Result) error {
	t.reserve.LimitBytes = r.Plan.MemoryBytes
	defer t.reserve.Free()
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
	return t.reserve.Free()
}
