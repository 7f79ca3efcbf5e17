package training

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/gds/paced"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// Graph is a graph, typed or not, that is open for a training, whose batches devices share, or for inference. Rows are
// its nodes; in a typed graph, those of its target. The first device evaluates alone: on the whole graph or, if it is
// typed, by batches of all in-neighbours.
type Graph struct {
	Schedule *scheduler.Scheduler // nil: each stage is as fast as it can
	Queues   *scheduler.Queues    // nil: batches do not wait in queues
	WhyNot   string               // why the device prepares no batches, where it was asked to

	o        Options
	dir      *format.Dir
	plan     *graphPlan
	devices  []gds.Device
	kind     string            // of the devices
	topology sampling.Topology // nil: the whole graph is on the device, and nothing is trained
	within   sampling.Topology // what training samples of, without edges that cross partitions; nil: topology
	parts    []uint16          // of each node, until samplers are open; nil: they do not divide the nodes
	own      [][]uint32        // training nodes of each device; nil: devices share all
	// features are those of each device, or of all; none: the whole graph is on the device, and nothing is sampled.
	features []*session.Features
	labels   *loader.Labels
	whole    *wholegraph.Graph     // that is evaluated; nil: the graph is typed
	full     *sampling.Method      // that evaluates a typed graph; nil: it is whole
	numbers  gds.Memory            // of rows of a typed graph, on the first device
	lists    *sampling.DeviceLists // of all nodes; nil: they are not all on the device
	samplers []*session.Sampled    // of each device; none: all batches are of the whole graph
	onDevice bool                  // the device may prepare batches
	scratch  *folder.Scratch       // nil: nothing is written
	sets     Sets                  // of earlier runs: but for samples, they are the same in each
}

// OpenGraph opens a graph on the devices of the machine if they share the batches of a training, else on the first.
func OpenGraph(ctx context.Context, dir *format.Dir, o Options) (_ *Graph, err error) {
	if dir.Typed != nil {
		if err := o.checkTyped(); err != nil {
			return nil, err
		}
	}
	m, count := o.Machine, 1
	if o.sharesBatches() {
		count = m.Devices.Count
	} else if !o.Train && m.Devices.Name == "emulated" && m.Devices.Count > 1 {
		return nil, session.Refuse("--emulate gpu=%d: a model is applied to a graph on one device", m.Devices.Count)
	} else if m.Devices.Name == "emulated" && m.Devices.Count > 1 {
		return nil, session.Refuse("--emulate gpu=%d: several devices share the batches of a training whose sampler "+
			"does not choose seeds (not saint-*), in which a batch is not all nodes (give --batch), without "+
			"--schedule or with --schedule %s", m.Devices.Count, scheduler.MultiQueue)
	} else if o.BatchPerDevice > 0 && m.Devices.Count > 1 {
		return nil, session.Refuse("--batch-per-device %d: 1 of %d devices is used (give --batch)", o.BatchPerDevice,
			m.Devices.Count)
	}
	if o.Scratch != "" { // the manifest of a graph lists all of its files
		if inside, err := folder.Within(dir.FS(), o.Scratch, dir.Path()); err != nil {
			return nil, err
		} else if inside {
			return nil, session.Refuse("--scratch %s: scratch files cannot be in the graph (give another folder)", o.Scratch)
		}
	}
	g := &Graph{o: o, dir: dir, kind: m.Devices.Name}
	shape, err := sampling.ShapeOf(dir)
	if err != nil {
		return nil, err
	}
	job, err := g.o.job(shape, count)
	if err != nil {
		return nil, err
	}
	if job.keepsSparse() {
		if job.elements, err = features.FindElements(ctx, dir, m.Threads); err != nil {
			return nil, err
		}
	}
	if g.plan, err = planGraph(job); err != nil {
		return nil, err
	}
	if m.Devices.Info.Unified { // batches that are larger than estimated may take what the host leaves, and no more
		m = m.Less(units.Bytes(g.plan.memory().HostBytes - session.Program.Bytes))
	}
	if g.devices, err = m.Devices.Open(count); err != nil {
		return nil, err
	}
	if count > 1 && o.BatchPerDevice == 0 { // a stage takes as long as a device's share of --batch
		for _, d := range g.devices {
			if d, emulated := d.(*paced.Device); emulated {
				d.Pace(o.Stages.Share(count))
			}
		}
	}
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// sharesBatches tells that each batch is shared by all devices that there are.
func (o *Options) sharesBatches() bool {
	switch {
	case !o.Train:
		return false
	case o.Schedule.Name == scheduler.MultiQueue:
		return true
	}
	return o.Schedule.Name == "" && !sampling.ChoosesSeeds(o.Sampling.Sampler) &&
		!o.allNodes(min(o.BatchRows, len(o.Part.Train.List)))
}

// allNodes tells that a training computes on the whole graph at each step: none does on a typed graph.
func (o *Options) allNodes(batchRows int) bool {
	return o.Sampling.Sampler == FullSampler && batchRows == len(o.Part.Train.List) && o.Sampling.Cache == "" &&
		len(o.Spec.Relations) == 0
}

// SlowValidation is the reason for validations that take long, as they gather a gigabyte of features or more; "": they
// do not.
func (g *Graph) SlowValidation() string {
	if _, bytes := g.plan.validationReads(); bytes < 1<<30 {
		return ""
	}
	return g.plan.validationText()
}

// Pace is how long the gradient of a batch takes at least on emulated devices; nil: as long as it takes.
func (g *Graph) Pace() func(rank, epoch, batch int) time.Duration {
	if g.o.Schedule.Name != "" { // which has times of its own
		return nil
	}
	return paced.Gradients(g.devices)
}

// open brings the graph to its place, and opens what samples batches.
func (g *Graph) open(ctx context.Context) (err error) {
	p, device, threads := g.plan, g.devices[0], g.o.Machine.Threads
	if p.spilled {
		if err = g.openScratch(); err != nil {
			return err
		}
	}
	if g.topology, err = p.source().OpenTopology(ctx, threads); err != nil {
		return err
	}
	if p.evaluated != nil {
		if err = g.openFeatures(ctx); err == nil {
			g.labels, err = loader.ReadLabels(ctx, g.dir)
		}
		if err == nil {
			g.numbers.Device = device
			g.full, err = sampling.NewMethod(ctx, FullSampler, g.topology, p.limited(p.evaluated).Sampling)
		}
		if err != nil {
			return err
		}
		return g.openSamplers(ctx)
	}
	if err = g.partition(ctx); err != nil {
		return err
	}
	trained := &g.topology
	if g.within != nil {
		trained = &g.within
	}
	if p.pins() {
		pinned, err := sampling.PinTopology(device, *trained)
		if err != nil {
			return err
		}
		*trained = pinned
	}
	if p.preload {
		if g.lists, err = sampling.CopyLists(ctx, device, *trained, nil); err != nil {
			return err
		}
	}
	onDevice := p.where == placement.Device
	if !onDevice || p.elements != nil {
		if err := g.openFeatures(ctx); err != nil {
			return err
		}
	}
	wo := wholegraph.Options{
		Graph: g.dir, Topology: g.topology, Aggregation: p.aggregation, Threads: threads,
		ChunkBytes: p.chunkBytes, NodeBytes: p.nodeBytes, EdgeBytes: p.edgeBytes, Scratch: g.scratch,
	}
	if len(g.features) > 0 {
		wo.Features = g.features[0].Types[0]
	}
	if g.whole, err = wholegraph.Open(ctx, device, wo); err != nil {
		return err
	}
	g.labels = g.whole.Labels()
	switch {
	case !onDevice:
		if err := g.checkChunks(); err != nil {
			return err
		}
	case !p.Train:
		err = g.topology.Close()
		g.topology = nil
		return err
	case p.sampled == nil || g.features != nil:
	case p.there():
		g.features = []*session.Features{{Types: []features.Source{features.OnDevice(g.whole.Rows(), threads)}}}
	default:
		if err := g.openFeatures(ctx); err != nil {
			return err
		}
	}
	return g.openSamplers(ctx)
}

// openScratch makes a folder below --scratch: the first that no other process has, so that what a killed one has left
// there is removed.
func (g *Graph) openScratch() error {
	files, err := g.dir.FS(), vfs.ErrLocked
	for k := 0; errors.Is(err, vfs.ErrLocked); k++ {
		g.scratch, err = folder.OpenScratch(files, filepath.Join(g.o.Scratch, fmt.Sprint("hopfeed-layers-", k)))
	}
	if err != nil {
		return err
	}
	free, err := files.FreeBytes(g.o.Scratch)
	if err == nil && free < g.plan.spillBytes {
		err = fmt.Errorf("%w: layers of all nodes take %s in %s, and %s are free", machine.ErrDoesNotFit,
			units.Bytes(g.plan.spillBytes), g.o.Scratch, units.Bytes(free))
	}
	return err
}

// partition divides the nodes, if that is asked for. Validation and tests know all edges.
func (g *Graph) partition(ctx context.Context) error {
	if s := &g.o.Sampling; !s.divides() || g.plan.sampled == nil {
		return nil
	}
	of, cut, about, err := g.divide(ctx)
	if err != nil {
		return err
	}
	g.plan.reasons = append(g.plan.reasons, fmt.Sprintf("%s: training samples none of the %d edges (%.1f %%) that cross "+
		"them", about, cut, 100*float64(cut)/float64(max(1, g.topology.Edges()))))
	g.parts = of
	g.within, err = sampling.WithinPartitions(ctx, g.topology, of, cut)
	return err
}

// divide returns the part of each node, how many edges cross, and where the parts are from.
func (g *Graph) divide(ctx context.Context) (of []uint16, cut int64, about string, err error) {
	s := &g.o.Sampling
	if s.PartitionFile == "" {
		if of, cut, err = sampling.Partition(ctx, g.topology, s.Partitions); err != nil {
			err = fmt.Errorf("--partitions: %w", err)
		}
		return of, cut, fmt.Sprintf("%d partitions, by linear deterministic greedy", s.Partitions), err
	}
	of = make([]uint16, g.topology.Nodes())
	err = session.ReadNodeNumbers(g.dir, s.PartitionFile, "partition", 0, func(node, part int64) error {
		if part < 0 || part >= sampling.MostPartitions {
			return fmt.Errorf("part %d: want 0 to %d", part, sampling.MostPartitions-1)
		}
		of[node] = uint16(part)
		return nil
	})
	if err == nil {
		cut, err = sampling.CutOf(ctx, g.topology, of)
	}
	return of, cut, "partitions of " + s.PartitionFile, err
}

// openFeatures opens the features: of a typed graph that are on devices for each device, else for all.
func (g *Graph) openFeatures(ctx context.Context) error {
	for _, device := range g.devices {
		opened, err := g.plan.source().OpenFeatures(ctx, device, g.plan.pins(), g.o.Machine.Threads)
		if err != nil {
			return err
		}
		g.features = append(g.features, opened)
		if g.plan.evaluated == nil || g.plan.where != placement.Device {
			break
		}
	}
	return nil
}

// checkChunks notes in the plan how large chunks are. It refuses a graph with a node whose in-neighbours do not fit on
// the device together.
func (g *Graph) checkChunks() error {
	p := g.plan
	_, columns, _, err := p.Spec.GraphShape(p.elements != nil)
	if err != nil {
		return err
	}
	if p.chunkMemory, p.chunkModel, err = g.whole.LargestChunk(columns); err != nil {
		return fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	largest, device := p.chunkMemory+p.chunkModel, g.devices[0]
	if all := device.Info().MemoryBytes; all > 0 && largest > all-device.Usage().InUse {
		return fmt.Errorf("%w: a layer of the node with the most in-neighbours takes %s of device memory, and %s "+
			"are free", machine.ErrDoesNotFit,
			units.Bytes(largest), units.Bytes(all-device.Usage().InUse))
	}
	return nil
}

// openSamplers opens what samples batches for each device. What is cached does not depend on the seed of a run: a run
// is a function of its own seed, and all runs share the cache.
func (g *Graph) openSamplers(ctx context.Context) error {
	p := g.plan
	of := p.sampled
	if of == nil {
		of = p.evaluated
	}
	if of == nil {
		return nil
	}
	so, open := *p.limited(of), session.OpenedGraph{Topology: g.topology, Labels: g.labels, TraceRows: of.Opened.TraceRows}
	if so.Opened = &open; p.sampled == nil {
		open.Method = g.full
	}
	if g.within != nil {
		so.Opened.Topology = g.within
	}
	holds := g.dealSeeds()
	for rank, device := range g.devices {
		so.Device, so.Plan, so.Seeds, so.Held = device, g.order(0, rank), g.seeds(rank), holds(rank)
		if open.Features = g.features[min(rank, len(g.features)-1)]; p.sampled == nil {
			so.Plan = chunk.Plan{BatchRows: p.evaluating, ChunkRows: 1}
		}
		opened, err := session.OpenSampled(ctx, g.dir, so)
		if err != nil && rank > 0 {
			err = fmt.Errorf("device %d: %w", rank, err)
		}
		if err != nil {
			return err
		}
		g.samplers = append(g.samplers, opened)
		if so.Sampler != LocalitySampler { // which prefers what the device has cached
			open.Method = opened.Method
		}
	}
	g.parts = nil
	if !g.plan.scheduled() || !g.o.sharesRoutes() {
		return nil
	}
	return g.openRoute()
}

// dealSeeds gives each of several devices training nodes of its own partitions. It returns what tells a device's nodes.
func (g *Graph) dealSeeds() (holds func(rank int) func(node uint32) bool) {
	none := func(int) func(uint32) bool { return nil }
	if g.parts == nil || len(g.devices) == 1 {
		return none
	}
	g.own = make([][]uint32, len(g.devices)) // by which order's plans are of OwnRows
	quota := make([]int64, len(g.devices))
	for rank := range quota {
		quota[rank] = g.order(0, rank).RankRows()
	}
	parts, seeds := g.parts, g.o.Part.Train.List
	own, holder, moved := sampling.DealSeeds(parts, seeds, quota)
	g.own = own
	g.plan.reasons = append(g.plan.reasons, fmt.Sprintf("each of %d devices trains on partitions of its own; for equal "+
		"shares %d of the %d training nodes (%.1f %%) are on another device", len(own), moved, len(seeds),
		100*float64(moved)/float64(max(1, len(seeds)))))
	return func(rank int) func(uint32) bool {
		if !slices.Contains(holder, rank) { // there are fewer partitions than devices
			return nil
		}
		return func(node uint32) bool { return holder[parts[node]] == rank }
	}
}

// seeds are the training nodes of a device, or of all.
func (g *Graph) seeds(rank int) []uint32 {
	if g.own != nil {
		return g.own[rank]
	}
	if g.plan.sampled == nil {
		return nil
	}
	return g.plan.sampled.Seeds
}

// order is the order of the training nodes of a device.
func (g *Graph) order(seed uint64, rank int) chunk.Plan {
	p := shuffled(g.o.BatchRows, seed, rank, len(g.devices))
	if g.own != nil {
		p.Rows, p.OwnRows = int64(len(g.o.Part.Train.List)), true
	}
	return p
}

// shuffled are batches of rows in random order, and a device's share of each.
func shuffled(batchRows int, seed uint64, rank, devices int) chunk.Plan {
	p := chunk.Plan{BatchRows: batchRows, ChunkRows: 1, Order: chunk.Shuffled, Seed: seed}
	if devices > 1 {
		p.Rank, p.World = rank, devices
	}
	return p
}

// Close closes all, the devices too.
func (g *Graph) Close() error {
	var errs []error
	for _, s := range slices.Backward(g.samplers) { // the first has opened what others share
		errs = append(errs, s.Close())
	}
	if g.full != nil {
		errs = append(errs, g.full.Close())
	}
	if g.lists != nil {
		errs = append(errs, g.lists.Close())
	}
	for _, f := range g.features {
		errs = append(errs, f.Close())
	}
	if g.whole != nil {
		errs = append(errs, g.whole.Close())
	}
	if g.scratch != nil {
		errs = append(errs, g.scratch.Close())
	}
	if g.within != nil {
		errs = append(errs, g.within.Close())
	}
	if g.topology != nil {
		errs = append(errs, g.topology.Close())
	}
	return errors.Join(append(errs, g.numbers.Free(), devices.Close(g.devices))...)
}

// Divided tells that training nodes are in partitions, so that their order depends on the number of devices.
func (g *Graph) Divided() bool { return g.o.Sampling.divides() }

// Devices train.
func (g *Graph) Devices() []gds.Device { return g.devices }

// ShareRows is the most rows of a batch on one device: all nodes, if batches are whole graphs.
func (g *Graph) ShareRows() int { return g.plan.rows }

// Batches says how training nodes are shuffled and shared.
func (g *Graph) Batches() checkpoint.Batches {
	return checkpoint.Batches{Rows: g.o.BatchRows, Shuffle: placement.RR, ChunkRows: 1, Placement: g.plan.where,
		Devices: len(g.devices)}
}

// PeakBytes is the peak memory of the fullest device.
func (g *Graph) PeakBytes() int64 { return session.PeakBytes(g.devices) }

// Explain adds to an error about device memory what batches were expected to take.
func (g *Graph) Explain(err error) error { return g.plan.explain(err) }

// Report says where the graph lies, and what came of schedules and queues.
func (g *Graph) Report() Report {
	memory := g.Memory()
	r := Report{Memory: &memory, Placement: g.plan.where, Shuffle: placement.RR, Devices: len(g.devices),
		Reasons: g.plan.reasons}
	r.setDevice(g.devices[0])
	if len(g.samplers) > 0 {
		r.Load = g.samplers[0].Loader.Stats().Stats
	}
	if g.Schedule != nil {
		report := g.Schedule.Report()
		r.Schedule = &report
	}
	if g.Queues != nil {
		r.Queues, r.PredictedEpochSeconds = &g.Queues.Report, &g.Queues.Report.Predicted
	}
	return r
}

// Preloaded tells that the device samples lists and gathers rows that are all in its own memory.
func (g *Graph) Preloaded() bool { return g.plan.preload && g.onDevice }

// Traffic sums the batches of all epochs so far, on the first device.
func (g *Graph) Traffic() loader.Traffic { return g.samplers[0].Loader.Stats().Traffic }

// Memory is the plan, with the largest batch so far where it is larger than expected.
func (g *Graph) Memory() need.Memory { return g.memoryPlan().memory() }

func (g *Graph) memoryPlan() *graphPlan {
	p := *g.plan
	if g.Schedule != nil {
		p.batches, p.route = g.Schedule.Held(), g.onDevice
	}
	if len(g.samplers) > 0 && g.whole != nil { // else batches of evaluation are among them
		p.batch.Device = max(p.batch.Device, gds.Aligned(gds.Room(g.samplers[0].Loader.Stats().BatchBytes)))
	}
	return &p
}

// WorkBytes is the device memory of model, batches and activations. InputBytes is the graph in memory.
func (g *Graph) WorkBytes() int64  { return g.plan.workBytes() }
func (g *Graph) InputBytes() int64 { return g.plan.inputBytes }

// Alternatives are the places where the features may be, with what each takes, or why it is impossible.
func (g *Graph) Alternatives() (all []placement.Alternative) {
	for _, where := range allPlaces {
		a := placement.Alternative{Placement: where, Shuffle: placement.RR, Devices: len(g.devices)}
		job, o := g.plan.graphJob, g.o
		o.Placement, job.Options = where, &o
		if p, err := planGraph(job); err != nil {
			a.Obstacle = err.Error()
		} else {
			memory := p.memory()
			a.DeviceBytes, a.HostBytes = units.Bytes(memory.DeviceBytes), units.Bytes(memory.HostBytes)
		}
		all = append(all, a)
	}
	return all
}

// Measure trains on some batches. It returns how many an epoch has, and their time and that of validation.
func (g *Graph) Measure(ctx context.Context) (batches float64, costs trainer.EpochCosts, err error) {
	sets, err := g.Sets(ctx, g.o.Seed, false)
	if err != nil {
		return 0, costs, err
	}
	batches = 1
	if set, ok := sets.Train[0].(interface{ Batches() int }); ok { // they are sampled
		batches = float64(set.Batches())
	}
	costs, err = trainer.MeasureEpoch(ctx, sets.Ranks(g), g.o.Spec)
	return batches, costs, g.Explain(err)
}
