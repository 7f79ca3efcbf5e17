package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
	"github.com/spf13/cobra"
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
	of     training.Evaluated
	metric string // "": the metric of the training
}

func newEvaluateCommand(a *app) *cobra.Command {
	var o evaluateOptions
	c := a.verb("evaluate --checkpoint RUN STORE|GRAPH",
		"Measure a trained model on labelled rows of a hop store or a graph",
		`Evaluate measures a model that train --run has saved on labelled rows of a hop store, by default the test
rows. A model that reads a graph is applied to a graph, one layer after another to all nodes.

If the store has the nodes of the training, the training's split says which rows are test rows. If it has
other nodes (with the same features and classes), the store's own split does. --split or --splits choose
another split. Test or validation rows that the model was trained on are refused;
--rows train and --rows all evaluate them too.`, o.do)
	o.flags(a, c)
	f := c.Flags()
	f.StringVar(&o.of.Rows, "rows", format.RegionTest, "labelled rows to evaluate on: test, valid, train or all")
	f.IntVar(&o.of.Split, "split", -1,
		"number of the split whose rows are evaluated (default the training's or, for other nodes, the store's)")
	f.Lookup("split").DefValue = "0" // which help leaves out
	f.StringVar(&o.of.SplitsFile, "splits", "", splitsUsage)
	f.StringVar(&o.metric, "metric", "", "metric of the rows (default the training's)")
	among(f, "rows", training.RowChoices...)
	atLeast(f, 0, "split")
	return c
}

// openToApply opens what a trained model is applied to, and notes where that is read from. It sets the machine of the
// options.
func (a *app) openToApply(ctx context.Context, dir *format.Dir, c *checkpoint.Checkpoint, so session.Options,
	parts []session.Part) (training.Input, []trainer.NamedRows, error) {
	switch isGraph := dir.Manifest.Kind == format.KindGraph; {
	case !isGraph && (a.mapped || a.scratch != ""):
		return nil, nil, usagef("--%s and --%s are for models that read a graph", mapFlag, scratchFlag)
	case isGraph && a.given("batch"):
		return nil, nil, usagef("--batch: %s reads a graph, of which as many nodes are computed together as memory allows",
			c.Spec.Model)
	}
	so.Machine = a.machine(ctx)
	in, sections, err := training.OpenToApply(ctx, dir, c, so, parts, a.mapped, a.scratch)
	if err != nil {
		return nil, nil, err
	}
	a.noteInput(in)
	return in, sections, nil
}

func (o *evaluateOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	start := time.Now()
	input := args[0]
	c, err := checkpoint.Load(a.fs, o.checkpoint)
	if err != nil {
		return nil, err
	}
	store, err := a.openInputOf(input, c.Spec.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	m := &store.Manifest
	target, outputs := training.TargetOf(m)
	matrices, layout, _ := training.TypedShape(store)
	err = training.CheckRelations(store, c.Spec)
	if err = cmp.Or(err, c.CheckStore(matrices, layout, m.LabelHops, outputs, target)); err != nil {
		return nil, usagef("%s on %s: %s", o.checkpoint, input, err)
	}
	if o.metric != "" {
		c.Options.Metric = o.metric
		if _, err := c.Options.Normalized(c.Spec); err != nil {
			return nil, usagef("--metric %s: %s", o.metric, err)
		}
	}
	warnings, err := c.Data.ComparePrepared(checkpoint.DataSetOf(m), c.Spec, input)
	if err != nil {
		return nil, usagef("%s", err)
	}
	held := checkpoint.RowBytes * max(m.Rows, int64(len(c.Split.Nodes)))
	if err := a.budget.Fits(fmt.Sprintf("comparing the splits of %s and %s", o.checkpoint, input), held); err != nil {
		return nil, err
	}
	plan, err := training.PlanEvaluation(ctx, store, c, o.of, a.budget)
	if err != nil {
		return nil, err
	}
	so := session.Options{BatchRows: o.batch, Placement: o.placement, Held: need.Terms{need.OnHeap("splits", held),
		training.MetricNeed(c.Options.Metric, plan.Rows, c.Spec)}}
	in, sections, err := a.openToApply(ctx, store, c, so, plan.Parts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	began := time.Now()
	found, err := trainer.Evaluate(ctx, in.Devices(), &c.Trained, in.ShareRows(), sections, a.progress())
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	e := &evaluated{
		Score: found.Overall, Parts: map[string]trainer.Score{},
		Warnings: warnings, RowsOf: plan.About, SameNodes: plan.SameNodes, TrainedRows: plan.TrainedRows,
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
	wait, rate := e.Load.LoopWaitSeconds, float64(plan.Rows)/max(seconds, 1e-9)
	e.LoadWaitSeconds, e.RowsPerSecond = &wait, &rate
	e.Seconds = time.Since(start).Seconds()
	return e, nil
}

// evaluated is the result of evaluate. Its fields about the training come from the checkpoint.
type evaluated struct {
	trained
	trainer.Score                          // on all rows
	Parts         map[string]trainer.Score `json:"parts"`   // of the split
	RowsOf        string                   `json:"rows_of"` // which rows these are, in words
	Warnings      []string                 `json:"warnings,omitempty"`
	SameNodes     bool                     `json:"same_nodes"`
	TrainedRows   int64                    `json:"trained_rows"` // rows that the model was trained on

	names   []string // of parts, in order
	applied applied
}

func (e *evaluated) Text(w io.Writer) {
	e.applied.write(w, e.Model, e.Dataset, e.Placement, e.Load, e.Warnings)
	fmt.Fprintf(w, "rows\t%s\n", e.RowsOf)
	if e.TrainedRows > 0 {
		fmt.Fprintf(w, "warning\tthe model was trained on %d of these rows: expect worse results on new ones\n",
			e.TrainedRows)
	}
	for _, name := range e.names {
		fmt.Fprintf(w, "%s\t%s %s (%s)\n", name, e.Metric, trainer.MetricText(e.Metric, e.Parts[name].Value),
			units.Count(e.Parts[name].Rows, "row"))
	}
	if len(e.names) > 1 {
		fmt.Fprintf(w, "all\t%s %s (%s)\n", e.Metric, trainer.MetricText(e.Metric, e.Value), units.Count(e.Rows, "row"))
	}
	fmt.Fprintf(w, "time\t%.2f s, %.0f rows/s\n", e.Seconds, *e.RowsPerSecond)
}

func number(n int) *float64 {
	f := float64(n)
	return &f
}
