package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// SaveOptions say where and how often a training is saved.
type SaveOptions struct {
	FS          vfs.FS
	Dir         string        // run folder; "": the training is recorded, but not saved
	Replace     bool          // a training that is in the folder is replaced, not continued
	MinInterval time.Duration // least time between two saves within a run
	Trials      []byte        // for trials.jsonl; nil: none
	Input       string        // path of the store or graph, for messages
	Budget      machine.Limit
	Note        func(format string, args ...any) // tells the user
}

// Saver records the runs of a training. At intervals within a run, and at the end of each, it saves the best model so
// far with all that is needed to go on.
type Saver struct {
	Checkpoint                   // what is saved; from Begin on
	Resumed       bool           // the training was saved before
	Resume        *trainer.State // where the last of Runs goes on; nil: it has ended, or begins anew
	LastSaved     *SavedModel    // the model in the folder; nil: none
	SaveError     error          // of the last save
	LeastCPU      time.Duration  // least time of all processors for an epoch, validation included; 0: none has ended
	options       SaveOptions
	dir           *RunDir
	before        *Checkpoint     // the training in the folder; nil: none, or it is replaced
	best          *trainer.Result // of the runs that have ended
	bestRun       int
	lastSave      time.Time
	saveTime      time.Duration // of the last save
	epochBeganCPU time.Duration // time of all processors
}

// SavedModel is the model in a run folder.
type SavedModel struct {
	Run, Epoch int // from 1; epoch 0: there is a state only
	Valid      *float64
	Metric     string
}

// OpenSaver opens the run folder, and reads the training that was saved there. Close it in any case.
func OpenSaver(o SaveOptions) (_ *Saver, err error) {
	s := &Saver{options: o, lastSave: time.Now()}
	if o.Dir == "" {
		return s, nil
	}
	if s.dir, err = OpenRun(o.FS, o.Dir); err != nil {
		return nil, err
	}
	if !o.Replace {
		if _, err = s.dir.LoadTrials(); err == nil {
			s.before, err = s.dir.Load()
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close unlocks the run folder.
func (s *Saver) Close() error {
	if s.dir == nil {
		return nil
	}
	return s.dir.Close()
}

// Before is the training that was saved in the folder and may go on; nil: there is none.
func (s *Saver) Before() *Checkpoint { return s.before }

// Begin begins a training, or goes on with the one that was saved. c has what is known of it: Spec, Options, Data,
// Config, Wanted. differences lists how the settings of a saved training differ from c.Config, which it may change.
// Begin checks that there is disk space for two checkpoints: the old one is removed after the new one is complete.
func (s *Saver) Begin(ctx context.Context, store *format.Dir, part session.Partition, c Checkpoint,
	differences func(saved map[string]string) []string) error {
	s.Checkpoint = c
	if s.dir == nil {
		return nil
	}
	o, rows := &s.options, store.Manifest.Rows
	if err := o.Budget.Fits(fmt.Sprintf("a checkpoint with the split of %d rows", rows), RowBytes*rows); err != nil {
		return err
	}
	stored, err := ReadRows(ctx, store)
	if err != nil {
		return err
	}
	s.Split = stored.Split(store, part)
	bytes, err := s.MaxBytes()
	if err != nil {
		return err
	}
	if s.before != nil {
		if err := s.goOn(s.before, differences); err != nil {
			return err
		}
		s.before = nil
	}
	if o.Trials != nil {
		if err := s.dir.SaveTrials(o.Trials); err != nil {
			return err
		}
	}
	free, err := o.FS.FreeBytes(o.Dir)
	if err == nil && free < 2*bytes {
		err = fmt.Errorf("%w: --run %s needs %v of disk space, but %v are free",
			machine.ErrDoesNotFit, o.Dir, units.Bytes(2*bytes), units.Bytes(free))
	}
	return err
}

func (s *Saver) goOn(before *Checkpoint, differences func(saved map[string]string) []string) error {
	c, dir, note := &s.Checkpoint, s.options.Dir, s.options.Note
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %s (--force starts over)", dir, ErrExists, fmt.Sprintf(format, args...))
	}
	last := len(before.Runs) - 1
	ended := last < 0 || before.Runs[last].State == RunFinished || before.Runs[last].State == RunDiverged
	if ended && len(before.Runs) == before.Wanted {
		return refuse("the training in it has ended")
	}
	if differing := differences(before.Config); len(differing) > 0 {
		return refuse("an unfinished training in it has other settings: %s", strings.Join(differing, ", "))
	}
	if !before.Data.Same(c.Data) || !reflect.DeepEqual(before.Split, c.Split) {
		if _, err := before.Data.ComparePrepared(c.Data, c.Spec, s.options.Input); err != nil {
			return refuse("an unfinished training in it is on other features: %s", err)
		}
		return refuse("an unfinished training in it is on other rows, of %s", units.Printable(before.Data.Name))
	}
	if !slices.Equal(before.Spec.Matrices, c.Spec.Matrices) {
		return refuse("an unfinished training in it reads other matrices, %v", before.Spec.Matrices)
	}
	s.Resumed = true
	if before.Best >= 0 {
		run := before.Runs[before.Best]
		s.LastSaved = &SavedModel{before.Best + 1, run.BestEpoch, run.ValidMetric, run.Metric}
	}
	if s.Resume = before.State; !ended && s.Resume == nil { // that run begins anew
		before.Runs = before.Runs[:last]
		before.History = slices.DeleteFunc(before.History, func(e EpochMetrics) bool { return e.Run > last })
		ended = true
	}
	c.Runs, c.History, c.Batches = before.Runs, before.History, before.Batches
	runs := c.Runs
	if !ended {
		runs = runs[:last]
		note("going on with %s: run %d of %d, after epoch %d", dir, last+1, c.Wanted, c.Runs[last].Epochs)
	} else {
		note("going on with %s: %d of %d runs have ended", dir, len(runs), c.Wanted)
	}
	for i := range runs {
		if runs[i].Epochs > 0 && (s.best == nil || runs[i].Better(&s.best.Figures)) {
			s.best, s.bestRun = &trainer.Result{Figures: runs[i].Figures}, i
		}
	}
	switch {
	case s.best == nil:
	case before.Best == s.bestRun: // else the run that goes on is better already
		s.best.Trained = before.Trained
	case s.Resume == nil: // the best parameters were not saved
		s.best, s.bestRun = nil, 0
	}
	return nil
}

// BeginRun adds a run, unless the last one goes on.
func (s *Saver) BeginRun(seed uint64) {
	s.epochBeganCPU = machine.CPUTime()
	if s.Resume == nil {
		s.Runs = append(s.Runs, Run{Seed: seed})
	}
	s.current().State = RunInProgress
}

// current is the run that goes on, or has ended last.
func (s *Saver) current() *Run { return &s.Runs[len(s.Runs)-1] }

// RecordEpoch adds an epoch to the history.
func (s *Saver) RecordEpoch(e trainer.Epoch) {
	now := machine.CPUTime()
	if took := now - s.epochBeganCPU; s.LeastCPU == 0 || took < s.LeastCPU {
		s.LeastCPU = took
	}
	s.epochBeganCPU = now
	s.History = append(s.History, EpochMetrics{
		len(s.Runs), e.Number, e.TrainLoss, e.Valid, e.ValidLoss, e.Seconds, e.TrainSeconds, e.Traffic,
	})
}

// Stopped is a run between two of its batches: a trainer.Fitting.
type Stopped interface {
	Result() (*trainer.Result, error)
	State() (*trainer.State, error)
}

// Due tells whether a run is to be saved now: saving takes at most 3 % of the time.
func (s *Saver) Due() bool {
	return s.dir != nil && time.Since(s.lastSave) >= max(s.options.MinInterval, 32*s.saveTime)
}

// SaveRun saves the current run as it is now, so that it can go on from here.
func (s *Saver) SaveRun(p Stopped) {
	defer s.timeSave(time.Now())
	r, err := p.Result()
	if err != nil {
		return // Train returns the same
	}
	state, err := p.State()
	if err != nil {
		s.SaveError = err
		s.options.Note("saving the state failed: %s", err)
		if s.LastSaved != nil {
			return // the run can go on from there
		}
	}
	best, run := s.best, s.bestRun
	if r != nil {
		s.current().Figures = r.Figures
		// Without validation, a run is compared with others when it has ended.
		if best == nil || r.ValidMetric != nil && r.Better(&best.Figures) {
			best, run = r, len(s.Runs)-1
		}
	}
	if best == nil && (state == nil || state.Steps == 0 || s.dir.Replaces()) {
		return // nothing worth saving
	}
	s.save(best, run, state)
}

// timeSave ends a save, or a try, that began at start: the next one is not due at once.
func (s *Saver) timeSave(start time.Time) { s.lastSave, s.saveTime = time.Now(), time.Since(start) }

// EndRun records how the current run ended, with r (nil if no epoch ended), and saves the best model of all runs. A run
// that was interrupted or has failed can go on; p is nil if it could not start.
func (s *Saver) EndRun(ctx context.Context, p Stopped, r *trainer.Result, err error) {
	run := s.current()
	s.Resume = nil
	if r != nil {
		run.Figures = r.Figures
	}
	switch {
	case err == nil:
		run.State = RunFinished
	case errors.Is(err, trainer.ErrDiverged):
		run.State, run.Reason = RunDiverged, err.Error()
	case ctx.Err() != nil:
		run.State = RunInterrupted
	default:
		run.State, run.Reason = RunFailed, err.Error()
	}
	if run.State == RunInterrupted || run.State == RunFailed {
		if s.dir != nil && p != nil { // else it goes on from what was saved before
			s.SaveRun(p)
		}
		return
	}
	if r != nil && (s.best == nil || r.Better(&s.best.Figures)) {
		s.best, s.bestRun = r, len(s.Runs)-1
	}
	if s.dir != nil && s.best != nil {
		s.save(s.best, s.bestRun, nil)
	}
}

// save saves the best result, made by a run, and the state of the last run, if it goes on. On failure it tells the user
// and training goes on: a later save may succeed, and only the error of the last one counts.
func (s *Saver) save(best *trainer.Result, run int, state *trainer.State) {
	defer s.timeSave(time.Now())
	c, saved := s.Checkpoint, &SavedModel{Run: run + 1}
	c.State, c.Best = state, -1
	if best != nil {
		c.Trained, c.Best = best.Trained, run
		saved = &SavedModel{run + 1, best.BestEpoch, best.ValidMetric, best.Metric}
	}
	if s.SaveError = s.dir.Save(&c); s.SaveError != nil {
		s.options.Note("saving failed: %s", s.SaveError)
		return
	}
	s.LastSaved = saved
}
