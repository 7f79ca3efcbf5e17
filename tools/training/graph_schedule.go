package training

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/paced"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/trainer"
)

// profiledBatches is how many batches of each route are measured before a schedule is chosen.
const profiledBatches = 10

// openRoute lets the device prepare batches by itself, or notes why it cannot.
func (g *Graph) openRoute() error {
	err := g.samplers[0].Loader.PrepareOnDevice(g.samplers[0].Method)
	if errors.Is(err, sampling.ErrOptions) {
		g.WhyNot = strings.TrimPrefix(err.Error(), sampling.ErrOptions.Error()+": ")
		return nil
	}
	g.onDevice = err == nil
	return err
}

// ChooseSchedule measures batches and chooses the schedule or the queues that the options ask for. It returns what
// there is to say of them. Before is the run that goes on, or nil.
func (g *Graph) ChooseSchedule(ctx context.Context, before *trainer.State) (notes []string, err error) {
	switch g.o.Schedule.Name {
	case "":
		return nil, nil
	case scheduler.MultiQueue:
		return g.chooseQueues(ctx, before)
	}
	p, inputs, err := g.Profile(ctx)
	if err != nil {
		return nil, err
	}
	if g.Schedule, err = g.Scheduler(g.o.Schedule.Name, p, inputs); err != nil {
		return nil, err
	}
	r := g.Schedule.Report()
	notes = append(notes, fmt.Sprintf("schedule %s: %s", r.Name, r.Reason))
	for _, m := range r.Profile {
		notes = append(notes, fmt.Sprintf("  %s %s, %s on %s by %s", m.Name, spreadText(m), m.Phase, m.Hardware,
			m.Operator))
	}
	notes = append(notes, fmt.Sprintf("  training on an epoch should take %.3g s: %d batches by the processor, %d "+
		"by the device; buffers %d and %d",
		r.PredictedSeconds, r.CPUBatches, r.GPUBatches, r.CPUBuffer, r.GPUBuffer))
	if g.WhyNot != "" {
		notes = append(notes, "  the device prepares none: "+g.WhyNot)
	}
	return notes, nil
}

// Emulate gives the machine, which has an emulated device, the stages of another.
func (g *Graph) Emulate(stages host.Stages) {
	g.o.Stages = stages
	g.devices[0].(*paced.Device).Pace(stages)
}

func spreadText(m scheduler.Measured) string {
	short := func(seconds float64) string {
		return time.Duration(seconds * float64(time.Second)).Round(10 * time.Microsecond).String()
	}
	return short(m.Mean) + " +- " + short(m.Std)
}

// Scheduler plans a schedule for batches that were profiled. Where the device cannot prepare what the schedule wants of
// it, the error says why.
func (g *Graph) Scheduler(name string, p scheduler.Profile, inputs collective.Inputs) (*scheduler.Scheduler, error) {
	s, err := scheduler.New(name, p, inputs)
	if errors.Is(err, sampling.ErrOptions) && g.WhyNot != "" {
		err = fmt.Errorf("%w: --schedule %s needs a device that prepares batches by itself: %s", sampling.ErrOptions,
			name, g.WhyNot)
	}
	return s, err
}

// Profile measures the stages of batches, as a training prepares them.
func (g *Graph) Profile(ctx context.Context) (scheduler.Profile, collective.Inputs, error) {
	fail := func(err error) (scheduler.Profile, collective.Inputs, error) {
		return scheduler.Profile{}, collective.Inputs{}, g.Explain(err)
	}
	sets, err := g.TrainSets(g.o.Seed)
	if err != nil {
		return fail(err)
	}
	set := sets[0]
	p, err := scheduler.ProfileOptions{
		Set: set, Rank: trainer.Rank{Device: g.devices[0],
			Data: trainer.Data{BatchRows: g.ShareRows()}}, Spec: g.o.Spec, Options: g.o.Options,
		Kind: g.kind, Batches: profiledBatches, Workers: g.o.workers(1),
	}.Run(ctx)
	if err != nil {
		return fail(err)
	}
	inputs := collective.Inputs{Batches: set.Batches(), Share: g.o.Schedule.CPUShare, Seed: g.o.Seed}
	inputs.CPUBuffer, inputs.GPUBuffer = g.o.mostBuffers()
	onHost, onDevice := g.room()
	if least := sampling.Buffers(1, 1); onHost < least || onDevice < 3 {
		return fail(fmt.Errorf("%w: a schedule has 3 batches or more on the device and %d in pinned memory, and "+
			"there is room for %d and %d",
			gds.ErrOutOfMemory, least, onDevice, onHost))
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

// room is how many batches fit in host and device memory: the profiled ones tell the size of a batch.
func (g *Graph) room() (onHost, onDevice int) {
	one := g.samplers[0].Loader.Stats().BatchBytes
	one = max(1, one+one/4) // as buffers grow
	pinned, device := int64(MostBuffers), int64(MostBuffers)
	info, budget := g.devices[0].Info(), g.o.Machine.Budget
	if info.MemoryBytes > 0 {
		device = (info.MemoryBytes-g.devices[0].Usage().Peak)/one + 3 // the profile had 3
	}
	switch {
	case info.Unified: // batches are on the device as soon as they are sampled
		pinned = device
	case budget.By != "":
		pinned = max((int64(budget.Bytes)-g.plan.memory().HostBytes)/2/one, int64(sampling.Buffers(1, 1)))
	}
	return int(min(pinned, MostBuffers)), int(min(device, MostBuffers))
}

// chooseQueues chooses queues and the period of synchronisation.
func (g *Graph) chooseQueues(ctx context.Context, before *trainer.State) ([]string, error) {
	sets, err := g.TrainSets(g.o.Seed)
	if err != nil {
		return nil, err
	}
	m, count, budget := &g.dir.Manifest, len(g.devices), g.o.Machine.Budget
	qo := scheduler.QueueOptions{
		Graph:   multiqueue.Graph{Nodes: m.Nodes, Edges: m.Edges, Devices: count},
		Devices: g.devices, Sets: sets, Rows: g.ShareRows(), Spec: g.o.Spec, Options: g.o.Options,
		Workers: g.plan.sampled.Workers,
		Queue:   g.o.Schedule.Queue, Period: g.o.Schedule.SyncEvery, Gradients: g.o.Schedule.Gradients,
		OnArrival: g.o.Schedule.Updates == OnArrival,
		BatchBytes: func() (most int64) {
			for _, s := range g.samplers {
				most = max(most, s.Loader.Stats().BatchBytes)
			}
			return most
		},
	}
	if !g.plan.Machine.Devices.Info.Unified && budget.By != "" {
		qo.HostBatches = func() int {
			left := int64(budget.Bytes) - g.Memory().HostBytes
			return int(min(max(0, left/int64(count)/max(1, gds.Room(qo.BatchBytes()))), scheduler.MostQueue))
		}
	}
	if before != nil && before.Options.Queues != nil { // the run that goes on keeps its steps
		q := before.Options.Queues
		qo.Period, qo.Gradients, qo.OnArrival = q.Period, q.Lag+1, q.OnArrival
	}
	if g.Queues, err = scheduler.NewQueues(ctx, qo); err != nil {
		return nil, g.Explain(err)
	}
	p, r := g.plan, &g.Queues.Report
	g.Queues.Training()
	p.batches = queuedBatches(min(r.Queue, sets[0].Batches()))
	for term, gradients := range map[string]int{modelTerm: r.Lag + 1, profiledTerm: g.Queues.Gradients()} {
		pinned, err := p.Spec.PinnedBytes(p.modelRows(m.Nodes), count, gradients, true)
		if err != nil {
			return nil, err
		}
		p.terms.Set(term, need.Pinned, pinned)
	}
	return []string{
		fmt.Sprintf("schedule %s on %s: %s", scheduler.MultiQueue, units.Count(int64(r.Devices), "device"), r.Reason),
		fmt.Sprintf("  training on an epoch should take %.3g s, without stale gradients %.3g s", r.Predicted,
			r.PredictedBy),
		"  " + r.Reproducible(),
	}, nil
}
