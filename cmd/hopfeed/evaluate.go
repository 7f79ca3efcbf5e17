package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

type evaluateOptions struct {
	checkpoint, store string
	batch             int
	placement         string
}

func newEvaluateCommand(a *app) *cobra.Command {
	var o evaluateOptions
	c := &cobra.Command{
		Use:   "evaluate --checkpoint RUN STORE",
		Short: "Apply a trained model to a hop store",
		Long: "Evaluate applies the model that train --run saved to all labelled rows of a hop store, which may be that\n" +
			"of another graph with the same features and classes.",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) {
			o.store = args[0]
			return runEvaluate(ctx, a, o)
		}),
	}
	f := c.Flags()
	f.StringVar(&o.checkpoint, "checkpoint", "", "directory that train --run has written")
	f.IntVar(&o.batch, "batch", 8000, "rows of a batch")
	f.StringVar(&o.placement, "placement", placement.Auto, "where the input lives: auto, device, host or storage")
	c.MarkFlagRequired("checkpoint")
	return c
}

// evaluated is the result of evaluate. What it has of training is the checkpoint's.
type evaluated struct {
	trained
	Accuracy *float64             `json:"accuracy"` // on all labelled rows
	Rows     int64                `json:"rows"`     // labelled
	Regions  map[string]*regional `json:"regions"`

	names      []string // of regions, in order
	trainedOn  string
	checkpoint string
}

// regional is the accuracy on the labelled rows of a region.
type regional struct {
	Accuracy *float64 `json:"accuracy"`
	Rows     int64    `json:"rows"`
}

func (e *evaluated) text(w io.Writer) {
	fmt.Fprintf(w, "model\t%s, trained on %s (%s)\n", e.Model, e.trainedOn, e.checkpoint)
	fmt.Fprintf(w, "input\t%s from %s; read: %s\n", e.Dataset, e.Placement, readsText(e.Load))
	for _, name := range e.names {
		fmt.Fprintf(w, "%s\t%s %s (%d rows)\n", name, e.Metric, percent(e.Regions[name].Accuracy), e.Regions[name].Rows)
	}
	fmt.Fprintf(w, "all\t%s %s (%d rows)\n", e.Metric, percent(e.Accuracy), e.Rows)
	fmt.Fprintf(w, "time\t%.2f s, %.0f rows/s\n", e.Seconds, *e.RowsPerSecond)
}

func runEvaluate(ctx context.Context, a *app, o evaluateOptions) (_ result, err error) {
	start := time.Now()
	if err := oneOf("placement", o.placement, placement.Auto, placement.Device, placement.Host, placement.Storage); err != nil {
		return nil, err
	}
	if o.batch < 1 {
		return nil, usagef("--batch %d: must be at least 1", o.batch)
	}
	c, err := trainer.LoadCheckpoint(a.fs, o.checkpoint)
	if err != nil {
		return nil, err
	}
	store, err := a.openStore(o.store, c.Spec.Model)
	if err != nil {
		return nil, err
	}
	m := &store.Manifest
	if err := c.Fits(store.Matrices(), m.Features, m.Classes); err != nil {
		return nil, errors.Join(usagef("%s on %s: %s", o.checkpoint, o.store, err), store.Close())
	}
	so := sessionOptions{batch: o.batch, placement: o.placement}
	s, err := a.openSession(ctx, store, c.Spec, so)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	s.announce(a)

	var sections []trainer.Section
	for _, r := range store.Layout().Regions {
		sets, err := s.loaders.Sets(loader.Rows{Region: r.Name}, chunk.Plan{BatchRows: s.batch, ChunkRows: store.Layout().ChunkRows})
		if err != nil {
			return nil, err
		}
		section := trainer.Section{Name: r.Name}
		for _, set := range sets {
			section.Rows = append(section.Rows, set)
		}
		sections = append(sections, section)
	}
	began := time.Now()
	found, err := trainer.Evaluate(ctx, s.devices, c, shareRows(s.batch, len(s.devices)), sections)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	e := &evaluated{
		Accuracy: found.Overall.Fraction(), Rows: found.Overall.Rows, Regions: map[string]*regional{},
		trainedOn: c.Dataset, checkpoint: o.checkpoint,
	}
	for _, section := range found.Sections {
		e.names = append(e.names, section.Name)
		e.Regions[section.Name] = &regional{section.Fraction(), section.Rows}
	}
	e.trained = trained{
		Model: c.Spec.Model, Dataset: m.Name,
		Placement: s.decision.Placement, Shuffle: "none", Reasons: s.decision.Reasons,
		Devices: s.decision.Devices, Sharded: s.decision.Sharded,
		Epochs: number(c.Epochs), BestEpoch: number(c.BestEpoch), Selection: c.Selection,
		TrainLoss: &c.TrainLoss, Metric: trainer.MetricName,
		ValidMetric: e.metric(format.RegionValid), TestMetric: e.metric(format.RegionTest),
		EpochSeconds: &seconds, StageSeconds: map[string]float64{"evaluate": seconds},
		PeakDeviceBytes: s.peak(), Seeds: []uint64{c.Options.Seed}, Load: s.loaders[0].Stats(),
	}
	for _, id := range c.Spec.Matrices {
		e.Matrices = append(e.Matrices, id.String())
	}
	wait, rate := e.Load.LoopWaitSeconds, float64(so.rows(store.Layout()))/max(seconds, 1e-9)
	e.LoadWaitSeconds, e.RowsPerSecond = &wait, &rate
	e.Seconds = time.Since(start).Seconds()
	return e, nil
}

// metric is the accuracy on a region, nil where there are no labelled rows.
func (e *evaluated) metric(region string) *float64 {
	if r := e.Regions[region]; r != nil {
		return r.Accuracy
	}
	return nil
}

func number(n int) *float64 {
	f := float64(n)
	return &f
}
