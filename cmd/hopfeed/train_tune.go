package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// tuneOptions say what is tried before a training.
type tuneOptions struct {
	grid string // file
	tune int    // number of random trials
}

func (t *tuneOptions) validate() error {
	switch {
	case t.tune < 0:
		return usagef("--tune %d: must not be negative", t.tune)
	case t.tune > 0 && t.grid != "":
		return usagef("--tune and --grid: give one of them")
	}
	return nil
}

func (t *tuneOptions) wanted() bool { return t.tune > 0 || t.grid != "" }

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
	o.store = settings[storeKey]
	if err := o.fillDefaults(); err != nil {
		return nil, err
	}
	return o, o.validate()
}

// given are the settings that are on the command line or in its configuration.
func (o *trainOptions) given(seed uint64) tune.Settings {
	s := tune.Settings{storeKey: o.store, "seed": fmt.Sprint(seed)}
	o.flags.Visit(func(f *pflag.Flag) {
		if !slices.Contains(notSettings, f.Name) && f.Name != "runs" {
			s[f.Name] = flagValue(f)
		}
	})
	return s
}

// tune tries settings, logs the trials in the directory of --run, if there is one, and returns the options with the
// best. Trials that are logged there already are not made again.
func (a *app) tune(ctx context.Context, o *trainOptions, t tuneOptions) (_ *trainOptions, err error) {
	propose, err := a.proposer(ctx, o, t)
	if err != nil {
		return nil, err
	}
	record := func([]tune.Trial) error { return nil }
	var done []tune.Trial
	if o.run != "" {
		dir, err := trainer.OpenRun(a.fs, o.run)
		if err != nil {
			return nil, err
		}
		closed := false
		defer func() {
			if !closed {
				err = errors.Join(err, dir.Close())
			}
		}()
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
	if len(done) > 0 {
		a.note("going on after %s in %s", count(int64(len(done)), "trial"), o.run)
	}
	trials, err := tune.Run(ctx, propose, done, func(ctx context.Context, number int, s tune.Settings) (tune.Outcome, error) {
		return a.try(ctx, number, s)
	}, record)
	if err != nil {
		if ctx.Err() == nil || o.run == "" {
			return nil, err
		}
		return nil, &trainingError{err, fmt.Sprintf("interrupted after %s; the same train command goes on", count(int64(len(trials)), "trial"))}
	}
	best := tune.Best(trials)
	if refused := slices.IndexFunc(trials, func(t tune.Trial) bool { return !strings.HasPrefix(t.Failed, refusedTrial) }) < 0; refused {
		return nil, usagef("none of %s can be made: %s", count(int64(len(trials)), "trial"), trials[0].Failed)
	}
	if best == nil {
		return nil, fmt.Errorf("none of %s has a validation metric: %s", count(int64(len(trials)), "trial"), cmp.Or(trials[0].Failed, "there are no labelled validation rows"))
	}
	a.note("chosen: trial %d of %d, valid %s: %s", best.Number, len(trials), metricText(best.Metric, best.Valid), settingsText(best.Settings))
	chosen, err := optionsOf(best.Settings.With(tune.Settings{"runs": fmt.Sprint(o.runs)}))
	if err != nil {
		return nil, err
	}
	chosen.run, chosen.saveEvery, chosen.force = o.run, o.saveEvery, o.force
	chosen.trials, err = tune.Encode(trials)
	return chosen, err
}

// trialsBefore are those that are logged in the directory, if the training in it goes on.
func (a *app) trialsBefore(dir *trainer.RunDir, propose tune.Proposer, o *trainOptions) ([]tune.Trial, error) {
	if o.force {
		return nil, nil
	}
	refuse := func(err error) error {
		return fmt.Errorf("%s: %w: it holds trials or a training of other settings (--force starts over): %w", dir.Path(), trainer.ErrRunExists, err)
	}
	text, err := dir.LoadTrials()
	if err != nil {
		return nil, err
	}
	done, err := tune.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir.Path(), trainer.ErrCheckpoint, err)
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
func (a *app) try(ctx context.Context, number int, s tune.Settings) (tune.Outcome, error) {
	o, err := optionsOf(s)
	var r *trained
	if err == nil {
		o.validOnly = true
		quiet := *a
		quiet.quiet = true
		r, err = quiet.train(ctx, o)
	}
	if err == nil {
		a.note("trial %d: %s: valid %s after %.0f epochs", number, settingsText(s), metricText(r.Metric, r.ValidMetric), *r.BestEpoch)
		return tune.Outcome{Metric: r.Metric, Valid: r.ValidMetric, Lower: trainer.LowerIsBetter(r.Metric), BestEpoch: *r.BestEpoch, Epochs: *r.Epochs, Seconds: r.Seconds}, nil
	}
	failed := ""
	switch {
	case errors.Is(err, trainer.ErrDiverged):
		failed = "diverged"
	case errors.Is(err, machine.ErrDoesNotFit), errors.Is(err, gds.ErrOutOfMemory): // other settings may fit
		failed = err.Error()
	case exitStatus(ctx, err, true) == exitUsage:
		failed = refusedTrial + err.Error()
	default:
		return tune.Outcome{}, err
	}
	a.note("trial %d: %s: %s", number, settingsText(s), failed)
	return tune.Outcome{Failed: failed}, nil
}

func settingsText(s tune.Settings) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if name != storeKey {
			parts = append(parts, name+" "+s[name])
		}
	}
	return strings.Join(parts, ", ")
}

// proposer says what to try.
func (a *app) proposer(ctx context.Context, o *trainOptions, t tuneOptions) (tune.Proposer, error) {
	base := o.given(a.seed)
	if t.grid != "" {
		values, err := a.readGrid(t.grid, o)
		if err != nil {
			return nil, err
		}
		return tune.Grid(base, values), nil
	}
	space, err := a.space(ctx, o)
	if err != nil {
		return nil, err
	}
	return tune.Random(base, space, t.tune, a.seed), nil
}

// readGrid reads lists of values by names of flags, and checks that all can be set.
func (a *app) readGrid(path string, o *trainOptions) (map[string][]string, error) {
	var nodes map[string]yaml.Node
	if err := a.readYAML("grid", path, &nodes); err != nil {
		return nil, err
	}
	values := map[string][]string{}
	settings := pflag.NewFlagSet("trial", pflag.ContinueOnError)
	new(trainOptions).declareFlags(settings)
	for name, node := range nodes {
		if settings.Lookup(name) == nil || slices.Contains(notSettings, name) || name == "runs" || name == "metric" {
			return nil, usagef("--grid %s: %q is no flag that trials can vary", path, name)
		}
		items := node.Content
		if node.Kind != yaml.SequenceNode {
			items = []*yaml.Node{&node}
		}
		for _, item := range items {
			text, err := flagText(item)
			if err == nil {
				_, err = optionsOf(o.given(a.seed).With(tune.Settings{name: text}))
			}
			if err != nil {
				return nil, usagef("--grid %s: %s: %s", path, name, err)
			}
			values[name] = append(values[name], text)
		}
		if len(values[name]) == 0 {
			return nil, usagef("--grid %s: %s has no values", path, name)
		}
	}
	if len(values) == 0 {
		return nil, usagef("--grid %s: it names no flags", path)
	}
	return values, nil
}

// space is what random trials draw: flags that were not given, around the defaults of the model.
func (a *app) space(ctx context.Context, o *trainOptions) ([]tune.Dimension, error) {
	defaults, err := optionsOf(o.given(a.seed))
	if err != nil {
		return nil, err
	}
	store, err := a.openInputOf(o.store, o.model)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	spec, part, err := a.planTraining(ctx, store, defaults)
	if err != nil {
		return nil, err
	}
	if err := a.resolveSettings(ctx, store, defaults, spec, part); err != nil {
		return nil, err
	}
	batch := int(min(int64(defaults.BatchRows), session.CountRows(store.Layout(), part.Train)))
	var operators []string
	hops := math.MaxInt // that all operators have
	last := map[string]int{}
	for _, id := range store.Matrices() {
		if id.Hop > 0 {
			last[id.Operator] = max(last[id.Operator], id.Hop)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		operators, hops = append(operators, name), min(hops, last[name])
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }
	pick := func(values []string) func(u float64) string {
		return func(u float64) string { return values[int(u*float64(len(values)))] }
	}
	space := []tune.Dimension{
		{Name: "lr", Draw: func(u float64) string { return number(defaults.LearningRate * math.Pow(10, 2*u-1)) }},
		{Name: "weight-decay", Draw: func(u float64) string { return number(defaults.WeightDecay * math.Pow(10, 4*u-2)) }},
		{Name: "batch", Draw: func(u float64) string { return fmt.Sprint(max(1, batch<<int(5*u)>>2)) }},
	}
	if _, ok := defaults.Values["dropout"]; ok {
		space = append(space, tune.Dimension{Name: "dropout", Draw: func(u float64) string { return number(math.Floor(9*u) / 10) }})
	}
	if len(operators) > 0 && hops > 1 {
		space = append(space, tune.Dimension{Name: "hops", Draw: func(u float64) string { return fmt.Sprint(1 + int(u*float64(hops))) }})
	}
	if len(operators) > 1 {
		space = append(space, tune.Dimension{Name: "operator", Draw: pick(append(operators, strings.Join(operators, ",")))})
	}
	return slices.DeleteFunc(space, func(d tune.Dimension) bool { return o.flags.Changed(d.Name) }), nil
}
