package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// saver records the runs of a training, and saves the best model so far: at the end of each run,
// and within a run at intervals.
type saver struct {
	app         *app
	dir         *trainer.RunDir // nil: nothing is saved
	store       string
	minInterval time.Duration // least time between two saves within a run

	checkpoint  trainer.Checkpoint
	best        *trainer.Result // of the runs that have ended
	bestRun     int
	unsavedBest bool // the current run has selected an epoch that was not saved
	lastSave    time.Time
	saveTime    time.Duration // of the last save
	saved       *savedModel   // nil: nothing
	saveError   error         // of the last save
}

// savedModel is the model in the directory of a training.
type savedModel struct {
	run, epoch int // from 1
	valid      *float64
	metric     string
}

// checkpointRowBytes is what a row takes where the split of a checkpoint is made, or compared
// with a store: node, label, part and place among the nodes (13 bytes) of the store, and
// node, label and part (9) of the checkpoint and of its file; and as much for what the
// collector has yet to free.
const checkpointRowBytes = 48

// openSaver opens the directory of --run, and checks that there is space for two checkpoints:
// the old one is removed after the new one is complete.
func (a *app) openSaver(ctx context.Context, store *format.Dir, part session.Partition, o *trainOptions, checkpoint trainer.Checkpoint) (*saver, error) {
	s := &saver{app: a, store: o.store, minInterval: o.saveEvery, checkpoint: checkpoint, lastSave: time.Now()}
	if o.run == "" {
		return s, nil
	}
	m := &store.Manifest
	s.checkpoint.Data = trainer.DataSet{Name: m.Name, Fingerprint: m.Fingerprint, Nodes: m.Nodes, Split: m.Split, SplitsFile: o.splits != ""}
	if o.splits != "" || o.split >= 0 {
		s.checkpoint.Data.Split = max(o.split, 0)
	}
	if err := a.budget.Fits(fmt.Sprintf("a checkpoint with the split of %d rows", m.Rows), checkpointRowBytes*m.Rows); err != nil {
		return nil, err
	}
	rows, err := readLabelledRows(ctx, store)
	if err != nil {
		return nil, err
	}
	s.checkpoint.Split = rows.split(store, part)
	bytes, err := s.checkpoint.MaxBytes()
	if err != nil {
		return nil, err
	}
	if s.dir, err = trainer.OpenRun(a.fs, o.run, o.force); err != nil {
		return nil, err
	}
	free, err := a.fs.FreeBytes(o.run)
	if err == nil && free < 2*bytes {
		err = fmt.Errorf("%w: --run %s needs %v of disk space, but %v are free", machine.ErrDoesNotFit, o.run, units.Bytes(2*bytes), units.Bytes(free))
	}
	if err != nil {
		return nil, errors.Join(err, s.dir.Close())
	}
	return s, nil
}

func (s *saver) close() error {
	if s.dir == nil {
		return nil
	}
	return s.dir.Close()
}

// beginRun adds a run.
func (s *saver) beginRun(seed uint64) {
	s.checkpoint.Runs = append(s.checkpoint.Runs, trainer.Run{Seed: seed, State: trainer.RunInProgress})
	s.unsavedBest = false
}

// recordEpoch adds an epoch to the history, and saves the best model so far if it is time to.
func (s *saver) recordEpoch(e trainer.Epoch, best func() (*trainer.Result, error)) {
	c := &s.checkpoint
	c.History = append(c.History, trainer.EpochMetrics{Run: len(c.Runs), Epoch: e.Number, TrainLoss: e.TrainLoss, ValidMetric: e.Valid})
	s.unsavedBest = s.unsavedBest || e.Best
	// Saving takes at most a tenth of the time.
	if s.dir == nil || !s.unsavedBest || time.Since(s.lastSave) < max(s.minInterval, 9*s.saveTime) {
		return
	}
	r, err := best()
	if err != nil {
		return // Fit is told the same
	}
	s.recordResult(r)
	if s.best == nil || r.Better(s.best) {
		s.save(r, len(c.Runs)-1)
	}
	s.unsavedBest = false
}

// recordResult sets the results of the current run.
func (s *saver) recordResult(r *trainer.Result) {
	run := &s.checkpoint.Runs[len(s.checkpoint.Runs)-1]
	run.Epochs, run.BestEpoch, run.Selection = r.Epochs, r.BestEpoch, r.Selection
	run.TrainLoss, run.ValidMetric, run.TestMetric = r.TrainLoss, r.ValidMetric, r.TestMetric
}

// endRun records how the current run ended, with r (nil if no epoch ended), and saves the best model
// of all runs.
func (s *saver) endRun(ctx context.Context, r *trainer.Result, err error) {
	at := len(s.checkpoint.Runs) - 1
	run := &s.checkpoint.Runs[at]
	if r != nil {
		s.recordResult(r)
		if s.best == nil || r.Better(s.best) {
			s.best, s.bestRun = r, at
		}
	}
	switch {
	case err == nil:
		run.State = trainer.RunFinished
	case errors.Is(err, trainer.ErrDiverged):
		run.State, run.Reason = trainer.RunDiverged, err.Error()
	case ctx.Err() != nil:
		run.State = trainer.RunInterrupted
	default:
		run.State, run.Reason = trainer.RunFailed, err.Error()
	}
	if s.dir != nil && s.best != nil {
		s.save(s.best, s.bestRun)
	}
}

// save saves the result of a run. If it fails, it prints the error, and training goes on: a later
// save may succeed, and only the error of the last one counts.
func (s *saver) save(r *trainer.Result, run int) {
	c := s.checkpoint
	c.Spec, c.Options, c.Best, c.Scales, c.Parameters = r.Spec, r.Options, run, r.Scales, r.Parameters
	start := time.Now()
	s.saveError = s.dir.Save(&c)
	s.lastSave, s.saveTime = time.Now(), time.Since(start)
	if s.saveError == nil {
		s.saved = &savedModel{run + 1, r.BestEpoch, r.ValidMetric, r.Metric}
	} else {
		s.app.note("saving failed: %s", s.saveError)
	}
}

// trainingError says why a training did not finish, and what it has saved.
type trainingError struct {
	cause error
	text  string
}

func (e *trainingError) Error() string { return e.text }
func (e *trainingError) Unwrap() error { return e.cause }

// finalError is the error of the whole training, nil if all went well: which runs did not finish,
// why, and what was saved. err is the error that ended the training early, if any.
func (s *saver) finalError(err error) error {
	c := &s.checkpoint
	var causes []error
	var texts []string
	for i, run := range c.Runs {
		name := ""
		if c.Wanted > 1 {
			name = fmt.Sprintf("run %d of %d (seed %d): ", i+1, c.Wanted, run.Seed)
		}
		switch run.State {
		case trainer.RunInterrupted:
			texts = append(texts, fmt.Sprintf("%sinterrupted after epoch %d of %d", name, run.Epochs, c.Options.Epochs))
		case trainer.RunDiverged:
			causes, texts = append(causes, trainer.ErrDiverged), append(texts, name+run.Reason)
		case trainer.RunFailed:
			texts = append(texts, name+run.Reason)
		}
	}
	switch {
	case err != nil && len(texts) == 0: // before the first run
		return err
	case len(texts) == 0 && s.saveError == nil:
		return nil
	}
	saved := "nothing was saved (--run DIR saves the best epoch so far)"
	if s.dir != nil {
		saved = fmt.Sprintf("nothing was saved in %s", s.dir.Path())
	}
	if m := s.saved; m != nil {
		saved = fmt.Sprintf("%s holds the best epoch so far, %d", s.dir.Path(), m.epoch)
		if s.saveError != nil {
			saved = fmt.Sprintf("%s holds what was saved earlier, epoch %d", s.dir.Path(), m.epoch)
		}
		if c.Wanted > 1 {
			saved += fmt.Sprintf(" of run %d", m.run)
		}
		if m.valid != nil {
			saved += fmt.Sprintf(" (validation %s %s)", m.metric, percent(m.valid))
		}
		saved += fmt.Sprintf(", marked as incomplete: hopfeed evaluate --checkpoint %s %s tests it, train --force starts over", s.dir.Path(), s.store)
	}
	if s.saveError != nil {
		causes, texts = append(causes, s.saveError), append(texts, "saving failed: "+s.saveError.Error())
	}
	return &trainingError{errors.Join(append(causes, err)...), strings.Join(append(texts, saved), "; ")}
}
