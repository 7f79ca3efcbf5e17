package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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

// profiledBatches is how many batches of each route are measured before a schedule is planned, unless an option says.
const profiledBatches = 10

// openRoute lets the device prepare batches by itself, or notes why it cannot.
func (g *Graph) openRoute() error {
	if p := g.plan; p.Schedule.Name == scheduler.Auto && !p.route && !p.Mapped && !p.Machine.Devices.Info.Unified &&
		g.whole != nil {
		g.WhyNot = "there is no device memory for it"
		return nil
	}
	s := g.samplers[0]
	lists := s.Lists
	if g.plan.preload {
		lists = g.lists
	}
	err := s.Loader.PrepareOnDevice(s.Method, lists)
	if errors.Is(err, sampling.ErrOptions) {
		g.WhyNot = strings.TrimPrefix(err.Error(), sampling.ErrOptions.Error()+": ")
		return nil
	}
	g.onDevice = err == nil
	return err
}

// ChooseSchedule measures batches and chooses the schedule or the queues that the options ask for. It returns what
// there is to say of them.
func (g *Graph) ChooseSchedule(ctx context.Context) (notes []string, err error) {
	switch g.o.Schedule.Name {
	case "":
		return nil, nil
	case scheduler.MultiQueue:
		return g.chooseQueues(ctx)
	}
	p, err := g.Profile(ctx)
	if err != nil {
		return nil, err
	}
	if g.Schedule, err = g.Scheduler(g.o.Schedule.Name, p); err != nil {
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
func (g *Graph) Scheduler(name string, p Profile) (*scheduler.Scheduler, error) {
	s, err := scheduler.New(name, p.Profile, p.Inputs, p.Room)
	if errors.Is(err, sampling.ErrOptions) && g.WhyNot != "" {
		err = fmt.Errorf("%w: --schedule %s needs a device that prepares batches by itself: %s", sampling.ErrOptions,
			name, g.WhyNot)
	}
	return s, err
}

// Profile holds the durations that a schedule is planned by.
type Profile struct {
	scheduler.Profile
	Inputs collective.Inputs
	Room   scheduler.Room
}

// Profile measures the stages of batches, as a training prepares them, and what memory they leave.
func (g *Graph) Profile(ctx context.Context) (p Profile, err error) {
	sets, err := g.TrainSets(g.o.Seed)
	if err != nil {
		return p, g.Explain(err)
	}
	set := sets[0]
	p.Profile, err = scheduler.ProfileOptions{
		Set: set, Rank: trainer.Rank{Device: g.devices[0],
			Data: trainer.Data{BatchRows: g.ShareRows()}}, Spec: g.o.Spec, Options: g.o.Options,
		Kind: g.kind, Batches: cmp.Or(g.o.Schedule.ProfileBatches, profiledBatches),
		Workers: min(g.o.workers(1), g.plan.sampled.Workers),
		Contend: g.o.Schedule.Name == scheduler.Auto,
	}.Run(ctx)
	if err != nil {
		return p, g.Explain(err)
	}
	p.Inputs = collective.Inputs{Batches: set.Batches(), Share: g.o.Schedule.CPUShare, Seed: g.o.Seed}
	p.Inputs.CPUBuffer, p.Inputs.GPUBuffer = g.o.mostBuffers()
	p.Room = g.room()
	onDevice := min(p.Room.Device/p.Room.Batch, MostBuffers)
	if g.plan.scarce { // activations are in no plan, and may leave less room
		onDevice = 0
	}
	p.Inputs.GPUBuffer = max(1, min(p.Inputs.GPUBuffer, int(onDevice)-2))
	return p, nil
}

// room is how much memory workers and batches may take, and how much each of them takes in the profile, which had one
// batch on the device at a time. Samples are estimates, so they get half of the host's memory that is left.
func (g *Graph) room() scheduler.Room {
	p, info, budget, planned := g.plan, g.devices[0].Info(), g.o.Machine.Budget, g.memoryPlan()
	one := max(1, gds.Room(g.samplers[0].Loader.Stats().BatchBytes)) // as buffers grow
	r := scheduler.Room{Host: math.MaxInt64, Device: math.MaxInt64, Worker: p.sampled.WorkerBytes(p.graph.All),
		Sample: p.batch.Sample, Batch: one, Unified: info.Unified}
	if info.MemoryBytes > 0 {
		r.Device = info.MemoryBytes - max(g.devices[0].Usage().Peak-one,
			planned.memory().DeviceBytes-int64(planned.batches.OnDevice)*planned.batch.Device)
	}
	if !info.Unified {
		r.Pinned = max(p.batch.Pinned, one)
	}
	if !info.Unified && budget.By != "" {
		h := p.batches
		r.Host = (int64(budget.Bytes)-p.memory().HostBytes)/2 + int64(p.sampled.Workers)*r.Worker +
			int64(h.Samples)*r.Sample + int64(h.Pinned)*r.Pinned
	}
	return r
}

// chooseQueues chooses queues and the period of synchronisation.
func (g *Graph) chooseQueues(ctx context.Context) ([]string, error) {
	sets, err := g.TrainSets(g.o.Seed)
	if err != nil {
		return nil, err
	}
	m, count, budget := g.plan.graph.All, len(g.devices), g.o.Machine.Budget
	qo := scheduler.QueueOptions{
		Graph:   multiqueue.Graph{Nodes: m.Nodes, Edges: m.Edges, Devices: count},
		Devices: g.devices, Sets: sets, Rows: g.ShareRows(), Spec: g.o.Spec, Options: g.o.Options,
		Workers: g.plan.sampled.Workers,
		Queue:   g.o.Schedule.Queue, Period: g.o.Schedule.SyncEvery, Gradients: g.o.Schedule.Gradients,
		OnArrival: g.o.Schedule.Updates == OnArrival, Evaluation: g.plan.beyond().Peak(need.FirstDevice),
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
	if g.Queues, err = scheduler.NewQueues(ctx, qo); err != nil {
		return nil, g.Explain(err)
	}
	p, r := g.plan, &g.Queues.Report
	g.Queues.Training()
	p.batches = queuedBatches(min(r.Queue, sets[0].Batches()))
	for term, gradients := range map[string]int{modelTerm: r.Lag + 1, profiledTerm: g.Queues.Gradients()} {
		pinned, err := p.Spec.PinnedBytes(p.rows, count, gradients, true)
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
