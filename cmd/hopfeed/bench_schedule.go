package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/placement/collective"
)

// mostScheduled is how many batches an epoch has at most.
const mostScheduled = 1_000_000

type benchScheduleOptions struct {
	durations                     collective.Durations
	batches, cpuBuffer, gpuBuffer int
}

func newBenchScheduleCommand(a *app) *cobra.Command {
	var o benchScheduleOptions
	c := &cobra.Command{
		Use:   "schedule",
		Short: "Simulate who prepares the batches of an epoch: the processor, the GPU, or both",
		Long: "Schedule simulates an epoch of sampled batches whose stages take as long as you say. It runs nothing: times are\n" +
			"predictions. The schedules:\n\n" + schedulesTable(),
		Example: "  hopfeed bench schedule --cpu-batch 54ms --dma 14ms --gpu-batch 8.8ms --training 11.6ms",
		Args:    cobra.NoArgs,
		RunE:    a.verb(func(context.Context, []string) (result, error) { return runBenchSchedule(a, o) }),
	}
	f := c.Flags()
	f.DurationVar(&o.durations.CPUBatch, "cpu-batch", 0, "time in which the processor samples and gathers a batch")
	f.DurationVar(&o.durations.DMA, "dma", 0, "time in which that moves to the GPU")
	f.DurationVar(&o.durations.GPUBatch, "gpu-batch", 0, "time in which the GPU samples and gathers a batch")
	f.DurationVar(&o.durations.Model, "training", 0, "time in which the GPU trains on a batch")
	f.IntVar(&o.durations.Workers, "cpu-workers", 1, "workers of the processor, each of which takes --cpu-batch for a batch")
	f.DurationVar(&o.durations.Gather, "gather", 0, "the part of --cpu-batch that is gathering, for mode-2")
	f.IntVar(&o.batches, "batches", 1000, "batches of an epoch")
	f.IntVar(&o.cpuBuffer, "cpu-buffer", 64, "batches that memory of the host has room for")
	f.IntVar(&o.gpuBuffer, "gpu-buffer", 10, "batches that memory of the GPU has room for")
	return c
}

// schedulesTable lists the schedules for help.
func schedulesTable() string {
	var b strings.Builder
	for _, s := range collective.Schedules {
		fmt.Fprintf(&b, "  %-11s %s\n", s.Name, s.About)
	}
	return b.String()
}

// scheduleResult is a schedule of an epoch, simulated.
type scheduleResult struct {
	Schedule     string  `json:"schedule"`
	EpochSeconds float64 `json:"epoch_seconds"`
	TimesBest    float64 `json:"times_best"` // epoch_seconds, as a multiple of the shortest
	CPUBatches   int     `json:"cpu_batches"`
	GPUBatches   int     `json:"gpu_batches"`
	CPUBuffer    int     `json:"cpu_buffer"`
	GPUBuffer    int     `json:"gpu_buffer"`
	CPUBusy      float64 `json:"cpu_busy"` // share of the epoch
	LinkBusy     float64 `json:"link_busy"`
	GPUBusy      float64 `json:"gpu_busy"`
	Rounds       int     `json:"dispatch_rounds,omitempty"` // simulations until the plan was found
}

func newScheduleResult(name string, p collective.Plan, run collective.Run) scheduleResult {
	r := scheduleResult{
		Schedule: name, EpochSeconds: run.Total.Seconds(),
		CPUBatches: run.CPUBatches, GPUBatches: run.GPUBatches, CPUBuffer: p.CPUBuffer, GPUBuffer: p.GPUBuffer,
	}
	r.CPUBusy, r.LinkBusy, r.GPUBusy = run.Busy()
	return r
}

// scheduleResults are a line each, as JSON too.
type scheduleResults []scheduleResult

func (l scheduleResults) text(w io.Writer) {
	fmt.Fprintln(w, "schedule\tepoch\ttimes the best\tbatches by CPU and GPU\tbuffers\tCPU, link and GPU busy")
	for _, r := range l {
		fmt.Fprintf(w, "%s\t%v\t%.2f\t%d, %d\t%d, %d\t%.0f %%, %.0f %%, %.0f %%\n", r.Schedule,
			time.Duration(r.EpochSeconds*float64(time.Second)).Round(time.Millisecond), r.TimesBest,
			r.CPUBatches, r.GPUBatches, r.CPUBuffer, r.GPUBuffer, 100*r.CPUBusy, 100*r.LinkBusy, 100*r.GPUBusy)
	}
}

func runBenchSchedule(a *app, o benchScheduleOptions) (result, error) {
	if err := o.durations.Check(); err != nil {
		return nil, usagef("--cpu-batch, --dma, --gpu-batch, --training, --cpu-workers, --gather: %v", err)
	}
	if o.durations.Workers < 1 || o.durations.Workers > maxThreads {
		return nil, usagef("--cpu-workers %d: want 1 to %d", o.durations.Workers, maxThreads)
	}
	if min(o.batches, o.cpuBuffer, o.gpuBuffer) < 1 || max(o.batches, o.cpuBuffer, o.gpuBuffer) > mostScheduled {
		return nil, usagef("--batches %d, --cpu-buffer %d, --gpu-buffer %d: want each from 1 to %d", o.batches, o.cpuBuffer, o.gpuBuffer, mostScheduled)
	}
	in := collective.Inputs{Durations: o.durations, Batches: o.batches, CPUBuffer: o.cpuBuffer, GPUBuffer: o.gpuBuffer, Share: -1, Seed: a.seed}
	var results scheduleResults
	best := math.Inf(1)
	for _, s := range collective.Schedules {
		c, err := s.Choose(in)
		if err != nil {
			return nil, err
		}
		r := newScheduleResult(s.Name, c.Plan, c.Predicted)
		r.Rounds = c.Rounds
		best = min(best, r.EpochSeconds)
		results = append(results, r)
	}
	for i := range results {
		results[i].TimesBest = results[i].EpochSeconds / best
	}
	if !a.json {
		return results, nil
	}
	for _, r := range results {
		if err := json.NewEncoder(a.stdout).Encode(r); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
