package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/report"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// searchOptions are the options of tune that train does not have.
type searchOptions struct {
	trainOptions
	maxMemory   units.Bytes
	minValid    float64
	hasMinValid bool
	minRows     float64
	weights     []float64 // of throughput, memory and metric; none: not given
	surrogate   string    // file
	budget      tune.Budget
	search      string
	throughput  string // wallTime or processorTime
	space       string // file
	trialEpochs int    // < 0: the default
	output      string
	dataset     string // that is searched on
	graph       *tune.Graph
}

// graphTrialEpochs is the default of --trial-epochs for graphs.
const graphTrialEpochs = 10

func newTuneCommand(a *app) *cobra.Command {
	var o searchOptions
	var config string
	c := a.verb("tune [GRAPH|STORE] --model NAME",
		"Search settings of a training for throughput, memory and accuracy",
		`Tune measures short trainings with different settings, one after another, and prints the Pareto front
of training rows a second, peak memory and validation metric: the trials that no other trial beats in all three.
--max-memory, --min-accuracy and --min-throughput say what is acceptable, and --weights how much each of the three
counts. Test rows are never read.

On a graph it varies batch, fanout, sampler, bias, cache, partitions, placement, schedule (with gpu the device samples),
sampling workers and batch buffers; on a store learning rate, weight decay, dropout, hops, operators and batch. Flags
that are given stay as they are; --space lists other values to vary. Memory is the device's or, where device and host
share it, the process's.

In --output it writes trials.jsonl, a line for each trial as it ends, configurations for train --config
(config.yaml, a balanced point of the front; fastest.yaml, smallest.yaml and accurate.yaml, its ends), and
tuning.html, a page with charts. The same command goes on after the last logged trial, after any interruption and
also with other limits, another budget or another search. The next trial is a function of the seed and of the
trials so far. Throughput is measured, so two searches may try different settings.

Searches: gaussian (Gaussian processes: the settings that may add most to the front), ppo (a policy that explores
their predictions, as in A3GNN), random, and grid (all, in order).`,
		func(ctx context.Context, a *app, args []string) (result, error) {
			if a.given(batchPerDevice) {
				return nil, usagef("--%s: a search chooses --batch", batchPerDevice)
			}
			if err := o.configure(a, config, args); err != nil {
				return nil, err
			}
			return runTune(ctx, a, &o)
		})
	c.Example = "  hopfeed tune GRAPH --model sage --max-memory 2GiB --min-accuracy 0.93 --budget 10m"
	f := c.Flags()
	a.declareDevices(f)
	a.declareGraphMemory(f)
	o.declareFlags(f)
	f.Var(&o.maxMemory, "max-memory", maxMemoryUsage)
	f.Float64Var(&o.minValid, "min-accuracy", 0, minAccuracyUsage)
	f.Float64Var(&o.minRows, "min-throughput", 0, "least training rows a second of a trial; 0: any")
	f.Float64SliceVar(&o.weights, "weights", nil,
		"`weights` of throughput, memory and accuracy, such as 0.5,0.25,0.25, by which the search chooses and config.yaml "+
			"is chosen (default the whole front, and a balanced point)")
	f.Lookup("weights").DefValue = "" // not []
	f.StringVar(&o.surrogate, "surrogate", "",
		"file that bench surrogate wrote: the first trials have the settings of which it predicts most (on a graph)")
	o.budget.Seconds = 600
	f.Var(&o.budget, "budget",
		"time of all trials together, such as 10m, or their number, such as 40; the last trial is finished")
	f.StringVar(&o.search, "search", tune.DefaultSearch,
		"how settings are chosen: "+strings.Join(tune.Searches(), ", "))
	f.StringVar(&o.throughput, "throughput", wallTime, throughputUsage)
	f.StringVar(&o.space, "space", "",
		"YAML file with a list of values for each of some flags, to search instead of the usual ones")
	f.IntVar(&o.trialEpochs, "trial-epochs", -1, fmt.Sprintf("epochs of a trial, if --epochs is not given; 0: as "+
		"many as a training has (default %d on a graph, 0 on a store)", graphTrialEpochs))
	f.Lookup("trial-epochs").DefValue = "0" // which help leaves out
	f.StringVarP(&o.output, "output", "o", "tuning", "folder for trials and configurations")
	f.StringVar(&config, "config", "", configUsage)
	among(f, "search", tune.Searches()...)
	among(f, "throughput", wallTime, processorTime)
	atLeast(f, 0, "trial-epochs")
	return c
}

// What throughput is by.
const (
	wallTime      = "wall"
	processorTime = "processor"
)

// runTune searches. The result comes with an error if no trial meets the limits.
func runTune(ctx context.Context, a *app, o *searchOptions) (_ result, err error) {
	o.hasMinValid = a.given("min-accuracy")
	if o.runs != 1 {
		return nil, usagef("--runs %d: a trial is one run (of --split 0-9 it is one of each split)", o.runs)
	}
	points, goals, err := a.tuneSpace(ctx, o)
	if err != nil {
		return nil, err
	}
	prior, err := a.readSurrogate(o, goals)
	if err != nil {
		return nil, err
	}
	propose, err := tune.NewSearch(o.search, points, goals, a.seed, prior)
	if err != nil {
		return nil, err
	}
	dir, done, err := a.openTuning(o.output, points)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	trials, err := a.runTrials(ctx, o.budget.Within(propose), done, points.Base, dir.Save, o.output)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(trials, func(t tune.Trial) bool { return goals.Measured(t.Outcome) }) {
		if failed := slices.IndexFunc(trials, func(t tune.Trial) bool { return t.Failed != "" }); failed >= 0 {
			return nil, fmt.Errorf("none of %s succeeded: %s", units.Count(int64(len(trials)), "trial"),
				trials[failed].Failed)
		}
		return nil, errors.New("no trial could be measured: this system does not say what memory a trial takes")
	}
	r := &report.Tuning{
		Dataset: o.dataset, Search: o.search, Seed: a.seed, Output: o.output, Model: o.Model, Limits: o.limits(),
		Goals: goals, All: trials,
	}
	r.Sum(points)
	files, err := r.Files(o.trialEpochs > 0)
	if err != nil {
		return nil, err
	}
	if err := dir.Publish(files); err != nil {
		return nil, err
	}
	if len(r.Front) == 0 {
		err = fmt.Errorf("%s: %s", o.limits(), goals.Unmet(trials))
		if o.maxMemory > 0 && !o.hasMinValid && o.minRows == 0 {
			err = fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
		}
	}
	return r, err
}

// checkMinAccuracy refuses what values of a metric cannot be at least.
func checkMinAccuracy(least float64, metric string) error {
	switch {
	case math.IsNaN(least) || math.IsInf(least, 0):
		return usagef("--min-accuracy %v: want a number", least)
	case trainer.LowerIsBetter(metric):
		return usagef("--min-accuracy %v: of %s, less is better (leave it out)", least, metric)
	}
	return nil
}

// weightsOf makes weights that add up to 1; none: nil.
func weightsOf(given []float64) (*tune.Score, error) {
	if len(given) == 0 {
		return nil, nil
	}
	var w tune.Score
	total := 0.0
	for i, v := range given {
		if i >= len(w) || !(v >= 0) || math.IsInf(v, 0) {
			total = 0
			break
		}
		w[i], total = v, total+v
	}
	if len(given) != len(w) || total == 0 {
		return nil, usagef("--weights %v: want three numbers from 0 on, of throughput, memory and accuracy, that are not "+
			"all 0", given)
	}
	for i := range w {
		w[i] /= total
	}
	return &w, nil
}

// graphOf gives a search the facts of a graph; nil: it is a store.
func graphOf(m *format.Manifest) *tune.Graph {
	if m.Kind != format.KindGraph {
		return nil
	}
	return &tune.Graph{Name: m.Name, Nodes: m.Nodes, Edges: m.Edges, Features: m.Features}
}

// readSurrogate returns what predicts the scores of trials; nil: nothing does.
func (a *app) readSurrogate(o *searchOptions, g tune.Goals) (func([]tune.Settings) []tune.Score, error) {
	if o.surrogate == "" {
		return nil, nil
	}
	if o.graph == nil {
		return nil, usagef("--surrogate: %s is a store, and surrogates predict trainings on graphs", o.Input)
	}
	text, err := a.readSmall(o.surrogate)
	if err != nil {
		return nil, err
	}
	s, err := tune.DecodeSurrogate(text)
	if err != nil {
		return nil, usagef("%s: %s (want a file of bench surrogate)", o.surrogate, err)
	}
	if s.ProcessorTime != g.ProcessorTime || s.DeviceMemory != g.DeviceMemory {
		flags := "--throughput " + o.throughput
		if !g.DeviceMemory {
			flags += " --resident"
		}
		a.note("%s predicts another throughput or memory than is searched for: make it by bench surrogate %s", o.surrogate,
			flags)
	}
	return func(all []tune.Settings) []tune.Score { return s.Predict(o.graph, all) }, nil
}

// limits are the limits in words.
func (o *searchOptions) limits() string {
	var words []string
	if o.maxMemory > 0 {
		words = append(words, "--max-memory "+o.maxMemory.String())
	}
	if o.hasMinValid {
		words = append(words, fmt.Sprintf("--min-accuracy %v", o.minValid))
	}
	if o.minRows > 0 {
		words = append(words, fmt.Sprintf("--min-throughput %v", o.minRows))
	}
	return strings.Join(words, ", ")
}

// tuneSpace has the values that are searched, and the goals.
func (a *app) tuneSpace(ctx context.Context, o *searchOptions) (*tune.Points, tune.Goals, error) {
	goals := tune.Goals{ProcessorTime: o.throughput == processorTime, MaxMemory: int64(o.maxMemory),
		DeviceMemory: !a.machine(ctx).Devices.Info.Unified}
	if o.hasMinValid {
		goals.MinValid = &o.minValid
	}
	if goals.MinThroughput = o.minRows; !(o.minRows >= 0) || math.IsInf(o.minRows, 0) {
		return nil, goals, usagef("--min-throughput %v: want a number from 0 on", o.minRows)
	}
	var err error
	if goals.Weights, err = weightsOf(o.weights); err != nil {
		return nil, goals, err
	}
	input, err := a.openInputOf(o.Input, o.Model)
	if err != nil {
		return nil, goals, err
	}
	defer input.Close()
	if input.Typed != nil {
		return nil, goals, usagef("%s is a typed graph: tune varies settings of graphs of one type (use train --grid)",
			o.Input)
	}
	if err := o.checkInputFlags(); err != nil {
		return nil, goals, err
	}
	o.dataset, o.graph = input.Manifest.Name, graphOf(&input.Manifest)
	given := o.given(a.seed)
	fixed := maps.Clone(given)
	if o.space != "" { // a trial checks these with the values that vary
		for _, flag := range graphFlags {
			delete(fixed, flag)
		}
	}
	defaults, to, usual, err := a.searchDefaults(ctx, input, fixed)
	if err != nil {
		return nil, goals, err
	}
	if err := a.checkConfigured(&o.trainOptions, to.Spec, &input.Manifest); err != nil {
		return nil, goals, err
	}
	if session.CountRows(input.Layout(), to.Part.Valid) == 0 {
		return nil, goals, usagef("%s has no validation rows, by which settings are compared (give a split that has "+
			"some by --splits FILE)", o.Input)
	}
	for _, split := range defaults.splitNumbers[min(1, len(defaults.splitNumbers)):] { // which would fail in each trial
		other := *defaults
		other.Split = split
		if _, _, err := other.Plan(ctx, input, a.machine(ctx)); err != nil {
			return nil, goals, err
		}
	}
	if rows := defaults.Labels[1]; rows.Labelled == 0 {
		return nil, goals, usagef("0 of the %s of %s have a label, and settings are compared by these (choose "+
			"another split by --split or --splits FILE)",
			units.Count(rows.Rows, "validation row"), o.Input)
	}
	if o.hasMinValid {
		if err := checkMinAccuracy(o.minValid, defaults.Metric); err != nil {
			return nil, goals, err
		}
	}
	graph := input.Manifest.Kind == format.KindGraph
	var space tune.Space
	switch {
	case o.space != "":
		space, err = a.readSpace("space", o.space, &o.trainOptions)
	case graph:
		space.Dimensions = usual.Graph()
	default:
		space.Dimensions = usual.Store()
	}
	if err != nil {
		return nil, goals, err
	}
	space.Base = given
	for _, name := range machineFlags {
		if f := o.flags.Lookup(name); f != nil && f.Changed {
			space.Base[name] = flagValue(f)
		}
	}
	space.Dimensions = slices.DeleteFunc(space.Dimensions, func(d tune.Dimension) bool {
		return space.Base[d.Name] != "" || d.Name == "partitions" && space.Base["partition-file"] != ""
	})
	pinInput(&space, input)
	if graph {
		space.Simplify = tune.SimplifyGraph(space.Base, a.machine(ctx).Devices.Info.Unified, takesAllEdges)
		if o.trialEpochs < 0 {
			o.trialEpochs = graphTrialEpochs
		}
	}
	if space.Base["epochs"] != "" || o.trialEpochs < 0 {
		o.trialEpochs = 0
	}
	if o.trialEpochs > 0 {
		space.Base["epochs"] = strconv.Itoa(o.trialEpochs)
	}
	points, err := space.List()
	if err != nil {
		return nil, goals, usagef("the settings to search: %s", err)
	}
	return points, goals, nil
}

func takesAllEdges(sampler string) bool {
	return (&training.Sampling{Sampler: sampler}).TakesAllEdges()
}

// openTuning opens the folder of a search. The trials that are logged there must be of the points that are searched
// now.
func (a *app) openTuning(path string, points *tune.Points) (f *tune.Folder, done []tune.Trial, err error) {
	if path == "" {
		return nil, nil, usagef("--output: want a folder")
	}
	if err := a.refuseWithin(filepath.Join(path, checkpoint.TrialsFile)); err != nil {
		return nil, nil, err
	}
	if f, done, err = tune.OpenFolder(a.fs, path); err != nil {
		return nil, nil, err
	}
	for _, trial := range done {
		if points.Find(trial.Settings) < 0 {
			err := fmt.Errorf("%s: %w, and holds trials of other settings (give another --output): trial %d: %s", path,
				format.ErrExists,
				trial.Number, strings.Join(differences(trial.Settings, points.Nearest(trial.Settings)), ", "))
			return nil, nil, errors.Join(err, f.Close())
		}
	}
	return f, done, nil
}

// machineFlags are no settings of a training, but throughput and memory depend on them.
var machineFlags = []string{"threads", "memory", "tf32", "emulate"}
