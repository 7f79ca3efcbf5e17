package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/scheduler"
)

// mostScheduled is how many batches an epoch has at most.
const mostScheduled = 100_000

type benchScheduleOptions struct {
	trainOptions
	durations                     collective.Durations
	batches, cpuBuffer, gpuBuffer int

	names  []string
	rounds int
	paper  bool
	output string
}

// simulationFlags set durations for the simulation of an epoch; runFlags apply when epochs really run.
var (
	simulationFlags = []string{"cpu-batch", "dma", "gpu-batch", "training", "cpu-workers", "gather", "batches", "cpu-buffer", "gpu-buffer"}
	runFlags        = []string{"emulate", "rounds", "paper", "output", "workers", "buffers", "sampler", "fanout", "batch", "cache", "model"}
)

func newBenchScheduleCommand(a *app) *cobra.Command {
	o := benchScheduleOptions{trainOptions: trainOptions{runs: 1}}
	c := &cobra.Command{
		Use:   "schedule [GRAPH]",
		Short: "Compare who prepares sampled batches: the processor, the device, or both",
		Long: "Schedule trains on epochs of a GRAPH by one schedule after another, each as it is predicted to be the fastest, and\n" +
			"compares measured and predicted epochs, and how busy processor, link and device were. With -o it draws the\n" +
			"stages of all batches: " + fmt.Sprint(scheduleFiles("")) + ". With --paper it does so on emulated machines with the\n" +
			"durations of stages that follow from MorphGL's tables. Schedules prepare batches on the device if that has memory\n" +
			"of its own, such as one that is emulated (--emulate). multi-queue is compared with synchronous training, on one\n" +
			"device, two, and so on: with --emulate gpu=4 it is the default; on one device it runs if --schedules names it.\n\n" +
			"Without a GRAPH, it simulates epochs with the durations of stages that you give, and trains nothing.\n\nThe schedules:\n\n" + schedulesTable(),
		Example: "  hopfeed bench schedule GRAPH --emulate gpu=1,mem=1GiB,link=2GiB/s -o charts\n" +
			"  hopfeed bench schedule --cpu-batch 54ms --dma 14ms --gpu-batch 8.8ms --training 11.6ms",
		Args: cobra.MaximumNArgs(1),
	}
	f := c.Flags()
	f.DurationVar(&o.durations.CPUBatch, "cpu-batch", 0, "time in which a worker of the processor samples and gathers a batch")
	f.DurationVar(&o.durations.DMA, "dma", 0, "time in which that moves to the GPU")
	f.DurationVar(&o.durations.GPUBatch, "gpu-batch", 0, "time in which the GPU samples and gathers a batch")
	f.DurationVar(&o.durations.Model, "training", 0, "time in which the GPU trains on a batch")
	f.IntVar(&o.durations.Workers, "cpu-workers", 1, "workers of the processor, each of which takes --cpu-batch for a batch")
	f.DurationVar(&o.durations.Gather, "gather", 0, "the part of --cpu-batch that is gathering, for mode-2")
	f.IntVar(&o.batches, "batches", 1000, "batches of an epoch")
	f.IntVar(&o.cpuBuffer, "cpu-buffer", 64, "batches that memory of the host has room for")
	f.IntVar(&o.gpuBuffer, "gpu-buffer", 10, "batches that memory of the GPU has room for")
	f.StringSliceVar(&o.names, "schedules", nil, "schedules to compare, separated by commas (default all)")
	declareShare(f, &o.Schedule)
	declareQueues(f, &o.Schedule)
	a.declareDevices(f)
	o.declarePlacedFlags(f)
	model := f.Lookup("model")
	model.DefValue = "sage"
	o.Model = model.DefValue
	f.IntVar(&o.rounds, "rounds", 3, roundsUsage)
	f.BoolVar(&o.paper, "paper", false, "emulate the machines A, B and C of MorphGL with its three data sets")
	f.StringVarP(&o.output, "output", "o", "", "directory for charts")
	c.RunE = a.verb(func(ctx context.Context, args []string) (result, error) {
		wrong, what := runFlags, "it is for epochs that run: give a GRAPH"
		if len(args) > 0 {
			wrong, what, o.Input = simulationFlags, "it is for a simulation, without a GRAPH", args[0]
		}
		for _, name := range wrong {
			if f.Changed(name) {
				return nil, usagef("--%s: %s", name, what)
			}
		}
		if len(o.names) == 0 {
			for _, s := range collective.Schedules {
				o.names = append(o.names, s.Name)
			}
		}
		if o.Input != "" && !f.Changed("schedules") && a.emulate.GPUs > 1 { // the others are for one device
			o.names = []string{scheduler.MultiQueue}
		}
		for _, name := range o.names {
			if name == scheduler.MultiQueue && o.Input != "" {
				continue
			}
			if _, err := collective.Find(name); err != nil {
				return nil, usagef("--schedules: %s", err)
			}
		}
		if o.Schedule.CPUShare > 1 || math.IsNaN(o.Schedule.CPUShare) || o.Schedule.CPUShare < 0 && o.Schedule.CPUShare != -1 {
			return nil, usagef("--cpu-share %v: want a share from 0 to 1", o.Schedule.CPUShare)
		}
		if o.Input != "" {
			return runBenchSchedule(ctx, a, &o)
		}
		return simulateSchedules(ctx, a, o)
	})
	return c
}

// schedulesTable lists the schedules for help.
func schedulesTable() string {
	var b strings.Builder
	for _, s := range collective.Schedules {
		fmt.Fprintf(&b, "  %-11s %s\n", s.Name, s.About)
	}
	fmt.Fprintf(&b, "  %-11s %s\n", scheduler.MultiQueue, "queues of batches and of gradients for each of several devices (MQ-GNN); of a GRAPH only")
	return b.String()
}

func simulateSchedules(ctx context.Context, a *app, o benchScheduleOptions) (result, error) {
	if o.durations == (collective.Durations{Workers: o.durations.Workers}) {
		return nil, usagef("bench schedule needs a GRAPH, or durations of stages to simulate: --cpu-batch, --dma, --gpu-batch, --training")
	}
	if err := o.durations.Check(); err != nil {
		return nil, usagef("--cpu-batch, --dma, --gpu-batch, --training, --cpu-workers, --gather: %v", err)
	}
	if o.durations.Workers < 1 || o.durations.Workers > maxThreads {
		return nil, usagef("--cpu-workers %d: want 1 to %d", o.durations.Workers, maxThreads)
	}
	if min(o.batches, o.cpuBuffer, o.gpuBuffer) < 1 || max(o.batches, o.cpuBuffer, o.gpuBuffer) > mostScheduled {
		return nil, usagef("--batches %d, --cpu-buffer %d, --gpu-buffer %d: want each from 1 to %d", o.batches, o.cpuBuffer, o.gpuBuffer, mostScheduled)
	}
	all, err := bench.SimulateSchedules(ctx, o.names, collective.Inputs{
		Durations: o.durations, Batches: o.batches, CPUBuffer: o.cpuBuffer, GPUBuffer: o.gpuBuffer, Share: o.Schedule.CPUShare, Seed: a.seed,
	})
	if err != nil {
		return nil, err
	}
	return lines(a, all, shown{bench.ScheduleTable(all)})
}
