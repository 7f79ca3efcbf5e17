package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// samplingOptions are those of trainings on a graph.
type samplingOptions struct {
	sampler  string
	fanouts  []int
	cache    string
	sampling trainer.Values // of "bias", "workers" and "buffers", those that are given
}

// mostBuffers is more batches than it is of any use to prepare ahead.
const mostBuffers = 1000

// fullSampler takes all in-neighbours, and localitySampler prefers cached nodes.
const (
	fullSampler     = "full"
	localitySampler = "locality"
)

func (o *samplingOptions) declareFlags(f *pflag.FlagSet) {
	f.StringVar(&o.sampler, "sampler", "", "of models that read a graph: "+strings.Join(sampling.Names(), ", ")+
		" (default neighbor; full takes all in-neighbours and, unless --batch says otherwise, all training nodes at once; --batch of saint-node, saint-edge and saint-rw is a number of draws)")
	f.IntSliceVar(&o.fanouts, "fanout", nil, "in-neighbours of a node, or nodes, of each layer; the first is nearest the seeds, -1 is all (default 15,10,5, as many as --layers)")
	f.StringVar(&o.cache, "cache", "", "cache of feature rows, POLICY:SIZE, such as degree:1GiB or lru:20000rows: "+strings.Join(cache.Policies(), ", "))
	o.sampling = trainer.Values{}
	f.Var(settingFlag{trainer.Setting{Name: "bias"}, o.sampling}, "bias", biasUsage)
	f.Var(settingFlag{trainer.Setting{Name: "workers", Integer: true}, o.sampling}, "workers", "threads that sample batches (default as many as --threads)")
	f.Var(settingFlag{trainer.Setting{Name: "buffers", Integer: true}, o.sampling}, "buffers", fmt.Sprintf("batches on the device: the one that is trained on, and those that wait for it (default %d)", placement.Buffers))
}

const biasUsage = "locality: how many times as likely as others cached nodes are sampled; 1 is as likely"

// fillGraphDefaults checks and completes the options that only models that read a graph have.
func (o *trainOptions) fillGraphDefaults() error {
	aggregation, err := trainer.AggregationOf(o.model)
	if err != nil {
		return usagef("--model: %s", err)
	}
	if aggregation == "" {
		for _, flag := range []string{"sampler", "fanout", "cache", "bias", "workers", "buffers", "schedule", "cpu-share", "queue", "gradients", "sync-every"} {
			if o.flags.Changed(flag) {
				return usagef("--%s: %s reads a hop store, of which nothing is sampled", flag, o.model)
			}
		}
		return nil
	}
	for _, flag := range []string{"hops", "operator", "shuffle", "chunk-rows"} {
		if f := o.flags.Lookup(flag); f.Changed && !slices.Contains([]string{placement.Auto, "0"}, f.Value.String()) { // which configurations have
			return usagef("--%s: %s reads a graph, which has no hops of its own (it is for models that read a hop store)", flag, o.model)
		}
	}
	if o.sampler == "" {
		o.sampler = "neighbor"
	}
	if err := oneOf("sampler", o.sampler, sampling.Names()...); err != nil {
		return err
	}
	if err := o.checkQueues(); err != nil {
		return err
	}
	if o.cache != "" {
		if _, err := cache.Parse(o.cache); err != nil {
			return usagef("--cache: %s", err)
		}
	}
	for flag, most := range map[string]float64{"workers": maxThreads, "buffers": mostBuffers} {
		if v, ok := o.sampling[flag]; ok && !(v >= 1 && v <= most) {
			return usagef("--%s %v: want a number from 1 to %v", flag, v, most)
		}
	}
	_, biased := o.sampling["bias"]
	if locality := o.sampler == localitySampler; locality != biased {
		if locality {
			return usagef("--sampler locality prefers cached nodes: say how much by --bias, such as 4 (1 is not at all)")
		}
		return usagef("--bias: sampler %s does not look at what is cached (use --sampler locality)", o.sampler)
	}
	return nil
}

// fillSampling completes the options for the model and the training nodes, when these are known.
func (o *trainOptions) fillSampling(trainRows int64) error {
	layers := int(o.Values["layers"])
	if o.sampler == fullSampler && o.byDefault["batch"] {
		o.BatchRows = int(trainRows)
	}
	if o.takesAllEdges() {
		if len(o.fanouts) > 0 {
			return usagef("--fanout: --sampler %s takes all edges of the nodes that it has chosen", o.sampler)
		}
		return nil
	}
	if len(o.fanouts) == 0 {
		for i := range layers {
			o.fanouts = append(o.fanouts, max(5, 15-5*i))
		}
	}
	if len(o.fanouts) != layers {
		return usagef("--fanout has %d numbers for %d layers: give one for each (or another --layers)", len(o.fanouts), layers)
	}
	return nil
}

// takesAllEdges tells that a sampler has no fanouts.
func (o *samplingOptions) takesAllEdges() bool {
	return o.sampler == fullSampler || sampling.ChoosesSeeds(o.sampler)
}

// inferenceRows is how many rows a model that reads a graph is evaluated on at a time.
const inferenceRows = 8192

// graphInput is a graph on one device.
type graphInput struct {
	device   gds.Device
	topology sampling.Topology // nil: the whole graph is on the device, and nothing is trained
	features features.Source   // nil: the whole graph is on the device, and nothing is sampled
	whole    *wholegraph.Graph
	where    graphPlan
	layers   int
	fanouts  []int
	rows     int // of a batch
	// Most nodes whose outputs are computed at once: in training on all, all of them.
	batchNodes int
	sets       rowSets
	sampled    *session.Sampled // nil: batches are all nodes

	kind      string                 // of the device
	lent      bool                   // the device is not closed
	onDevice  *sampling.DeviceMethod // by which the device prepares batches; nil: it does not
	whyNot    string                 // if it was asked to, and cannot
	scheduler *scheduler.Scheduler   // nil: each stage is as fast as it can
}

// openGraph opens a graph on the first device of the machine, for what a command does with it.
func (a *app) openGraph(ctx context.Context, graph *format.Dir, o graphNeeds) (_ *graphInput, err error) {
	if a.emulate.GPUs > 1 && o.devices == nil {
		return nil, usagef("--emulate gpu=%d: %s computes on one device (models that read a hop store share several, and so does train --schedule %s)", a.emulate.GPUs, o.spec.Model, scheduler.MultiQueue)
	}
	if o.spec, err = o.spec.Normalized(); err != nil {
		return nil, err
	}
	aggregation, err := trainer.AggregationOf(o.spec.Model)
	if err != nil {
		return nil, err
	}
	m := a.machine(ctx)
	if o.keepsSparse() {
		if o.elements, err = features.FindElements(ctx, graph, a.threads); err != nil {
			return nil, err
		}
	}
	in := &graphInput{}
	if in.where, err = a.planGraph(m, graph, o); err != nil {
		return nil, err
	}
	if m.Devices.Info.Unified { // it may take what the host leaves, and so batches that are larger than estimated do not fit
		left := a.budget
		left.Bytes -= units.Bytes(in.where.memory().HostBytes)
		m = a.machineWithin(ctx, left)
	}
	opened := o.devices
	if opened == nil {
		if opened, err = m.Devices.Open(1); err != nil {
			return nil, err
		}
	}
	in.device, in.kind, in.lent = opened[0], m.Devices.Name, o.devices != nil
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	if in.topology, err = sampling.LoadTopology(ctx, graph, a.threads); err != nil {
		return nil, err
	}
	pin := o.scheduled && pinned(in.device, in.where)
	if pin {
		pinned, err := sampling.PinTopology(in.device, in.topology)
		if err != nil {
			return nil, err
		}
		in.topology = pinned
	}
	load := func() (features.Source, error) { return loadFeatures(ctx, graph, a.threads) }
	if elements := in.where.elements; elements != nil {
		load = func() (features.Source, error) { return sparseFeatures(ctx, graph, elements, a.threads) }
	}
	if pin {
		load = func() (features.Source, error) { return pinnedFeatures(ctx, graph, in.device, a.threads) }
	}
	wo := wholegraph.Options{Graph: graph, Topology: in.topology, Aggregation: aggregation, Threads: a.threads}
	switch {
	case in.where.placement == placement.Host || in.where.elements != nil:
		in.features, err = load()
	case in.where.placement == placement.Storage:
		in.features, err = storedFeatures(ctx, graph, in.device, a.threads)
	}
	if err != nil {
		return nil, err
	}
	wo.Features, wo.ChunkBytes, wo.NodeBytes, wo.EdgeBytes = in.features, in.where.chunkBytes, in.where.nodeBytes, in.where.edgeBytes
	if in.whole, err = wholegraph.Open(ctx, in.device, wo); err != nil {
		return nil, err
	}
	if in.where.placement != placement.Device {
		return in, a.checkChunks(in, o.spec)
	}
	if !o.train {
		err = in.topology.Close()
		in.topology = nil
		return in, err
	}
	if o.sampler == "" || in.features != nil {
		return in, nil
	}
	if in.device.Info().Unified && graph.Layout().DType == gds.Float32 {
		in.features = in.whole.Features(a.threads)
	} else {
		in.features, err = load()
	}
	return in, err
}

// checkChunks says in the plan how large chunks are, and refuses a graph with a node whose in-neighbours do not fit on
// the device together.
func (a *app) checkChunks(in *graphInput, spec trainer.Spec) error {
	_, columns, _, err := spec.GraphShape(in.where.elements != nil)
	if err != nil {
		return err
	}
	w := &in.where
	if w.chunkMemory, w.chunkModel, err = in.whole.LargestChunk(columns); err != nil {
		return fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	largest := w.chunkMemory + w.chunkModel
	if info := in.device.Info(); info.MemoryBytes > 0 && largest > info.MemoryBytes-in.device.Usage().InUse {
		return fmt.Errorf("%w: one node has so many in-neighbours that a layer of it takes %s of device memory, and there are %s", machine.ErrDoesNotFit,
			units.Bytes(largest), units.Bytes(info.MemoryBytes-in.device.Usage().InUse))
	}
	return nil
}

// loadFeatures and those below are nil after an error, as an interface.
func loadFeatures(ctx context.Context, graph *format.Dir, threads int) (features.Source, error) {
	f, err := features.LoadHost(ctx, graph, threads)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func pinnedFeatures(ctx context.Context, graph *format.Dir, device gds.Device, threads int) (features.Source, error) {
	f, err := features.LoadPinned(ctx, graph, device, threads)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func sparseFeatures(ctx context.Context, graph *format.Dir, elements *features.Elements, threads int) (features.Source, error) {
	f, err := features.LoadSparse(ctx, graph, elements, threads)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func storedFeatures(ctx context.Context, graph *format.Dir, device gds.Device, threads int) (features.Source, error) {
	f, err := features.OpenStorage(ctx, graph, device, threads, false)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openGraphInput opens a graph for training on the first of the devices, which it does not close; nil: on that of
// the machine.
func (a *app) openGraphInput(ctx context.Context, graph *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition, held int64, devices []gds.Device) (_ *graphInput, err error) {
	needs, rows, err := a.trainingNeeds(ctx, o, spec, part, held, devices)
	if err != nil {
		return nil, err
	}
	in, err := a.openGraph(ctx, graph, needs)
	if err != nil {
		return nil, err
	}
	in.layers, in.rows, in.batchNodes, in.fanouts = int(needs.spec.Settings["layers"]), rows, rows, needs.fanouts
	if needs.all {
		in.batchNodes = int(graph.Manifest.Nodes)
		return in, nil
	}
	if err := a.openSampled(ctx, graph, o, in, part, max(1, len(devices))); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	in.batchNodes = in.sampled.Method.MostSeeds(rows)
	return in, nil
}

// trainingNeeds is what a training does with a graph, and the rows of its batches.
func (a *app) trainingNeeds(ctx context.Context, o *trainOptions, spec trainer.Spec, part session.Partition, held int64, devices []gds.Device) (needs graphNeeds, rows int, err error) {
	if spec, err = spec.Normalized(); err != nil {
		return needs, 0, err
	}
	trainNodes := len(part.Train.List)
	rows = min(o.BatchRows, trainNodes)
	if sampling.ChoosesSeeds(o.sampler) {
		rows = o.BatchRows // draws
	}
	needs = graphNeeds{spec: spec, placement: o.placement, held: held, train: true, trainSet: trainNodes, evaluated: int64(len(part.Valid.List) + len(part.Test.List)), devices: devices}
	if o.schedule == scheduler.MultiQueue {
		needs.gradients = cmp.Or(o.gradients, multiqueue.MostGradients)
	}
	needs.all = o.sampler == fullSampler && rows == trainNodes && o.cache == ""
	if !needs.all {
		needs.sampler, needs.fanouts, needs.seeds, needs.cache = o.sampler, o.fanouts, rows, o.cache
		needs.workers = cmp.Or(int(o.sampling["workers"]), a.threads)
		// Of larger buffers, schedules and queues ask when batches are known.
		switch unified := a.machine(ctx).Devices.Info.Unified; o.schedule {
		case "":
			buffers := cmp.Or(int(o.sampling["buffers"]), placement.Buffers)
			needs.batches = batchCount{buffers: buffers, onDevice: buffers, samples: sampling.MostSamples(needs.workers, buffers)}
		case scheduler.MultiQueue:
			needs.workers, needs.batches = a.queueWorkers(o, max(1, len(devices))), queuedBatches(multiqueue.Synchronous.Queue)
		default:
			needs.scheduled, needs.workers = true, a.samplingWorkers(&o.samplingOptions)
			needs.batches = scheduledBatches(1, 1, needs.workers, 0, unified)
			needs.batches.route = slices.Contains([]string{scheduler.Auto, "gpu", "mixed", "collective"}, o.schedule) && !unified
		}
		if o.takesAllEdges() {
			needs.fanouts = slices.Repeat([]int{sampling.All}, int(spec.Settings["layers"]))
		}
	}
	return needs, rows, a.checkSchedule(o, needs)
}

// openSampled opens what samples batches.
func (a *app) openSampled(ctx context.Context, graph *format.Dir, o *trainOptions, in *graphInput, part session.Partition, world int) error {
	var err error
	if o.schedule == scheduler.MultiQueue {
		in.sampled, err = a.openLoader(ctx, graph, o, in, part, in.device, 0, world)
		return err
	}
	options, err := a.sampledOptions(ctx, o, in, part)
	if err != nil {
		return err
	}
	if o.schedule != "" {
		options.Buffers = sampling.Buffers(roomFor(a.samplingWorkers(&o.samplingOptions), o.sampling["buffers"])) // no more have memory than a schedule uses
	}
	in.sampled, err = session.OpenSampled(ctx, graph, options)
	if err == nil && o.schedule != "" {
		err = in.openRoute()
	}
	return err
}

// sampledOptions say how batches are sampled. What is cached does not depend on --seed: a run is a function of
// its own seed, and all runs share the cache.
func (a *app) sampledOptions(ctx context.Context, o *trainOptions, in *graphInput, part session.Partition) (session.SampledOptions, error) {
	aggregation, err := trainer.AggregationOf(o.model)
	return session.SampledOptions{
		Machine: a.machine(ctx), Sampler: o.sampler, Sampling: sampling.Options{Fanouts: in.fanouts, Aggregation: aggregation, Bias: o.sampling["bias"]},
		Seeds: part.Train.List, Plan: in.plan(0), Cache: o.cache, Device: in.device, Placement: in.where.placement,
		Workers: int(o.sampling["workers"]), Buffers: int(o.sampling["buffers"]),
		Opened: &session.OpenedGraph{Topology: in.topology, Features: in.features, TraceRows: in.where.traceRows},
	}, err
}

// plan is the order of training nodes.
func (in *graphInput) plan(seed uint64) chunk.Plan {
	return chunk.Plan{BatchRows: in.rows, ChunkRows: 1, Order: chunk.Shuffled, Seed: seed}
}

// sampledSet is the training nodes of one run.
type sampledSet struct{ *sampling.Set }

// RowNumbers are the nodes of a batch.
func (s sampledSet) RowNumbers(epoch, batch int) []uint32 {
	nodes, _ := s.BatchNodes(context.Background(), epoch, batch) // as far as they can be had: they explain an error
	return nodes
}

// Remote is none: see loader.Set.
func (s sampledSet) Remote() (read, remote int64) { return 0, 0 }

func (in *graphInput) Close() error {
	var errs []error
	if in.sampled != nil {
		if in.onDevice != nil { // the loader's, and made of its method
			errs = append(errs, in.sampled.Loader.Close(), in.onDevice.Close())
			in.sampled.Loader = nil
		}
		errs = append(errs, in.sampled.Close())
	}
	if in.features != nil {
		errs = append(errs, in.features.Close())
	}
	if in.whole != nil {
		errs = append(errs, in.whole.Close())
	}
	if in.topology != nil {
		errs = append(errs, in.topology.Close())
	}
	if !in.lent {
		errs = append(errs, in.device.Close())
	}
	return errors.Join(errs...)
}

func (in *graphInput) devices() []gds.Device     { return []gds.Device{in.device} }
func (in *graphInput) shareRows() int            { return max(in.batchNodes, inferenceRows) }
func (in *graphInput) predictedSeconds() float64 { return 0 }

func (in *graphInput) batches() checkpoint.Batches {
	return checkpoint.Batches{Rows: in.rows, Shuffle: placement.RR, ChunkRows: 1, Placement: in.where.placement, Devices: 1}
}

func (in *graphInput) rowSets(ctx context.Context, p session.Partition, seed uint64, test bool) (d rowSets, err error) {
	d = in.sets // of earlier runs: but for samples, they are the same in each
	if d.valid == nil {
		if d.valid, err = in.validation(ctx, p.Valid); err == nil && test {
			d.test, err = in.inOrder(p.Test)
		}
		if err != nil {
			return d, err
		}
	}
	switch {
	case in.sampled != nil:
		set, err := in.trainSet(p, seed)
		if err != nil {
			return d, err
		}
		d.train = []rowSet{sampledSet{set}}
	case d.train == nil:
		set, err := in.whole.Batch(p.Train.List, in.layers)
		if err != nil {
			return d, err
		}
		d.train = []rowSet{set}
	}
	in.sets = d
	return d, nil
}

// validation is inOrder for every epoch: it computes what these rows need, if that is far less than the whole graph.
func (in *graphInput) validation(ctx context.Context, rows loader.Rows) ([]rowSet, error) {
	before := in.whole.AllocatedBytes()
	set, err := in.whole.Neighborhood(ctx, rows.List, inferenceRows, in.layers)
	if err != nil {
		return nil, err
	}
	b := &in.where.bytes
	if b.validation = in.whole.AllocatedBytes() - before; !set.Gathers() {
		b.validationLayers = 0
	}
	return []rowSet{set}, nil
}

func (in *graphInput) inOrder(rows loader.Rows) ([]rowSet, error) {
	set, err := in.whole.Nodes(rows.List, inferenceRows, 0)
	return []rowSet{set}, err
}

func (in *graphInput) PeakBytes() int64 { return in.device.Usage().Peak }

// explain adds to an error about device memory what batches were expected to take.
func (in *graphInput) explain(err error) error {
	if !errors.Is(err, gds.ErrOutOfMemory) || in.where.scarceBytes == 0 {
		return err
	}
	return fmt.Errorf("%w; batches and what layers compute of them were expected to need up to %s (give more --memory, fewer seeds by --batch, or a smaller --fanout)",
		err, units.Bytes(in.where.scarceBytes))
}

func (in *graphInput) note(a *app) {
	a.note("features from %s", in.where.placement)
	for _, reason := range in.where.reasons {
		a.detail("  %s", reason)
	}
}

// memory is what is planned, of batches as large as the largest so far where that is more than was expected.
func (in *graphInput) memory() *memoryPlan {
	where := in.where
	if in.scheduler != nil {
		r := in.scheduler.Report()
		cpu, gpu := in.scheduler.Buffers()
		where.batches = scheduledBatches(cpu, gpu, where.needs.workers, r.CPUBatches+r.GPUBatches, where.unified)
		where.batches.route = in.onDevice != nil
	}
	if in.sampled != nil {
		where.bytes.batch.device = max(where.bytes.batch.device, gds.Aligned(gds.Room(in.sampled.Loader.Stats().BatchBytes)))
	}
	m := where.memory()
	return &m
}

func (in *graphInput) describe(r *trained) {
	r.Memory = in.memory()
	r.Placement, r.Shuffle, r.Devices, r.Reasons = in.where.placement, placement.RR, 1, in.where.reasons
	if in.sampled != nil {
		r.Load = in.sampled.Loader.Stats().Stats
	}
	if in.scheduler != nil {
		report := in.scheduler.Report()
		r.Schedule = &report
	}
}
