package predict

import (
	"context"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/export"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// Ways to scale the corrections of predictions.
const (
	AutoScaled = "autoscale"
	FixedScale = "fixed"
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
func (o *Options) checkSmoothing(c *checkpoint.Checkpoint, input *format.Dir) error {
	m := &input.Manifest
	o.Smoothing.Fixed = o.Smooth == FixedScale
	if err := o.Smoothing.Check(); err != nil {
		return session.Refuse("--smooth: %s", err)
	}
	switch {
	case m.Kind != format.KindGraph:
		return session.Refuse("%s is a hop store: --smooth propagates predictions over the graph that it was made from: "+
			"give that", o.Input)
	case c.Trained.Outputs() != trainer.ClassOutputs || c.Spec.Classes != m.Classes:
		return session.Refuse("--smooth: predictions are smoothed by the classes of %s, and the model predicts %s",
			o.Input, c.Spec.Outputs())
	case !o.SplitGiven && c.Data.SplitsFile:
		return session.Refuse("--smooth: the model was trained by the split of a file: give the number of the graph's " +
			"split by --split")
	case !o.SplitGiven:
		o.Split = c.Data.Split
	}
	if o.Split >= m.Splits {
		return session.Refuse("--smooth: %s has no split %d that says which nodes are training nodes", o.Input, o.Split)
	}
	return nil
}

// smoothed writes the predictions of nodes of a graph, corrected and smoothed; byStore tells whether the model reads a
// store.
func (j *job) smoothed(ctx context.Context, graph *format.Dir, byStore bool) error {
	m := &graph.Manifest
	bytes, err := preprop.SmoothBytes(graph, j.Smoothing)
	if err == nil {
		err = j.Budget.Fits("smoothing the predictions of all nodes", bytes)
	}
	if err != nil {
		return err
	}
	all := *j
	all.Rows, all.NodesFile = training.AllRows, ""
	all.collected = &collected{values: make([]float32, m.Nodes*int64(m.Classes))}
	if byStore {
		err = all.byStore(ctx, graph)
	} else {
		err = all.predict(ctx, graph)
	}
	if err != nil {
		return err
	}
	task := j.Progress.Start("correct and smooth", 0, 0)
	err = preprop.Smooth(ctx, graph, j.Split, all.collected.values, j.Smoothing, j.Threads)
	task.Done()
	if err != nil {
		return err
	}
	nodes, err := j.listNodes(ctx, graph)
	if err != nil {
		return err
	}
	table, err := export.PredictNodes(ctx, &j.c.Trained, j.c.Data.ClassNames, graph, nodes)
	if err != nil {
		return err
	}
	if err := table.CheckSpace(j.FS, j.Output); err != nil {
		return err
	}
	p := j.result
	p.Bytes, err = table.Write(ctx, j.FS, j.Output, func(add func(*trainer.Predictions) error) error {
		for _, v := range nodes {
			values := all.collected.values[int(v)*m.Classes:][:m.Classes]
			if err := add(&trainer.Predictions{Rows: 1, Columns: m.Classes, Values: values,
				Classes: []int32{int32(max(0, kernel.ArgMax(values)))}}); err != nil {
				return err
			}
		}
		return nil
	})
	p.Rows, p.Columns, p.Smooth = table.Rows, table.Columns, j.Smooth
	return err
}
