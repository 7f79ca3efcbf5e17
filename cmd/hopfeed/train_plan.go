package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// resolveSettings sets what was not given: settings of the model, and what follows from the labels and
// the numbers of rows.
func (a *app) resolveSettings(ctx context.Context, store *format.Dir, o *trainOptions, spec trainer.Spec, p session.Partition) error {
	spec, err := spec.Normalized()
	if err != nil {
		return err
	}
	clear(o.Values) // which the flags are the values of
	maps.Copy(o.Values, spec.Settings)
	layout := store.Layout()
	trainRows, validRows := session.CountRows(layout, p.Train), session.CountRows(layout, p.Valid)
	if err := o.fillByRows(trainRows); err != nil {
		return err
	}
	if o.EvalEvery == 0 {
		o.EvalEvery = trainer.DefaultEvalEvery(trainRows, validRows, o.Epochs)
	}
	if o.ClassWeights, err = a.classWeights(ctx, store, o.weights, spec, p); err != nil {
		return err
	}
	o.Seed = a.seed
	o.Options, err = o.Options.Normalized(spec)
	return err
}

// fillByRows sets the defaults that depend on the number of training rows.
func (o *trainOptions) fillByRows(trainRows int64) error {
	defaults, err := trainer.Defaults(o.model, trainRows)
	if err != nil {
		return err
	}
	o.fillFrom(defaults)
	return nil
}

// balancedWeights is the value of --class-weights for weights that make classes count the same.
const balancedWeights = "balanced"

// classWeights are the weights of classes in the loss, nil if there are none.
func (a *app) classWeights(ctx context.Context, store *format.Dir, given string, spec trainer.Spec, p session.Partition) ([]float64, error) {
	if given == "" {
		return nil, nil
	}
	if spec.Target != trainer.ClassTarget {
		return nil, usagef("--class-weights %s: the labels of %s are not classes", given, store.Path())
	}
	if given == balancedWeights {
		rows := store.Manifest.Rows
		if err := a.budget.Fits(fmt.Sprintf("counting the classes of %d rows", rows), 8*rows); err != nil {
			return nil, err
		}
		stored, err := readLabelledRows(ctx, store)
		if err != nil {
			return nil, err
		}
		var labels []int32
		session.Part{Rows: p.Train}.Each(store, func(row int64) { labels = append(labels, stored.labels[row]) })
		return trainer.BalancedWeights(labels, spec.Classes), nil
	}
	var weights []float64
	for _, text := range strings.Split(given, ",") {
		w, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return nil, usagef("--class-weights %s: want numbers separated by commas, or %s", given, balancedWeights)
		}
		weights = append(weights, w)
	}
	return weights, nil
}

// sessionOptions are those of a session that trains on the rows of p.
func (o *trainOptions) sessionOptions(layout format.Layout, spec trainer.Spec, p session.Partition) session.Options {
	so := session.Options{
		Matrices: spec.Matrices, Rows: []loader.Rows{p.Train, p.Valid, p.Test}, Train: true,
		BatchRows: o.BatchRows, Placement: o.placement, Shuffle: o.shuffle, ChunkRows: o.chunkRows, Model: spec,
	}
	if o.validOnly {
		so.Rows = so.Rows[:2]
	}
	// Of the median epoch: half of the rows if every second epoch is validated, none if fewer are.
	validRows := session.CountRows(layout, p.Valid)
	every := o.EvalEvery
	if every == 0 {
		every = trainer.DefaultEvalEvery(session.CountRows(layout, p.Train), validRows, o.Epochs)
	}
	if every <= 2 {
		so.ValidRows = validRows / int64(every)
	}
	return so
}

// heldBytes is what the command holds in host memory beside a session.
func (o *trainOptions) heldBytes(m *format.Manifest, spec trainer.Spec) (bytes int64, err error) {
	if o.splits != "" {
		bytes += m.Nodes
	}
	if o.run != "" {
		parameters, err := spec.Parameters()
		if err != nil {
			return 0, err
		}
		bytes += checkpointRowBytes*m.Rows + checkpointParameterBytes*parameters
	}
	return bytes + metricBytes(o.Metric, m.Rows, spec), nil
}

// metricBytes is the host memory for what a metric keeps of so many rows. ROC-AUC keeps 8 bytes for each row and
// label, in a list that grows by copying, and once more as those of sets of rows are added up.
func metricBytes(metric string, rows int64, spec trainer.Spec) int64 {
	if metric != "roc-auc" {
		return 0
	}
	columns := int64(1)
	if spec.Target == trainer.LabelsTarget {
		columns = int64(spec.Classes)
	}
	return 24 * rows * columns
}

// targetOf is what a model of a store predicts, and in how many columns.
func targetOf(m *format.Manifest) (target trainer.Target, columns int) {
	switch {
	case m.LabelValues:
		return trainer.ValuesTarget, m.Labels
	case m.Labels > 1:
		return trainer.LabelsTarget, m.Labels
	}
	return trainer.ClassTarget, m.Classes
}

// checkLabels refuses stores without labels.
func checkLabels(m *format.Manifest, store string) error {
	if _, columns := targetOf(m); columns == 0 {
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
	target, columns := targetOf(m)
	matrices, err := trainer.Matrices(o.model, store.Matrices(), o.operators, o.hops)
	if err != nil {
		return spec, part, usagef("%s: %s", o.store, err)
	}
	spec = trainer.Spec{
		Model: o.model, Matrices: matrices, Features: m.Features, Classes: columns, Target: target,
	}
	if m.Kind == format.KindStore { // so that the configuration names them, whatever the store has later
		o.operators, o.hops = spec.Choice()
	}
	if o.split < 0 && o.splits == "" {
		o.split = m.Split
	}
	o.split = max(o.split, 0)
	if part, err = session.OpenPartition(ctx, store, o.split, o.splits, a.budget); err != nil {
		return spec, part, err
	}
	if session.CountRows(store.Layout(), part.Train) == 0 {
		if !part.Scattered() {
			return spec, part, usagef("%s has no training rows: its graph came without a split that has any (give one by --splits FILE)", o.store)
		}
		return spec, part, usagef("%s has no training rows in that split", o.store)
	}
	spec.Settings, err = o.modelValues(session.CountRows(store.Layout(), part.Train))
	return spec, part, err
}

// modelValues are the settings of the model: those that were given, else its defaults for so many training rows.
func (o *trainOptions) modelValues(trainRows int64) (trainer.Values, error) {
	defaults, err := trainer.Defaults(o.model, trainRows)
	if err != nil {
		return nil, err
	}
	maps.Copy(defaults.Values, o.Values)
	return defaults.Values, nil
}
