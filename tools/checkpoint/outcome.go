package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/trainer"
)

// TrainingError says why a training did not finish, and what it has saved.
type TrainingError struct {
	Cause error
	Text  string
}

func (e *TrainingError) Error() string { return e.Text }
func (e *TrainingError) Unwrap() error { return e.Cause }

// Outcome is the error of the whole training, nil if all went well: which runs did not finish, why, and what was saved.
// err is the error that ended the training early, if any.
func (s *Saver) Outcome(err error) error {
	var causes []error
	var texts []string
	for i, run := range s.Runs {
		name := ""
		if s.Wanted > 1 {
			name = fmt.Sprintf("run %d of %d (seed %d): ", i+1, s.Wanted, run.Seed)
		}
		switch run.State {
		case RunInterrupted:
			texts = append(texts, fmt.Sprintf("%sinterrupted after epoch %d of %d", name, run.Epochs, s.Options.Epochs))
		case RunDiverged:
			causes, texts = append(causes, trainer.ErrDiverged), append(texts, name+run.Reason)
		case RunFailed:
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
	if s.options.Dir != "" {
		saved = "nothing was saved in " + s.options.Dir
	}
	if m := s.LastSaved; m != nil && m.Epoch == 0 {
		saved = s.options.Dir + " holds its state, before the end of the first epoch: the same command goes on"
	} else if m != nil {
		saved = fmt.Sprintf("%s holds the best epoch so far, %d", s.options.Dir, m.Epoch)
		if s.SaveError != nil {
			saved = fmt.Sprintf("%s holds what was saved earlier, epoch %d", s.options.Dir, m.Epoch)
		}
		if s.Wanted > 1 {
			saved += fmt.Sprintf(" of run %d", m.Run)
		}
		if m.Valid != nil {
			saved += fmt.Sprintf(" (validation %s %s)", m.Metric, trainer.MetricText(m.Metric, m.Valid))
		}
		saved += fmt.Sprintf(", marked as incomplete: hopfeed evaluate --checkpoint %s %s tests it", s.options.Dir,
			s.options.Input)
		if err != nil {
			saved += ", the same train command goes on"
		}
		saved += ", train --force starts over"
	}
	if s.SaveError != nil {
		causes, texts = append(causes, s.SaveError), append(texts, "saving failed: "+s.SaveError.Error())
	}
	return &TrainingError{errors.Join(append(causes, err)...), strings.Join(append(texts, saved), "; ")}
}
