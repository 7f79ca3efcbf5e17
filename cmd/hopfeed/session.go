package main

import (
	"cmp"
	"context"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// machine is what the command may use of this machine.
func (a *app) machine(ctx context.Context) session.Machine {
	return a.machineWithin(ctx, a.budget)
}

// machineWithin is machine with another budget.
func (a *app) machineWithin(ctx context.Context, budget machine.Limit) session.Machine {
	return session.ThisMachine(ctx, budget, a.threads, devices.Options{Emulate: a.emulate, TF32: a.tf32})
}

// openStore opens a hop store. For a graph, the error says how to make a store of it.
func (a *app) openStore(dir, model string) (*format.Dir, error) {
	d, err := format.OpenAny(a.fs, dir)
	if err != nil {
		return nil, err
	}
	if d.Manifest.Kind == format.KindGraph {
		d.Close()
		return nil, usagef("%s is a graph, and %s reads a hop store: run hopfeed propagate %s -o STORE first", dir, model, dir)
	}
	return d, nil
}

// openInputOf opens what a model reads: a hop store or, if it passes messages, a graph.
func (a *app) openInputOf(dir, model string) (*format.Dir, error) {
	aggregation, err := trainer.AggregationOf(model)
	if err != nil {
		return nil, usagef("--model: %s", err)
	}
	if aggregation == "" {
		return a.openStore(dir, model)
	}
	d, err := format.OpenAny(a.fs, dir)
	if err == nil && d.Manifest.Kind != format.KindGraph {
		d.Close()
		err = usagef("%s is a hop store, and %s reads the graph that it was made of: give that", dir, model)
	}
	return d, err
}

// notePlacement prints where the input of a session is read from, and why.
func (a *app) notePlacement(s *session.Session) {
	a.note("input from %s%s", s.Plan.Placement, shuffleText(s.Plan.Shuffle))
	tell := a.detail
	if len(s.Devices) > 1 || s.Plan.Placement != placement.Device || a.emulate.GPUs > 1 {
		tell = a.note // the input is not where it is read fastest, or shared
	}
	for _, reason := range s.Plan.Reasons {
		tell("  %s", reason)
	}
	var pinned, locked units.Bytes
	notLocked := ""
	for _, d := range s.Devices {
		if u := d.Usage(); !d.Info().Unified {
			pinned, locked = pinned+units.Bytes(u.PinnedInUse), locked+units.Bytes(u.PinnedLocked)
			notLocked = cmp.Or(notLocked, u.NotLocked)
		}
	}
	if notLocked != "" {
		a.note("  only %[2]s of %[1]s of pinned memory is locked: %[3]s", pinned, locked, notLocked)
	}
	if s.Plan.ComputeSeconds > 0 {
		a.note("  an epoch should take %.3g s", s.Plan.EpochSeconds)
	}
}

// oneOf returns an error unless the value of a flag is one of those allowed.
func oneOf(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return usagef("--%s %q: want one of %v", flag, value, allowed)
}

// noteInput prints where an input is read from, and why.
func (a *app) noteInput(in training.Input) {
	switch in := in.(type) {
	case training.Store:
		a.notePlacement(in.Session)
	case *training.Graph:
		r := in.Report()
		a.note("features from %s", r.Placement)
		for _, reason := range r.Reasons {
			a.detail("  %s", reason)
		}
	}
}

// trainingOptions are the options of a training on the rows of part, with what the command holds in host memory beside.
func (a *app) trainingOptions(ctx context.Context, m *format.Manifest, o *trainOptions, spec trainer.Spec, part session.Partition) (training.Options, error) {
	held, err := o.heldBytes(m, spec)
	return training.Options{
		Machine: a.machine(ctx), Stages: a.emulate.Stages, Spec: spec, Placement: o.placement, HeldBytes: held,
		Train: true, Part: part, NoTest: o.validOnly, Seed: a.seed, Options: o.Options, BatchRows: o.BatchRows,
		Shuffle: o.shuffle, ChunkRows: o.chunkRows, Sampling: o.Sampling, Schedule: o.Schedule,
	}, err
}

// openInput opens the input of a training. Before are the batches of a training that goes on, or zero.
func (a *app) openInput(ctx context.Context, dir *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition, before checkpoint.Batches) (training.Input, error) {
	to, err := a.trainingOptions(ctx, &dir.Manifest, o, spec, part)
	if err != nil {
		return nil, err
	}
	return training.Open(ctx, dir, to, before)
}

// openTrainingGraph opens a graph by the schedule of the options.
func (a *app) openTrainingGraph(ctx context.Context, graph *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition) (*training.Graph, error) {
	to, err := a.trainingOptions(ctx, &graph.Manifest, o, spec, part)
	if err != nil {
		return nil, err
	}
	return training.OpenGraph(ctx, graph, to)
}

// chooseSchedule chooses who prepares the batches of a graph, and says so. Before is the run that goes on, or nil.
func (a *app) chooseSchedule(ctx context.Context, graph *training.Graph, o *trainOptions, before *trainer.State) error {
	if o.Schedule.IsOff(a.machine(ctx).Devices.Info) {
		a.note("schedule: the processor prepares all batches, as the device is the processor")
	}
	notes, err := graph.ChooseSchedule(ctx, before)
	for _, n := range notes {
		a.note("%s", n)
	}
	if err == nil && graph.Queues != nil {
		o.Options.Queues = graph.Queues.Training()
	}
	return err
}
