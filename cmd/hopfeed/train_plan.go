package main

import (
	"context"
	"maps"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
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
	if o.labels, err = session.CountLabels(ctx, store, p.Parts()[:3]); err != nil {
		return err
	}
	if o.labels[0].Labelled == 0 {
		return usagef("0 of the %s of %s have a label: nothing can be learnt (choose another split by --split or --splits FILE, or import with labels)",
			count(trainRows, "training row"), o.store)
	}
	if o.ClassWeights, err = o.classWeights(spec); err != nil {
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
func (o *trainOptions) classWeights(spec trainer.Spec) (weights []float64, err error) {
	if o.weights == "" {
		return nil, nil
	}
	if spec.Target != trainer.ClassTarget {
		return nil, usagef("--class-weights %s: the labels of %s are not classes", o.weights, o.store)
	}
	rowsOfClass := o.labels[0].Classes
	if o.weights == balancedWeights {
		return trainer.BalancedWeights(rowsOfClass), nil
	}
	for _, text := range strings.Split(o.weights, ",") {
		w, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return nil, usagef("--class-weights %s: want numbers separated by commas, or %s", o.weights, balancedWeights)
		}
		weights = append(weights, w)
	}
	counted := int64(0)
	for class, rows := range rowsOfClass {
		if class < len(weights) && float32(weights[class]) != 0 {
			counted += rows
		}
	}
	if counted == 0 && len(weights) == len(rowsOfClass) {
		return nil, usagef("--class-weights %s: 0 of the %s of %s are of a class whose weight is not 0: nothing can be learnt",
			o.weights, count(o.labels[0].Labelled, "labelled training row"), o.store)
	}
	return weights, nil
}

// noteLabels says which rows do not count, as they have no label.
func (o *trainOptions) noteLabels(a *app) {
	for i, part := range []string{"training", "validation", "test"} {
		n := o.labels[i]
		switch missing := n.Rows - n.Labelled; {
		case missing == 0 || part == "test" && o.validOnly:
		case n.Labelled == 0:
			a.note("0 of the %s have a label: there is no %s metric", count(n.Rows, part+" row"), part)
		default:
			a.note("%d of the %s have no label, and do not count", missing, count(n.Rows, part+" row"))
		}
	}
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
		bytes += checkpoint.RowBytes*m.Rows + checkpoint.ParameterBytes*parameters
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
