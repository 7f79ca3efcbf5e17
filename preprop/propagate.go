// Package preprop propagates node features over a graph, once, ahead of all training: hop r of an operator B is B^r X
// (preprop-gnn section 2.5, Eq. 2). It reads a graph directory and writes a hop store.
//
// A store is a pure function of the graph and the options that are named in its manifest: the same bytes for any
// number of threads on any processor.
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
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
)

// Propagate reads the graph in graphDir and writes the hop store storeDir. Before it writes anything, it fails with
// machine.ErrDoesNotFit if the job needs more than o.MemoryBytes or than the disk has free. A dry run ends there, and
// returns the plan.
//
// The options state what the store shall have. If there is a complete store, Propagate adds the hops and operators
// that it lacks, as new files; the result is, byte for byte, the store that one call would have made with all hops
// that it then has. Result.Beyond lists hops that the store has and the options do not ask for. If the options ask
// for other rows, another type or the like, the error is ErrOptions. If nothing is missing, nothing is done.
//
// A job that ends early leaves its files in storeDir, where readers do not see them, and the same call goes on with
// it. Other options are then refused with ErrOptions, unless o.Force starts anew. If the error is ErrInvalid, nothing
// is left.
func Propagate(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, o Options) (*Result, error) {
	ctx, cancel := o.begin(ctx)
	defer cancel()
	defer parallel.Beside()()
	for {
		r, err := propagate(ctx, fsys, graphDir, storeDir, o)
		if !errors.Is(err, errStoreChanged) || ctx.Err() != nil {
			return r, err
		}
	}
}

// begin notes when the job begins. The context that it returns ends after MaxTime.
func (o *Options) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.clock == nil {
		o.clock = time.Now
	}
	if o.begun = o.clock(); o.MaxTime > 0 {
		return context.WithTimeoutCause(ctx, o.MaxTime, ErrMaxTime)
	}
	return ctx, func() {}
}

func propagate(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, o Options) (*Result, error) {
	m, err := openJob(fsys, graphDir, storeDir, o)
	if err != nil {
		return nil, err
	}
	defer m.close()
	s := m.context()
	if s.complete {
		r := m.newResult()
		r.AlreadyComplete, r.Complete = true, true
		removeLeftovers(s.fsys, s.storeDir, s.target)
		return r, nil
	}
	if err := m.findRows(ctx); err != nil {
		return nil, err
	}
	return run(ctx, m)
}

// storeMaker makes what a store lacks: the hops of a graph, or step by step the matrices of a typed one.
type storeMaker interface {
	context() *jobContext
	newResult() *Result // says what the store shall have
	// findRows finds the rows of the store, and what is taken from an earlier one.
	findRows(ctx context.Context) error
	// plan plans the job, and sets in the result what it says of that beside the plan.
	plan(ctx context.Context, r *Result) (*Plan, error)
	// make writes rows and matrices to the store, which is not published, and whose lock the job has.
	make(ctx context.Context, store *format.Writer, r *Result) error
	report(r *Result) // sets what was measured
	close() error
}

// openJob opens a graph and, unless it is replaced, the store that there is, and finds what the store shall have.
func openJob(fsys vfs.FS, graphDir, storeDir string, o Options) (storeMaker, error) {
	s, err := openJobContext(fsys, graphDir, storeDir)
	if err != nil {
		return nil, err
	}
	if !o.Force {
		err = s.openExisting()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s.openMaker(o)
}

// openMaker finds what the store shall have. If it fails, it closes the graph.
func (s *jobContext) openMaker(o Options) (m storeMaker, err error) {
	if s.graph.Typed != nil {
		t := newTypedJob(s)
		m, err = t, t.setOptions(o)
	} else {
		m, err = &hopsJob{jobContext: s}, s.setOptions(o)
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// setOptions checks the options, and finds what the store shall have of a graph of one type.
func (s *jobContext) setOptions(o Options) (err error) {
	if len(o.Metapaths) > 0 || o.RelationsSubsets != 0 {
		return fmt.Errorf("%s: %w: --metapaths and --relations-subsets are for typed graphs, and this graph has one "+
			"type", s.graphDir, ErrOptions)
	}
	if s.existing != nil {
		if err := s.grow(o); err != nil {
			return err
		}
		s.complete = !s.addsHops()
		return nil
	}
	if o.From != "" {
		if err := s.askEarlier(&o); err != nil {
			return err
		}
	}
	if s.options, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
		err = fmt.Errorf("%s: %w: %w", s.graphDir, ErrOptions, err)
	}
	return err
}

// run plans the job, does it and publishes the store; a dry run ends after planning.
func run(ctx context.Context, m storeMaker) (*Result, error) {
	s := m.context()
	if s.options.Scratch != "" {
		if err := checkScratch(s.fsys, s.options.Scratch, s.graphDir, s.storeDir); err != nil {
			return nil, err
		}
	}
	r := m.newResult()
	p, err := m.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	if s.options.Hardware == nil { // else the disk is another
		err = s.fitDisk(p, s.checkRoom)
	}
	if r.Plan = *p; err != nil || s.options.DryRun {
		return r, err
	}
	store, err := s.create()
	if err != nil {
		return nil, err
	}
	if err = m.make(ctx, store, r); err == nil {
		err = engine.Timed(&r.Time.Publishing, func() error { return s.publishStore(store) })
	}
	if err != nil {
		return nil, s.endFailed(store, err)
	}
	r.Complete = true
	r.BytesRead, r.BytesWritten = s.fsys.Read().Bytes(), s.fsys.Written().Bytes()
	r.Paths = filePaths(s.fsys.Read(), s.fsys.Written())
	r.Seconds = time.Since(s.start).Seconds()
	m.report(r)
	recordTook(s.fsys, s.storeDir, s.existing != nil, r)
	return r, nil
}

// removeLeftovers removes what a crash has left in a complete store, after its manifest was written: the folder .job,
// perhaps with the index that readers then take, which goes to its place. It leaves another job's alone, and does
// nothing where it fails: no reader needs it.
func removeLeftovers(fsys vfs.FS, storeDir string, t target) {
	if _, err := fsys.Stat(filepath.Dir(scratchInStore(storeDir))); err != nil {
		return
	}
	if w, err := format.Extend(fsys, storeDir, format.CreateOptions{Job: t.String()}); err == nil {
		_ = w.Abort()
	}
}

// create begins the job's store, or opens that of the unfinished job, under its lock.
func (s *jobContext) create() (*format.Writer, error) {
	o := format.CreateOptions{Force: s.options.Force, Job: s.target.String(), Widths: s.layout.Widths}
	o.Locked = func() error {
		if !s.options.publishes && !s.options.Force {
			if begun, err := format.HasTasks(s.fsys, s.storeDir); begun || err != nil {
				return errors.Join(fmt.Errorf("%s: %w: tasks are making it (run the rest of them, see 'hopfeed propagate "+
					"--tasks', or start anew with --force)", s.storeDir, ErrOptions), err)
			}
		}
		if s.options.Force {
			return errors.Join(removeSteps(s.fsys, scratchInStore(s.storeDir)), s.dropScratch())
		}
		if err := removeStep(s.fsys, repairDir(s.storeDir)); err != nil {
			return err
		}
		return s.checkUnchanged()
	}
	var store *format.Writer
	var err error
	if s.existing != nil {
		store, err = format.Extend(s.fsys, s.storeDir, o)
	} else {
		layout := s.layout
		if s.target.NoInput && layout.Widths == nil { // its matrix has a width of its own
			layout.Widths = map[string]int{s.target.Operators[0].Name: layout.Features}
			layout.Features = 0
		}
		store, err = format.Create(s.fsys, s.storeDir, layout, o)
		if errors.Is(err, format.ErrExists) && !s.options.Force { // it may have appeared since openExisting
			err = cmp.Or(s.checkUnchanged(), err)
		}
	}
	if err == nil {
		return store, nil
	}
	instead := s.giveUp("")
	if at, _ := readScratchRecord(s.fsys, s.storeDir); at != nil && at.Parent != "" {
		instead = s.giveUp(at.folder(at.Parent) + " and ")
	}
	return nil, explainOtherJob(err, s.storeDir, s.target, instead)
}

// giveUp says how to give an unfinished job up. One that adds to a store has to leave that: also is what to remove
// beside its folder there.
func (s *jobContext) giveUp(also string) string {
	if s.existing == nil {
		return "start anew with --force"
	}
	return "remove " + also + filepath.Dir(scratchInStore(s.storeDir)) + " to give it up"
}

// explainOtherJob says, of a format.OtherJobError, what differs from the target and what to do instead.
func explainOtherJob(err error, storeDir string, t target, instead string) error {
	var other *format.OtherJobError
	if !errors.As(err, &other) {
		return err
	}
	difference := "it is not a propagation"
	if there, err := parseTarget(other.Have); err == nil {
		difference = there.differences(t)
	}
	return fmt.Errorf("%s: %w: there is an unfinished job with other options: %s (finish it by running its command "+
		"again, or %s)", storeDir, ErrOptions, difference, instead)
}

// endFailed ends a job that failed with err. If it has finished anything, and err is not ErrInvalid, it leaves the
// store so that the job can go on, and adds ErrUnfinished, unless err is ErrOptions: the same command would fail
// again. Else it removes what the job has written.
func (s *jobContext) endFailed(store *format.Writer, err error) error {
	if !errors.Is(err, ErrInvalid) && s.hasResults(store) {
		store.Suspend()
		if !errors.Is(err, ErrUnfinished) && !errors.Is(err, ErrOptions) { // else a step has said it
			err = fmt.Errorf("%s: %w: %w", s.storeDir, err, ErrUnfinished)
		}
		return err
	}
	_ = removeSteps(s.fsys, cmp.Or(s.scratch, scratchInStore(s.storeDir))) // err is more important
	_ = s.dropScratch()
	store.Abort()
	return err
}

// hasResults tells whether this job has made anything that a later start can use: matrices that the existing store
// lacks, column files, checkpoints or steps.
func (s *jobContext) hasResults(store *format.Writer) bool {
	made := func(id format.MatrixID) bool { return store.Finished(id) && !s.has(id) }
	if slices.ContainsFunc(s.target.matrices(), made) {
		return true
	}
	for _, dir := range []string{scratchInStore(s.storeDir), s.scratch} {
		if dir == "" { // the job ended before it had looked there
			if p, err := readScratchRecord(s.fsys, s.storeDir); err != nil || p != nil && p.Parent != "" && p.Made {
				return true
			}
			continue
		}
		entries, err := s.fsys.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(entries, isResult) {
			return true
		}
	}
	return false
}

// has tells whether the store that the job adds to has a matrix.
func (s *jobContext) has(id format.MatrixID) bool {
	return s.existing != nil && slices.Contains(s.existing.Matrices(), id)
}

// publishStore publishes the store, whose matrices are all written.
func (s *jobContext) publishStore(store *format.Writer) error {
	g := &s.graph.Manifest
	m := &format.Manifest{
		Kind: format.KindStore, Name: g.Name, Nodes: g.Nodes, Edges: g.Edges, Directed: g.Directed || s.graph.Typed != nil,
		Weighted: g.Weighted, Classes: g.Classes, ClassNames: g.ClassNames, Labels: g.Labels, Splits: g.Splits,
		Split: s.target.Split, RowSet: s.target.Rows, Seed: s.target.Seed, Operators: s.target.Operators,
		LabelHops: s.target.LabelHops, Input: g.Preparation(),
	}
	m.Input["graph"] = g.Fingerprint
	if err := s.dropScratch(); err != nil {
		return err
	}
	return store.Publish(m)
}
