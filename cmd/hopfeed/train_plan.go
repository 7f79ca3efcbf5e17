package main

import (
	"context"
	"maps"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// resolveSettings sets the values of all settings of the model, and the weight decay, where it was
// not given, to the default for this number of training rows.
func (o *trainOptions) resolveSettings(spec trainer.Spec, trainRows int64) error {
	spec, err := spec.Normalized()
	if err != nil {
		return err
	}
	clear(o.Values) // which the flags are the values of
	maps.Copy(o.Values, spec.Settings)
	if o.decayByRows {
		defaults, err := trainer.Defaults(o.model, trainRows)
		if err != nil {
			return err
		}
		o.WeightDecay = defaults.WeightDecay
	}
	return nil
}

// training are the options of a run.
func (o *trainOptions) training(seed uint64) trainer.Options {
	return trainer.Options{
		Epochs: o.Epochs, LearningRate: o.LearningRate, WeightDecay: o.WeightDecay,
		Seed: seed, EvalEvery: o.EvalEvery, Patience: o.Patience,
	}
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
		Settings: o.Values,
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
