package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// scheduleFiles are the charts of a setting.
func scheduleFiles(setting string) []string {
	if setting != "" {
		setting = "-" + setting
	}
	return []string{"schedule" + setting + ".svg", "schedule" + setting + ".html"}
}

// setting is a machine that schedules run on.
type setting struct {
	name  string
	paper *papers.MorphGL // nil: this machine, or what --emulate says
}

// emulate gives the emulated machine the stages of a setting of the paper.
func (s setting) emulate(a *app) {
	d := s.paper.Durations
	a.emulate.Stages = host.Stages{Workers: d.Workers, CPU: d.CPUBatch, Gather: d.Gather, DMA: d.DMA, Sampling: d.GPUBatch, Compute: d.Model}
}

// paperTimes is an epoch of SALIENT or DUCATI as a multiple of MorphGL's.
func (s setting) paperTimes(schedule string) *float64 {
	if s.paper == nil {
		return nil
	}
	var times float64
	switch schedule {
	case "cpu":
		times = s.paper.Salient.Seconds() / s.paper.MorphGL.Seconds()
	case "gpu":
		times = s.paper.Ducati.Seconds() / s.paper.MorphGL.Seconds()
	case "collective":
		times = 1
	default:
		return nil
	}
	return &times
}

func (o *benchScheduleOptions) settings(a *app) (all []setting, err error) {
	if !o.paper {
		return []setting{{}}, nil
	}
	if a.emulate.Stages != (host.Stages{}) {
		return nil, usagef("--paper says what stages take: leave their times out of --emulate %s", a.emulate.String())
	}
	if a.emulate.GPUs == 0 {
		a.emulate.GPUs, a.emulate.Memory = 1, 1<<30
	}
	for _, s := range papers.MorphGLSettings() {
		all = append(all, setting{s.Machine + "-" + s.Data, &s})
		a.emulate.Workers = max(a.emulate.Workers, s.Workers) // as many as memory is planned for
	}
	return all, nil
}

func runBenchSchedule(ctx context.Context, a *app, o *benchScheduleOptions) (_ result, err error) {
	if err := o.fillDefaults(); err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.rounds < 1 {
		return nil, usagef("--rounds %d: want 1 or more", o.rounds)
	}
	settings, err := o.settings(a)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, s := range settings {
		files = append(files, scheduleFiles(s.name)...)
	}
	if err := a.checkNoFiles(o.output, files); err != nil {
		return nil, err
	}
	if err := a.checkWritable(o.output, files[0]); err != nil {
		return nil, err
	}
	graph, err := a.openInputOf(o.store, o.model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	if aggregation, _ := trainer.AggregationOf(o.model); aggregation == "" {
		return nil, usagef("--model %s reads a hop store, so no batches are sampled: want a model that reads a graph, such as sage", o.model)
	}
	if slices.Contains(o.names, scheduler.MultiQueue) {
		o.Schedule.Name = scheduler.MultiQueue // whose flags are checked
	}
	if err := o.checkInputFlags(); err != nil {
		return nil, err
	}
	spec, part, err := a.planTraining(ctx, graph, &o.trainOptions)
	if err != nil {
		return nil, err
	}
	if err := a.resolveSettings(ctx, graph, &o.trainOptions, spec, part); err != nil {
		return nil, err
	}
	if err := o.fillSampling(session.CountRows(graph.Layout(), part.Train)); err != nil {
		return nil, err
	}
	var queues queueResults
	if at := slices.Index(o.names, scheduler.MultiQueue); at >= 0 {
		o.names = slices.Delete(o.names, at, at+1)
		if len(o.names) == 0 && (o.output != "" || o.paper) {
			return nil, usagef("--output, --paper: not by the schedule %s alone", scheduler.MultiQueue)
		}
		if !o.paper {
			queued := *o
			if queues, err = a.benchQueues(ctx, graph, &queued, spec, part); err != nil {
				return nil, err
			}
		}
		if len(o.names) == 0 {
			return queues.print(a)
		}
	}
	o.Schedule.Name = scheduler.Auto // some of them is wanted
	in, err := a.openTrainingGraph(ctx, graph, &o.trainOptions, spec, part)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	a.noteInput(in)
	run := &scheduleRun{app: a, o: o, in: in, spec: spec}
	var results scheduleResults
	var charts [][]byte
	for _, s := range settings {
		found, timelines, err := run.setting(ctx, s)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
		title := fmt.Sprintf("Schedules of %s on %s", o.model, units.Printable(graph.Manifest.Name))
		if s.paper != nil {
			title += fmt.Sprintf(": MorphGL's machine %s with %s, emulated", s.paper.Machine, s.paper.Data)
		}
		page, err := bench.TimelinesPage(title, found.table(), timelines)
		if err != nil {
			return nil, err
		}
		charts = append(charts, bench.Timelines(title, timelines).File(), page)
	}
	if o.output != "" {
		if err := a.writeFiles(o.output, files, charts); err != nil {
			return nil, err
		}
	}
	r, err := results.print(a)
	if err != nil || len(queues) == 0 {
		return r, err
	}
	if r == nil {
		return queues.print(a)
	}
	return bothResults{results, queues}, nil
}

// bothResults are those on one device, and on several.
type bothResults struct {
	one  scheduleResults
	more queueResults
}

func (b bothResults) text(w io.Writer) {
	b.one.text(w)
	fmt.Fprintln(w)
	b.more.text(w)
}

// scheduleRun is a graph on which schedules are compared.
type scheduleRun struct {
	app  *app
	o    *benchScheduleOptions
	in   *training.Graph
	spec trainer.Spec
}

// setting runs all schedules on a machine, one after another in each round.
func (r *scheduleRun) setting(ctx context.Context, s setting) (scheduleResults, []bench.Timeline, error) {
	a, in := r.app, r.in
	in.Schedule = nil
	if s.paper != nil {
		s.emulate(a)
		in.Emulate(a.emulate.Stages)
	}
	profile, inputs, err := in.Profile(ctx)
	if err != nil {
		return nil, nil, err
	}
	if s.paper != nil {
		profile.Durations = s.paper.Durations
	}
	var all []*scheduler.Scheduler
	var timelines []bench.Timeline
	for _, name := range r.o.names {
		of, err := in.Scheduler(name, profile, inputs)
		if errors.Is(err, sampling.ErrOptions) { // the device prepares nothing
			why := in.WhyNot
			if why == "" {
				why = err.Error()
			}
			a.note("schedule %s is left out: %s", name, why)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		i := len(all)
		timelines = append(timelines, bench.Timeline{Title: name})
		of.Keep(func(spans []schedule.Span) { timelines[i].Spans = slices.Clone(spans) })
		all = append(all, of)
	}
	for range r.o.rounds {
		for _, of := range all {
			in.Schedule = of
			if err := r.epoch(ctx); err != nil {
				return nil, nil, fmt.Errorf("schedule %s: %w", of.Choice.Name, err)
			}
		}
	}
	var results scheduleResults
	for i, of := range all {
		report := of.Report()
		one := newScheduleResult(of.Choice, of.Median())
		one.Setting, one.PredictedSeconds, one.PaperTimes = s.name, &report.PredictedSeconds, s.paperTimes(report.Name)
		if s.paper != nil && s.paper.Used[0] > 0 && report.Name == "collective" {
			used := s.paper.Utilization(of.Median())
			one.Used, one.PaperUsed = used[:], s.paper.Used[:]
		}
		one.EpochsSeconds = of.Seconds()
		results = append(results, one)
		timelines[i].Notes = fmt.Sprintf("%d batches by the processor, %d by the device; the median epoch took %.3g s, %.3g s were predicted",
			one.CPUBatches, one.GPUBatches, one.EpochSeconds, report.PredictedSeconds)
	}
	results.compareToBest()
	return results, timelines, nil
}

// epoch trains a model on an epoch, and drops it.
func (r *scheduleRun) epoch(ctx context.Context) (err error) {
	sets, err := r.in.TrainSets(r.app.seed)
	if err != nil {
		return err
	}
	options := r.o.Options
	options.Epochs, options.EvalEvery, options.Patience = 1, 1, 0
	rank := trainer.Rank{Device: r.in.Devices()[0], Data: trainer.Data{Train: sets[0], BatchRows: r.in.ShareRows()}}
	f, err := trainer.Start(ctx, []trainer.Rank{rank}, r.spec, options)
	if err != nil {
		return r.in.Explain(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.in.Explain(f.Train(ctx, nil))
}
