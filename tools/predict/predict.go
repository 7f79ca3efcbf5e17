// Package predict writes tables of what a trained model predicts of rows of a hop store or of nodes of a graph. For a
// model that reads a store, it makes one of the graph, and removes it. Classes of nodes may be corrected and smoothed.
package predict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/export"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// Options say what is predicted, of what, and what that may take.
type Options struct {
	Checkpoint, Input string // where the model and its input are, for messages
	Output            string // file
	Rows              string // training.AllRows or a part of the split
	NodesFile         string // names nodes of a graph; "": Rows
	Split             int    // of a graph
	SplitGiven        bool   // else it is the training's, where that counts
	ChangedSince      string // store of an earlier graph; "": rows need not differ from its
	Smooth            string // how residuals are scaled: AutoScaled or FixedScale; "": predictions are not smoothed
	Smoothing         preprop.Smoothing
	BatchRows         int
	Placement         string

	FS       vfs.FS
	Budget   machine.Limit
	Threads  int
	Seed     uint64
	Progress progress.Reporter
	Note     func(text string)
	// Open opens what the model is applied to.
	Open func(ctx context.Context, dir *format.Dir, c *checkpoint.Checkpoint, so session.Options, parts []session.Part) (
		training.Input, []trainer.NamedRows, error)
}

// Result is what was predicted.
type Result struct {
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
}

// job is a prediction on its way.
type job struct {
	Options
	c         *checkpoint.Checkpoint
	result    *Result
	dir       string     // folder for a store that is made; it is removed at the end
	collected *collected // what smoothing takes instead of the file
}

// Predict writes the predictions of a model for an opened store or graph. It refuses options that contradict what the
// input is (session.ErrOptions).
func Predict(ctx context.Context, c *checkpoint.Checkpoint, input *format.Dir, o Options) (*Result, error) {
	start := time.Now()
	isGraph := input.Manifest.Kind == format.KindGraph
	switch labels := c.Data.LabelHops > 0; { // of the training nodes of a split
	case !isGraph && (o.NodesFile != "" || o.SplitGiven):
		return nil, session.Refuse("%s is a hop store: --node-file and --split are for graphs "+
			"(choose rows of a store by --rows)", o.Input)
	case o.SplitGiven && (o.NodesFile != "" || o.Rows == training.AllRows) && o.Smooth == "" && !labels:
		return nil, session.Refuse("--split %d: all predictions are the same by any split (give --rows too, whose rows it "+
			"decides)", o.Split)
	}
	if o.Smooth != "" {
		if err := o.checkSmoothing(c, input); err != nil {
			return nil, err
		}
	}
	if isGraph && o.ChangedSince != "" {
		return nil, session.Refuse("%s is a graph: --changed-since compares two stores", o.Input)
	}
	j := &job{Options: o, c: c, result: &Result{
		Model: c.Spec.Model, Checkpoint: o.Checkpoint, Dataset: input.Manifest.Name, Output: o.Output,
	}}
	var err error
	j.result.Warnings, err = c.Data.ComparePrepared(checkpoint.DataSetOf(&input.Manifest), c.Spec, o.Input)
	if err != nil {
		return nil, session.Refuse("%s", err)
	}
	file, err := export.OpenFileJob(o.FS, o.Output)
	if err != nil {
		return nil, err
	}
	j.dir = file.Store
	aggregation, err := trainer.AggregationOf(c.Spec.Model)
	switch {
	case err != nil:
	case aggregation != "" && !isGraph:
		err = session.Refuse("%s is a hop store, and %s reads the graph that it was made of: give that", o.Input,
			c.Spec.Model)
	case o.Smooth != "":
		err = j.smoothed(ctx, input, aggregation == "")
	case aggregation == "" && isGraph:
		err = j.byStore(ctx, input)
	case o.ChangedSince != "":
		err = j.changed(ctx, input)
	default:
		err = j.predict(ctx, input)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	j.result.Seconds = time.Since(start).Seconds()
	return j.result, nil
}

// byStore writes the predictions of nodes of a graph, by way of a store of them.
func (j *job) byStore(ctx context.Context, graph *format.Dir) (err error) {
	began := time.Now()
	if err := j.propagate(ctx, graph); err != nil {
		return err
	}
	store, err := format.OpenStore(j.FS, j.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	j.result.PropagateSeconds = time.Since(began).Seconds()
	j.Rows = training.AllRows // of the store, which has the chosen ones
	if j.collected != nil {
		table, err := store.Rows(ctx)
		if err != nil {
			return err
		}
		j.collected.nodes = table.NodeID
	}
	return j.predict(ctx, store)
}

// changed writes the predictions of rows of a store that differ from an earlier one, by way of a store of these rows.
func (j *job) changed(ctx context.Context, store *format.Dir) (err error) {
	c, m := j.c, &store.Manifest
	if err := c.CheckInput(store.Matrices(), store.Layout(), m.LabelHops); err != nil {
		return session.Refuse("%s on %s: %s", j.Checkpoint, j.Input, err)
	}
	earlier, err := format.OpenStore(j.FS, j.ChangedSince)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, earlier.Close()) }()
	row := int64(4 + 4*m.Labels + m.Splits)
	if m.OrigIDs {
		row += 48
	}
	if err := j.Budget.Fits("comparing the rows of two stores", 4*m.Nodes+2*m.Rows*row); err != nil {
		return err
	}
	var read []format.MatrixID
	for _, m := range c.Spec.Matrices {
		read = append(read, format.MatrixID(m))
	}
	if err := preprop.WriteChanged(ctx, j.FS, store, earlier, read, j.dir); err != nil {
		return err
	}
	changed, err := format.OpenStore(j.FS, j.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, changed.Close()) }()
	return j.predict(ctx, changed)
}

// predict writes the predictions of rows of a store or, for a model that reads a graph, of nodes.
func (j *job) predict(ctx context.Context, input *format.Dir) (err error) {
	c, p := j.c, j.result
	matrices, layout, _ := training.TypedShape(input)
	err = training.CheckRelations(input, c.Spec)
	if err = cmp.Or(err, c.CheckInput(matrices, layout, input.Manifest.LabelHops)); err != nil {
		return session.Refuse("%s on %s: %s", j.Checkpoint, j.Input, err)
	}
	so := session.Options{BatchRows: j.BatchRows, Placement: j.Placement, Once: true, NoLabels: true, RowNumbers: true}
	var table *export.Predictions
	if input.Manifest.Kind == format.KindGraph {
		nodes, err := j.listNodes(ctx, input)
		if err == nil {
			table, err = export.PredictNodes(ctx, &c.Trained, c.Data.ClassNames, input, nodes)
		}
		if err != nil {
			return err
		}
		so.Held = need.Terms{need.OnHeap("predictions",
			table.MemoryBytes()+c.Spec.PredictBytes(training.InferenceRows)+12*int64(len(nodes)))}
	} else {
		table = export.PredictStore(&c.Trained, c.Data.ClassNames, input, j.Rows)
		so.Held = need.Terms{need.OnHeap("predictions", table.MemoryBytes()+c.Spec.PredictBytes(j.BatchRows))}
	}
	if j.collected != nil {
		so.Held = append(so.Held, need.OnHeap("predictions to smooth", j.collected.bytes()))
	}
	if table.Rows == 0 && j.ChangedSince != "" { // nothing changed: a table without rows
		p.Outputs, p.Columns, p.Reasons = string(table.Outputs), table.Columns, []string{}
		p.Bytes, err = table.Write(ctx, j.FS, j.Output, func(func(*trainer.Predictions) error) error { return nil })
		return err
	}
	if table.Rows == 0 {
		return session.Refuse("%s has no %s rows to predict", j.Input, j.Rows)
	}
	if err := table.CheckSpace(j.FS, j.Output); err != nil {
		return err
	}
	var parts []session.Part
	for _, part := range table.Parts {
		parts = append(parts, session.Part{Name: part.Name, Rows: part.Rows})
	}
	in, sections, err := j.Open(ctx, input, c, so, parts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	began := time.Now()
	task := j.Progress.Start("predict", table.Rows, progress.Items)
	write := func(predict func(add func(*trainer.Predictions) error) error) (int64, error) {
		return table.Write(ctx, j.FS, j.Output, predict)
	}
	if j.collected != nil {
		write = j.collected.write
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
func (j *job) chooseNodes(ctx context.Context, graph *format.Dir) ([]uint32, error) {
	m := &graph.Manifest
	if j.Split > 0 && j.Split >= m.Splits {
		return nil, session.Refuse("--split %d: %s has %s, numbered from 0", j.Split, j.Input,
			units.Count(int64(m.Splits), "split"))
	}
	if j.NodesFile != "" {
		return session.NodesInFile(ctx, graph, j.FS, j.NodesFile, j.Budget)
	}
	if j.Rows == training.AllRows {
		return nil, nil
	}
	if err := j.Budget.Fits(fmt.Sprintf("choosing among %d nodes", m.Nodes), 4*m.Nodes); err != nil {
		return nil, err
	}
	return session.NodesOf(ctx, graph, j.Rows, j.Split)
}

// listNodes is chooseNodes that lists all nodes too.
func (j *job) listNodes(ctx context.Context, graph *format.Dir) ([]uint32, error) {
	nodes, err := j.chooseNodes(ctx, graph)
	if err == nil && nodes == nil {
		return session.NodesOf(ctx, graph, format.RegionAll, 0)
	}
	return nodes, err
}

// propagate makes the store that a model reads from a graph, of all nodes or the chosen ones.
func (j *job) propagate(ctx context.Context, graph *format.Dir) error {
	c, typed := j.c, graph.Typed != nil
	features := graph.Manifest.Features
	if c.Data.LabelHops > 0 && !typed { // of a typed graph, labels have matrices of their own
		features += graph.Manifest.OneHotColumns()
	}
	if c.Spec.Features != features {
		return session.Refuse("%s on %s: the model was trained on %d features (data %s), but the graph has %d",
			j.Checkpoint, j.Input, c.Spec.Features, units.Printable(c.Data.Name), features)
	}
	po := preprop.Options{
		Rows: format.RowsAll, Split: j.Split, Threads: j.Threads, Seed: j.Seed, Progress: j.Progress, Note: j.Note,
		LabelHops: c.Data.LabelHops,
	}
	if po.LabelHops > 0 && !j.SplitGiven {
		po.Split = c.Data.Split // whose training nodes had labels in the training
	}
	var err error
	if po.DType, err = dtype.Parse(c.Data.DType); err != nil {
		return fmt.Errorf("%s: %w: %w", j.Checkpoint, checkpoint.ErrInvalid, err)
	}
	po.Hops = po.LabelHops // the model may read fewer
	known := map[string]bool{format.FeaturesOperator: true}
	for _, id := range c.Spec.Matrices {
		po.Hops = max(po.Hops, id.Hop)
		if known[id.Operator] {
			continue
		}
		known[id.Operator] = true
		of, err := operator.Parse(id.Operator)
		if err != nil {
			return session.Refuse("%s: the model reads what this version cannot propagate: %s", j.Checkpoint, err)
		}
		switch {
		case typed != (of.Metapath != ""):
			trained := "one type"
			if !typed {
				trained = "several types"
			}
			return session.Refuse("%s: the model reads %s, which %s has not: it was trained on a graph of %s", j.Checkpoint,
				of, j.Input, trained)
		case of.Metapath == "":
			po.Operators = append(po.Operators, of)
			continue
		case !of.Labels:
			po.Metapaths = append(po.Metapaths, of.Metapath)
		}
		po.Operators = []operator.Operator{{Name: of.Name}}
	}
	if typed {
		po.Hops = 0 // the metapaths say which
	}
	if po.Hops > 0 && len(po.Operators) == 0 { // it reads hop 0 alone, which has columns of labels too
		po.Operators = []operator.Operator{{Name: operator.Sym}}
	}
	if po.Nodes, err = j.chooseNodes(ctx, graph); err != nil {
		return err
	}
	chosen := int64(len(po.Nodes))
	if po.MemoryBytes = int64(j.Budget.Bytes) - 4*chosen; po.MemoryBytes <= 0 {
		return j.Budget.Fits(units.Count(chosen, "chosen node"), 4*chosen)
	}
	_, err = preprop.Propagate(ctx, j.FS, j.Input, j.dir, po)
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
