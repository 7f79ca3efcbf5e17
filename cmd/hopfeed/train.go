package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// defaultSaveEvery is a compromise: a killed run loses at most so much, and saving costs little.
const defaultSaveEvery = 10 * time.Second

type trainOptions struct {
	store     string
	model     string
	hops      int // < 0: all
	operators []string
	trainer.Settings
	decayByRows bool // the weight decay is the model's default for the rows
	runs        int
	split       int // < 0: the store's
	splits      string
	placement   string
	shuffle     string
	chunkRows   int
	run         string
	saveEvery   time.Duration
	force       bool
}

func newTrainCommand(a *app) *cobra.Command {
	var o trainOptions
	var config string
	names, about := trainer.Models()
	var models strings.Builder
	for i, name := range names {
		fmt.Fprintf(&models, "  %-6s %s\n", name, about[i])
	}
	c := &cobra.Command{
		Use:   "train STORE --model NAME",
		Short: "Train a model on a hop store",
		Long: "Train fits a model to the training rows of a store, selects the epoch with the best validation accuracy\n" +
			"(the lowest validation loss among equals), and evaluates that on the test rows. It stops after --patience\n" +
			"epochs without a better one. Without validation rows it trains for --epochs and selects the last epoch.\n\n" +
			"With --run it saves the best model so far: at the end of each run, at most every --save-every within a run,\n" +
			"and when training is interrupted, diverges or fails. It writes nothing else. If one of several --runs\n" +
			"diverges, the others go on, and the exit status is 1.\n\nModels:\n" + models.String() +
			"\nA flag that is not on the command line is taken from --config, a JSON object whose keys are names of\n" +
			"flags, or else from the defaults of the model (rows: number of training rows):\n\n" + trainer.DefaultsTable(),
		Args: cobra.ExactArgs(1),
	}
	f := c.Flags()
	a.declareEmulate(f)
	o.declarePlacedFlags(f)
	f.Float64Var(&o.Dropout, "dropout", 0, "dropout probability (default by model)")
	f.Float64Var(&o.LearningRate, "lr", 0, "learning rate (default by model)")
	f.Float64Var(&o.WeightDecay, "weight-decay", 0, "L2 penalty of weights, not of biases (default by model and number of training rows)")
	f.IntVar(&o.Epochs, "epochs", 0, "largest number of epochs (default by model)")
	f.IntVar(&o.Patience, "patience", 0, "stop after this many epochs without a better validation; 0: never (default by model)")
	f.IntVar(&o.runs, "runs", 1, "number of runs; their seeds are --seed, --seed + 1, ...")
	f.StringVar(&o.splits, "splits", "", splitsUsage)
	f.IntVar(&o.EvalEvery, "eval-every", 1, "number of epochs from one validation to the next")
	f.StringVar(&o.run, "run", "", "directory to save the best model in")
	f.DurationVar(&o.saveEvery, "save-every", defaultSaveEvery, "least time between two saves of the best epoch within a run")
	f.StringVar(&config, "config", "", "JSON file with the values of flags")
	f.BoolVar(&o.force, "force", false, forceUsage)
	c.RunE = a.verb(func(ctx context.Context, args []string) (result, error) {
		if err := a.applyConfig(c, config); err != nil {
			return nil, err
		}
		if err := o.fillDefaults(f); err != nil {
			return nil, err
		}
		o.store = args[0]
		return runTrain(ctx, a, o)
	})
	return c
}

// declarePlacedFlags adds the flags that train and plan share: those that decide a placement.
func (o *trainOptions) declarePlacedFlags(f *pflag.FlagSet) {
	names, _ := trainer.Models()
	f.StringVar(&o.model, "model", "sign", "model to train: "+strings.Join(names, ", "))
	f.IntVar(&o.hops, "hops", -1, "number of hops to use (default all that there are)")
	f.StringSliceVar(&o.operators, "operator", nil, "operators to use, separated by commas (default all that there are)")
	f.IntVar(&o.Hidden, "hidden", 0, "number of hidden units (default by model)")
	f.IntVar(&o.Layers, "layers", 0, "number of layers (default by model)")
	f.IntVar(&o.BatchRows, "batch", 0, batchUsage+" (default by model)")
	f.IntVar(&o.split, "split", -1, "number of the split to train on (default that of the store)")
	f.StringVar(&o.placement, "placement", placement.Auto, placementUsage)
	f.StringVar(&o.shuffle, "shuffle", placement.Auto, "what is reshuffled each epoch: auto, rr (rows) or chunk")
	f.IntVar(&o.chunkRows, "chunk-rows", 0, chunkRowsUsage)
	for _, name := range []string{"hops", "split"} {
		f.Lookup(name).DefValue = "0" // which help leaves out
	}
}

// fillDefaults sets the options whose flags were not given to the defaults of the model.
func (o *trainOptions) fillDefaults(f *pflag.FlagSet) error {
	defaults, err := trainer.Defaults(o.model, 0)
	if err != nil {
		return usagef("--model: %s", err)
	}
	for flag, set := range map[string]func(){
		"hidden":       func() { o.Hidden = defaults.Hidden },
		"layers":       func() { o.Layers = defaults.Layers },
		"dropout":      func() { o.Dropout = defaults.Dropout },
		"lr":           func() { o.LearningRate = defaults.LearningRate },
		"weight-decay": func() { o.WeightDecay, o.decayByRows = 0, true },
		"batch":        func() { o.BatchRows = defaults.BatchRows },
		"epochs":       func() { o.Epochs = defaults.Epochs },
		"patience":     func() { o.Patience = defaults.Patience },
	} {
		if !f.Changed(flag) {
			set()
		}
	}
	for flag, value := range map[string]int{"hops": o.hops, "split": o.split} {
		if f.Changed(flag) && value < 0 {
			return usagef("--%s %d: must not be negative", flag, value)
		}
	}
	return nil
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
	case !(o.Dropout >= 0 && o.Dropout < 1):
		return usagef("--dropout %v: must be at least 0 and below 1", o.Dropout)
	case o.EvalEvery < 1:
		return usagef("--eval-every %d: must be at least 1", o.EvalEvery)
	case o.Patience < 0:
		return usagef("--patience %d: must not be negative", o.Patience)
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

// trained is the result of train; evaluate fills in the fields that apply to it. Figures are
// means over the runs, with sample standard deviations.
type trained struct {
	Model                 string             `json:"model"`
	Dataset               string             `json:"dataset"`
	Matrices              []string           `json:"matrices"`
	Placement             string             `json:"placement"`
	Shuffle               string             `json:"shuffle"`
	Reasons               []string           `json:"reasons"`
	Settings              trainer.Settings   `json:"settings"`
	Devices               int                `json:"devices"`
	Sharded               bool               `json:"sharded"`
	RemoteRows            float64            `json:"remote_rows"` // fraction of the training rows that another device held
	PredictedRemoteRows   float64            `json:"predicted_remote_rows"`
	RemoteBytes           int64              `json:"remote_bytes"` // that moved between devices, in all epochs
	Epochs                *float64           `json:"epochs"`
	BestEpoch             *float64           `json:"best_epoch"`
	Selection             string             `json:"selection"`
	Metric                string             `json:"metric"`
	TrainLoss             *float64           `json:"train_loss"`
	TrainLossStd          *float64           `json:"train_loss_std"`
	ValidMetric           *float64           `json:"valid_metric"`
	ValidMetricStd        *float64           `json:"valid_metric_std"`
	TestMetric            *float64           `json:"test_metric"`
	TestMetricStd         *float64           `json:"test_metric_std"`
	EpochSeconds          *float64           `json:"epoch_seconds"`
	EpochSecondsStd       *float64           `json:"epoch_seconds_std"`
	StageSeconds          map[string]float64 `json:"stage_seconds"`
	LoadWaitSeconds       *float64           `json:"load_wait_seconds"`
	LoadWaitSecondsStd    *float64           `json:"load_wait_seconds_std"`
	RowsPerSecond         *float64           `json:"rows_per_second"`
	RowsPerSecondStd      *float64           `json:"rows_per_second_std"`
	ConvergenceEpoch      *float64           `json:"convergence_epoch"`
	PredictedEpochSeconds *float64           `json:"predicted_epoch_seconds"`
	PeakDeviceBytes       int64              `json:"peak_device_bytes"`
	Seeds                 []uint64           `json:"seeds"`
	Load                  loader.Stats       `json:"load"`
	Seconds               float64            `json:"seconds"`
	Runs                  []trainer.Run      `json:"runs,omitempty"`
	Output                string             `json:"output,omitempty"`

	rows [3]int64 // train, valid, test
}

// meanStd returns mean and standard deviation, nil where there are none.
func meanStd(s *trainer.Spread) (mean, std *float64) {
	if s == nil {
		return nil, nil
	}
	return &s.Mean, &s.Std
}

func (t *trained) text(w io.Writer) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	spread := func(mean, std *float64) string {
		if mean != nil && len(t.Seeds) > 1 {
			return fmt.Sprintf("%.2f +- %.2f %%", 100**mean, 100**std)
		}
		return percent(mean)
	}
	line("model", "%s on %s, %d rows of %s", t.Model, units.Printable(t.Dataset), t.rows[0], strings.Join(t.Matrices, ", "))
	line("input", "from %s%s; read: %s", t.Placement, shuffleText(t.Shuffle), readsText(t.Load))
	if t.Devices > 1 {
		moved := ""
		if t.Sharded {
			moved = fmt.Sprintf("; %.2g %% of the training rows moved (predicted %.2g %%), %s in all", 100*t.RemoteRows, 100*t.PredictedRemoteRows, units.Bytes(t.RemoteBytes))
		}
		line("devices", "%d, which share each batch%s", t.Devices, moved)
	}
	line("epochs", "%.0f, selected %.0f: %s", *t.Epochs, *t.BestEpoch, t.Selection)
	line("loss", "%s", lossText(*t.TrainLoss))
	line("valid", "%s %s (%d rows)", t.Metric, spread(t.ValidMetric, t.ValidMetricStd), t.rows[1])
	line("test", "%s %s (%d rows)", t.Metric, spread(t.TestMetric, t.TestMetricStd), t.rows[2])
	predicted := ""
	if t.PredictedEpochSeconds != nil {
		predicted = fmt.Sprintf(" (predicted %.4f s)", *t.PredictedEpochSeconds)
	}
	line("time", "%.1f s in all; %.4f s an epoch%s, %.0f rows/s; %.2f s waiting for input", t.Seconds, *t.EpochSeconds, predicted, *t.RowsPerSecond, *t.LoadWaitSeconds)
	if n := len(t.Seeds); n > 1 {
		line("runs", "%d, seeds %d to %d", n, t.Seeds[0], t.Seeds[n-1])
	}
	if unfinished := len(t.Runs) - len(t.Seeds); unfinished > 0 {
		line("not counted", "%s that did not finish", count(int64(unfinished), "run"))
	}
	if t.Output != "" {
		line("saved", "%s", t.Output)
	}
}

func runTrain(ctx context.Context, a *app, o trainOptions) (_ result, err error) {
	start := time.Now()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := a.checkRunDirectory(o.run, o.force); err != nil {
		return nil, err
	}
	store, err := a.openStore(o.store, o.model)
	if err != nil {
		return nil, err
	}
	m := &store.Manifest
	spec, part, err := a.planTraining(ctx, store, &o)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	so := o.sessionOptions(store, part)
	if err := o.resolveSettings(spec, so.trainRows); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	saver, err := a.openSaver(ctx, store, part, &o, trainer.Checkpoint{Spec: spec, Options: trainer.Options{Epochs: o.Epochs}, Wanted: o.runs})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	defer func() { err = errors.Join(err, saver.close()) }()
	s, err := a.openSession(ctx, store, spec, so)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	t := &trained{
		Model: o.model, Dataset: m.Name,
		Placement: s.decision.Placement, Shuffle: s.decision.Shuffle, Reasons: s.decision.Reasons,
		Devices: s.decision.Devices, Sharded: s.decision.Sharded, PredictedRemoteRows: s.decision.RemoteRows,
		Metric: trainer.MetricName,
	}
	if s.decision.ComputeSeconds > 0 {
		t.PredictedEpochSeconds = &s.decision.EpochSeconds
	}
	for _, id := range spec.Matrices {
		t.Matrices = append(t.Matrices, id.String())
	}
	a.note("%s on %s: %d features of %s, %d classes", o.model, m.Name, m.Features, strings.Join(t.Matrices, ", "), m.Classes)
	s.notePlacement(a)

	saver.checkpoint.Batches = trainer.Batches{
		Rows: s.batch, Shuffle: t.Shuffle, ChunkRows: s.planChunkRows(), Placement: t.Placement, Devices: t.Devices,
	}
	var runs []*trainer.Result
	var rows, remote int64 // of training, and of these, moved
	for i := range o.runs {
		seed := a.seed + uint64(i)
		var d rowSets
		if d, err = s.rowSets(part, seed); err != nil {
			break
		}
		t.rows = [3]int64{d.train[0].Rows(), d.valid[0].Rows(), d.test[0].Rows()}
		if i == 0 {
			a.note("rows: %d train, %d valid, %d test", t.rows[0], t.rows[1], t.rows[2])
			if t.rows[1] == 0 && o.Patience > 0 {
				o.Patience = 0
				a.note("there are no validation rows: --patience is off, and the last epoch is selected")
			}
			t.Settings = o.Settings
			a.note("settings: %s; seed %d", o.Text(), a.seed)
		}
		label := ""
		if o.runs > 1 {
			label = fmt.Sprintf("run %d of %d, ", i+1, o.runs)
		}
		note := a.reportEpochs(label, o.Epochs)
		saver.beginRun(seed)
		r, runErr := trainer.Fit(ctx, s.ranks(d), spec, trainer.Options{
			Epochs: o.Epochs, LearningRate: o.LearningRate, WeightDecay: o.WeightDecay,
			Seed: seed, EvalEvery: o.EvalEvery, Patience: o.Patience,
		}, func(e trainer.Epoch, best func() (*trainer.Result, error)) {
			note(e)
			saver.recordEpoch(e, best)
		})
		saver.endRun(ctx, r, runErr)
		if errors.Is(runErr, trainer.ErrDiverged) {
			a.note("%s%s", label, runErr)
			continue
		}
		if err = runErr; err != nil {
			break
		}
		figures := *r
		figures.Parameters = nil // which the saver keeps, of the best
		runs = append(runs, &figures)
		for _, set := range d.train {
			had, moved := set.Remote()
			rows, remote = rows+had, remote+moved
		}
	}
	err = saver.finalError(err)
	if len(runs) == 0 {
		return nil, err
	}
	t.RemoteRows = float64(remote) / float64(max(rows, 1))
	t.Runs = saver.checkpoint.Runs
	t.fill(trainer.Summarize(runs), runs)
	t.Load = s.loaders[0].Stats()
	for _, l := range s.loaders {
		t.RemoteBytes += l.Stats().RemoteBytes
	}
	if saver.saved != nil {
		t.Output = o.run
	}
	t.Seconds = time.Since(start).Seconds()
	return t, err
}

// resolveSettings sets options that the model does not use to zero, and the weight decay, where
// it was not given, to the default for this number of training rows.
func (o *trainOptions) resolveSettings(spec trainer.Spec, trainRows int64) error {
	spec, err := spec.Normalized()
	if err != nil {
		return err
	}
	o.Hidden, o.Layers, o.Dropout = spec.Hidden, spec.Layers, spec.Dropout
	if o.decayByRows {
		defaults, err := trainer.Defaults(o.model, trainRows)
		if err != nil {
			return err
		}
		o.WeightDecay = defaults.WeightDecay
	}
	return nil
}

// sessionOptions are the options of a session that trains on the rows of p.
func (o *trainOptions) sessionOptions(store *format.Dir, p partition) sessionOptions {
	so := sessionOptions{batch: o.BatchRows, train: true, placement: o.placement, shuffle: o.shuffle,
		scattered: p.scattered, chunkRows: o.chunkRows}
	if !p.scattered {
		so.regions = []string{format.RegionTrain, format.RegionValid, format.RegionTest}
	} else if so.held = store.Manifest.Rows; o.splits != "" {
		so.held += store.Manifest.Nodes
	}
	if o.run != "" {
		so.held += checkpointRowBytes * store.Manifest.Rows
	}
	so.trainRows, so.validRows = p.rows(store, p.train), p.rows(store, p.valid)
	// Of the median epoch: half of the rows if every second epoch is validated, none if fewer are.
	if so.validRows /= int64(o.EvalEvery); o.EvalEvery > 2 {
		so.validRows = 0
	}
	return so
}

// checkLabels refuses stores whose labels are not classes.
func checkLabels(m *format.Manifest, store string) error {
	switch {
	case m.LabelValues:
		return usagef("the labels of %s are values (regression), which cannot be trained on yet: hopfeed trains on classes", store)
	case m.Labels > 1:
		return usagef("%s is multi-label (%d labels a row), which cannot be trained on yet", store, m.Labels)
	case m.Classes == 0:
		return usagef("%s has no labels to train on", store)
	}
	return nil
}

// planTraining decides the model and the rows to train it on.
func (a *app) planTraining(ctx context.Context, store *format.Dir, o *trainOptions) (spec trainer.Spec, part partition, err error) {
	m := &store.Manifest
	if err := checkLabels(m, o.store); err != nil {
		return spec, part, err
	}
	matrices, err := trainer.Matrices(o.model, store.Matrices(), o.operators, o.hops)
	if err != nil {
		return spec, part, usagef("%s: %s", o.store, err)
	}
	spec = trainer.Spec{
		Model: o.model, Matrices: matrices, Features: m.Features, Classes: m.Classes,
		Hidden: o.Hidden, Layers: o.Layers, Dropout: o.Dropout,
	}
	if part, err = a.choosePartition(ctx, store, o.split, o.splits); err != nil {
		return spec, part, err
	}
	if part.rows(store, part.train) == 0 {
		if !part.scattered {
			return spec, part, usagef("%s has no training rows: its graph came without a split that has any (give one by --splits FILE)", o.store)
		}
		return spec, part, usagef("%s has no training rows in that split", o.store)
	}
	return spec, part, nil
}

// rowSets are the rows of one run: of each kind, a set for each device.
type rowSets struct{ train, valid, test []*loader.Set }

// planChunkRows is how many rows are shuffled together.
func (s *session) planChunkRows() int {
	if s.decision.Shuffle == placement.CR {
		return s.chunkRows
	}
	return 1
}

// rowSets makes the sets of one run.
func (s *session) rowSets(p partition, seed uint64) (d rowSets, err error) {
	for _, set := range []struct {
		to    *[]*loader.Set
		rows  loader.Rows
		order chunk.Order
	}{
		{&d.train, p.train, chunk.Shuffled},
		{&d.valid, p.valid, chunk.Sequential},
		{&d.test, p.test, chunk.Sequential},
	} {
		if *set.to, err = s.loaders.Sets(set.rows, chunk.Plan{BatchRows: s.batch, ChunkRows: s.planChunkRows(), Order: set.order, Seed: seed}); err != nil {
			return d, err
		}
	}
	return d, nil
}

// ranks pairs each device with its sets.
func (s *session) ranks(d rowSets) []trainer.Rank {
	ranks := make([]trainer.Rank, len(s.devices))
	for i, device := range s.devices {
		ranks[i] = trainer.Rank{Device: device, Data: trainer.Data{
			Train: d.train[i], Valid: d.valid[i], Test: d.test[i], BatchRows: shareRows(s.batch, len(s.devices)),
		}}
	}
	return ranks
}

// checkRunDirectory refuses to write over a model, into a graph or store, or where no
// directory can be.
func (a *app) checkRunDirectory(dir string, force bool) error {
	if dir == "" {
		return nil
	}
	if info, err := a.fs.Stat(dir); err == nil && !info.IsDir() {
		return usagef("--run %s: it is a file", dir)
	}
	if err := a.refuseWithin(filepath.Join(dir, trainer.CheckpointFile)); err != nil {
		return err
	}
	return trainer.CheckRun(a.fs, dir, force)
}

// lossText is a loss with four decimals, or, if it is large, with six digits.
func lossText(loss float64) string {
	if math.Abs(loss) < 1000 {
		return fmt.Sprintf("%.4f", loss)
	}
	return fmt.Sprintf("%.6g", loss)
}

// reportEpochs prints an epoch every two seconds, and the last.
func (a *app) reportEpochs(label string, epochs int) func(trainer.Epoch) {
	const gap = 2 * time.Second
	last := time.Now()
	return func(e trainer.Epoch) {
		if now := time.Now(); now.Sub(last) >= gap || e.Number == epochs {
			last = now
			a.note("%sepoch %d of %d: loss %s, valid %s, %.4f s", label, e.Number, epochs, lossText(e.TrainLoss), percent(e.Valid), e.Seconds)
		}
	}
}

// fill sets the figures that are means over the runs.
func (t *trained) fill(s *trainer.Summary, runs []*trainer.Result) {
	t.Epochs, _ = meanStd(s.Epochs)
	t.BestEpoch, _ = meanStd(s.BestEpoch)
	t.TrainLoss, t.TrainLossStd = meanStd(s.TrainLoss)
	t.ValidMetric, t.ValidMetricStd = meanStd(s.Valid)
	t.TestMetric, t.TestMetricStd = meanStd(s.Test)
	t.EpochSeconds, t.EpochSecondsStd = meanStd(s.EpochSeconds)
	t.LoadWaitSeconds, t.LoadWaitSecondsStd = meanStd(s.LoadWaitSeconds)
	t.RowsPerSecond, t.RowsPerSecondStd = meanStd(s.RowsPerSecond)
	t.ConvergenceEpoch, _ = meanStd(s.ConvergenceEpoch)
	t.Selection = runs[0].Selection
	t.StageSeconds, t.PeakDeviceBytes, t.Seeds = s.StageSeconds, s.PeakDeviceBytes, s.Seeds
}

// shuffleText is what follows "input from storage" in messages.
func shuffleText(shuffle string) string {
	switch shuffle {
	case placement.RR:
		return ", rows reshuffled"
	case placement.CR:
		return ", chunks reshuffled"
	}
	return ""
}
