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
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
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
	if format.IsTyped(fsys, graphDir) {
		return propagateTyped(ctx, fsys, graphDir, storeDir, o)
	}
	if err := o.checkPlain(graphDir); err != nil {
		return nil, err
	}
	s, err := openJobContext(fsys, graphDir, storeDir)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if !o.Force {
		if err := s.openExisting(); err != nil {
			return nil, err
		}
	}
	if s.existing == nil {
		if o.From != "" {
			if err := s.openEarlier(&o); err != nil {
				return nil, err
			}
		}
		if s.options, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", graphDir, ErrOptions, err)
		}
		if err := s.chooseRows(ctx); err != nil {
			return nil, err
		}
		s.setAsked()
		return s.run(ctx)
	}
	if err := s.grow(o); err != nil {
		return nil, err
	}
	if !s.addsHops() {
		r := s.newResult(&s.graph.Manifest, &Plan{}, s.target.StoredRows)
		r.AlreadyComplete, r.Complete = true, true
		removeLeftovers(s.fsys, s.storeDir, s.target)
		return r, nil
	}
	if err := s.loadNodes(ctx); err != nil {
		return nil, err
	}
	return s.run(ctx)
}

// checkPlain fails if options are for typed graphs alone.
func (o *Options) checkPlain(graphDir string) error {
	if len(o.Metapaths) > 0 || o.RelationsSubsets != 0 {
		return fmt.Errorf("%s: %w: metapaths and relations are those of a typed graph, and this is none", graphDir,
			ErrOptions)
	}
	return nil
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
		if s.graph.Typed != nil {
			if err := removeStep(s.fsys, repairDir(s.storeDir)); err != nil {
				return err
			}
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
	instead := "start anew with --force"
	if s.existing != nil {
		instead = "remove " + filepath.Dir(scratchInStore(s.storeDir)) + " to give it up"
		if at, _ := readScratchRecord(s.fsys, s.storeDir); at != nil && at.Parent != "" {
			instead = "remove " + at.folder(at.Parent) + " and " + filepath.Dir(scratchInStore(s.storeDir)) +
				" to give it up"
		}
	}
	return nil, explainOtherJob(err, s.storeDir, s.target, instead)
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

// run plans the job, does it and publishes the store; a dry run ends after planning.
func (s *jobContext) run(ctx context.Context) (*Result, error) {
	if s.options.Scratch != "" {
		if err := checkScratch(s.fsys, s.options.Scratch, s.graphDir, s.storeDir); err != nil {
			return nil, err
		}
	}
	j, err := s.newJob()
	if err != nil {
		return nil, err
	}
	if j.Plan, err = s.plan(ctx, j); err != nil {
		return nil, err
	}
	j.Account.Planning = time.Since(s.start).Seconds()
	r := s.newResult(&s.graph.Manifest, j.Plan, int64(len(s.nodes)))
	if err := s.checkDisk(j.Plan); err != nil || s.options.DryRun {
		return r, err
	}
	if err := s.loadLabels(ctx); err != nil {
		return nil, err
	}
	switch err = s.runAll(ctx, j, r); {
	case errors.Is(err, ErrInvalid):
		err = fmt.Errorf("%s: %w", s.graphDir, err)
	case errors.As(err, new(*product.ErrTooManyTerms)):
		err = fmt.Errorf("%s: %w: %w", s.graphDir, ErrOptions, err)
	}
	if err != nil {
		return nil, err
	}
	s.report(j, r)
	if r.Complete {
		recordTook(s.fsys, s.storeDir, s.existing != nil, r)
	}
	return r, nil
}

// loadLabels reads the labels that are propagated, once.
func (s *jobContext) loadLabels(ctx context.Context) error {
	if s.labels == nil {
		return nil
	}
	return s.labels.Load(ctx, s.graph, s.target.Split)
}

// report sets what is measured in a result.
func (s *jobContext) report(j *engine.Job, r *Result) {
	seconds := 0.0
	for _, each := range j.HopSeconds {
		seconds += each
	}
	if seconds > 0 {
		r.GatheredBytesPerSecond = float64(j.Gathered) / seconds
	}
	r.Time = j.Account.Of(seconds, j.Plan.Panels)
	first := 1 // after hop 0
	if s.target.NoInput {
		first = 0
	}
	r.HopSeconds, r.EdgesProcessed = j.HopSeconds[first:], j.Edges[first:]
	r.TransferredBytes = j.Transferred
	r.BytesRead, r.BytesWritten, r.ScratchBytes = s.fsys.Read().Bytes(), s.fsys.Written().Bytes(), j.Fsys.Written().Bytes()
	r.Paths = filePaths(s.fsys.Read(), s.fsys.Written())
	r.Seconds = time.Since(s.start).Seconds()
}

// runAll does the job under the lock of the store.
func (s *jobContext) runAll(ctx context.Context, j *engine.Job, r *Result) error {
	store, err := s.create()
	if err != nil {
		return err
	}
	if s.earlier == nil {
		s.options.Planned(j.Plan)
	}
	if err = s.begin(j, store, r); err == nil {
		err = s.makeStore(ctx, j, store, r)
	}
	if err != nil {
		return s.endFailed(store, j, s.explainEarlyEnd(ctx, j, err))
	}
	return nil
}

// makeStore makes the store: from an earlier one where that is worth its while.
func (s *jobContext) makeStore(ctx context.Context, j *engine.Job, store *format.Writer, r *Result) (err error) {
	defer func() {
		if j.Given != nil { // the job ended before it took it
			err = errors.Join(err, j.Given.Close())
		}
	}()
	if s.earlier != nil {
		if err := s.takeUnchanged(ctx, j, store); err != nil {
			return err
		}
		if r.From, r.Plan = s.earlier.taken, *j.Plan; r.From.Fresh != "" {
			s.options.Planned(j.Plan)
		}
	}
	return s.makeAndPublish(ctx, j, store, r)
}

// begin finds what the job has finished before, and counts the start. The caller holds the lock of the job.
func (s *jobContext) begin(j *engine.Job, store *format.Writer, r *Result) error {
	if err := s.findProgress(j, store); err != nil {
		return err
	}
	r.Resumed = s.hasFinishedMatrices(store, j) || j.HasPartialMatrices()
	return s.recordStart(j)
}

// endFailed ends a job that failed with err. If it has finished anything, and err is not ErrInvalid, it leaves the
// store so that the job can go on, and adds ErrUnfinished; else it removes what the job has written.
func (s *jobContext) endFailed(store *format.Writer, j *engine.Job, err error) error {
	if !errors.Is(err, ErrInvalid) && s.hasResults(store, j) {
		store.Suspend()
		return fmt.Errorf("%s: %w: %w", s.storeDir, err, ErrUnfinished)
	}
	_ = s.dropScratch() // err is more important
	store.Abort()
	return err
}

// hasResults tells whether the job has finished matrices, or has column files or checkpoints.
func (s *jobContext) hasResults(store *format.Writer, j *engine.Job) bool {
	if s.hasFinishedMatrices(store, j) {
		return true
	}
	for _, dir := range []string{scratchInStore(s.storeDir), j.Scratch} {
		if dir == "" { // the job ended before it had looked there
			if p, err := readScratchRecord(s.fsys, s.storeDir); err != nil || p != nil && p.Parent != "" && p.Made {
				return true
			}
			continue
		}
		entries, err := s.fsys.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			return strings.HasSuffix(e.Name(), folder.Suffix) && !isRecord(e.Name())
		}) {
			return true
		}
	}
	return false
}

// makeAndPublish makes the columns that are missing, and publishes the store.
func (s *jobContext) makeAndPublish(ctx context.Context, j *engine.Job, store *format.Writer, r *Result) error {
	j.Store = store
	if !j.Plan.ResultFiles && !j.HasResultColumns() {
		j.Direct = store
	}
	if err := j.Run(ctx); err != nil {
		return err
	}
	return s.finish(ctx, j, store, r)
}

// findProgress sets what the job has finished before, and writes the rows of the store if they are not there.
func (s *jobContext) findProgress(j *engine.Job, store *format.Writer) error {
	if s.table != nil {
		if err := store.Rows(s.table); err != nil {
			return err
		}
		s.table = nil
		if plan.PickedBytes(&s.graph.Manifest, int64(len(s.nodes))) > plan.NoticeableBytes {
			debug.FreeOSMemory() // the plan does not count the table any more
		}
	}
	for _, id := range j.Matrices {
		j.Finished[id] = store.Finished(id)
	}
	var err error
	if j.Scratch, err = s.scratchFolder(store); err != nil {
		return err
	}
	if err := s.removeHalfWritten(j.Scratch); err != nil {
		return err
	}
	j.Results = engine.ResultFiles(j.Fsys, j.Scratch, s.target.widths(), s.target.StoredRows, s.nodes, s.options.DType)
	for k := range j.Results {
		if err := j.Results[k].Find(); err != nil {
			return err
		}
	}
	j.Checkpoints, err = j.FindCheckpoints()
	return err
}

// recordStart counts a start of the job, and sets how much time checkpoints may take by the starts before.
func (s *jobContext) recordStart(j *engine.Job) error {
	noProgress, before, err := s.countStart(j)
	if before {
		j.Pace.Share = engine.InterruptedShare
	}
	if noProgress > 0 {
		j.Pace.Share = engine.NoProgressShare
	}
	if noProgress >= 2 {
		s.options.Note(fmt.Sprintf("%s: the last %d starts of this job saved nothing, because they ended too early "+
			"(give the job more time; with --max-time it says how much it needs)", s.storeDir, noProgress))
	}
	return err
}

// explainEarlyEnd adds ErrTooShort to the error of a job that was ended before it had saved anything.
func (s *jobContext) explainEarlyEnd(ctx context.Context, j *engine.Job, err error) error {
	if ctx.Err() == nil || j.Pace.SavedAny || errors.Is(err, ErrTooShort) {
		return err
	}
	return fmt.Errorf("%w: %w", err, j.Pace.TooShort(0))
}

// removeHalfWritten removes files that killed processes have left half-written: the plan needs their room. The caller
// holds the lock of the job.
func (s *jobContext) removeHalfWritten(scratch string) error {
	entries, err := s.fsys.ReadDir(scratch)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), folder.Suffix+vfs.TempSuffix) {
			err = errors.Join(err, s.fsys.Remove(filepath.Join(scratch, e.Name())))
		}
	}
	return err
}

// hasFinishedMatrices tells whether this job has finished matrices. Matrices of an existing store do not count.
func (s *jobContext) hasFinishedMatrices(store *format.Writer, j *engine.Job) bool {
	return slices.ContainsFunc(j.Matrices, func(id format.MatrixID) bool {
		return store.Finished(id) && (s.existing == nil || !slices.Contains(s.existing.Matrices(), id))
	})
}

// finish assembles the matrices and publishes the store. All columns must be there.
func (s *jobContext) finish(ctx context.Context, j *engine.Job, store *format.Writer, r *Result) error {
	return engine.Timed(&j.Account.Publishing, func() error {
		if err := j.Assemble(ctx, store); err != nil {
			return err
		}
		err := s.publishStore(store)
		r.Complete = err == nil
		return err
	})
}

// publishStore publishes the store, whose matrices are all written.
func (s *jobContext) publishStore(store *format.Writer) error {
	from := s.rowsFrom()
	g := &from.Manifest
	m := &format.Manifest{
		Kind: format.KindStore, Name: g.Name, Nodes: g.Nodes, Edges: g.Edges, Directed: g.Directed || from.Typed != nil,
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
