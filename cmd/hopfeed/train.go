package main

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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// defaultSaveEvery is a compromise: a killed run loses at most so much, and saving costs little.
const defaultSaveEvery = 10 * time.Second

type trainOptions struct {
	flags *pflag.FlagSet // that the options are the values of
	store string
	model string
	// configured is the data that --config was made for, as far as it says.
	configured checkpoint.DataSet
	hops       []int // one number for all operators, or one for each; none: all
	operators  []string
	trainer.Settings
	byDefault    map[string]bool // flags that were not given: fillByRows sets those that depend on rows
	weights      string          // of classes: numbers, or balancedWeights
	runs         int
	splitNumbers splitNumbers
	split        int // of splitNumbers, that which is trained on; < 0: the store's
	splits       string
	placement    string
	shuffle      string
	chunkRows    int
	run          string
	saveEvery    time.Duration
	maxTime      time.Duration
	force        bool
	trials       []byte           // that have chosen some of the options, as run logs them; nil: none
	validOnly    bool             // a trial: the test rows are not read
	labels       []session.Labels // of training, validation and test rows
	training.Sampling
	training.Schedule
}

func newTrainCommand(a *app) *cobra.Command {
	var o trainOptions
	var config string
	var t tuneOptions
	names, about := trainer.Models()
	var models strings.Builder
	for i, name := range names {
		fmt.Fprintf(&models, "  %-6s %s\n", name, about[i])
	}
	c := &cobra.Command{
		Use:   "train [STORE|GRAPH] --model NAME",
		Short: "Train a model on a hop store or a graph",
		Long: "Train fits a model to the training rows of a store, or nodes of a graph, selects the epoch with the best validation --metric\n" +
			"(the lowest validation loss among equals), and evaluates that on the test rows. It stops after --patience\n" +
			"epochs without a better one. Without validation rows it trains for --epochs and selects the last epoch.\n\n" +
			"What is predicted, and so which --loss and --metric there are, follows from the labels of the store; the first\n" +
			"of each is the default:\n\n" + choicesTable() + "\n" +
			"The loss of several labels, or of values, is a mean over them. Values are trained on in units of their standard\n" +
			"deviation, and so is their loss; mse and mae are in the units of the labels. F1 scores and ROC-AUC (of two\n" +
			"classes, or the mean over several labels) are those of scikit-learn.\n\n" +
			"With --run it saves the best model so far, its settings (config.yaml), the metrics of each epoch\n" +
			"(metrics.jsonl), and all that is needed to go on: at the end of each run, at most every --save-every within a\n" +
			"run, and when training is interrupted or fails. It writes nothing else. A training that was killed, interrupted\n" +
			"or ended by --max-time goes on when the same command is run again, and ends with the same model. If one of\n" +
			"several --runs diverges, the others go on, and the exit status is 1.\n\n" +
			"--grid and --tune first try other settings, each in one run, and choose those with the best validation metric;\n" +
			"then they train with them. With --run every trial is logged in trials.jsonl there.\n\nModels:\n" + models.String() +
			"\nA flag that is not on the command line is taken from --config, a YAML file whose keys are names of flags\n" +
			"(and store for STORE or GRAPH), or else from the defaults of the model (rows: number of training rows):\n\n" + trainer.DefaultsTable(),
		Args: cobra.MaximumNArgs(1),
	}
	f := c.Flags()
	a.declareDevices(f)
	o.declareFlags(f)
	f.StringVar(&o.run, "run", "", "directory to save the training in, and to go on with it from")
	f.DurationVar(&o.saveEvery, "save-every", defaultSaveEvery, "least time between two saves within a run")
	f.DurationVar(&o.maxTime, "max-time", 0, "stop after this time, such as 3h30m; the same command goes on later")
	f.StringVar(&config, "config", "", configUsage)
	f.StringVar(&t.grid, "grid", "", "YAML file with a list of values for each of some flags: try all combinations")
	f.IntVar(&t.tune, "tune", 0, "number of random settings to try, of the flags that are not given: learning rate, weight decay, dropout, hops, operators, batch")
	f.BoolVar(&o.force, "force", false, forceUsage)
	c.RunE = a.verb(func(ctx context.Context, args []string) (result, error) {
		from, err := a.applyConfig(c, config)
		if err != nil {
			return nil, err
		}
		o.configured = from.data
		if o.store = from.store; len(args) > 0 {
			o.store = args[0]
		}
		if o.store == "" {
			return nil, usagef("train needs a STORE or a GRAPH")
		}
		if err := o.fillDefaults(); err != nil {
			return nil, err
		}
		return runTrain(ctx, a, &o, t)
	})
	return c
}

// declareFlags adds the flags that decide what is trained.
func (o *trainOptions) declareFlags(f *pflag.FlagSet) {
	o.declarePlacedFlags(f)
	f.Float64Var(&o.LearningRate, "lr", 0, "learning rate (default by model)")
	f.Float64Var(&o.WeightDecay, "weight-decay", 0, "L2 penalty of weights, not of biases; of adamw, decoupled from the gradient (default by model and number of training rows)")
	f.IntVar(&o.Epochs, "epochs", 0, "largest number of epochs (default by model)")
	f.IntVar(&o.Patience, "patience", 0, "stop after this many epochs without a better validation; 0: never (default by model)")
	f.IntVar(&o.runs, "runs", 1, "number of runs; their seeds are --seed, --seed + 1, ...")
	f.StringVar(&o.splits, "splits", "", splitsUsage)
	f.IntVar(&o.EvalEvery, "eval-every", 0, "number of epochs from one validation to the next (default 1 if there are few validation rows, else 10 valid / 3 train rows, which takes about a tenth of the time)")
	f.StringVar(&o.Optimizer, "optimizer", choice("optimizer"), "adam, adamw or sgd (with momentum 0.9)")
	f.StringVar(&o.Options.Schedule, "lr-schedule", choice("schedule"), "how the learning rate changes: constant, cosine (to 0), or step (to a tenth after half of the epochs, to a hundredth after three quarters)")
	declareSchedule(f, &o.Schedule)
	f.Float64Var(&o.WarmUp, "warm-up", 0, "number of epochs in which the learning rate grows to its full size")
	f.Float64Var(&o.ClipNorm, "clip-norm", 0, "largest norm of the gradient of all parameters; 0: any")
	f.StringVar(&o.Loss, "loss", "", "what training minimises (default by labels)")
	f.StringVar(&o.Metric, "metric", "", "what epochs are selected and rows are evaluated by (default by labels)")
	f.StringVar(&o.weights, "class-weights", "", "what losses of rows are multiplied by: a number for each class, separated by commas, or balanced (rows / (classes * rows of the class))")
	f.StringVar(&o.Standardize, "standardize", choice("standardize"), "what of the input is centred and brought to one unit: matrix (each hop of each operator), column (each column of these), or none")
}

// declarePlacedFlags adds the flags that train and plan share: those that decide a placement.
func (o *trainOptions) declarePlacedFlags(f *pflag.FlagSet) {
	o.flags = f
	names, _ := trainer.Models()
	f.StringVar(&o.model, "model", "sign", "model to train: "+strings.Join(names, ", "))
	f.IntSliceVar(&o.hops, "hops", nil, "number of hops to use: one for all operators, or one for each, separated by commas (default all that there are; of sgc, the number that is best on validation rows)")
	f.StringSliceVar(&o.operators, "operator", nil, "operators to use, separated by commas (default all that there are)")
	o.Values = declareModelSettings(f)
	declareSampling(f, &o.Sampling)
	f.IntVar(&o.BatchRows, "batch", 0, batchUsage+" (default by model)")
	f.Var(&o.splitNumbers, "split", "number of the split to train on, or several, such as 0-9: --runs on each of them (default that of the store)")
	f.StringVar(&o.placement, "placement", placement.Auto, placementUsage)
	f.StringVar(&o.shuffle, "shuffle", placement.Auto, "what is reshuffled each epoch: auto, rr (rows) or chunk")
	f.IntVar(&o.chunkRows, "chunk-rows", 0, chunkRowsUsage)
}

// declareModelSettings adds a flag for each setting of a model. It returns the values of those that are
// given; the others are the model's.
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

// Type is what help calls the value.
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
	}{{"classes", trainer.ClassTarget}, {"several labels a row", trainer.LabelsTarget}, {"values", trainer.ValuesTarget}} {
		fmt.Fprintf(&b, "  %-21s --loss %s\n  %-21s --metric %s\n", c.labels, strings.Join(trainer.Choices("loss", c.target), "|"),
			"", strings.Join(trainer.Choices("metric", c.target), "|"))
	}
	return b.String()
}

// fillDefaults sets the options whose flags were not given to the defaults of the model.
func (o *trainOptions) fillDefaults() error {
	f := o.flags
	defaults, err := trainer.Defaults(o.model, math.MaxInt64) // fillByRows knows how many rows there are
	if err != nil {
		return usagef("--model: %s", err)
	}
	o.byDefault = map[string]bool{}
	for _, flag := range []string{"lr", "weight-decay", "batch", "epochs", "patience"} {
		o.byDefault[flag] = !f.Changed(flag)
	}
	o.fillFrom(defaults)
	if len(o.hops) > 0 && slices.Min(o.hops) < 0 {
		return usagef("--hops %d: must not be negative", slices.Min(o.hops))
	}
	if o.split = -1; len(o.splitNumbers) > 0 {
		o.split = o.splitNumbers[0]
	}
	return nil
}

// fillFrom sets the options that were not given.
func (o *trainOptions) fillFrom(defaults trainer.Settings) {
	fill := func(flag string, set func()) {
		if o.byDefault[flag] {
			set()
		}
	}
	fill("lr", func() { o.LearningRate = defaults.LearningRate })
	fill("weight-decay", func() { o.WeightDecay = defaults.WeightDecay })
	fill("batch", func() { o.BatchRows = defaults.BatchRows })
	fill("epochs", func() { o.Epochs = defaults.Epochs })
	fill("patience", func() { o.Patience = defaults.Patience })
}

func (o *trainOptions) validate() error {
	if err := oneOf("placement", o.placement, placement.Auto, placement.Device, placement.Host, placement.Storage); err != nil {
		return err
	}
	if err := oneOf("shuffle", o.shuffle, placement.Auto, placement.RR, placement.CR); err != nil {
		return err
	}
	if _, err := strconv.Atoi(o.run); err == nil {
		return usagef("--run %s: want a directory to save the model in (for %s runs give --runs %s; for a directory of that name ./%s)", o.run, o.run, o.run, o.run)
	}
	switch {
	case len(o.splitNumbers) > 1 && o.run != "":
		return usagef("--run %s with --split %s: a directory holds the model of one split (train them one by one, each with a --run of its own)", o.run, o.splitNumbers.String())
	case o.runs < 1:
		return usagef("--runs %d: must be at least 1", o.runs)
	case o.BatchRows < 1:
		return usagef("--batch %d: must be at least 1", o.BatchRows)
	case o.Epochs < 1:
		return usagef("--epochs %d: must be at least 1", o.Epochs)
	case !(o.LearningRate > 0 && o.LearningRate <= math.MaxFloat64):
		return usagef("--lr %v: must be finite and above 0", o.LearningRate)
	case !(o.WeightDecay >= 0 && o.WeightDecay <= math.MaxFloat64):
		return usagef("--weight-decay %v: must be finite and not negative", o.WeightDecay)
	case o.EvalEvery < 0:
		return usagef("--eval-every %d: must be at least 1", o.EvalEvery)
	case !(o.WarmUp >= 0 && o.WarmUp <= math.MaxFloat64):
		return usagef("--warm-up %v: must be finite and not negative", o.WarmUp)
	case !(o.ClipNorm >= 0 && o.ClipNorm <= math.MaxFloat64):
		return usagef("--clip-norm %v: must be finite and not negative", o.ClipNorm)
	case o.Patience < 0:
		return usagef("--patience %d: must not be negative", o.Patience)
	case o.maxTime < 0:
		return usagef("--max-time %v: must not be negative", o.maxTime)
	case o.saveEvery < 0:
		return usagef("--save-every %v: must not be negative", o.saveEvery)
	case o.chunkRows < 0:
		return usagef("--chunk-rows %d: must not be negative", o.chunkRows)
	case o.chunkRows > 1 && o.shuffle == placement.RR:
		return usagef("--chunk-rows %d with --shuffle rr: rr reshuffles single rows (use --shuffle chunk)", o.chunkRows)
	case o.chunkRows > 0 && o.shuffle == placement.Auto:
		o.shuffle = placement.CR
	}
	return nil
}

// runTrain tries settings, if t asks for it, and trains.
func runTrain(ctx context.Context, a *app, o *trainOptions, t tuneOptions) (result, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := t.validate(); err != nil {
		return nil, err
	}
	if err := a.checkRunDirectory(o.run); err != nil {
		return nil, err
	}
	if o.maxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.maxTime, preprop.ErrMaxTime)
		defer cancel()
	}
	if t.searches() || !a.isBegun(o) {
		var err error
		if t.hops, err = a.hopsToTry(ctx, o); err != nil {
			return nil, err
		}
	}
	if t.wanted() {
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
	store, err := a.openInputOf(o.store, o.model)
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
	spec, part, err := a.planTraining(ctx, store, o)
	if err != nil {
		return nil, err
	}
	if err := a.checkConfigured(o, spec, m); err != nil {
		return nil, err
	}
	if err := a.resolveSettings(ctx, store, o, spec, part); err != nil {
		return nil, err
	}
	if m.Kind == format.KindGraph {
		if err := o.fillSampling(session.CountRows(store.Layout(), part.Train)); err != nil {
			return nil, err
		}
	}
	config := o.config(a.seed)
	maps.Copy(config, dataSettings(m))
	err = saver.Begin(ctx, store, part, o.checkpoint(m, spec, config), o.differencesFrom(config))
	if err != nil {
		return nil, err
	}
	before := saver.Batches
	in, err := a.openInput(ctx, store, o, spec, part, before)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	batches := in.Batches()
	if devices := before.Devices; before.Rows > 0 && devices != batches.Devices { // the same batches, shared otherwise
		a.note("the training began on %d devices and goes on on %d: its last digits are others than those of one that does not stop", devices, batches.Devices)
	}
	before.Placement, before.Devices = batches.Placement, batches.Devices
	if before.Rows > 0 && before != batches {
		return nil, fmt.Errorf("%s: %w: an unfinished training in it has batches of %d rows (%s, %d rows together), now it would have %d (%s, %d) (--force starts over)",
			o.run, checkpoint.ErrExists, before.Rows, before.Shuffle, before.ChunkRows, batches.Rows, batches.Shuffle, batches.ChunkRows)
	}
	saver.Batches = batches
	if m.Kind == format.KindStore {
		addBatches(saver.Config, batches)
	}
	t := &runs{app: a, o: o, spec: spec, store: store, part: part, input: in, saver: saver}
	a.note("%s on %s: %d features of %s, %s", o.model, m.Name, m.Features, strings.Join(t.matrices(), ", "), spec.Outputs())
	a.noteInput(in)
	if graph, ok := in.(*training.Graph); ok {
		if err := a.chooseSchedule(ctx, graph, o, saver.Resume); err != nil {
			return nil, err
		}
	}
	if seconds := in.Report().PredictedEpochSeconds; seconds != nil {
		saver.PredictedEpochSeconds = *seconds
	}
	err = trainingOutcome(saver, o, t.runAll(ctx))
	if len(finishedRuns(saver.Runs)) == 0 {
		return nil, err
	}
	r := t.result(m.Name)
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
