package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// applyOptions are the options of commands that apply a trained model.
type applyOptions struct {
	checkpoint, placement string
	batch                 int
}

func (o *applyOptions) flags(a *app, c *cobra.Command) {
	f := c.Flags()
	a.declareDevices(f)
	a.declareGraphMemory(f)
	f.StringVar(&o.checkpoint, "checkpoint", "", "directory that train --run has written")
	f.IntVar(&o.batch, "batch", 8000, batchUsage)
	f.StringVar(&o.placement, "placement", placement.Auto, placementUsage)
	among(f, "placement", placement.Auto, placement.Device, placement.Host, placement.Storage)
	atLeast(f, 1, "batch")
	c.MarkFlagRequired("checkpoint")
}

// applied describes a trained model and the data that it was applied to.
type applied struct {
	checkpoint, trainedOn string
	incomplete            string // what the training lacks
}

func (p *applied) write(w io.Writer, model, dataset, from string, load loader.Stats, warnings []string) {
	fmt.Fprintf(w, "model\t%s, trained on %s (%s)\n", model, units.Printable(p.trainedOn),
		units.Printable(p.checkpoint))
	if p.incomplete != "" {
		fmt.Fprintf(w, "incomplete\t%s\n", p.incomplete)
	}
	fmt.Fprintf(w, "input\t%s from %s; read: %s\n", units.Printable(dataset), from, readsText(load))
	for _, warning := range warnings {
		fmt.Fprintf(w, "warning\t%s\n", units.Printable(warning))
	}
}

type evaluateOptions struct {
	applyOptions
	store  string
	rows   string // one of rowChoices
	split  int    // < 0: the split of the training, or else of the store
	splits string
	metric string // "": the metric of the training
}

// allRows is the value of --rows for all labelled rows.
const allRows = "all"

var rowChoices = []string{format.RegionTest, format.RegionValid, format.RegionTrain, allRows}

func newEvaluateCommand(a *app) *cobra.Command {
	var o evaluateOptions
	c := a.verb("evaluate --checkpoint RUN STORE|GRAPH", "Apply a trained model to a hop store or a graph",
		`Evaluate applies a model that train --run has saved to labelled rows of a hop store, by default the test
rows. A model that reads a graph is applied to a graph, one layer after another to all nodes.

If the store has the nodes of the training, the training's split says which rows are test rows. If it has
other nodes (with the same features and classes), the store's own split does. --split or --splits choose
another split. Test or validation rows that the model was trained on are refused;
--rows train and --rows all evaluate them too.`, o.do)
	o.flags(a, c)
	f := c.Flags()
	f.StringVar(&o.rows, "rows", format.RegionTest, "labelled rows to evaluate on: test, valid, train or all")
	f.IntVar(&o.split, "split", -1,
		"number of the split whose rows are evaluated (default the training's or, for other nodes, the store's)")
	f.Lookup("split").DefValue = "0" // which help leaves out
	f.StringVar(&o.splits, "splits", "", splitsUsage)
	f.StringVar(&o.metric, "metric", "", "metric of the rows (default the training's)")
	among(f, "rows", rowChoices...)
	atLeast(f, 0, "split")
	return c
}

// evaluation is the rows that a model is evaluated on.
type evaluation struct {
	parts       []session.Part
	rows        int64
	labelled    int64  // of these
	about       string // which they are
	sameNodes   bool   // as in training
	trainedRows int64
}

// planEvaluation finds the rows to evaluate on. It refuses rows that the model was trained on,
// unless --rows asks for them.
func (a *app) planEvaluation(ctx context.Context, store *format.Dir, c *checkpoint.Checkpoint,
	o *evaluateOptions) (e evaluation, err error) {
	m := &store.Manifest
	stored, err := checkpoint.ReadRows(ctx, store)
	if err != nil {
		return e, err
	}
	trainedParts, grown := stored.Compare(store, c)
	e.sameNodes = trainedParts != nil
	var p session.Partition
	var split string
	if e.sameNodes && o.split < 0 && o.splits == "" {
		p, split = session.PartitionOf(store, trainedParts),
			splitText(c.Data.Split, c.Data.SplitsFile)+", as in training"
		if !c.Data.SameRows(checkpoint.DataSetOf(m)) {
			split += " (from another store of the same nodes)"
		}
	} else {
		if p, err = session.OpenPartition(ctx, store, o.split, o.splits, a.budget); err != nil {
			return e, err
		}
		number := o.split
		if number < 0 && o.splits == "" {
			number = m.Split
		}
		split = splitText(max(number, 0), o.splits != "")
	}
	for _, part := range p.Parts() {
		if o.rows != allRows && o.rows != part.Name {
			continue
		}
		before := e.rows
		part.Each(store, func(row int64) {
			e.rows++
			if stored.Labels[row] >= 0 {
				e.labelled++
			}
			if e.sameNodes && trainedParts[row] == format.SplitTrain {
				e.trainedRows++
			}
		})
		if e.rows > before {
			e.parts = append(e.parts, part)
		}
	}
	switch {
	case e.rows == 0:
		return e, usagef("%s has no %s rows in %s: choose others by --rows %s, or another split by --split or --splits",
			o.store, o.rows, split, strings.Join(rowChoices, "|"))
	case e.labelled == 0:
		return e, usagef("0 of the %s of %s in %s have a label to evaluate by: "+
			"choose others by --rows %s, or another split by --split or --splits", units.Count(e.rows,
			"row"), o.store, split, strings.Join(rowChoices, "|"))
	case e.trainedRows > 0 && o.rows != format.RegionTrain && o.rows != allRows:
		return e, usagef("the model was trained on %d of the %d %s rows of %s (it was trained by %s): "+
			"leave out --split and --splits, or give --rows all, which prints each part by itself", e.trainedRows,
			e.rows, o.rows, split, splitText(c.Data.Split, c.Data.SplitsFile))
	}
	e.about = o.rows + " rows of " + split
	if o.rows == allRows {
		e.about = "all rows, by " + split
	}
	if !e.sameNodes {
		e.about += fmt.Sprintf("; the model was trained on other data (%s, %s)", units.Printable(c.Data.Name),
			units.Count(c.Data.Nodes, "node"))
		if grown {
			e.about += "; where both have labels, they agree: if the nodes are the same, it may have been trained on " +
				"some of these rows"
		}
	}
	return e, nil
}

// splitText names a split in messages.
func splitText(number int, file bool) string {
	text := fmt.Sprintf("split %d", number)
	if file {
		text += " of a file of splits"
	}
	return text
}

// openToApply opens a store, or a graph, for a model that is applied to parts of its rows, one after another. It sets
// the machine, the matrices, the model and the rows of the options.
func (a *app) openToApply(ctx context.Context, dir *format.Dir, c *checkpoint.Checkpoint, so session.Options,
	parts []session.Part) (in training.Input, sections []trainer.NamedRows, err error) {
	for _, part := range parts {
		so.Rows = append(so.Rows, part.Rows)
	}
	so.Machine, so.Matrices, so.Model = a.machine(ctx), c.Spec.Matrices, c.Spec
	if dir.Manifest.Kind == format.KindGraph {
		o := training.Options{Machine: so.Machine, Spec: c.Spec, Held: so.Held, Mapped: a.mapped, Scratch: a.scratch}
		o.Placement = so.Placement
		in, err = training.OpenGraph(ctx, dir, o)
	} else if a.mapped || a.scratch != "" {
		err = usagef("--%s and --%s are for models that read a graph", mapFlag, scratchFlag)
	} else {
		var s *session.Session
		s, err = session.Open(ctx, dir, so)
		in = training.Store{Session: s}
	}
	if err != nil {
		return nil, nil, err
	}
	a.noteInput(in)
	for _, part := range parts {
		sets, err := in.InOrder(part.Rows)
		if err != nil {
			return nil, nil, errors.Join(err, in.Close())
		}
		section := trainer.NamedRows{Name: part.Name}
		for _, set := range sets {
			section.Rows = append(section.Rows, set)
		}
		sections = append(sections, section)
	}
	return in, sections, nil
}

func (o *evaluateOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	start := time.Now()
	o.store = args[0]
	c, err := checkpoint.Load(a.fs, o.checkpoint)
	if err != nil {
		return nil, err
	}
	store, err := a.openInputOf(o.store, c.Spec.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	m := &store.Manifest
	target, outputs := training.TargetOf(m)
	if err := c.CheckStore(store.Matrices(), m.Features, outputs, target); err != nil {
		return nil, usagef("%s on %s: %s", o.checkpoint, o.store, err)
	}
	if o.metric != "" {
		c.Options.Metric = o.metric
		if _, err := c.Options.Normalized(c.Spec); err != nil {
			return nil, usagef("--metric %s: %s", o.metric, err)
		}
	}
	warnings, err := c.Data.ComparePrepared(checkpoint.DataSetOf(m), c.Spec, o.store)
	if err != nil {
		return nil, usagef("%s", err)
	}
	held := checkpoint.RowBytes * max(m.Rows, int64(len(c.Split.Nodes)))
	if err := a.budget.Fits(fmt.Sprintf("comparing the splits of %s and %s", o.checkpoint, o.store), held); err != nil {
		return nil, err
	}
	plan, err := a.planEvaluation(ctx, store, c, o)
	if err != nil {
		return nil, err
	}
	so := session.Options{BatchRows: o.batch, Placement: o.placement, Held: need.Terms{need.OnHeap("splits", held),
		training.MetricNeed(c.Options.Metric, plan.rows, c.Spec)}}
	in, sections, err := a.openToApply(ctx, store, c, so, plan.parts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	began := time.Now()
	found, err := trainer.Evaluate(ctx, in.Devices(), &c.Trained, in.ShareRows(), sections)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	e := &evaluated{
		Score: found.Overall, Parts: map[string]trainer.Score{},
		Warnings: warnings, RowsOf: plan.about, SameNodes: plan.sameNodes, TrainedRows: plan.trainedRows,
		applied: applied{o.checkpoint, c.Data.Name, c.Incomplete()},
	}
	for _, section := range found.ByName {
		e.names = append(e.names, section.Name)
		e.Parts[section.Name] = section.Score
	}
	run := c.Runs[c.Best]
	e.trained = trained{
		Model: c.Spec.Model, Dataset: m.Name, Settings: c.Settings(),
		Summary: checkpoint.Summary{
			Epochs: number(run.Epochs), BestEpoch: number(run.BestEpoch), Selection: run.Selection,
			TrainLoss: &run.TrainLoss, Metric: c.Options.Metric,
			ValidMetric: e.Parts[format.RegionValid].Value, TestMetric: e.Parts[format.RegionTest].Value,
			EpochSeconds: &seconds, StageSeconds: map[string]float64{"evaluate": seconds},
			PeakDeviceBytes: in.PeakBytes(), Seeds: []uint64{run.Seed},
		},
	}
	e.Report = in.Report()
	e.Shuffle, e.PredictedEpochSeconds, e.RemoteBytes, e.PredictedRemoteRows = "none", nil, 0, 0
	e.Matrices = matrixNames(c.Spec)
	wait, rate := e.Load.LoopWaitSeconds, float64(plan.rows)/max(seconds, 1e-9)
	e.LoadWaitSeconds, e.RowsPerSecond = &wait, &rate
	e.Seconds = time.Since(start).Seconds()
	return e, nil
}
