package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
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

type trainOptions struct {
	store     string
	model     string
	hops      int // < 0: all
	operators []string
	trainer.Settings
	runs      int
	split     int // < 0: the store's
	splits    string
	evalEvery int
	patience  int
	placement string
	shuffle   string
	chunkRows int
	run       string
	force     bool
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
		Long: "Train fits a model, selects the epoch with the best validation accuracy (the last one where there\n" +
			"are no validation rows), and tests it. It writes nothing but --run.\n\nModels:\n" + models.String() +
			"\nWhat is not given on the command line is taken from --config, a JSON object with the names of flags as\n" +
			"keys, and else from the model's defaults.",
		Args: cobra.ExactArgs(1),
	}
	f := c.Flags()
	o.shared(f)
	f.Float64Var(&o.Dropout, "dropout", 0, "dropout probability (default by model)")
	f.Float64Var(&o.LearningRate, "lr", 0, "learning rate (default by model)")
	f.Float64Var(&o.WeightDecay, "weight-decay", 0, "L2 penalty (default by model)")
	f.IntVar(&o.Epochs, "epochs", 0, "most epochs to train (default by model)")
	f.IntVar(&o.patience, "patience", 0, "stop after so many epochs without a better validation (0: never)")
	f.IntVar(&o.runs, "runs", 1, "runs, with the seeds --seed, --seed + 1, ...")
	f.StringVar(&o.splits, "splits", "", "npy file [k,n] of splits over the nodes, of which --split chooses")
	f.IntVar(&o.evalEvery, "eval-every", 1, "epochs between validations")
	f.StringVar(&o.run, "run", "", "directory to save the trained model in (of several runs the best)")
	f.StringVar(&config, "config", "", "JSON file of flags")
	f.BoolVar(&o.force, "force", false, "replace the model in --run")
	c.RunE = a.verb(func(ctx context.Context, args []string) (result, error) {
		if err := a.applyConfig(c, config); err != nil {
			return nil, err
		}
		if err := o.settle(f); err != nil {
			return nil, err
		}
		o.store = args[0]
		return runTrain(ctx, a, o)
	})
	return c
}

// shared adds the flags that train has in common with plan.
func (o *trainOptions) shared(f *pflag.FlagSet) {
	names, _ := trainer.Models()
	f.StringVar(&o.model, "model", "sign", "model: "+strings.Join(names, ", "))
	f.IntVar(&o.hops, "hops", -1, "hops to use (default all that the store has)")
	f.StringSliceVar(&o.operators, "operator", nil, "operators to use (default all that the store has)")
	f.IntVar(&o.Hidden, "hidden", 0, "hidden units (default by model)")
	f.IntVar(&o.Layers, "layers", 0, "layers (default by model)")
	f.IntVar(&o.BatchRows, "batch", 0, "rows of a batch (default by model)")
	f.IntVar(&o.split, "split", -1, "split to train on (default that of the store)")
	f.StringVar(&o.placement, "placement", placement.Auto, "where the input lives: auto, device, host or storage")
	f.StringVar(&o.shuffle, "shuffle", placement.Auto, "what is shuffled: auto, rr (rows) or chunk")
	f.IntVar(&o.chunkRows, "chunk-rows", 0, "rows that are shuffled together (default the store's chunks)")
	for _, name := range []string{"hops", "split"} {
		f.Lookup(name).DefValue = "0" // which help leaves out
	}
}

// settle fills in the model's defaults for flags that were not given.
func (o *trainOptions) settle(f *pflag.FlagSet) error {
	defaults, err := trainer.Defaults(o.model)
	if err != nil {
		return usagef("--model: %s", err)
	}
	for flag, take := range map[string]func(){
		"hidden":       func() { o.Hidden = defaults.Hidden },
		"layers":       func() { o.Layers = defaults.Layers },
		"dropout":      func() { o.Dropout = defaults.Dropout },
		"lr":           func() { o.LearningRate = defaults.LearningRate },
		"weight-decay": func() { o.WeightDecay = defaults.WeightDecay },
		"batch":        func() { o.BatchRows = defaults.BatchRows },
		"epochs":       func() { o.Epochs = defaults.Epochs },
	} {
		if !f.Changed(flag) {
			take()
		}
	}
	for flag, value := range map[string]int{"hops": o.hops, "split": o.split} {
		if f.Changed(flag) && value < 0 {
			return usagef("--%s %d: must not be negative", flag, value)
		}
	}
	return nil
}

func (o *trainOptions) check() error {
	if err := oneOf("placement", o.placement, placement.Auto, placement.Device, placement.Host, placement.Storage); err != nil {
		return err
	}
	if err := oneOf("shuffle", o.shuffle, placement.Auto, placement.RR, placement.CR); err != nil {
		return err
	}
	switch {
	case o.runs < 1:
		return usagef("--runs %d: must be at least 1", o.runs)
	case o.BatchRows < 1:
		return usagef("--batch %d: must be at least 1", o.BatchRows)
	case o.Epochs < 1:
		return usagef("--epochs %d: must be at least 1", o.Epochs)
	case !(o.LearningRate > 0 && o.LearningRate <= math.MaxFloat64):
		return usagef("--lr %v: must be above 0, and finite", o.LearningRate)
	case !(o.WeightDecay >= 0 && o.WeightDecay <= math.MaxFloat64):
		return usagef("--weight-decay %v: must not be negative, and finite", o.WeightDecay)
	case !(o.Dropout >= 0 && o.Dropout < 1):
		return usagef("--dropout %v: must be at least 0 and below 1", o.Dropout)
	case o.evalEvery < 1:
		return usagef("--eval-every %d: must be at least 1", o.evalEvery)
	case o.patience < 0:
		return usagef("--patience %d: must not be negative", o.patience)
	case o.chunkRows < 0:
		return usagef("--chunk-rows %d: must not be negative", o.chunkRows)
	case o.chunkRows > 1 && o.shuffle == placement.RR:
		return usagef("--chunk-rows %d with --shuffle rr: rows are shuffled one by one (use --shuffle chunk)", o.chunkRows)
	case o.chunkRows > 0 && o.shuffle == placement.Auto:
		o.shuffle = placement.CR
	}
	return nil
}

// trained is the result of train and, of what applies to it, of evaluate.
// Figures are means over the runs, each with its sample standard deviation.
type trained struct {
	Model                 string             `json:"model"`
	Dataset               string             `json:"dataset"`
	Matrices              []string           `json:"matrices"`
	Placement             string             `json:"placement"`
	Shuffle               string             `json:"shuffle"`
	Reasons               []string           `json:"reasons"`
	Devices               int                `json:"devices"`
	Sharded               bool               `json:"sharded"`
	RemoteRows            float64            `json:"remote_rows"` // part of the training rows that another device held
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
	Output                string             `json:"output,omitempty"`

	rows [3]int64 // train, valid, test
}

// of splits a spread into mean and deviation.
func of(s *trainer.Spread) (mean, std *float64) {
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
	line("model", "%s on %s, %d rows of %s", t.Model, t.Dataset, t.rows[0], strings.Join(t.Matrices, ", "))
	line("input", "from %s%s; read: %s", t.Placement, shuffleText(t.Shuffle), readsText(t.Load))
	if t.Devices > 1 {
		moved := ""
		if t.Sharded {
			moved = fmt.Sprintf("; %.2g %% of the training rows moved (predicted %.2g %%), %s in all", 100*t.RemoteRows, 100*t.PredictedRemoteRows, units.Bytes(t.RemoteBytes))
		}
		line("devices", "%d, which share each batch%s", t.Devices, moved)
	}
	line("epochs", "%.0f, selected %.0f: %s", *t.Epochs, *t.BestEpoch, t.Selection)
	line("loss", "%.4f", *t.TrainLoss)
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
	if t.Output != "" {
		line("saved", "%s", t.Output)
	}
}

func runTrain(ctx context.Context, a *app, o trainOptions) (_ result, err error) {
	start := time.Now()
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := a.refuseRun(o.run, o.force); err != nil {
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
	s, err := a.openSession(ctx, store, spec, o.session(store, part))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	t := &trained{
		Model: o.model, Dataset: m.Name,
		Placement: s.decision.Placement, Shuffle: s.decision.Shuffle, Reasons: s.decision.Reasons,
		Devices: s.decision.Devices, Sharded: s.decision.Sharded, PredictedRemoteRows: s.decision.RemoteRows,
		Metric: trainer.MetricName, Output: o.run,
	}
	if s.decision.ComputeSeconds > 0 {
		t.PredictedEpochSeconds = &s.decision.EpochSeconds
	}
	for _, id := range spec.Matrices {
		t.Matrices = append(t.Matrices, id.String())
	}
	a.note("%s on %s: %d features of %s, %d classes", o.model, m.Name, m.Features, strings.Join(t.Matrices, ", "), m.Classes)
	s.announce(a)

	var runs []*trainer.Result
	var rows, remote int64 // of training, and of these, moved
	for i := range o.runs {
		seed := a.seed + uint64(i)
		d, err := s.data(part, seed)
		if err != nil {
			return nil, err
		}
		t.rows = [3]int64{d.train[0].Rows(), d.valid[0].Rows(), d.test[0].Rows()}
		if i == 0 {
			a.note("rows: %d train, %d valid, %d test", t.rows[0], t.rows[1], t.rows[2])
		}
		label := ""
		if o.runs > 1 {
			label = fmt.Sprintf("run %d of %d, ", i+1, o.runs)
		}
		r, err := trainer.Fit(ctx, s.ranks(d), spec, trainer.Options{
			Epochs: o.Epochs, LearningRate: o.LearningRate, WeightDecay: o.WeightDecay,
			Seed: seed, EvalEvery: o.evalEvery, Patience: o.patience,
		}, a.reportEpochs(label, o.Epochs))
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
		for _, set := range d.train {
			had, moved := set.Remote()
			rows, remote = rows+had, remote+moved
		}
	}
	t.RemoteRows = float64(remote) / float64(max(rows, 1))
	summary := trainer.Summarize(runs)
	t.fill(summary, runs)
	t.Load = s.loaders[0].Stats()
	for _, l := range s.loaders {
		t.RemoteBytes += l.Stats().RemoteBytes
	}
	if o.run != "" {
		if err := runs[summary.Best].Checkpoint(m.Name).Save(a.fs, o.run); err != nil {
			return nil, err
		}
	}
	t.Seconds = time.Since(start).Seconds()
	return t, nil
}

// session is what training on some rows of a store asks for.
func (o *trainOptions) session(store *format.Dir, p partition) sessionOptions {
	so := sessionOptions{batch: o.BatchRows, train: true, placement: o.placement, shuffle: o.shuffle,
		scattered: p.scattered, chunkRows: o.chunkRows}
	if !p.scattered {
		so.regions = []string{format.RegionTrain, format.RegionValid, format.RegionTest}
	}
	so.trainRows, so.validRows = p.rows(store, p.train), p.rows(store, p.valid)
	// Of the median epoch: half of one where every second is validated, and then none.
	if so.validRows /= int64(o.evalEvery); o.evalEvery > 2 {
		so.validRows = 0
	}
	return so
}

// checkLabels refuses what cannot be trained on.
func checkLabels(m *format.Manifest, store string) error {
	switch {
	case m.Labels > 1:
		return usagef("%s is multi-label (%d labels a row), which cannot be trained on yet", store, m.Labels)
	case m.Classes == 0:
		return usagef("%s has no labels to train on", store)
	}
	return nil
}

// planTraining settles the model, and the rows to train it on.
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
	if o.splits == "" && (o.split < 0 || o.split == m.Split) {
		if r, _ := store.Region(format.RegionTrain); r.Rows == 0 {
			return spec, part, usagef("%s has no training rows (the graph ships no split, or none with such: take one from --splits FILE)", o.store)
		}
		return spec, regionPartition, nil
	}
	table, err := store.Rows(ctx)
	if err != nil {
		return spec, part, err
	}
	if o.splits != "" {
		part, err = filePartition(a.fs, o.splits, table, m.Nodes, max(o.split, 0))
	} else {
		part, err = shippedPartition(table, o.split)
	}
	if err == nil && len(part.train.List) == 0 {
		err = usagef("none of the rows of %s is a training row of that split", o.store)
	}
	return spec, part, err
}

// data is the rows of one run, each device's share of them.
type data struct{ train, valid, test []*loader.Set }

// data plans the epochs of one run.
func (s *session) data(p partition, seed uint64) (d data, err error) {
	chunkRows := 1
	if s.decision.Shuffle == placement.CR {
		chunkRows = s.chunkRows
	}
	for _, set := range []struct {
		to    *[]*loader.Set
		rows  loader.Rows
		order chunk.Order
	}{
		{&d.train, p.train, chunk.Shuffled},
		{&d.valid, p.valid, chunk.Sequential},
		{&d.test, p.test, chunk.Sequential},
	} {
		if *set.to, err = s.loaders.Sets(set.rows, chunk.Plan{BatchRows: s.batch, ChunkRows: chunkRows, Order: set.order, Seed: seed}); err != nil {
			return d, err
		}
	}
	return d, nil
}

// ranks are the devices, each with its share of the data.
func (s *session) ranks(d data) []trainer.Rank {
	ranks := make([]trainer.Rank, len(s.devices))
	for i, device := range s.devices {
		ranks[i] = trainer.Rank{Device: device, Data: trainer.Data{
			Train: d.train[i], Valid: d.valid[i], Test: d.test[i], BatchRows: shareRows(s.batch, len(s.devices)),
		}}
	}
	return ranks
}

// refuseRun refuses to write over a model, into a graph or store, or where no
// directory can be.
func (a *app) refuseRun(dir string, force bool) error {
	if dir == "" {
		return nil
	}
	if info, err := a.fs.Stat(dir); err == nil && !info.IsDir() {
		return usagef("--run %s: it is a file", dir)
	}
	if _, err := a.fs.Stat(filepath.Join(dir, trainer.CheckpointFile)); err == nil && !force {
		return fmt.Errorf("%w: %s (--force replaces the model in it)", format.ErrExists, dir)
	}
	return a.refuseWithin(filepath.Join(dir, trainer.CheckpointFile))
}

// reportEpochs tells of an epoch now and then, and of the last.
func (a *app) reportEpochs(label string, epochs int) func(trainer.Epoch) {
	const gap = 2 * time.Second
	last := time.Now()
	return func(e trainer.Epoch) {
		if now := time.Now(); now.Sub(last) >= gap || e.Number == epochs {
			last = now
			a.note("%sepoch %d of %d: loss %.4f, valid %s, %.4f s", label, e.Number, epochs, e.TrainLoss, percent(e.Valid), e.Seconds)
		}
	}
}

// fill takes over the figures of the runs.
func (t *trained) fill(s *trainer.Summary, runs []*trainer.Result) {
	t.Epochs, _ = of(s.Epochs)
	t.BestEpoch, _ = of(s.BestEpoch)
	t.TrainLoss, t.TrainLossStd = of(s.TrainLoss)
	t.ValidMetric, t.ValidMetricStd = of(s.Valid)
	t.TestMetric, t.TestMetricStd = of(s.Test)
	t.EpochSeconds, t.EpochSecondsStd = of(s.EpochSeconds)
	t.LoadWaitSeconds, t.LoadWaitSecondsStd = of(s.LoadWaitSeconds)
	t.RowsPerSecond, t.RowsPerSecondStd = of(s.RowsPerSecond)
	t.ConvergenceEpoch, _ = of(s.ConvergenceEpoch)
	t.Selection = runs[0].Selection
	t.StageSeconds, t.PeakDeviceBytes, t.Seeds = s.StageSeconds, s.PeakDeviceBytes, s.Seeds
}

// shuffleText continues "input from storage".
func shuffleText(shuffle string) string {
	switch shuffle {
	case placement.RR:
		return ", shuffled by row"
	case placement.CR:
		return ", shuffled by chunk"
	}
	return ""
}
