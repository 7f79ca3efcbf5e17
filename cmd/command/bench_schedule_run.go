package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// scheduleFiles are the charts of a setting of a paper, or of this machine.
func scheduleFiles(setting string) []string {
	if setting != "" {
		setting = "-" + setting
	}
	return []string{"schedule" + setting + ".svg", "schedule" + setting + ".html"}
}

// settings are the machines that schedules run on; nil is this one, or what --emulate says.
func (o *benchScheduleOptions) settings(a *app) (all []*papers.MorphGL, files []string, err error) {
	if !o.paper {
		return []*papers.MorphGL{nil}, scheduleFiles(""), nil
	}
	if a.emulate.Stages != (host.Stages{}) {
		return nil, nil, usagef("--paper says what stages take: leave their times out of --emulate %s",
			a.emulate.String())
	}
	if a.emulate.GPUs == 0 {
		a.emulate.GPUs, a.emulate.Memory = 1, 1<<30
	}
	for _, s := range papers.MorphGLSettings() {
		all, files = append(all, &s), append(files, scheduleFiles(s.Name())...)
		a.emulate.Workers = max(a.emulate.Workers, s.Workers) // as many as memory is planned for
	}
	return all, files, nil
}

func runBenchSchedule(ctx context.Context, a *app, o *benchScheduleOptions) (_ result, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	settings, files, err := o.settings(a)
	if err != nil {
		return nil, err
	}
	if err := a.checkOutputs(o.output, files); err != nil {
		return nil, err
	}
	graph, err := a.openInputOf(o.Input, o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	if aggregation, _ := trainer.AggregationOf(o.Model); aggregation == "" {
		return nil, usagef("--model %s reads a hop store, so no batches are sampled: want a model that reads a "+
			"graph, such as sage", o.Model)
	}
	if o.Schedule.Name = scheduler.Auto; slices.Contains(o.names, scheduler.MultiQueue) {
		o.Schedule.Name = scheduler.MultiQueue // whose flags are checked
	} else if slices.Contains(o.names, "mixed") {
		o.Schedule.Name = "mixed"
	}
	if err := o.checkInputFlags(); err != nil {
		return nil, err
	}
	to, err := a.resolve(ctx, graph, &o.trainOptions)
	if err != nil {
		return nil, err
	}
	var queues []bench.QueueResult
	if at := slices.Index(o.names, scheduler.MultiQueue); at >= 0 {
		o.names = slices.Delete(o.names, at, at+1)
		if len(o.names) == 0 && (o.output != "" || o.paper) {
			return nil, usagef("--output, --paper: not by the schedule %s alone", scheduler.MultiQueue)
		}
		if !o.paper {
			if queues, err = a.benchQueues(ctx, graph, *o, to); err != nil {
				return nil, err
			}
		}
		if len(o.names) == 0 {
			return lines(a, queues, bench.QueueTable(queues))
		}
	}
	var others []bench.ScheduleRow
	if others, err = a.benchMemoryRows(ctx, graph, o, to); err != nil {
		return nil, err
	}
	to.Schedule.Name = scheduler.Auto // one of the schedules is wanted
	if to.Placement == placement.Auto || to.Placement == "" {
		to.Placement = placement.Host // which gpu reads; from the device, it is another row
	}
	var results []bench.ScheduleResult
	err = a.benchGraph(ctx, graph, o, to, func(run bench.Schedules) error {
		a.noteInput(run.Graph)
		run.Names, run.Others = o.names, others
		all, charts, err := run.RunAll(ctx, settings,
			fmt.Sprintf("Schedules of %s on %s", o.Model, units.Printable(graph.Manifest.Name)))
		if results = all; err != nil {
			return err
		}
		return a.writeOutputs(o.output, files, charts...)
	})
	if err != nil {
		return nil, err
	}
	r, err := lines(a, results, bench.ScheduleTable(results))
	if err != nil || len(queues) == 0 {
		return r, err
	}
	if r == nil {
		return lines(a, queues, bench.QueueTable(queues))
	}
	return bench.BothTables{One: results, Several: queues}, nil
}

// benchMemoryRows trains by gpu with lists and rows in device memory, as far as names ask for it, and takes these names
// out of them.
func (a *app) benchMemoryRows(ctx context.Context, graph *format.Dir, o *benchScheduleOptions, to training.Options) (
	rows []bench.ScheduleRow, err error) {
	for _, name := range o.names {
		if !bench.IsMemoryRow(name) {
			continue
		}
		switch {
		case to.Machine.Devices.Info.Unified:
			a.note("%s is left out: the device's memory is the host's", name)
			continue
		case graph.Typed != nil:
			a.note("%s is left out: devices sample lists of graphs of one type", name)
			continue
		}
		var row *bench.ScheduleRow
		err := a.benchGraph(ctx, graph, o, bench.MemoryRowOptions(name, graph, to), func(run bench.Schedules) (err error) {
			row, err = run.MemoryRow(ctx, name)
			return err
		})
		if errors.Is(err, machine.ErrDoesNotFit) {
			a.note("%s is left out: %v", name, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if row != nil {
			rows = append(rows, *row)
		}
	}
	o.names = slices.DeleteFunc(o.names, bench.IsMemoryRow)
	return rows, nil
}

// benchGraph opens a graph for measurements of schedules.
func (a *app) benchGraph(ctx context.Context, graph *format.Dir, o *benchScheduleOptions, to training.Options,
	measure func(bench.Schedules) error) (err error) {
	in, err := training.OpenGraph(ctx, graph, to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return measure(bench.Schedules{Graph: in, Spec: to.Spec, Options: o.Options, Seed: a.seed, Rounds: o.rounds,
		Note: a.note})
}

// benchQueues compares trainings by queues with synchronous ones on one device, two, and so on.
func (a *app) benchQueues(ctx context.Context, graph *format.Dir, o benchScheduleOptions, to training.Options) (
	all []bench.QueueResult, err error) {
	most := max(1, a.emulate.GPUs)
	defer func() { a.emulate.GPUs = min(a.emulate.GPUs, most) }()
	o.Schedule.Name = scheduler.MultiQueue
	for n := 1; n <= most; n++ {
		if a.emulate.GPUs > 0 {
			a.emulate.GPUs = n
		}
		if to.Machine, to.Schedule = a.machine(ctx), o.Schedule; to.BatchPerDevice > 0 {
			to.BatchRows = to.BatchPerDevice * n
		}
		err := a.benchGraph(ctx, graph, &o, to, func(run bench.Schedules) error {
			if err := a.chooseSchedule(ctx, run.Graph, &o.trainOptions); err != nil {
				return err
			}
			found, err := run.RunQueues(ctx, len(to.Part.Train.List))
			all = append(all, found...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", units.Count(int64(n), "device"), err)
		}
	}
	return all, nil
}
