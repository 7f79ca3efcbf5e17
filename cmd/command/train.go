package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// defaultSaveEvery bounds the work that a killed run loses; saving as often costs little.
const defaultSaveEvery = 10 * time.Second

// trainOptions say which model is trained, how often, and where it is saved.
type trainOptions struct {
	flags *pflag.FlagSet // that the options are the values of
	training.Request
	repeats
	runFolder
	configured checkpoint.DataSet // that --config was made for, as far as it says
}

// repeats are how often something is trained.
type repeats struct {
	splitNumbers splitNumbers // that are trained on one after another
	runs         int          // on each
}

// runFolder is where a training is saved, and how long it goes on.
type runFolder struct {
	run                string // directory
	saveEvery, maxTime time.Duration
	force              bool
	trials             []byte // that have chosen some of the options, as the folder logs them; nil: none
}

// validate refuses what cannot be, also for a training on several splits.
func (f *runFolder) validate(splits splitNumbers) error {
	_, err := strconv.Atoi(f.run)
	switch {
	case err == nil:
		return usagef("--run %s: want a directory to save the model in (for %[1]s runs give --runs %[1]s; for a "+
			"directory of that name ./%[1]s)", f.run)
	case len(splits) > 1 && f.run != "":
		return usagef("--run %s with --split %s: a directory holds the model of one split (train them one by one, "+
			"each with a --run of its own)", f.run, splits.String())
	}
	return nil
}

func newTrainCommand(a *app) *cobra.Command {
	var o trainOptions
	var config string
	var t tuneOptions
	names, about := trainer.Models()
	var models strings.Builder
	for i, name := range names {
		fmt.Fprintf(&models, "\n  %-6s %s", name, about[i])
	}
	c := a.verb("train [STORE|GRAPH] --model NAME", "Train a model on a hop store or a graph",
		`Train fits a model to the training rows of a hop store, or the training nodes of a graph. It selects the
epoch with the best validation --metric (among equals, the lowest validation loss) and evaluates that
epoch on the test rows. It stops after --patience epochs without a better one. Without validation rows
it trains for --epochs and selects the last epoch. In a typed graph, rows are the nodes of its target.

With --run it saves the best model so far, its settings (config.yaml), the metrics of each epoch (metrics.jsonl),
and what it needs to go on: at the end of each run, within a run at most every --save-every, and when training is
interrupted or fails. It writes nothing else. The same command goes on with a training that was killed,
interrupted or ended by --max-time, and ends with the same model. If one of several --runs diverges, the others go
on, and the exit status is 1.

--grid and --tune first try other settings, one run each, and train with the ones that have the best validation
metric. With --run, trials.jsonl there logs every trial.

Models:`+models.String(),
		func(ctx context.Context, a *app, args []string) (result, error) {
			if err := o.configure(a, config, args); err != nil {
				return nil, err
			}
			if o.run == "" && a.given("save-every") {
				return nil, usagef("--save-every: nothing is saved without --run")
			}
			return runTrain(ctx, a, &o, t)
		})
	c.Annotations = map[string]string{helpAllFlag: "\nThe labels decide what is predicted, and which --loss and " +
		"--metric there are; the first is the default:\n\n" +
		choicesTable() +
		`
The loss of several labels, or of several values, is a mean over them. Values are trained on in units of their
standard deviation, and so is their loss; mse and mae are in the units of the labels. F1 scores and ROC-AUC (of two
classes, or the mean over several labels) are computed as in scikit-learn.

A flag that is not on the command line is taken from --config, a YAML file whose keys are names of flags
(and store for STORE or GRAPH), or else from the defaults of the model (rows: number of training rows):

` + trainer.DefaultsTable()}
	f := c.Flags()
	a.declareDevices(f)
	a.declareGraphMemory(f)
	o.declareFlags(f)
	f.StringVar(&o.run, "run", "", "directory to save the training in, and to go on with it from")
	f.DurationVar(&o.saveEvery, "save-every", defaultSaveEvery, "least time between two saves within a run")
	f.DurationVar(&o.maxTime, "max-time", 0, "stop after this time, such as 3h30m; the same command goes on later")
	f.StringVar(&config, "config", "", configUsage)
	f.StringVar(&t.grid, "grid", "", "YAML file with a list of values for each of some flags: try all combinations")
	f.IntVar(&t.tune, "tune", 0, "number of random settings to try, of the flags that are not given: learning rate, "+
		"weight decay, dropout, hops, operators, batch")
	f.BoolVar(&o.Importance, "importance", false, "measure how much worse validation is if the rows of a matrix (a hop, "+
		"a metapath) are replaced by their mean, for each")
	f.BoolVar(&o.force, "force", false, forceUsage)
	atLeast(f, 0, "save-every", "max-time", "tune")
	return c
}

// declareFlags adds the flags that decide what is trained.
func (o *trainOptions) declareFlags(f *pflag.FlagSet) {
	o.declarePlacedFlags(f)
	f.Float64Var(&o.LearningRate, "lr", 0, "learning rate (default by model)")
	f.Float64Var(&o.WeightDecay, "weight-decay", 0, "L2 penalty of weights, not of biases; of adamw, decoupled from "+
		"the gradient (default by model and number of training rows)")
	f.IntVar(&o.Epochs, "epochs", 0, "largest number of epochs (default by model)")
	f.IntVar(&o.Patience, "patience", 0,
		"stop after this many epochs without a better validation; 0: never (default by model)")
	f.IntVar(&o.runs, "runs", 1, "number of runs; their seeds are --seed, --seed + 1, ...")
	atLeast(f, 1, "runs")
	f.StringVar(&o.SplitsFile, "splits", "", splitsUsage)
	f.IntVar(&o.EvalEvery, "eval-every", 0, "number of epochs from one validation to the next (default 1 up to "+
		"10,000 validation rows, else 10/3 x validation rows / training rows, for about a tenth of the time)")
	f.StringVar(&o.Optimizer, "optimizer", choice("optimizer"), "adam, adamw or sgd (with momentum 0.9)")
	f.StringVar(&o.Options.Schedule, "lr-schedule", choice("schedule"),
		"how the learning rate changes: constant, cosine (to 0), or step (to a tenth after half of the epochs, to a "+
			"hundredth after three quarters)")
	declareSchedule(f, &o.Schedule)
	f.Float64Var(&o.WarmUp, "warm-up", 0, "number of epochs in which the learning rate grows to its full size")
	f.Float64Var(&o.ClipNorm, "clip-norm", 0, "largest norm of the gradient of all parameters; 0: any")
	f.StringVar(&o.Loss, "loss", "", "loss that training minimises (default by labels)")
	f.StringVar(&o.Metric, "metric", "", "metric that selects epochs and evaluates rows (default by labels)")
	f.StringVar(&o.Weights, "class-weights", "", "factor of the loss of a row: a number for each class, separated "+
		"by commas, or balanced (rows / (classes * rows of the class))")
	f.StringVar(&o.Standardize, "standardize", "", "centre the input and scale it to one unit: by matrix (each hop of "+
		"each operator), by column (each column of these), or none (default "+choice("standardize")+
		"; models as printed: none)")
}

// declarePlacedFlags adds the flags that decide a placement, which train and plan share.
func (o *trainOptions) declarePlacedFlags(f *pflag.FlagSet) {
	o.flags = f
	names, _ := trainer.Models()
	f.StringVar(&o.Model, "model", "sign", "model to train: "+strings.Join(names, ", "))
	f.IntSliceVar(&o.Hops, "hops", nil, "number of hops to use: one for all operators, or one for each, separated "+
		"by commas; of metapaths, the most relations (default all; sgc: the best on validation rows)")
	f.StringSliceVar(&o.Operators, "operator", nil,
		"operators to use, separated by commas (default all)")
	o.Values = declareModelSettings(f)
	declareSampling(f, &o.Sampling)
	f.IntVar(&o.BatchRows, "batch", 0, batchUsage+" (default by model)")
	f.IntVar(&o.BatchPerDevice, batchPerDevice, 0, "rows of a batch for each device, instead of --batch")
	atLeast(f, 0, batchPerDevice)
	f.Var(&o.splitNumbers, "split",
		"number of the split to train on, or several, such as 0-9: --runs on each of them (default the store's)")
	f.StringVar(&o.Placement, "placement", placement.Auto, placementUsage)
	f.StringVar(&o.Shuffle, "shuffle", placement.Auto, "what is reshuffled each epoch: auto, rr (rows) or chunk")
	f.IntVar(&o.ChunkRows, "chunk-rows", 0, chunkRowsUsage)
}

// declareModelSettings adds a flag for each setting of a model. It returns the values that are given; the model has
// defaults for the others.
func declareModelSettings(f *pflag.FlagSet) trainer.Values {
	given := trainer.Values{}
	for _, s := range trainer.ModelSettings() {
		f.Var(settingFlag{s, given}, s.Name, s.Help+" (default by model)")
	}
	return given
}

// settingFlag is the flag of a model's setting.
type settingFlag struct {
	setting trainer.Setting
	given   trainer.Values
}

// Set sets the value. Its bounds depend on the model, which checks it later.
func (f settingFlag) Set(text string) (err error) {
	var v float64
	if f.setting.Integer {
		var n int64
		n, err = strconv.ParseInt(text, 10, 32)
		v = float64(n)
	} else {
		v, err = strconv.ParseFloat(text, 64)
	}
	f.given[f.setting.Name] = v
	return err
}

// String is empty as long as the setting has no value.
func (f settingFlag) String() string {
	if v, ok := f.given[f.setting.Name]; ok {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return ""
}

// Type is the name of the value in help.
func (f settingFlag) Type() string {
	if f.setting.Integer {
		return "int"
	}
	return "float"
}

// choice is the default of an option that is the same for all labels.
func choice(option string) string { return trainer.Choices(option, trainer.ClassTarget)[0] }

// choicesTable lists losses and metrics for help.
func choicesTable() string {
	var b strings.Builder
	for _, c := range []struct {
		labels string
		target trainer.Target
	}{{"classes", trainer.ClassTarget}, {"several labels a row", trainer.LabelsTarget}, {"values",
		trainer.ValuesTarget}} {
		fmt.Fprintf(&b, "  %-21s --loss %s\n  %-21s --metric %s\n", c.labels,
			strings.Join(trainer.Choices("loss", c.target), "|"),
			"", strings.Join(trainer.Choices("metric", c.target), "|"))
	}
	return b.String()
}

// configure sets what --config says, the input and the defaults.
func (o *trainOptions) configure(a *app, config string, args []string) error {
	var err error
	given := o.settingsGiven()
	if o.Input, o.configured, err = a.applyConfig(config); err != nil {
		return err
	}
	if len(args) > 0 {
		o.Input = args[0]
	}
	if o.Input == "" {
		return usagef("%s needs a STORE or a GRAPH", a.command.Name())
	}
	if a.command.Name() == "train" && !a.given("grid") { // else trials may be of other models
		a.noteUnusedSettings(o.Model, given)
	}
	return o.complete()
}

// settingsGiven lists the settings of models that the command line gives. It is called before a configuration, which
// may be that of another model, is applied.
func (o *trainOptions) settingsGiven() (names []string) {
	for _, s := range trainer.ModelSettings() {
		if o.flags.Changed(s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// noteUnusedSettings says which of these settings the model does not have. They are no error, so that one command line
// can train one model after another.
func (a *app) noteUnusedSettings(model string, names []string) {
	d, err := trainer.Defaults(model, math.MaxInt64)
	for _, name := range names {
		if _, has := d.Values[name]; !has && err == nil {
			a.tell(fmt.Sprintf("--%s is not used: %s has the settings %s", name, model,
				strings.Join(slices.Sorted(maps.Keys(d.Values)), ", ")))
		}
	}
}

// complete sets the options whose flags were not given to the defaults of the model, and refuses what cannot be.
func (o *trainOptions) complete() error {
	o.Default = map[string]bool{}
	for _, flag := range training.DefaultFlags() {
		o.Default[flag] = !o.flags.Changed(flag)
	}
	if o.Split = -1; len(o.splitNumbers) > 0 {
		o.Split = o.splitNumbers[0]
	}
	o.Saves = o.run != ""
	if err := o.FillDefaults(math.MaxInt64); err != nil { // Resolve knows how many rows there are
		return err
	}
	return cmp.Or(o.runFolder.validate(o.splitNumbers), o.Check())
}

// runTrain tries settings, if t asks for it, and trains.
func runTrain(ctx context.Context, a *app, o *trainOptions, t tuneOptions) (result, error) {
	if t.tune > 0 && t.grid != "" {
		return nil, usagef("--tune and --grid: give one of them")
	}
	if t.searches() && o.BatchPerDevice > 0 {
		return nil, usagef("--%s with --tune or --grid: give --batch", batchPerDevice)
	}
	if err := a.checkRunDirectory(o.run); err != nil {
		return nil, err
	}
	if o.maxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.maxTime, preprop.ErrMaxTime)
		defer cancel()
	}
	if t.searches() || o.triesHops(o.Model) && !a.isBegun(o) {
		best, err := a.tune(ctx, o, t)
		if err != nil {
			return nil, err
		}
		o = best
	}
	r, err := a.trainSplits(ctx, o)
	if r == nil {
		return nil, err
	}
	return r, err
}

// train makes the runs of a training. The result may come with an error, and is nil if no run has finished.
func (a *app) train(ctx context.Context, o *trainOptions) (_ *trained, err error) {
	start := time.Now()
	store, err := a.openInputOf(o.Input, o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	m := &store.Manifest
	if err := o.checkInputFlags(); err != nil {
		return nil, err
	}
	saver, err := a.openSaver(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, saver.Close()) }()
	o.keepMatrices(saver.Before())
	to, err := a.resolve(ctx, store, o)
	if err != nil {
		return nil, err
	}
	spec, part := to.Spec, to.Part
	if err := a.checkConfigured(o, spec, m); err != nil {
		return nil, err
	}
	config := o.config(a.seed)
	maps.Copy(config, checkpoint.DataSetOf(m).Settings())
	a.addDevices(config)
	err = saver.Begin(ctx, store, part, o.checkpoint(m, spec, config), o.differencesFrom(config))
	if err != nil {
		return nil, err
	}
	before := saver.Batches
	to.Schedule.GoOn(saver.Resume)
	in, err := training.Open(ctx, store, to, before)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	batches := in.Batches()
	if devices := before.Devices; before.Rows > 0 && devices != batches.Devices { // the same batches, shared otherwise
		if graph, ok := in.(*training.Graph); ok && graph.Divided() { // other batches
			return nil, fmt.Errorf("%s: %w: an unfinished training in it has partitions on %d devices, now it would have "+
				"%d (--force starts over)", o.run, checkpoint.ErrExists, devices, batches.Devices)
		}
		a.note("the training began on %d devices and goes on on %d: its last digits differ from a "+
			"run that was not stopped", devices, batches.Devices)
	}
	before.Placement, before.Devices = batches.Placement, batches.Devices
	if before.Rows > 0 && before != batches {
		return nil, fmt.Errorf("%s: %w: an unfinished training in it has batches of %d rows (%s, %d rows together), "+
			"now it would have %d (%s, %d) (--force starts over)",
			o.run, checkpoint.ErrExists, before.Rows, before.Shuffle, before.ChunkRows, batches.Rows, batches.Shuffle,
			batches.ChunkRows)
	}
	saver.Batches = batches
	if m.Kind == format.KindStore {
		maps.Copy(saver.Config, batches.Settings())
	}
	t := &training.Runs{
		Request: &o.Request, Spec: spec, Dir: store, Input: in, Saver: saver, Count: o.runs, Seed: a.seed,
		Note: a.note, Epoch: a.reportEpochs(o.Metric, o.Epochs), Progress: a.progress(),
	}
	labels := ""
	if m.LabelColumns() > 0 {
		labels = fmt.Sprintf(" (%d of them labels of training nodes)", m.LabelColumns())
	}
	switch of := listText(matrixNames(spec)); {
	case store.Typed != nil:
		a.note("%s on %s: features of %s, %s, %s", o.Model, m.Name, of,
			units.Count(int64(len(spec.Relations)), "relation"), spec.Outputs())
	case spec.Widths != nil:
		a.note("%s on %s: %s, %s", o.Model, m.Name, of, spec.Outputs())
	default:
		a.note("%s on %s: %d features%s of %s, %s", o.Model, m.Name, m.Features, labels, of, spec.Outputs())
	}
	a.noteInput(in)
	if graph, ok := in.(*training.Graph); ok {
		if err := a.chooseSchedule(ctx, graph, o); err != nil {
			return nil, err
		}
	}
	if seconds := in.Report().PredictedEpochSeconds; seconds != nil {
		saver.PredictedEpochSeconds = *seconds
	}
	err = saver.Outcome(t.All(ctx))
	if len(checkpoint.Finished(saver.Runs)) == 0 {
		return nil, err
	}
	r := o.result(t)
	r.Seconds = time.Since(start).Seconds()
	return r, err
}

// checkRunDirectory refuses to write into a graph or store, or where no directory can be.
func (a *app) checkRunDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	if info, err := a.fs.Stat(dir); err == nil && !info.IsDir() {
		return usagef("--run %s: it is a file", dir)
	}
	if err := a.refuseWithin(filepath.Join(dir, checkpoint.File)); err != nil {
		return err
	}
	return checkpoint.CheckRun(a.fs, dir)
}
