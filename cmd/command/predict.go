package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/export"
	"github.com/hopfeed/hopfeed/tools/predict"
	"github.com/hopfeed/hopfeed/tools/training"
)

type predictOptions struct {
	applyOptions
	predict.Options
	force bool
}

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

With --smooth, predict corrects and smooths the classes of a graph's nodes (Correct and Smooth, Huang et al.
2021). It propagates the errors on the training nodes of --split (default: the training's) and subtracts them;
then it propagates the labels of these nodes and the corrected predictions of the others. A step of either is
X <- (1-a) E + a S X, where X begins as E, these errors or labels, and S is D^-1/2 A D^-1/2. With autoscale, each
correction gets the mean size of a training node's error. With fixed, training nodes keep their errors, other nodes
get the mean of their neighbours', and corrections are multiplied by --smooth-scale. Rows are then in the order of
nodes, and p_NAME need not add up to 1.

In a typed graph, predictions travel along --smooth-metapaths from the target to itself. S is the mean over
these of the products of their relations' D^-1/2 A D^-1/2; with fixed, errors are propagated by D^-1 A instead.`, o.do)
	o.flags(a, c)
	f := c.Flags()
	f.StringVarP(&o.Output, "output", "o", "",
		"file to write: its suffix, .arrow, .parquet or .csv, chooses the format")
	_ = f.SetAnnotation("output", fileOutput, []string{"true"}) // the flag is there
	f.StringVar(&o.Rows, "rows", training.AllRows,
		"rows to predict: train, valid, test or rest (parts of the split), or all")
	f.StringVar(&o.NodesFile, "node-file", "",
		"file with the nodes of a graph to predict, one a line: orig_id if the graph has those, else node_id")
	f.IntVar(&o.Split, "split", 0, "number of the split of a graph by which --rows chooses; a store goes by its own")
	f.StringVar(&o.ChangedSince, "changed-since", "",
		"store of an earlier graph: predict only rows of STORE whose features differ from those of the same node there")
	f.BoolVar(&o.force, "force", false, forceUsage)
	f.StringVar(&o.Smooth, "smooth", "", "correct and smooth the classes of a graph's nodes: autoscale or fixed")
	among(f, "smooth", predict.AutoScaled, predict.FixedScale)
	f.StringSliceVar(&o.Smoothing.Metapaths, "smooth-metapaths", nil,
		"of a typed graph: what predictions travel along, such as 'paper<author<paper' (default: all metapaths of one "+
			"relation from the target to itself or, if there are none, all of two)")
	f.Float64Var(&o.Smoothing.CorrectAlpha, "correct-alpha", 0.8, "weight of neighbours when errors are propagated")
	f.Float64Var(&o.Smoothing.SmoothAlpha, "smooth-alpha", 0.8, "weight of neighbours when predictions are smoothed")
	f.Float64Var(&o.Smoothing.Scale, "smooth-scale", 1, "factor of corrections with --smooth fixed")
	f.IntVar(&o.Smoothing.Steps, "smooth-steps", 50, "steps of each of the two propagations")
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
	if a.given("node-file") && a.given("rows") {
		return nil, usagef("--node-file and --rows both choose rows: give one of them")
	}
	for _, name := range []string{"smooth-metapaths", "correct-alpha", "smooth-alpha", "smooth-scale", "smooth-steps"} {
		if o.Smooth == "" && a.given(name) {
			return nil, usagef("--%s: it is for predictions that are smoothed: give --smooth too", name)
		}
	}
	o.Input, o.Checkpoint = args[0], o.checkpoint
	if suffixes := export.TableSuffixes(); !slices.Contains(suffixes, strings.ToLower(filepath.Ext(o.Output))) {
		return nil, usagef("--output %s: want a name that ends in %s", o.Output, strings.Join(suffixes, ", "))
	}
	if err := a.checkOutputFile(o.Output, o.force, o.Checkpoint, o.Input); err != nil {
		return nil, err
	}
	c, err := checkpoint.Load(a.fs, o.Checkpoint)
	if err != nil {
		return nil, err
	}
	c.Split = checkpoint.Split{} // of no use here, and large
	input, err := a.openAny(o.Input)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, input.Close()) }()
	o.BatchRows, o.Placement, o.SplitGiven = o.batch, o.placement, a.given("split")
	o.FS, o.Budget, o.Threads, o.Seed, o.Progress, o.Note = a.fs, a.budget, a.threads, a.seed, a.progress(), a.tell
	o.Open = a.openToApply
	p, err := predict.Predict(ctx, c, input, o.Options)
	if err != nil {
		return nil, err
	}
	p.Matrices = matrixNames(c.Spec)
	return &predicted{p, applied{o.Checkpoint, c.Data.Name, c.Incomplete()}}, nil
}

// predicted is the result of predict.
type predicted struct {
	*predict.Result
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
