package command

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/scheduler"
)

// mostScheduled is how many batches an epoch has at most.
const mostScheduled = 100_000

type benchScheduleOptions struct {
	trainOptions
	simulated collective.Inputs

	names  []string
	rounds int
	paper  bool
	sweep  string
	output string
}

// simulationFlags set durations for the simulation of an epoch; runFlags apply when epochs really run.
var (
	simulationFlags = []string{"sweep", "cpu-batch", "dma", "gpu-batch", "training", "cpu-workers", "gather", "batches",
		"cpu-buffer", "gpu-buffer"}
	runFlags = []string{"emulate", "rounds", "paper", "workers", "buffers", "sampler", "fanout",
		"batch", "cache", "model"}
)

func newBenchScheduleCommand(a *app) *cobra.Command {
	o := benchScheduleOptions{trainOptions: trainOptions{repeats: repeats{runs: 1}}}
	c := a.verb("schedule [GRAPH]", "Compare who prepares sampled batches: the processor, the device, or both",
		`Schedule trains epochs of a GRAPH by one schedule after another, each with the plan that is predicted
to be the fastest. It compares measured and predicted epochs, and how busy processor, link and device were. With
-o it draws the stages of all batches: `+strings.Join(scheduleFiles(""), ", ")+`. With --paper it emulates the
machines of MorphGL's paper, by the durations of stages that follow from its tables. A device prepares batches if
it has memory of its own, as emulated ones do (--emulate). multi-queue is compared with synchronous training on one
device, two, and so on: it is the default with --emulate gpu=4, and runs on one device if --schedules names it.

Without a GRAPH, it simulates epochs with the durations of stages that you give, and trains nothing.

The schedules:

`+schedulesTable(), o.do)
	c.Example = "  hopfeed bench schedule GRAPH --emulate gpu=1,mem=1GiB,link=2GiB/s -o charts\n" +
		"  hopfeed bench schedule --cpu-batch 54ms --dma 14ms --gpu-batch 8.8ms --training 11.6ms"
	f, s := c.Flags(), &o.simulated
	f.DurationVar(&s.Durations.CPUBatch, "cpu-batch", 0,
		"time in which a worker of the processor samples and gathers a batch")
	f.DurationVar(&s.Durations.DMA, "dma", 0, "time in which a batch of the processor moves to the GPU")
	f.DurationVar(&s.Durations.GPUBatch, "gpu-batch", 0, "time in which the GPU samples and gathers a batch")
	f.DurationVar(&s.Durations.Model, "training", 0, "time in which the GPU trains on a batch")
	f.IntVar(&s.Durations.Workers, "cpu-workers", 1, "workers of the processor; each takes --cpu-batch for a batch")
	f.DurationVar(&s.Durations.Gather, "gather", 0, "the part of --cpu-batch that is gathering, for mode-2")
	f.IntVar(&s.Batches, "batches", 1000, "batches of an epoch")
	f.IntVar(&s.CPUBuffer, "cpu-buffer", 64, "batches that memory of the host has room for")
	f.IntVar(&s.GPUBuffer, "gpu-buffer", 10, "batches that memory of the GPU has room for")
	f.StringSliceVar(&o.names, "schedules", nil, "schedules to compare, separated by commas (default all)")
	declareSchedulePlan(f, &o.Schedule)
	a.declareDevices(f)
	o.declarePlacedFlags(f)
	model := f.Lookup("model")
	model.DefValue = "sage"
	o.Model = model.DefValue
	f.IntVar(&o.rounds, "rounds", 3, roundsUsage)
	f.BoolVar(&o.paper, "paper", false, "emulate the machines A, B and C of MorphGL with its three data sets")
	f.StringVar(&o.sweep, "sweep", "", "simulate an experiment of MorphGL's paper, beside its figures: "+
		strings.Join(papers.Sweeps(), ", "))
	among(f, "sweep", append(papers.Sweeps(), "")...)
	f.StringVarP(&o.output, "output", "o", "", "directory for charts")
	within(f, 1, maxThreads, "cpu-workers")
	within(f, 1, mostScheduled, "batches", "cpu-buffer", "gpu-buffer")
	atLeast(f, 1, "rounds")
	return c
}

func (o *benchScheduleOptions) do(ctx context.Context, a *app, args []string) (result, error) {
	wrong, what := runFlags, "it is for epochs that run: give a GRAPH"
	if len(args) > 0 {
		wrong, what, o.Input = simulationFlags, "it is for a simulation, without a GRAPH", args[0]
	}
	for _, name := range wrong {
		if a.given(name) {
			return nil, usagef("--%s: %s", name, what)
		}
	}
	if len(o.names) == 0 {
		for _, s := range collective.Schedules {
			o.names = append(o.names, s.Name)
		}
		if o.Input != "" && !o.paper {
			o.names = append(o.names, bench.DucatiRow, bench.PreloadRow)
		}
	}
	if o.Input != "" && !a.given("schedules") && a.emulate.GPUs > 1 { // the others are for one device
		o.names = []string{scheduler.MultiQueue}
	}
	for _, name := range o.names {
		if o.Input != "" && (name == scheduler.MultiQueue || name == scheduler.Auto || !o.paper && bench.IsMemoryRow(name)) {
			continue
		}
		if _, err := collective.Find(name); err != nil {
			return nil, usagef("--schedules: %s", err)
		}
	}
	if s := o.Schedule.CPUShare; s > 1 || math.IsNaN(s) || s < 0 && s != -1 {
		return nil, usagef("--cpu-share %v: want a share from 0 to 1", s)
	}
	if o.Input != "" {
		return runBenchSchedule(ctx, a, o)
	}
	return simulateSchedules(ctx, a, o)
}

// schedulesTable lists the schedules for help.
func schedulesTable() string {
	var b strings.Builder
	for _, s := range collective.Schedules {
		fmt.Fprintf(&b, "  %-11s %s\n", s.Name, s.About)
	}
	for _, of := range []struct{ name, about string }{
		{scheduler.MultiQueue, "queues of batches and of gradients for each of several devices (MQ-GNN)"},
		{bench.DucatiRow, "gpu with --cache ducati:SIZE (ducati:SIZE; default a quarter of rows and lists)"},
		{bench.PreloadRow, "gpu with rows and lists in device memory (--placement device; as DGL preloads them)"},
		{scheduler.Auto, "what train --schedule auto chooses; only if named"},
	} {
		fmt.Fprintf(&b, "  %-11s %s; of a GRAPH only\n", of.name, of.about)
	}
	return b.String()
}

// sweepFile is the chart of a sweep.
func sweepFile(sweep string) []string { return []string{"schedule-" + sweep + ".svg"} }

func simulateSchedules(ctx context.Context, a *app, o *benchScheduleOptions) (result, error) {
	if o.sweep != "" {
		if err := a.checkOutputs(o.output, sweepFile(o.sweep)); err != nil {
			return nil, err
		}
		all, err := papers.RunSweep(o.sweep)
		if err == nil {
			err = a.writeOutputs(o.output, sweepFile(o.sweep), all.Chart())
		}
		if err != nil {
			return nil, err
		}
		return lines(a, all, all)
	}
	if o.output != "" {
		return nil, usagef("--output: a chart is of epochs that run or of a --sweep: give a GRAPH or --sweep")
	}
	o.simulated.Share, o.simulated.Seed = o.Schedule.CPUShare, a.seed
	durations := o.simulated.Durations
	if durations == (collective.Durations{Workers: durations.Workers}) {
		return nil, usagef("bench schedule needs a GRAPH, or durations of stages to simulate: --cpu-batch, --dma, " +
			"--gpu-batch, --training")
	}
	if err := durations.Check(); err != nil {
		return nil, usagef("--cpu-batch, --dma, --gpu-batch, --training, --cpu-workers, --gather: %v", err)
	}
	all, err := bench.SimulateSchedules(ctx, o.names, o.simulated)
	if err != nil {
		return nil, err
	}
	return lines(a, all, bench.ScheduleTable(all))
}
