package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/cmd/exit"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// tuneOptions say what is tried before a training.
type tuneOptions struct {
	grid string // file
	tune int    // number of random trials
}

// searches tells whether the user asks for trials.
func (t *tuneOptions) searches() bool { return t.tune > 0 || t.grid != "" }

// triesHops tells that validation chooses the hop that a model reads, unless --hops says which.
func (o *trainOptions) triesHops(model string) bool {
	lastHop, err := trainer.ReadsLastHop(model)
	return err == nil && lastHop && !o.flags.Changed("hops")
}

// hopsToTry lists the hops of a store among which validation can choose; none: it cannot.
func (a *app) hopsToTry(ctx context.Context, store *format.Dir, o trainOptions, model string) (hops []string,
	err error) {
	o.Model = model
	_, part, err := o.Plan(ctx, store, a.machine(ctx))
	if err != nil {
		return nil, err
	}
	labels, err := session.CountLabels(ctx, store, part.Parts()[:2])
	if err != nil || labels[0].Labelled == 0 || labels[1].Labelled == 0 {
		return nil, err
	}
	_, most := trainer.CommonHops(store.Matrices(), o.Operators)
	for hop := 1; most > 1 && hop <= most; hop++ {
		hops = append(hops, fmt.Sprint(hop))
	}
	return hops, nil
}

// optionsOf are the options of a training with these settings.
func optionsOf(settings tune.Settings) (*trainOptions, error) {
	o := &trainOptions{}
	f := pflag.NewFlagSet("trial", pflag.ContinueOnError)
	o.declareFlags(f)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if f.Lookup(name) == nil {
			continue // STORE, or a flag of all commands
		}
		if err := f.Set(name, settings[name]); err != nil {
			return nil, usagef("%s", err)
		}
	}
	o.Input = settings[storeKey]
	return o, o.complete()
}

// scheduleFlags decide how batches are prepared, not what is trained; trials may vary them.
var scheduleFlags = []string{"schedule", "cpu-share", "profile-batches", "queue", "gradients", "sync-every", "updates"}

// given are the settings that are on the command line or in its configuration.
func (o *trainOptions) given(seed uint64) tune.Settings {
	s := tune.Settings{storeKey: o.Input, "seed": fmt.Sprint(seed)}
	o.flags.Visit(func(f *pflag.Flag) {
		if (!slices.Contains(notSettings, f.Name) || slices.Contains(scheduleFlags, f.Name)) && f.Name != "runs" {
			s[f.Name] = flagValue(f)
		}
	})
	return s
}

// tune tries settings, if there are several to try, logs the trials in the directory of --run, if there is one, and
// returns the options with the best. Trials that are logged there already are not made again.
func (a *app) tune(ctx context.Context, o *trainOptions, t tuneOptions) (_ *trainOptions, err error) {
	propose, err := a.proposer(ctx, o, t)
	if err != nil {
		return nil, err
	}
	if propose == nil {
		return o, nil
	}
	record := func([]tune.Trial) error { return nil }
	var done []tune.Trial
	if o.run != "" {
		dir, err := checkpoint.OpenRun(a.fs, o.run)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, dir.Close()) }()
		if done, err = a.trialsBefore(dir, propose, o); err != nil {
			return nil, err
		}
		record = func(all []tune.Trial) error {
			text, err := tune.Encode(all)
			if err != nil {
				return err
			}
			return dir.SaveTrials(text)
		}
	}
	trials, err := a.runTrials(ctx, propose, done, o.given(a.seed), record, o.run)
	if err != nil {
		return nil, err
	}
	best := tune.Best(trials)
	if best == nil && !t.searches() {
		a.note("no trial has a validation metric: the last hop is taken")
		return o, nil
	}
	if refused := slices.IndexFunc(trials,
		func(t tune.Trial) bool { return !strings.HasPrefix(t.Failed, refusedTrial) }) < 0; refused {
		return nil, usagef("none of %s can be made: %s", units.Count(int64(len(trials)), "trial"), trials[0].Failed)
	}
	if best == nil {
		return nil, fmt.Errorf("none of %s has a validation metric: %s", units.Count(int64(len(trials)), "trial"),
			cmp.Or(trials[0].Failed, "there are no labelled validation rows"))
	}
	a.note("chosen: trial %d of %d, valid %s: %s", best.Number, len(trials), trainer.MetricText(best.Metric, best.Valid),
		settingsText(best.Settings))
	chosen, err := optionsOf(best.Settings.With(tune.Settings{"runs": fmt.Sprint(o.runs)}))
	if err != nil {
		return nil, err
	}
	chosen.run, chosen.saveEvery, chosen.force, chosen.Saves = o.run, o.saveEvery, o.force, o.Saves
	chosen.trials, err = tune.Encode(trials)
	return chosen, err
}

// trialsBefore reads the trials that the directory logs, if the training in it goes on.
func (a *app) trialsBefore(dir *checkpoint.RunDir, propose tune.Proposer, o *trainOptions) ([]tune.Trial, error) {
	if o.force {
		return nil, nil
	}
	refuse := func(err error) error {
		return fmt.Errorf("%s: %w: it holds trials or a training of other settings (--force starts over): %w",
			dir.Path(), checkpoint.ErrExists, err)
	}
	text, err := dir.LoadTrials()
	if err != nil {
		return nil, err
	}
	done, err := tune.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir.Path(), checkpoint.ErrInvalid, err)
	}
	for i, trial := range done {
		if s := propose(done[:i]); !maps.Equal(s, trial.Settings) {
			return nil, refuse(fmt.Errorf("trial %d: %s", i+1, strings.Join(differences(trial.Settings, s), ", ")))
		}
	}
	before, err := dir.Load()
	if err != nil {
		return nil, err
	}
	if before != nil && propose(done) != nil {
		return nil, refuse(errors.New("its training was not chosen by these trials"))
	}
	return done, nil
}

// refusedTrial begins why a trial was not made: its settings contradict each other, or the store.
const refusedTrial = "refused: "

// try trains once, without a test. Settings that cannot be, or do not fit, do not end the search: a grid has all
// combinations, and some of them may be meaningless, as heads that do not divide hidden.
func (a *app) try(ctx context.Context, s tune.Settings) (tune.Outcome, error) {
	start := time.Now()
	o, err := optionsOf(s)
	var r *trained
	measured := false
	if err == nil {
		o.NoTest = true
		quiet := *a
		quiet.quiet = true
		debug.FreeOSMemory() // garbage of the trial before is not this one's
		measured = machine.ResetPeakRSS()
		r, err = quiet.trainSplits(ctx, o)
	}
	if err == nil {
		outcome := tune.Outcome{
			Metric: r.Metric, Valid: r.ValidMetric, Lower: trainer.LowerIsBetter(r.Metric), BestEpoch: *r.BestEpoch,
			Epochs: *r.Epochs, Seconds: r.Seconds,
			RowsPerSecond: float64(r.rows[0]) / max(r.fastestSeconds,
				1e-9), RowsPerProcessorSecond: float64(r.rows[0]) / max(r.processorSeconds, 1e-9),
			PeakDeviceBytes: r.PeakDeviceBytes, Graph: r.graph,
		}
		if measured {
			outcome.PeakRSSBytes = machine.PeakRSS()
		}
		return outcome, nil
	}
	failed := ""
	switch {
	case errors.Is(err, trainer.ErrDiverged):
		failed = "diverged"
	case errors.Is(err, machine.ErrDoesNotFit), errors.Is(err, gds.ErrOutOfMemory): // other settings may fit
		failed = err.Error()
	case exitStatus(ctx, err, true) == exit.Options:
		failed = refusedTrial + err.Error()
	default:
		return tune.Outcome{}, err
	}
	return tune.Outcome{Failed: failed, Seconds: time.Since(start).Seconds()}, nil
}

// runTrials goes on after the trials that are done, which dir logs ("": no folder does), and returns all trials. It
// notes the outcome of each, and the settings in which it differs from base.
func (a *app) runTrials(ctx context.Context, propose tune.Proposer, done []tune.Trial, base tune.Settings,
	record func([]tune.Trial) error, dir string) ([]tune.Trial, error) {
	if len(done) > 0 {
		a.note("going on after %s in %s", units.Count(int64(len(done)), "trial"), dir)
	}
	try := func(ctx context.Context, number int, s tune.Settings) (tune.Outcome, error) {
		o, err := a.try(ctx, s)
		if err != nil {
			return o, err
		}
		text := settingsText(s.Without(base))
		if o.Failed != "" {
			a.note("trial %d: %s: %s", number, text, o.Failed)
			return o, nil
		}
		memory := ""
		if o.PeakRSSBytes > 0 {
			memory = fmt.Sprintf(", %s resident", units.Bytes(o.PeakRSSBytes))
		}
		a.note("trial %d: %s: valid %s after %.0f epochs, %.0f rows/s, %s on the device%s", number, text,
			trainer.MetricText(o.Metric, o.Valid), o.BestEpoch,
			o.RowsPerSecond, units.Bytes(o.PeakDeviceBytes), memory)
		return o, nil
	}
	trials, err := tune.Run(ctx, propose, done, try, record)
	if err != nil && ctx.Err() != nil && dir != "" {
		err = &checkpoint.TrainingError{Cause: err, Text: fmt.Sprintf("interrupted after %s, which %s logs; the same "+
			"command goes on", units.Count(int64(len(trials)), "trial"), dir)}
	}
	return trials, err
}

// settingsText is settings in words, but for the input.
func settingsText(s tune.Settings) string {
	s = checkpoint.WithoutData(s)
	delete(s, storeKey)
	return s.Text()
}

// proposer says what to try; nil: there is nothing to choose.
func (a *app) proposer(ctx context.Context, o *trainOptions, t tuneOptions) (tune.Proposer, error) {
	var input *format.Dir
	var err error
	if t.grid != "" { // which may vary the model
		input, err = a.openAny(o.Input)
	} else {
		input, err = a.openInputOf(o.Input, o.Model)
	}
	if err != nil {
		return nil, err
	}
	defer input.Close()
	if err := a.checkConfigured(o, trainer.Spec{Model: o.Model}, &input.Manifest); err != nil {
		return nil, err
	}
	space := tune.Space{Base: o.given(a.seed)}
	switch {
	case t.grid != "":
		space, err = a.readSpace("grid", t.grid, o)
	case t.tune > 0:
		var d tune.Defaults
		_, _, d, err = a.searchDefaults(ctx, input, space.Base)
		space.Dimensions = slices.DeleteFunc(d.Store(), func(d tune.Dimension) bool { return space.Base[d.Name] != "" })
	}
	if err != nil {
		return nil, err
	}
	values := func(name string) []string {
		at := slices.IndexFunc(space.Dimensions, func(d tune.Dimension) bool { return d.Name == name })
		if at < 0 {
			return nil
		}
		return space.Dimensions[at].Values
	}
	models := values("model")
	if models == nil {
		models = []string{o.Model}
	}
	var hops []string
	if at := slices.IndexFunc(models, o.triesHops); at >= 0 && values("hops") == nil &&
		input.Manifest.Kind == format.KindStore {
		if hops, err = a.hopsToTry(ctx, input, *o, models[at]); err != nil {
			return nil, err
		}
	}
	if hops == nil && !t.searches() {
		return nil, nil
	}
	if hops != nil {
		space.Dimensions = append(space.Dimensions, tune.Dimension{Name: "hops", Values: hops})
	}
	pinInput(&space, input)
	if pin := space.Simplify; hops != nil && len(models) > 1 { // the other models read all hops
		space.Simplify = func(s tune.Settings) tune.Settings {
			if !o.triesHops(s["model"]) {
				delete(s, "hops")
			}
			return pin(s)
		}
	}
	points, err := space.List()
	if err != nil {
		return nil, usagef("the settings to try: %s", err)
	}
	if t.tune > 0 {
		return tune.First(t.tune, points.Random(a.seed)), nil
	}
	return points.Grid(), nil
}
