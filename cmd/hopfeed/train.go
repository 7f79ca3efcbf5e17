package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
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
	defer func() { err = errors.Join(err, store.Close()) }()
	m := &store.Manifest
	spec, part, err := a.planTraining(ctx, store, &o)
	if err != nil {
		return nil, err
	}
	if err := o.resolveSettings(spec, session.CountRows(store.Layout(), part.Train)); err != nil {
		return nil, err
	}
	saver, err := a.openSaver(ctx, store, part, &o, trainer.Checkpoint{Spec: spec, Options: trainer.Options{Epochs: o.Epochs}, Wanted: o.runs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, saver.close()) }()
	so := o.sessionOptions(store.Layout(), spec, part)
	so.Machine, so.HeldBytes = a.machine(ctx), o.heldBytes(m)
	s, err := session.Open(ctx, store, so)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	t := &trained{
		Model: o.model, Dataset: m.Name,
		Placement: s.Plan.Placement, Shuffle: s.Plan.Shuffle, Reasons: s.Plan.Reasons,
		Devices: s.Plan.Devices, Sharded: s.Plan.Sharded, PredictedRemoteRows: s.Plan.RemoteRows,
	}
	if s.Plan.ComputeSeconds > 0 {
		t.PredictedEpochSeconds = &s.Plan.EpochSeconds
	}
	for _, id := range spec.Matrices {
		t.Matrices = append(t.Matrices, id.String())
	}
	a.note("%s on %s: %d features of %s, %d classes", o.model, m.Name, m.Features, strings.Join(t.Matrices, ", "), m.Classes)
	a.notePlacement(s)

	saver.checkpoint.Batches = trainer.Batches{
		Rows: s.BatchRows, Shuffle: t.Shuffle, ChunkRows: s.ChunkRows, Placement: t.Placement, Devices: t.Devices,
	}
	var runs []*trainer.Result
	var rows, remote int64 // of training, and of these, moved
	for i := range o.runs {
		seed := a.seed + uint64(i)
		var d rowSets
		if d, err = openRowSets(s, part, seed); err != nil {
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
		r, runErr := trainer.Fit(ctx, d.ranks(s), spec, trainer.Options{
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
	t.Load = s.Loaders[0].Stats()
	for _, l := range s.Loaders {
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

// sessionOptions are those of a session that trains on the rows of p.
func (o *trainOptions) sessionOptions(layout format.Layout, spec trainer.Spec, p session.Partition) session.Options {
	so := session.Options{
		Matrices: spec.Matrices, Rows: []loader.Rows{p.Train, p.Valid, p.Test}, Train: true,
		BatchRows: o.BatchRows, Placement: o.placement, Shuffle: o.shuffle, ChunkRows: o.chunkRows, Model: spec,
	}
	// Of the median epoch: half of the rows if every second epoch is validated, none if fewer are.
	if o.EvalEvery <= 2 {
		so.ValidRows = session.CountRows(layout, p.Valid) / int64(o.EvalEvery)
	}
	return so
}

// heldBytes is what the command holds in host memory beside a session.
func (o *trainOptions) heldBytes(m *format.Manifest) (bytes int64) {
	if o.splits != "" {
		bytes += m.Nodes
	}
	if o.run != "" {
		bytes += checkpointRowBytes * m.Rows
	}
	return bytes
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
func (a *app) planTraining(ctx context.Context, store *format.Dir, o *trainOptions) (spec trainer.Spec, part session.Partition, err error) {
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
	if part, err = session.OpenPartition(ctx, store, o.split, o.splits, a.budget); err != nil {
		return spec, part, err
	}
	if session.CountRows(store.Layout(), part.Train) == 0 {
		if !part.Scattered() {
			return spec, part, usagef("%s has no training rows: its graph came without a split that has any (give one by --splits FILE)", o.store)
		}
		return spec, part, usagef("%s has no training rows in that split", o.store)
	}
	return spec, part, nil
}

// rowSets are the rows of one run: of each kind, a set for each device.
type rowSets struct{ train, valid, test []*loader.Set }

// openRowSets makes the sets of one run.
func openRowSets(s *session.Session, p session.Partition, seed uint64) (d rowSets, err error) {
	for _, set := range []struct {
		to    *[]*loader.Set
		rows  loader.Rows
		order chunk.Order
	}{
		{&d.train, p.Train, chunk.Shuffled},
		{&d.valid, p.Valid, chunk.Sequential},
		{&d.test, p.Test, chunk.Sequential},
	} {
		if *set.to, err = s.Sets(set.rows, set.order, seed); err != nil {
			return d, err
		}
	}
	return d, nil
}

// ranks pairs each device of the session with its sets.
func (d rowSets) ranks(s *session.Session) []trainer.Rank {
	ranks := make([]trainer.Rank, len(s.Devices))
	for i, device := range s.Devices {
		ranks[i] = trainer.Rank{Device: device, Data: trainer.Data{
			Train: d.train[i], Valid: d.valid[i], Test: d.test[i], BatchRows: s.ShareRows(),
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
