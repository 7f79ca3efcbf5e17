package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/trainer"
)

// openSaver opens the folder of --run, and reads the training that was saved there.
func (a *app) openSaver(o *trainOptions) (*checkpoint.Saver, error) {
	return checkpoint.OpenSaver(checkpoint.SaveOptions{
		FS: a.fs, Dir: o.run, Replace: o.force, MinInterval: o.saveEvery, Trials: o.trials, Input: o.Input,
		Budget: a.budget, Note: a.note,
	})
}

// isBegun tells whether --run holds a training that goes on, or has ended: its hops are chosen.
func (a *app) isBegun(o *trainOptions) bool {
	if o.run == "" || o.force {
		return false
	}
	_, err := a.fs.Stat(filepath.Join(o.run, checkpoint.File))
	return err == nil
}

// keepMatrices sets --hops and --operator, where they are left open, as in a training that goes on: matrices may have
// been added to the store since it began.
func (o *trainOptions) keepMatrices(before *checkpoint.Checkpoint) {
	if readsGraph, _ := o.ReadsGraph(); before == nil || before.Spec.Model != o.Model || readsGraph {
		return
	}
	operators, hops := before.Spec.Choice()
	if isLeftOpen(o.flags.Lookup("operator")) {
		o.Operators = operators
	}
	if isLeftOpen(o.flags.Lookup("hops")) && len(operators) == len(o.Operators) {
		o.Hops = hops
	}
}

// checkpoint holds the facts of a training before it begins.
func (o *trainOptions) checkpoint(m *format.Manifest, spec trainer.Spec,
	config map[string]string) checkpoint.Checkpoint {
	c := checkpoint.Checkpoint{Data: checkpoint.DataSetOf(m), Config: config, Wanted: o.runs}
	c.Spec, c.Options, c.Data.Split, c.Data.SplitsFile = spec, o.Options, o.Split, o.SplitsFile != ""
	return c
}

// differencesFrom lists how the settings of a training that was saved differ from config. A run by queues goes on by
// the plan that it began with.
func (o *trainOptions) differencesFrom(config map[string]string) func(saved map[string]string) []string {
	return func(saved map[string]string) []string {
		saved, now := withoutData(renamed(saved)), withoutData(config)           // Saver.Begin compares the data
		delete(saved, "emulate")                                                 // once recorded
		if _, known := saved["as-printed"]; !known && now["as-printed"] == "0" { // begun before there was this setting
			delete(now, "as-printed")
		}
		for _, name := range scheduleFlags {
			delete(config, name)
			delete(now, name)
			if value := saved[name]; value != "" {
				config[name], now[name] = value, value
			}
		}
		for _, name := range chosenFlags { // Saver.Begin compares matrices, split and batches
			if saved[name] == "" || isLeftOpen(o.flags.Lookup(name)) {
				delete(saved, name)
				delete(now, name)
			}
		}
		return differences(saved, now)
	}
}

// trainingError says why a training did not finish, and what it has saved.
type trainingError struct {
	cause error
	text  string
}

func (e *trainingError) Error() string { return e.text }
func (e *trainingError) Unwrap() error { return e.cause }

// trainingOutcome is the error of the whole training, nil if all went well: which runs did not finish, why, and what
// was saved. err is the error that ended the training early, if any.
func trainingOutcome(s *checkpoint.Saver, o *trainOptions, err error) error {
	var causes []error
	var texts []string
	for i, run := range s.Runs {
		name := ""
		if s.Wanted > 1 {
			name = fmt.Sprintf("run %d of %d (seed %d): ", i+1, s.Wanted, run.Seed)
		}
		switch run.State {
		case checkpoint.RunInterrupted:
			texts = append(texts, fmt.Sprintf("%sinterrupted after epoch %d of %d", name, run.Epochs, s.Options.Epochs))
		case checkpoint.RunDiverged:
			causes, texts = append(causes, trainer.ErrDiverged), append(texts, name+run.Reason)
		case checkpoint.RunFailed:
			texts = append(texts, name+run.Reason)
		}
	}
	switch {
	case err != nil && len(texts) == 0: // before the first run
		return err
	case len(texts) == 0 && s.SaveError == nil:
		return nil
	}
	saved := "nothing was saved (--run DIR saves the best epoch so far)"
	if o.run != "" {
		saved = "nothing was saved in " + o.run
	}
	if m := s.LastSaved; m != nil && m.Epoch == 0 {
		saved = o.run + " holds its state, before the end of the first epoch: the same command goes on"
	} else if m != nil {
		saved = fmt.Sprintf("%s holds the best epoch so far, %d", o.run, m.Epoch)
		if s.SaveError != nil {
			saved = fmt.Sprintf("%s holds what was saved earlier, epoch %d", o.run, m.Epoch)
		}
		if s.Wanted > 1 {
			saved += fmt.Sprintf(" of run %d", m.Run)
		}
		if m.Valid != nil {
			saved += fmt.Sprintf(" (validation %s %s)", m.Metric, metricText(m.Metric, m.Valid))
		}
		saved += fmt.Sprintf(", marked as incomplete: hopfeed evaluate --checkpoint %s %s tests it", o.run, o.Input)
		if err != nil {
			saved += ", the same train command goes on"
		}
		saved += ", train --force starts over"
	}
	if s.SaveError != nil {
		causes, texts = append(causes, s.SaveError), append(texts, "saving failed: "+s.SaveError.Error())
	}
	return &trainingError{errors.Join(append(causes, err)...), strings.Join(append(texts, saved), "; ")}
}
