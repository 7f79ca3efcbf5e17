package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// scheduleFlag is --schedule, which once was what is now --lr-schedule.
type scheduleFlag struct{ name *string }

func (f scheduleFlag) Set(value string) error {
	if isLearningRateSchedule(value) {
		return fmt.Errorf("how the learning rate changes is now --lr-schedule %s", value)
	}
	*f.name = value
	return oneOf("schedule", value, scheduleNames()...)
}

// scheduleNames are those of --schedule.
func scheduleNames() []string { return append(scheduler.Names(), scheduler.MultiQueue) }

func (f scheduleFlag) String() string {
	if f.name == nil {
		return ""
	}
	return *f.name
}

func (f scheduleFlag) Type() string { return "string" }

// scheduleOptions say who prepares the batches of a graph.
type scheduleOptions struct {
	schedule string // "": the pipeline, each stage of which is as fast as it can
	share    float64
	queueOptions
}

func (o *scheduleOptions) declareFlags(f *pflag.FlagSet) {
	f.Var(scheduleFlag{&o.schedule}, "schedule", "who prepares the batches of a graph when: "+strings.Join(scheduleNames(), ", ")+" (default: the processor, each stage as fast as it can)")
	o.declareShare(f)
	o.queueOptions.declareFlags(f)
}

func (o *scheduleOptions) declareShare(f *pflag.FlagSet) {
	f.Float64Var(&o.share, "cpu-share", -1, "share of the batches that the processor prepares by the schedule mixed (default the best)")
	f.Lookup("cpu-share").DefValue = "0" // which help leaves out
}

// profiledBatches is how many batches of each route are measured before a schedule is chosen.
const profiledBatches = 10

// Room for batches, as far as there is memory: on the device (MorphGL has 10 there), and that workers have
// begun.
const (
	scheduledGPUBuffer = 10
	leastCPUBuffer     = 32
)

// roomFor is the largest buffers of a schedule.
func roomFor(workers int, buffers float64) (cpu, gpu int) {
	return max(leastCPUBuffer, 2*workers), int(cmp.Or(buffers, scheduledGPUBuffer))
}

// samplingWorkers is how many of the processor prepare batches.
func (a *app) samplingWorkers(o *samplingOptions) int {
	return cmp.Or(int(o.sampling["workers"]), a.emulate.Workers, a.threads)
}

// pace is what stages of an emulated machine take.
func (a *app) pace() sampling.Pace {
	e := a.emulate.Stages
	return sampling.Pace{Sample: e.CPU, Gather: e.Gather, Move: e.DMA, Prepare: e.Sampling, Train: e.Compute}
}

// checkSchedule refuses schedules where nothing is scheduled.
func (a *app) checkSchedule(o *trainOptions, needs graphNeeds) error {
	switch {
	case o.share > 1 || math.IsNaN(o.share) || o.share < 0 && o.share != -1:
		return usagef("--cpu-share %v: want a share from 0 to 1", o.share)
	case o.share != -1 && o.schedule != "mixed" && o.schedule != scheduler.Auto: // by which bench schedule opens all
		return usagef("--cpu-share %v: it is for --schedule mixed", o.share)
	case o.schedule == "" && a.pace() != (sampling.Pace{}):
		return usagef("--emulate %s: stages take so long by a --schedule only, such as auto", a.emulate.String())
	case o.schedule == "" || !needs.all:
		return nil
	}
	return usagef("--schedule %s: every batch is all nodes, so there is none to prepare (give --batch, or another --sampler)", o.schedule)
}

// profile measures the stages of batches, as a training with these options prepares them.
func (in *graphInput) profile(ctx context.Context, a *app, o *trainOptions, spec trainer.Spec, part session.Partition) (scheduler.Profile, collective.Inputs, error) {
	fail := func(err error) (scheduler.Profile, collective.Inputs, error) {
		return scheduler.Profile{}, collective.Inputs{}, in.explain(err)
	}
	set, err := in.trainSet(part, a.seed)
	if err != nil {
		return fail(err)
	}
	options := o.Options
	options.Seed = a.seed
	workers := a.samplingWorkers(&o.samplingOptions)
	p, err := scheduler.ProfileOptions{
		Set: set, Rank: trainer.Rank{Device: in.device, Data: trainer.Data{BatchRows: in.shareRows()}}, Spec: spec, Options: options,
		Kind: in.kind, Batches: profiledBatches, Workers: workers, Pace: a.pace(),
	}.Run(ctx)
	if err != nil {
		return fail(fmt.Errorf("measuring the stages of batches: %w", err))
	}
	inputs := collective.Inputs{Batches: set.Batches(), Share: o.share, Seed: a.seed}
	inputs.CPUBuffer, inputs.GPUBuffer = roomFor(workers, o.sampling["buffers"])
	onHost, onDevice := in.room(a)
	if least := sampling.Buffers(1, 1); onHost < least || onDevice < 3 {
		return fail(fmt.Errorf("%w: a schedule has 3 batches or more on the device and %d in pinned memory, and there is room for %d and %d", gds.ErrOutOfMemory, least, onDevice, onHost))
	}
	inputs.GPUBuffer = min(inputs.GPUBuffer, onDevice-2)
	for sampling.Buffers(inputs.CPUBuffer, inputs.GPUBuffer) > onHost {
		if inputs.CPUBuffer > inputs.GPUBuffer {
			inputs.CPUBuffer--
		} else {
			inputs.GPUBuffer--
		}
	}
	return p, inputs, nil
}

// room is for how many batches there is memory on host and device, judged by those that were profiled.
func (in *graphInput) room(a *app) (onHost, onDevice int) {
	one := in.sampled.Loader.Stats().BatchBytes
	one = max(1, one+one/4) // as buffers grow
	host, device := int64(mostBuffers), int64(mostBuffers)
	info := in.device.Info()
	if info.MemoryBytes > 0 {
		device = (info.MemoryBytes-in.device.Usage().Peak)/one + 3 // which there were
	}
	switch {
	case info.Unified: // batches are on the device as soon as they are sampled
		host = device
	case a.budget.By != "":
		host = max((int64(a.budget.Bytes)-in.where.memory().HostBytes)/2/one, int64(sampling.Buffers(1, 1)))
	}
	return int(min(host, mostBuffers)), int(min(device, mostBuffers))
}

// planSchedule chooses the schedule of a training, and says so.
func (in *graphInput) planSchedule(ctx context.Context, a *app, o *trainOptions, spec trainer.Spec, part session.Partition) error {
	if o.schedule == scheduler.Auto && in.device.Info().Unified {
		a.note("schedule: the processor prepares all batches, as the device is the processor")
		return nil
	}
	p, inputs, err := in.profile(ctx, a, o, spec, part)
	if err != nil {
		return err
	}
	in.scheduler, err = scheduler.New(o.schedule, p, inputs, a.pace())
	if errors.Is(err, sampling.ErrOptions) && in.whyNot != "" {
		err = fmt.Errorf("%w: %s", err, in.whyNot)
	}
	if err != nil {
		return err
	}
	r := in.scheduler.Report()
	a.note("schedule %s: %s", r.Name, r.Reason)
	for _, m := range r.Profile {
		a.note("  %s %s, %s on %s by %s", m.Name, spreadText(m), m.Phase, m.Hardware, m.Operator)
	}
	a.note("  training on an epoch should take %.3g s: %d batches by the processor, %d by the device; buffers %d and %d",
		r.PredictedSeconds, r.CPUBatches, r.GPUBatches, r.CPUBuffer, r.GPUBuffer)
	if in.whyNot != "" {
		a.note("  the device prepares none: %s", in.whyNot)
	}
	return nil
}

// spreadText is a duration and its standard deviation.
func spreadText(m scheduler.Measured) string {
	short := func(seconds float64) string {
		return time.Duration(seconds * float64(time.Second)).Round(10 * time.Microsecond).String()
	}
	return short(m.Mean) + " +- " + short(m.Std)
}

// trainSet is the training nodes of a run, of which the device can prepare batches too if it is able to.
func (in *graphInput) trainSet(p session.Partition, seed uint64) (*sampling.Set, error) {
	set, err := in.sampled.Loader.Set(p.Train.List, in.sampled.Method, in.plan(seed))
	if err != nil {
		return nil, err
	}
	if in.onDevice != nil {
		if err := set.PrepareOnDevice(in.onDevice); err != nil {
			return nil, err
		}
	}
	if in.scheduler != nil {
		if err := set.SetSchedule(in.scheduler.Schedule()); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// openRoute lets the device prepare batches by itself, or says why it cannot.
func (in *graphInput) openRoute() error {
	d, err := in.sampled.Method.OnDevice(in.device)
	if errors.Is(err, sampling.ErrOptions) {
		in.whyNot = strings.TrimPrefix(err.Error(), sampling.ErrOptions.Error()+": ")
		return nil
	}
	in.onDevice = d
	return err
}

// pinned tells that topology and features lie where a device reads them by itself.
func pinned(device gds.Device, where graphPlan) bool {
	info := device.Info()
	return !info.Unified && info.MapsPinned && where.placement != placement.Storage
}

// writeSchedule prints what came of a schedule.
func writeSchedule(w io.Writer, r *scheduler.Report) {
	measured := "no epoch ran as a whole"
	if r.MeasuredSeconds != nil {
		measured = fmt.Sprintf("%.4g s measured in %s", *r.MeasuredSeconds, count(int64(r.Epochs), "epoch"))
	}
	if r.Refined > 0 { // so what is measured may be of another plan than the reason
		measured += fmt.Sprintf(", with another plan after %d of them, by what stages took", r.Refined)
	}
	fmt.Fprintf(w, "schedule\t%s: %s\n", r.Name, units.Printable(r.Reason))
	fmt.Fprintf(w, "\tan epoch %.4g s predicted, %s; %s by the processor, %d by the device; busy: processor %.0f %%, link %.0f %%, device %.0f %%\n",
		r.PredictedSeconds, measured, count(int64(r.CPUBatches), "batch"), r.GPUBatches, 100*r.CPUBusy, 100*r.LinkBusy, 100*r.GPUBusy)
}
