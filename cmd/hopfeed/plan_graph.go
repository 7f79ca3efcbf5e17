package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// planGraphTraining plans the training of a model that reads a graph: it opens the graph as train does, and measures
// batches and validation.
func (a *app) planGraphTraining(ctx context.Context, o *planOptions) (_ result, err error) {
	switch {
	case o.store == "":
		return nil, usagef("%s reads a graph, whose batches are measured: give a GRAPH", o.model)
	case o.machine != nil:
		return nil, usagef("--hardware: sampling a graph is measured, on this machine (leave it out, or choose a model that reads a hop store)")
	case len(o.splitNumbers) > 1:
		return nil, usagef("--split %s: a plan is for one split", o.splitNumbers.String())
	}
	graph, err := a.openInputOf(o.store, o.model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	if err := o.fillGraphDefaults(); err != nil {
		return nil, err
	}
	spec, part, err := a.planTraining(ctx, graph, &o.trainOptions)
	if err != nil {
		return nil, err
	}
	if err := a.resolveSettings(ctx, graph, &o.trainOptions, spec, part); err != nil {
		return nil, err
	}
	trainRows, validRows := session.CountRows(graph.Layout(), part.Train), session.CountRows(graph.Layout(), part.Valid)
	if err := o.fillSampling(trainRows); err != nil {
		return nil, err
	}
	in, err := a.openInput(ctx, graph, &o.trainOptions, spec, part, checkpoint.Batches{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	m, facts := &graph.Manifest, a.machine(ctx).Facts()
	p := &planned{
		Dataset: m.Name, Model: o.model, Machine: o.plannedMachine(facts),
		Matrices: 1, Features: m.Features, DType: m.DType, Rows: m.Nodes, Edges: m.Edges, TrainRows: trainRows, ValidRows: validRows,
		StoreBytes: m.Bytes(), Sampler: o.sampler, Fanouts: o.fanouts, Batch: in.batches().Rows, Cache: o.cache,
		Shuffle: placement.RR, Buffers: cmp.Or(int(o.sampling["buffers"]), placement.Buffers), Devices: len(in.devices()),
	}
	var batches float64 // of an epoch
	var costs trainer.EpochCosts
	var train float64 // seconds of an epoch
	var where graphPlan
	switch in := in.(type) {
	case *graphInput:
		where = in.where
		if batches, costs, err = in.measure(ctx, a, spec, part); err != nil {
			return nil, err
		}
		if train = batches * costs.BatchSeconds; o.schedule != "" {
			if err := in.planSchedule(ctx, a, &o.trainOptions, spec, part); err != nil {
				return nil, err
			}
		}
		if in.scheduler != nil {
			r := in.scheduler.Report()
			p.Schedule, p.Buffers, train = &r, r.GPUBuffer, r.PredictedSeconds
		}
	case *queuedInput:
		where = in.where
		if err := in.planQueues(ctx, a, graph, &o.trainOptions, spec, part, nil); err != nil {
			return nil, err
		}
		p.Queues = &in.queues.Report
		p.Buffers, train = p.Queues.Queue, p.Queues.Predicted
		costs.ValidSeconds = math.NaN()
	}
	p.Placement, p.WorkBytes, p.Reasons = where.placement, units.Bytes(where.workBytes()), slices.Clone(where.reasons)
	train, about := withValidation(train, costs.ValidSeconds, o.EvalEvery)
	p.PredictedEpochSeconds, p.Reasons = &train, append(p.Reasons, about)
	read := units.Bytes(float64(costs.Traffic.Bytes()) / max(1, float64(costs.Batches)) * batches)
	p.Alternatives, p.InputBytes, err = a.graphAlternatives(ctx, graph, o, spec, part, in)
	for i := range p.Alternatives {
		alternative := &p.Alternatives[i]
		if alternative.Obstacle == "" {
			alternative.EpochBytes = read
		}
		if alternative.Placement == p.Placement {
			alternative.EpochSeconds = train
		}
	}
	return p, err
}

// measure trains on some batches, and returns how many an epoch has, and what they and validation took.
func (in *graphInput) measure(ctx context.Context, a *app, spec trainer.Spec, part session.Partition) (batches float64, costs trainer.EpochCosts, err error) {
	sets, err := in.rowSets(ctx, part, a.seed, false)
	if err != nil {
		return 0, costs, err
	}
	batches = 1
	if set, ok := sets.train[0].(sampledSet); ok {
		batches = float64(set.Batches())
	}
	costs, err = trainer.MeasureEpoch(ctx, sets.ranks(in), spec)
	return batches, costs, in.explain(err)
}

// withValidation adds to the seconds of training what validation takes of the median epoch, and says so.
func withValidation(train, valid float64, every int) (seconds float64, about string) {
	about = fmt.Sprintf("training on an epoch should take %.3g s", train)
	switch {
	case math.IsNaN(valid):
		return train, about + "; validation, by the first device, is not in it"
	case math.IsInf(valid, 1):
		return train, about + "; validation is not in it: it takes more than 30 s"
	case valid == 0:
		return train, about
	case every > 2:
		return train, about + fmt.Sprintf(", validation after each %d epochs %.3g s", every, valid)
	}
	return train + valid/float64(every), about + fmt.Sprintf(", validation %.3g s", valid)
}

// graphAlternatives are the places where the features may be, with the memory that each takes, and the bytes of the
// graph in memory.
func (a *app) graphAlternatives(ctx context.Context, graph *format.Dir, o *planOptions, spec trainer.Spec, part session.Partition, in trainingInput) (all []placement.Alternative, input units.Bytes, err error) {
	held, err := o.heldBytes(&graph.Manifest, spec)
	if err != nil {
		return nil, 0, err
	}
	needs, _, err := a.trainingNeeds(ctx, &o.trainOptions, spec, part, held, in.devices())
	if err != nil {
		return nil, 0, err
	}
	if in, ok := in.(*graphInput); ok {
		needs.elements = in.where.elements
	}
	b, err := a.countGraph(graph, needs, a.machine(ctx).Devices.Info)
	if err != nil {
		return nil, 0, err
	}
	for _, where := range []string{placement.Device, placement.Host, placement.Storage} {
		alternative := placement.Alternative{Placement: where, Shuffle: placement.RR, Devices: len(in.devices())}
		needs.placement = where
		if p, err := a.planGraph(a.machine(ctx), graph, needs); err != nil {
			alternative.Obstacle = err.Error()
		} else {
			memory := p.memory()
			alternative.DeviceBytes, alternative.HostBytes = units.Bytes(memory.DeviceBytes), units.Bytes(memory.HostBytes)
		}
		all = append(all, alternative)
	}
	return all, units.Bytes(b.topology.off + b.topology.heap + b.features), nil
}
