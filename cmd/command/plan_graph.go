package command

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// planGraph plans the training of a model that reads a graph: it opens the graph as train does, and measures batches
// and validation.
func (a *app) planGraph(ctx context.Context, graph *format.Dir, o *planOptions, to training.Options) (_ *planned,
	err error) {
	opened, err := training.Open(ctx, graph, to, checkpoint.Batches{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	in := opened.(*training.Graph)
	var batches, train float64 // of an epoch: how many, and their seconds
	costs := trainer.EpochCosts{ValidSeconds: math.NaN()}
	if o.Schedule.Name != scheduler.MultiQueue {
		if batches, costs, err = in.Measure(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.chooseSchedule(ctx, in, &o.trainOptions); err != nil {
		return nil, err
	}
	m, r := &graph.Manifest, in.Report()
	p := &planned{
		Model: o.Model, Machine: o.plannedMachine(a.machine(ctx).Facts()), Matrices: 1, Features: m.Features,
		DType: m.DType,
		Rows:  m.Nodes, Edges: m.Edges, TrainRows: int64(len(to.Part.Train.List)),
		ValidRows:  int64(len(to.Part.Valid.List)),
		InputBytes: units.Bytes(in.InputBytes()), WorkBytes: units.Bytes(in.WorkBytes()), Memory: r.Memory,
		Sampler: o.Sampler, Fanouts: o.Fanouts, Batch: in.Batches().Rows, Cache: o.Cache, Schedule: r.Schedule,
		Queues:    r.Queues,
		Placement: r.Placement, Shuffle: r.Shuffle, Devices: r.Devices, Alternatives: in.Alternatives(),
	}
	switch {
	case r.Schedule != nil:
		p.Buffers, train = r.Schedule.GPUBuffer, r.Schedule.PredictedSeconds
	case r.Queues != nil:
		p.Buffers, train = r.Queues.Queue, r.Queues.Predicted
	default:
		p.Buffers, train = cmp.Or(o.Buffers, placement.Buffers), batches*costs.BatchSeconds
	}
	train, about := costs.WithValidation(train, o.EvalEvery)
	p.PredictedEpochSeconds, p.Reasons = &train, append(slices.Clone(r.Reasons), about)
	read := units.Bytes(float64(costs.Traffic.Bytes()) / max(1, float64(costs.Batches)) * batches)
	for i := range p.Alternatives {
		alternative := &p.Alternatives[i]
		if alternative.Obstacle == "" {
			alternative.EpochBytes = read
		}
		if alternative.Placement == p.Placement {
			alternative.EpochSeconds = train
		}
	}
	return p, nil
}
