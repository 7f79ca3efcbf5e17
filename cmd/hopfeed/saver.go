package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// saver records the runs of a training, and saves the best model so far and all that is needed to go on:
// at the end of each run, and within a run at intervals.
type saver struct {
	app         *app
	dir         *trainer.RunDir // nil: nothing is saved
	store       string
	minInterval time.Duration // least time between two saves within a run

	before     *trainer.Checkpoint // what was in the directory; nil: nothing, or it is replaced
	checkpoint trainer.Checkpoint
	resumed    bool            // the training was saved before
	resume     *trainer.State  // of the last of checkpoint.Runs, if that goes on
	best       *trainer.Result // of the runs that have ended
	bestRun    int
	lastSave   time.Time

	processorAt    time.Duration // time of all processors, when the epoch began
	leastProcessor time.Duration // that an epoch took, validation included; 0: none has ended

	saveTime  time.Duration // of the last save
	saved     *savedModel   // nil: nothing
	saveError error         // of the last save
}

// savedModel is the model in the directory of a training.
type savedModel struct {
	run, epoch int // from 1
	valid      *float64
	metric     string
}

// checkpointParameterBytes is what a parameter takes while a run is saved: the vectors of a state and
// the best parameters of all runs, five of float32, and the same once more as files.
const checkpointParameterBytes = 2 * 5 * 4

// checkpointRowBytes is what a row takes where the split of a checkpoint is made, or compared
// with a store: node, label, part and place among the nodes (13 bytes) of the store, and
// node, label and part (9) of the checkpoint and of its file; and as much for what the
// collector has yet to free.
const checkpointRowBytes = 48

// openSaver opens the directory of --run, and reads what was saved there.
func (a *app) openSaver(o *trainOptions) (_ *saver, err error) {
	s := &saver{app: a, store: o.store, minInterval: o.saveEvery, lastSave: time.Now()}
	if o.run == "" {
		return s, nil
	}
	if s.dir, err = trainer.OpenRun(a.fs, o.run); err != nil {
		return nil, err
	}
	if !o.force {
		if _, err = s.dir.LoadTrials(); err == nil {
			s.before, err = s.dir.Load()
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// isBegun tells whether --run holds a training that goes on, or has ended: its hops are chosen.
func (a *app) isBegun(o *trainOptions) bool {
	if o.run == "" || o.force {
		return false
	}
	_, err := a.fs.Stat(filepath.Join(o.run, trainer.CheckpointFile))
	return err == nil
}

// keepMatrices sets --hops and --operator, where they are left open, to those of a training that goes on: the store may
// have more since it began.
func (s *saver) keepMatrices(o *trainOptions) {
	if s.before == nil || s.before.Spec.Model != o.model || o.sampler != "" {
		return
	}
	operators, hops := s.before.Spec.Choice()
	if isLeftOpen(o.flags.Lookup("operator")) {
		o.operators = operators
	}
	if isLeftOpen(o.flags.Lookup("hops")) && len(operators) == len(o.operators) {
		o.hops = hops
	}
}

// begin begins a training, or goes on with the one that was saved. It checks that there is space for two checkpoints:
// the old one is removed after the new one is complete.
func (s *saver) begin(ctx context.Context, store *format.Dir, part session.Partition, o *trainOptions, checkpoint trainer.Checkpoint) error {
	s.checkpoint = checkpoint
	if s.dir == nil {
		return nil
	}
	a, m := s.app, &store.Manifest
	s.checkpoint.Data = trainer.DataSet{
		Name: m.Name, Fingerprint: m.Fingerprint, RowsFingerprint: m.RowsFingerprint(), Nodes: m.Nodes, Split: o.split, SplitsFile: o.splits != "",
		DType: m.DType, ClassNames: m.ClassNames, Prepared: preparationOf(m),
	}
	if err := a.budget.Fits(fmt.Sprintf("a checkpoint with the split of %d rows", m.Rows), checkpointRowBytes*m.Rows); err != nil {
		return err
	}
	rows, err := readLabelledRows(ctx, store)
	if err != nil {
		return err
	}
	s.checkpoint.Split = rows.split(store, part)
	bytes, err := s.checkpoint.MaxBytes()
	if err != nil {
		return err
	}
	if s.before != nil {
		if err := s.goOn(s.before, o, m); err != nil {
			return err
		}
		s.before = nil
	}
	if o.trials != nil {
		if err := s.dir.SaveTrials(o.trials); err != nil {
			return err
		}
	}
	free, err := a.fs.FreeBytes(o.run)
	if err == nil && free < 2*bytes {
		err = fmt.Errorf("%w: --run %s needs %v of disk space, but %v are free", machine.ErrDoesNotFit, o.run, units.Bytes(2*bytes), units.Bytes(free))
	}
	return err
}

// goOn continues the training that was saved in the directory, if it is unfinished and the same.
func (s *saver) goOn(before *trainer.Checkpoint, o *trainOptions, m *format.Manifest) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %s (--force starts over)", s.dir.Path(), trainer.ErrRunExists, fmt.Sprintf(format, args...))
	}
	c := &s.checkpoint
	last := len(before.Runs) - 1
	ended := last < 0 || before.Runs[last].State == trainer.RunFinished || before.Runs[last].State == trainer.RunDiverged
	if ended && len(before.Runs) == before.Wanted {
		return refuse("the training in it has ended")
	}
	config, now := withoutData(renamed(before.Config)), withoutData(c.Config) // data are compared below
	for _, name := range scheduleFlags {                                      // a run by queues goes on by the plan that it began with
		delete(c.Config, name)
		delete(now, name)
		if value := config[name]; value != "" {
			c.Config[name], now[name] = value, value
		}
	}
	for _, name := range chosenFlags { // matrices, split and batches are compared as such
		if config[name] == "" || isLeftOpen(o.flags.Lookup(name)) {
			delete(config, name)
			delete(now, name)
		}
	}
	if differing := differences(config, now); len(differing) > 0 {
		return refuse("an unfinished training in it has other settings: %s", strings.Join(differing, ", "))
	}
	if !before.Data.Same(c.Data) || !reflect.DeepEqual(before.Split, c.Split) {
		if _, err := comparePrepared(before.Data, c.Spec, m, o.store); err != nil {
			return refuse("an unfinished training in it is on other features: %s", err)
		}
		return refuse("an unfinished training in it is on other rows, of %s", units.Printable(before.Data.Name))
	}
	if !slices.Equal(before.Spec.Matrices, c.Spec.Matrices) {
		return refuse("an unfinished training in it reads other matrices, %v", before.Spec.Matrices)
	}
	s.resumed = true
	if before.Best >= 0 {
		run := before.Runs[before.Best]
		s.saved = &savedModel{before.Best + 1, run.BestEpoch, run.ValidMetric, run.Metric}
	}
	if s.resume = before.State; !ended && s.resume == nil { // that run begins anew
		before.Runs = before.Runs[:last]
		before.History = slices.DeleteFunc(before.History, func(e trainer.EpochMetrics) bool { return e.Run > last })
		ended = true
	}
	c.Runs, c.History, c.Batches = before.Runs, before.History, before.Batches
	runs := c.Runs
	if !ended {
		runs = runs[:last]
		s.app.note("going on with %s: run %d of %d, after epoch %d", s.dir.Path(), last+1, c.Wanted, c.Runs[last].Epochs)
	} else {
		s.app.note("going on with %s: %d of %d runs have ended", s.dir.Path(), len(runs), c.Wanted)
	}
	for i := range runs {
		if runs[i].Epochs > 0 && (s.best == nil || runs[i].Better(&s.best.Figures)) {
			s.best, s.bestRun = &trainer.Result{Figures: runs[i].Figures}, i
		}
	}
	switch {
	case s.best == nil:
	case before.Best != s.bestRun && s.resume == nil: // its parameters were not saved
		s.best, s.bestRun = nil, 0
	case before.Best == s.bestRun: // else the run that goes on is better already
		s.best.Spec, s.best.Options, s.best.Scales, s.best.Parameters = before.Spec, before.Options, before.Scales, before.Parameters
	}
	return nil
}

func (s *saver) close() error {
	if s.dir == nil {
		return nil
	}
	return s.dir.Close()
}

// beginRun adds a run, unless the last one goes on.
func (s *saver) beginRun(seed uint64) {
	s.processorAt = machine.CPUTime()
	if s.resume == nil {
		s.checkpoint.Runs = append(s.checkpoint.Runs, trainer.Run{Seed: seed, State: trainer.RunInProgress})
	} else {
		s.current().State = trainer.RunInProgress
	}
}

// current is the run that goes on, or has ended last.
func (s *saver) current() *trainer.Run { return &s.checkpoint.Runs[len(s.checkpoint.Runs)-1] }

// recordEpoch adds an epoch to the history.
func (s *saver) recordEpoch(e trainer.Epoch) {
	c, now := &s.checkpoint, machine.CPUTime()
	if took := now - s.processorAt; s.leastProcessor == 0 || took < s.leastProcessor {
		s.leastProcessor = took
	}
	s.processorAt = now
	c.History = append(c.History, trainer.EpochMetrics{
		Run: len(c.Runs), Epoch: e.Number, TrainLoss: e.TrainLoss, ValidMetric: e.Valid, ValidLoss: e.ValidLoss, Seconds: e.Seconds, TrainSeconds: e.TrainSeconds,
		Traffic: e.Traffic,
	})
}

// stoppedRun is what a run has come to, between two of its batches: a trainer.Fitting.
type stoppedRun interface {
	Result() (*trainer.Result, error)
	State() (*trainer.State, error)
}

// untilSave is the time until the next save within a run: saving takes at most 3 % of the time.
func (s *saver) untilSave() time.Duration {
	return max(s.minInterval, 32*s.saveTime) - time.Since(s.lastSave)
}

// saveRun saves the current run as it is now, so that it can go on from here.
func (s *saver) saveRun(p stoppedRun) {
	defer s.saveTimed(time.Now())
	r, err := p.Result()
	if err != nil {
		return // Train returns the same
	}
	state, err := p.State()
	if err != nil {
		s.saveError = err
		s.app.note("saving the state failed: %s", err)
		if s.saved != nil {
			return // from which the run can go on
		}
	}
	best, run := s.best, s.bestRun
	if r != nil {
		s.current().Figures = r.Figures
		// Without validation, a run is compared with others when it has ended.
		if best == nil || r.ValidMetric != nil && r.Better(&best.Figures) {
			best, run = r, len(s.checkpoint.Runs)-1
		}
	}
	if best == nil && (state == nil || state.Steps == 0 || s.dir.Replaces()) {
		return // nothing that is worth it
	}
	s.save(best, run, state)
}

// saveTimed ends a save that began at start, or was tried: the next one is not due at once.
func (s *saver) saveTimed(start time.Time) { s.lastSave, s.saveTime = time.Now(), time.Since(start) }

// endRun records how the current run ended, with r (nil if no epoch ended), and saves the best model
// of all runs. A run that was interrupted or has failed can go on; p is nil if it could not start.
func (s *saver) endRun(ctx context.Context, p stoppedRun, r *trainer.Result, err error) {
	at := len(s.checkpoint.Runs) - 1
	run := s.current()
	s.resume = nil
	if r != nil {
		run.Figures = r.Figures
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
	if run.State == trainer.RunInterrupted || run.State == trainer.RunFailed {
		if s.dir != nil && p != nil { // else what was saved before is what it can go on from
			s.saveRun(p)
		}
		return
	}
	if r != nil && (s.best == nil || r.Better(&s.best.Figures)) {
		s.best, s.bestRun = r, at
	}
	if s.dir != nil && s.best != nil {
		s.save(s.best, s.bestRun, nil)
	}
}

// save saves the best result, which is that of a run, and the state of the last run, if it goes on. If it
// fails, it prints the error, and training goes on: a later save may succeed, and only the error of the last
// one counts.
func (s *saver) save(best *trainer.Result, run int, state *trainer.State) {
	defer s.saveTimed(time.Now())
	c := s.checkpoint
	c.State, c.Best = state, -1
	if best != nil {
		c.Spec, c.Options, c.Best, c.Scales, c.Parameters = best.Spec, best.Options, run, best.Scales, best.Parameters
	}
	s.saveError = s.dir.Save(&c)
	if s.saveError != nil {
		s.app.note("saving failed: %s", s.saveError)
		return
	}
	s.saved = &savedModel{run: run + 1}
	if best != nil {
		s.saved = &savedModel{run + 1, best.BestEpoch, best.ValidMetric, best.Metric}
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
	if m := s.saved; m != nil && m.epoch == 0 {
		saved = fmt.Sprintf("%s holds its state, before the end of the first epoch: the same command goes on", s.dir.Path())
	} else if m != nil {
		saved = fmt.Sprintf("%s holds the best epoch so far, %d", s.dir.Path(), m.epoch)
		if s.saveError != nil {
			saved = fmt.Sprintf("%s holds what was saved earlier, epoch %d", s.dir.Path(), m.epoch)
		}
		if c.Wanted > 1 {
			saved += fmt.Sprintf(" of run %d", m.run)
		}
		if m.valid != nil {
			saved += fmt.Sprintf(" (validation %s %s)", m.metric, metricText(m.metric, m.valid))
		}
		saved += fmt.Sprintf(", marked as incomplete: hopfeed evaluate --checkpoint %s %s tests it", s.dir.Path(), s.store)
		if err != nil {
			saved += ", the same train command goes on"
		}
		saved += ", train --force starts over"
	}
	if s.saveError != nil {
		causes, texts = append(causes, s.saveError), append(texts, "saving failed: "+s.saveError.Error())
	}
	return &trainingError{errors.Join(append(causes, err)...), strings.Join(append(texts, saved), "; ")}
}
