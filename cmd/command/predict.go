package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/export"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

type predictOptions struct {
	applyOptions
	input, output string
	typed         bool   // input is a typed graph
	rows          string // training.AllRows or a part of the split
	nodes         string // file that names nodes of a graph; "": rows
	split         int    // of a graph
	changedSince  string // store of an earlier graph; "": rows need not differ from its
	force         bool

	smooth    string // how residuals are scaled: autoscaled or fixedScale; "": predictions are not smoothed
	smoothing preprop.Smoothing
	collected *collected // what smoothing takes instead of the file
}

// Ways to scale the corrections of predictions.
const (
	autoscaled = "autoscale"
	fixedScale = "fixed"
)

func newPredictCommand(a *app) *cobra.Command {
	var o predictOptions
	c := a.verb("predict --checkpoint RUN STORE|GRAPH -o OUT.arrow|.parquet|.csv",
		"Apply a trained model to unlabelled data, and write a table of predictions",
		`Predict applies a model that train --run has saved to rows of a hop store or nodes of a graph, labelled
or not, and writes a row for each. The data may differ from the training's, with the same features.

A model that reads a graph is applied to a graph, one layer after another to all nodes; rows are then in the
order of nodes. For another model, predict first propagates the graph, by the operators and hops of the
training, into a store in a folder beside OUT, which it removes at the end.

Columns, none with nulls:
  node_id  number of the node in the graph, from 0
  orig_id  its id in the input, if the graph has those
  class    the most probable class: its name, or its number where classes have no names
  p_NAME   the probability of each class (they add up to 1), or of each label, if a row has several
  value    of a regression: the predicted value (value_0, value_1, ..., if there are several)
Rows of a store are in its order: train, valid, test, rest; train rows shuffled, the others by node.

With --smooth, the classes of a graph's nodes are corrected and smoothed (Correct and Smooth, Huang et al.
2021): the errors on the training nodes of --split (default: the training's) are propagated and subtracted,
then their labels and the corrected predictions propagated. S is D^-1/2 A D^-1/2; a step is X <- (1-a) E + a S X.
autoscale gives each correction the mean size of a training node's error, fixed keeps the errors of training
nodes as they are, averages those of neighbours, and multiplies by --smooth-scale. Rows are then in the order
of nodes, and p_NAME need not add up to 1.

In a typed graph, predictions travel along --smooth-metapaths from the target to itself. S is the mean over
these of the products of their relations' D^-1/2 A D^-1/2; with fixed, D^-1 A takes the place of each.`, o.do)
	o.flags(a, c)
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "",
		"file to write: its suffix, .arrow, .parquet or .csv, chooses the format")
	_ = f.SetAnnotation("output", fileOutput, []string{"true"}) // the flag is there
	f.StringVar(&o.rows, "rows", training.AllRows,
		"rows to predict: train, valid, test or rest (parts of the split), or all")
	f.StringVar(&o.nodes, "node-file", "",
		"file with the nodes of a graph to predict, one a line: orig_id if the graph has those, else node_id")
	f.IntVar(&o.split, "split", 0, "number of the split of a graph by which --rows chooses; a store goes by its own")
	f.StringVar(&o.changedSince, "changed-since", "",
		"store of an earlier graph: predict only rows of STORE whose features differ from those of the same node there")
	f.BoolVar(&o.force, "force", false, forceUsage)
	f.StringVar(&o.smooth, "smooth", "", "correct and smooth the classes of a graph's nodes: autoscale or fixed")
	among(f, "smooth", autoscaled, fixedScale)
	f.StringSliceVar(&o.smoothing.Metapaths, "smooth-metapaths", nil,
		"of a typed graph: what predictions travel along, such as 'paper<author<paper' (default: all metapaths of one "+
			"relation from the target to itself or, if there are none, all of two)")
	f.Float64Var(&o.smoothing.CorrectAlpha, "correct-alpha", 0.8, "weight of neighbours when errors are propagated")
	f.Float64Var(&o.smoothing.SmoothAlpha, "smooth-alpha", 0.8, "weight of neighbours when predictions are smoothed")
	f.Float64Var(&o.smoothing.Scale, "smooth-scale", 1, "factor of corrections with --smooth fixed")
	f.IntVar(&o.smoothing.Steps, "smooth-steps", 50, "steps of each of the two propagations")
	among(f, "rows", training.AllRows, format.RegionTrain, format.RegionValid, format.RegionTest, format.RegionRest)
	atLeast(f, 0, "split")
	c.MarkFlagRequired("output")
	return c
}

// checkOutputFile refuses an output that exists, unless it is to be replaced, one within a graph or store or what is
// read, and one that cannot be written.
func (a *app) checkOutputFile(path string, force bool, reads ...string) error {
	dir, name := filepath.Split(path)
	if info, err := a.fs.Stat(path); err == nil && info.IsDir() {
		return usagef("--output %s: it is a directory", path)
	}
	if err := export.CheckFile(a.fs, path, force); err != nil {
		return err
	}
	if err := a.refuseWithin(path); err != nil {
		return err
	}
	for _, read := range reads {
		if err := a.refuseInside(path, read); err != nil {
			return err
		}
	}
	return a.checkWritable(filepath.Clean(dir), name)
}

func (o *predictOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	start := time.Now()
	if a.given("node-file") && a.given("rows") {
		return nil, usagef("--node-file and --rows both choose rows: give one of them")
	}
	for _, name := range []string{"smooth-metapaths", "correct-alpha", "smooth-alpha", "smooth-scale", "smooth-steps"} {
		if o.smooth == "" && a.given(name) {
			return nil, usagef("--%s: it is for predictions that are smoothed: give --smooth too", name)
		}
	}
	o.input = args[0]
	if suffixes := export.TableSuffixes(); !slices.Contains(suffixes, strings.ToLower(filepath.Ext(o.output))) {
		return nil, usagef("--output %s: want a name that ends in %s", o.output, strings.Join(suffixes, ", "))
	}
	if err := a.checkOutputFile(o.output, o.force, o.checkpoint, o.input); err != nil {
		return nil, err
	}
	c, err := checkpoint.Load(a.fs, o.checkpoint)
	if err != nil {
		return nil, err
	}
	c.Split = checkpoint.Split{} // of no use here, and large
	input, err := a.openAny(o.input)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, input.Close()) }()
	o.typed = input.Typed != nil
	isGraph := input.Manifest.Kind == format.KindGraph
	if !isGraph && (o.nodes != "" || o.split > 0) {
		return nil, usagef("%s is a hop store: --node-file and --split are for graphs "+
			"(choose rows of a store by --rows)", o.input)
	}
	if o.smooth != "" {
		if err := o.checkSmoothing(a, c, input); err != nil {
			return nil, err
		}
	}
	if isGraph && o.changedSince != "" {
		return nil, usagef("%s is a graph: --changed-since compares two stores", o.input)
	}
	p := &predicted{
		Model: c.Spec.Model, Checkpoint: o.checkpoint, Dataset: input.Manifest.Name, Output: o.output,
		applied: applied{o.checkpoint, c.Data.Name, c.Incomplete()},
	}
	p.Matrices = matrixNames(c.Spec)
	if p.Warnings, err = c.Data.ComparePrepared(checkpoint.DataSetOf(&input.Manifest), c.Spec, o.input); err != nil {
		return nil, usagef("%s", err)
	}
	job, err := export.OpenFileJob(a.fs, o.output)
	if err != nil {
		return nil, err
	}
	aggregation, err := trainer.AggregationOf(c.Spec.Model)
	switch {
	case err != nil:
	case aggregation != "" && !isGraph:
		err = usagef("%s is a hop store, and %s reads the graph that it was made of: give that", o.input, c.Spec.Model)
	case o.smooth != "":
		err = a.predictSmoothed(ctx, c, input, o, p, job.Store, aggregation == "")
	case aggregation == "" && isGraph:
		err = a.predictByStore(ctx, c, input, o, p, job.Store)
	case o.changedSince != "":
		err = a.predictChanged(ctx, c, input, o, p, job.Store)
	default:
		err = a.predict(ctx, c, input, o, p)
	}
	if err = errors.Join(err, job.Close()); err != nil {
		return nil, err
	}
	p.Seconds = time.Since(start).Seconds()
	return p, nil
}

// predictByStore writes the predictions of nodes of a graph, by way of a store that the caller removes.
func (a *app) predictByStore(ctx context.Context, c *checkpoint.Checkpoint, graph *format.Dir, o *predictOptions,
	p *predicted, dir string) (err error) {
	began := time.Now()
	if err := a.propagateFor(ctx, c, graph, o, dir); err != nil {
		return err
	}
	store, err := format.OpenStore(a.fs, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	p.PropagateSeconds = time.Since(began).Seconds()
	o.rows = training.AllRows // of the store, which has the chosen ones
	if o.collected != nil {
		table, err := store.Rows(ctx)
		if err != nil {
			return err
		}
		o.collected.nodes = table.NodeID
	}
	return a.predict(ctx, c, store, o, p)
}

// predictChanged writes the predictions of rows of a store that differ from an earlier one, by way of a store of these
// rows that the caller removes.
func (a *app) predictChanged(ctx context.Context, c *checkpoint.Checkpoint, store *format.Dir, o *predictOptions,
	p *predicted, dir string) (err error) {
	if err := c.CheckInput(store.Matrices(), store.Layout(), store.Manifest.LabelHops); err != nil {
		return usagef("%s on %s: %s", o.checkpoint, o.input, err)
	}
	earlier, err := format.OpenStore(a.fs, o.changedSince)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, earlier.Close()) }()
	m := &store.Manifest
	row := int64(4 + 4*m.Labels + m.Splits)
	if m.OrigIDs {
		row += 48
	}
	if err := a.budget.Fits("comparing the rows of two stores", 4*m.Nodes+2*m.Rows*row); err != nil {
		return err
	}
	var read []format.MatrixID
	for _, m := range c.Spec.Matrices {
		read = append(read, format.MatrixID(m))
	}
	if err := preprop.WriteChanged(ctx, a.fs, store, earlier, read, dir); err != nil {
		return err
	}
	changed, err := format.OpenStore(a.fs, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, changed.Close()) }()
	return a.predict(ctx, c, changed, o, p)
}

// predict writes the predictions of rows of a store or, for a model that reads a graph, of nodes, and reports in p.
func (a *app) predict(ctx context.Context, c *checkpoint.Checkpoint, input *format.Dir, o *predictOptions,
	p *predicted) (err error) {
	matrices, layout, _ := training.TypedShape(input)
	err = training.CheckRelations(input, c.Spec)
	if err = cmp.Or(err, c.CheckInput(matrices, layout, input.Manifest.LabelHops)); err != nil {
		return usagef("%s on %s: %s", o.checkpoint, o.input, err)
	}
	so := session.Options{BatchRows: o.batch, Placement: o.placement, Once: true, NoLabels: true, RowNumbers: true}
	var table *export.Predictions
	if input.Manifest.Kind == format.KindGraph {
		nodes, err := a.listNodes(ctx, input, o)
		if err == nil {
			table, err = export.PredictNodes(ctx, &c.Trained, c.Data.ClassNames, input, nodes)
		}
		if err != nil {
			return err
		}
		so.Held = need.Terms{need.OnHeap("predictions",
			table.MemoryBytes()+c.Spec.PredictBytes(training.InferenceRows)+12*int64(len(nodes)))}
	} else {
		table = export.PredictStore(&c.Trained, c.Data.ClassNames, input, o.rows)
		so.Held = need.Terms{need.OnHeap("predictions", table.MemoryBytes()+c.Spec.PredictBytes(o.batch))}
	}
	if o.collected != nil {
		so.Held = append(so.Held, need.OnHeap("predictions to smooth", o.collected.bytes()))
	}
	if table.Rows == 0 && o.changedSince != "" { // nothing changed: a table without rows
		p.Outputs, p.Columns, p.Reasons = string(table.Outputs), table.Columns, []string{}
		p.Bytes, err = table.Write(ctx, a.fs, o.output, func(func(*trainer.Predictions) error) error { return nil })
		return err
	}
	if table.Rows == 0 {
		return usagef("%s has no %s rows to predict", o.input, o.rows)
	}
	if err := table.CheckSpace(a.fs, o.output); err != nil {
		return err
	}
	var parts []session.Part
	for _, part := range table.Parts {
		parts = append(parts, session.Part{Name: part.Name, Rows: part.Rows})
	}
	in, sections, err := a.openToApply(ctx, input, c, so, parts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	began := time.Now()
	task := a.progress().Start("predict", table.Rows, progress.Items)
	write := func(predict func(add func(*trainer.Predictions) error) error) (int64, error) {
		return table.Write(ctx, a.fs, o.output, predict)
	}
	if o.collected != nil {
		write = o.collected.write
	}
	p.Bytes, err = write(func(add func(*trainer.Predictions) error) error {
		defer task.Done()
		return trainer.Predict(ctx, in.Devices(), &c.Trained, in.ShareRows(), sections,
			func(found *trainer.Predictions) error {
				task.Add(int64(found.Rows))
				return add(found)
			})
	})
	if err != nil {
		return err
	}
	p.Rows, p.Outputs, p.Columns = table.Rows, string(table.Outputs), table.Columns
	p.RowsPerSecond = float64(p.Rows) / max(time.Since(began).Seconds(), 1e-9)
	r := in.Report()
	p.Placement, p.Reasons, p.Devices, p.Load, p.Memory = r.Placement, r.Reasons, r.Devices, r.Load, r.Memory
	p.PeakDeviceBytes, p.PeakRSSBytes = in.PeakBytes(), machine.PeakRSS()
	return nil
}

// chooseNodes lists the nodes of a graph to predict, ascending; nil: all.
func (a *app) chooseNodes(ctx context.Context, graph *format.Dir, o *predictOptions) ([]uint32, error) {
	m := &graph.Manifest
	if o.split > 0 && o.split >= m.Splits {
		return nil, usagef("--split %d: %s has %d splits, numbered from 0", o.split, o.input, m.Splits)
	}
	if o.nodes != "" {
		return session.NodesInFile(ctx, graph, a.fs, o.nodes, a.budget)
	}
	if o.rows == training.AllRows {
		return nil, nil
	}
	if err := a.budget.Fits(fmt.Sprintf("choosing among %d nodes", m.Nodes), 4*m.Nodes); err != nil {
		return nil, err
	}
	return session.NodesOf(ctx, graph, o.rows, o.split)
}

// listNodes is chooseNodes that lists all nodes too.
func (a *app) listNodes(ctx context.Context, graph *format.Dir, o *predictOptions) ([]uint32, error) {
	nodes, err := a.chooseNodes(ctx, graph, o)
	if err == nil && nodes == nil {
		return session.NodesOf(ctx, graph, format.RegionAll, 0)
	}
	return nodes, err
}

// propagateFor makes the store that a model reads from a graph, of all nodes or the chosen ones.
func (a *app) propagateFor(ctx context.Context, c *checkpoint.Checkpoint, graph *format.Dir, o *predictOptions,
	dir string) error {
	m := &graph.Manifest
	features := m.Features
	if c.Data.LabelHops > 0 && !o.typed { // of a typed graph, labels have matrices of their own
		features += m.OneHotColumns()
	}
	if c.Spec.Features != features {
		return usagef("%s on %s: the model was trained on %d features (data %s), but the graph has %d", o.checkpoint,
			o.input, c.Spec.Features, units.Printable(c.Data.Name), features)
	}
	po := preprop.Options{
		Rows: format.RowsAll, Split: o.split, Threads: a.threads, Seed: a.seed, Progress: a.progress(),
		Note: a.tell, LabelHops: c.Data.LabelHops,
	}
	if po.LabelHops > 0 && !a.given("split") {
		po.Split = c.Data.Split // whose training nodes had labels in the training
	}
	var err error
	if po.DType, err = dtype.Parse(c.Data.DType); err != nil {
		return fmt.Errorf("%s: %w: %w", o.checkpoint, checkpoint.ErrInvalid, err)
	}
	po.Hops = po.LabelHops // of which the model may read fewer
	known := map[string]bool{format.FeaturesOperator: true}
	for _, id := range c.Spec.Matrices {
		po.Hops = max(po.Hops, id.Hop)
		if known[id.Operator] {
			continue
		}
		known[id.Operator] = true
		of, err := operator.Parse(id.Operator)
		if err != nil {
			return usagef("%s: the model reads what this version cannot propagate: %s", o.checkpoint, err)
		}
		switch {
		case o.typed != (of.Metapath != ""):
			return usagef("%s: the model reads %s, which %s has not: it was trained on a graph of %s", o.checkpoint, of,
				o.input, either(o.typed, "one type", "several types"))
		case of.Metapath == "":
			po.Operators = append(po.Operators, of)
			continue
		case !of.Labels:
			po.Metapaths = append(po.Metapaths, of.Metapath)
		}
		po.Operators = []operator.Operator{{Name: of.Name}}
	}
	if o.typed {
		po.Hops = 0 // the metapaths say which
	}
	if po.Hops > 0 && len(po.Operators) == 0 { // it reads hop 0 alone, which has columns of labels too
		po.Operators = []operator.Operator{{Name: operator.Sym}}
	}
	if po.Nodes, err = a.chooseNodes(ctx, graph, o); err != nil {
		return err
	}
	if po.MemoryBytes = int64(a.budget.Bytes) - 4*int64(len(po.Nodes)); po.MemoryBytes <= 0 {
		return a.budget.Fits(units.Count(int64(len(po.Nodes)), "chosen node"), 4*int64(len(po.Nodes)))
	}
	_, err = preprop.Propagate(ctx, a.fs, o.input, dir, po)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx) // nothing is left that could go on
	case errors.Is(err, preprop.ErrUnfinished):
		if parts, ok := err.(interface{ Unwrap() []error }); ok { // without saying that it can go on
			err = parts.Unwrap()[0]
		}
	}
	return err
}

// predicted is the result of predict.
type predicted struct {
	Model            string       `json:"model"`
	Dataset          string       `json:"dataset"`
	Checkpoint       string       `json:"checkpoint"`
	Matrices         []string     `json:"matrices"`
	Output           string       `json:"output"`
	Outputs          string       `json:"outputs"` // what the numbers are
	Columns          []string     `json:"columns"`
	Warnings         []string     `json:"warnings,omitempty"`
	Rows             int64        `json:"rows"`
	Bytes            int64        `json:"bytes"`
	Smooth           string       `json:"smooth,omitempty"` // autoscale or fixed
	Placement        string       `json:"placement"`
	Reasons          []string     `json:"reasons"`
	Devices          int          `json:"devices"`
	PropagateSeconds float64      `json:"propagate_seconds"` // 0: a store was read
	RowsPerSecond    float64      `json:"rows_per_second"`   // without propagation
	PeakDeviceBytes  int64        `json:"peak_device_bytes"`
	PeakRSSBytes     int64        `json:"peak_rss_bytes"`
	Memory           *need.Memory `json:"memory_plan"`
	Load             loader.Stats `json:"load"`
	Seconds          float64      `json:"seconds"`

	applied applied
}

func (p *predicted) Text(w io.Writer) {
	p.applied.write(w, p.Model, p.Dataset, p.Placement, p.Load, p.Warnings)
	if p.PropagateSeconds > 0 {
		fmt.Fprintf(w, "propagated\tin %.2f s\n", p.PropagateSeconds)
	}
	fmt.Fprintf(w, "output\t%s: %s of %s, %s\n", units.Printable(p.Output), units.Count(p.Rows, "row"), p.Outputs,
		units.Bytes(p.Bytes))
	fmt.Fprintf(w, "time\t%.2f s, %.0f rows/s\n", p.Seconds, p.RowsPerSecond)
}
