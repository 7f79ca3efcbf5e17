package command

import (
	"context"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/export"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// collected are predictions for all nodes, in memory.
type collected struct {
	values []float32 // [nodes, columns]
	nodes  []uint32  // of the rows that are predicted; nil: row i is node i
}

func (c *collected) bytes() int64 { return 4 * int64(len(c.values)+len(c.nodes)) }

// write takes the place of export.Predictions.Write.
func (c *collected) write(predict func(add func(*trainer.Predictions) error) error) (bytes int64, err error) {
	next := 0
	return 0, predict(func(found *trainer.Predictions) error {
		for i := range found.Rows {
			v := next
			if c.nodes != nil {
				v = int(c.nodes[next])
			}
			copy(c.values[v*found.Columns:][:found.Columns], found.Values[i*found.Columns:])
			next++
		}
		return nil
	})
}

// checkSmoothing refuses predictions that cannot be smoothed, and chooses the split.
func (o *predictOptions) checkSmoothing(a *app, c *checkpoint.Checkpoint, input *format.Dir) error {
	m := &input.Manifest
	o.smoothing.Fixed = o.smooth == fixedScale
	if err := o.smoothing.Check(); err != nil {
		return usagef("--smooth: %s", err)
	}
	switch {
	case m.Kind != format.KindGraph:
		return usagef("%s is a hop store: --smooth propagates predictions over the graph that it was made from: give that",
			o.input)
	case c.Trained.Outputs() != trainer.ClassOutputs || c.Spec.Classes != m.Classes:
		return usagef("--smooth: predictions are smoothed by the classes of %s, and the model predicts %s", o.input,
			c.Spec.Outputs())
	case !a.given("split") && c.Data.SplitsFile:
		return usagef("--smooth: the model was trained by the split of a file: give the number of the graph's split by " +
			"--split")
	case !a.given("split"):
		o.split = c.Data.Split
	}
	if o.split >= m.Splits {
		return usagef("--smooth: %s has no split %d that says which nodes are training nodes", o.input, o.split)
	}
	return nil
}

// predictSmoothed writes the predictions of nodes of a graph, corrected and smoothed; byStore tells whether the model
// reads a store, which is made in dir.
func (a *app) predictSmoothed(ctx context.Context, c *checkpoint.Checkpoint, graph *format.Dir, o *predictOptions,
	p *predicted, dir string, byStore bool) error {
	m := &graph.Manifest
	bytes, err := preprop.SmoothBytes(graph, o.smoothing)
	if err == nil {
		err = a.budget.Fits("smoothing the predictions of all nodes", bytes)
	}
	if err != nil {
		return err
	}
	all := *o
	all.rows, all.nodes = training.AllRows, ""
	all.collected = &collected{values: make([]float32, m.Nodes*int64(m.Classes))}
	if byStore {
		err = a.predictByStore(ctx, c, graph, &all, p, dir)
	} else {
		err = a.predict(ctx, c, graph, &all, p)
	}
	if err != nil {
		return err
	}
	task := a.progress().Start("correct and smooth", 0, 0)
	err = preprop.Smooth(ctx, graph, o.split, all.collected.values, o.smoothing, a.threads)
	task.Done()
	if err != nil {
		return err
	}
	nodes, err := a.listNodes(ctx, graph, o)
	if err != nil {
		return err
	}
	table, err := export.PredictNodes(ctx, &c.Trained, c.Data.ClassNames, graph, nodes)
	if err != nil {
		return err
	}
	if err := table.CheckSpace(a.fs, o.output); err != nil {
		return err
	}
	p.Bytes, err = table.Write(ctx, a.fs, o.output, func(add func(*trainer.Predictions) error) error {
		for _, v := range nodes {
			values := all.collected.values[int(v)*m.Classes:][:m.Classes]
			if err := add(&trainer.Predictions{Rows: 1, Columns: m.Classes, Values: values,
				Classes: []int32{int32(max(0, kernel.ArgMax(values)))}}); err != nil {
				return err
			}
		}
		return nil
	})
	p.Rows, p.Columns, p.Smooth = table.Rows, table.Columns, o.smooth
	return err
}
