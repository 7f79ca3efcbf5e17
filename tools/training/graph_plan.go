package training

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// graphJob says how a graph is used, and what its memory is planned from.
type graphJob struct {
	*Options
	aggregation sampling.Aggregation
	devices     int
	all         bool                    // batches are all nodes
	sampled     *session.SampledOptions // of batches; nil: they are all nodes, or nothing is trained
	batches     scheduler.Held          // at a time, for each device
	gradients   int                     // that wait on each device; 0: none
	maySpill    bool                    // there is a folder for layers of all nodes that do not fit into memory
	// elements are the non-zero elements of features that are kept as sparse rows; nil: features are dense.
	elements *features.Elements
}

// job says how the options use a graph of n nodes on devices. It completes the options.
func (o *Options) job(n int64, devices int) (j graphJob, err error) {
	if o.Spec, err = o.Spec.Normalized(); err != nil {
		return j, err
	}
	o.Placement = cmp.Or(o.Placement, placement.Auto)
	j = graphJob{Options: o, devices: devices, maySpill: o.Scratch != ""}
	if j.aggregation, err = trainer.AggregationOf(o.Spec.Model); err != nil || !o.Train {
		return j, err
	}
	s, info, trainSet := &o.Sampling, o.Machine.Devices.Info, len(o.Part.Train.List)
	if own, err := o.Spec.ReadsOwnRows(); err != nil {
		return j, err
	} else if own && sampling.Apart(s.Sampler) {
		return j, session.Refuse("--sampler %s: its blocks lack the rows of destinations themselves, which this %s reads "+
			"(use --model gcn without --residual, or --sampler %s)", s.Sampler, o.Spec.Model,
			strings.TrimSuffix(s.Sampler, "-paper"))
	}
	if !sampling.ChoosesSeeds(s.Sampler) {
		o.BatchRows = min(o.BatchRows, trainSet)
	}
	if o.Schedule.Name == scheduler.MultiQueue {
		most := multiqueue.MostGradients
		if o.Schedule.Updates == OnArrival {
			most = min(scheduler.MostQueue, cmp.Or(o.Schedule.SyncEvery, scheduler.MostQueue))
		}
		j.gradients = cmp.Or(o.Schedule.Gradients, most)
	}
	j.all = o.allNodes(o.BatchRows)
	if err := o.checkTogether(j.all); j.all || err != nil {
		return j, err
	}
	j.sampled = &session.SampledOptions{
		Machine: o.Machine, Sampler: s.Sampler, Seeds: o.Part.Train.List, Cache: s.Cache,
		Sampling: sampling.Options{Fanouts: s.Fanouts, Aggregation: j.aggregation, Replace: s.Replace, Bias: s.Bias,
			Debias: s.Debias},
		Buffers: cmp.Or(s.Buffers, placement.Buffers), Workers: o.workers(devices),
		Opened: &session.OpenedGraph{TraceRows: max(n, cache.TraceRows(optimalTraceBytes))},
	}
	if s.TakesAllEdges() {
		j.sampled.Sampling.Fanouts = slices.Repeat([]int{sampling.All}, int(o.Spec.Settings["layers"]))
	}
	// Schedules and queues ask for larger buffers when batches have been measured.
	switch buffers := j.sampled.Buffers; o.Schedule.Name {
	case "":
		j.batches = scheduler.Held{OnDevice: buffers, Samples: sampling.MostSamples(j.sampled.Workers, buffers),
			Pinned: pipelinedMoves(buffers - 1)}
	case scheduler.MultiQueue:
		j.sampled.Buffers = sampling.QueueBuffers(scheduler.MostQueue) // no more have memory than a plan uses
		j.batches = queuedBatches(multiqueue.Synchronous.Queue)
	default:
		j.sampled.Buffers = sampling.Buffers(o.mostBuffers())
		j.batches = scheduler.LeastHeld(o.Schedule.Name, j.sampled.Workers, info.Unified)
		j.sampled.Routed = o.sharesRoutes() && !info.Unified
		j.sampled.Routed = j.sampled.Routed && (!o.Mapped || j.preloads()) // devices read no mapped file
	}
	return j, nil
}

func (o *Options) workers(devices int) int {
	threads := o.Machine.Threads
	if name := o.Schedule.Name; name == "" || name == scheduler.MultiQueue {
		threads = max(1, threads/devices)
	}
	return cmp.Or(o.Sampling.Workers, o.Stages.Workers, threads)
}

// mostBuffers is the largest buffers of a schedule: of batches that workers have begun, and of batches on the device
// (MorphGL has 10 there), as far as there is memory.
func (o *Options) mostBuffers() (cpu, gpu int) {
	const leastCPU, gpuBuffer = 32, 10
	return max(leastCPU, 2*o.workers(1)), cmp.Or(o.Sampling.Buffers, gpuBuffer)
}

// scheduled tells that a schedule has the batches prepared, by the device too where it can.
func (o *graphJob) scheduled() bool {
	return o.sampled != nil && o.Schedule.Name != "" && o.Schedule.Name != scheduler.MultiQueue
}

// sharesRoutes tells that by the schedule a device may prepare batches.
func (o *Options) sharesRoutes() bool {
	s, err := collective.Find(o.Schedule.Name)
	return o.Schedule.Name == scheduler.Auto || err == nil && s.OnGPU
}

// routed tells that the device may prepare batches: it has memory of its own, and reads that of the host.
func (o *graphJob) routed() bool {
	return o.sampled != nil && o.sampled.Routed && o.Machine.Devices.Info.MapsPinned
}

// preloads tells that the device may sample and gather from a graph that is all in its own memory.
func (o *graphJob) preloads() bool {
	return o.routed() && o.sampled.Cache == "" && sampling.OnDevice(o.sampled.Sampler)
}

// there tells that the rows of samples are those of the whole graph on the one device, which are dense. A cache of rows
// as they are stored has others.
func (p *graphPlan) there(graph *format.Dir) bool {
	return p.where == placement.Device && p.elements == nil && p.sampled != nil && p.devices == 1 &&
		(p.sampled.Cache == "" || p.Machine.Devices.Info.Unified && graph.Layout().DType == gds.Float32)
}

// source is the graph in its place.
func (p *graphPlan) source(graph *format.Dir) session.Source {
	return session.Source{Graph: graph, Mapped: p.Mapped, Place: p.where, Elements: p.elements}
}

// pins tells that topology and features are in pinned memory, for the device to read.
func (p *graphPlan) pins() bool {
	return p.routed() && p.where != placement.Storage && !p.preload && !p.Mapped
}

// keepsSparse tells whether sparse features may be kept as sparse rows: caches, devices that prepare batches by
// themselves, and storage have dense ones.
func (o *graphJob) keepsSparse() bool {
	return (o.sampled == nil || o.sampled.Cache == "") && !o.scheduled() && o.Placement != placement.Storage
}

// pipelinedMoves is the most batches that move at a time, if gpuBuffer are on the device or on their way.
func pipelinedMoves(gpuBuffer int) int { return max(1, min(schedule.PipelinedMoves, gpuBuffer)) }

// queuedBatches counts the batches that wait in queues of a length.
func queuedBatches(length int) scheduler.Held {
	return scheduler.Held{OnDevice: sampling.QueueBuffers(length), Samples: 2 * length, Pinned: pipelinedMoves(length)}
}

// graphPlan is where a graph lies, why, and what that takes.
type graphPlan struct {
	graphJob
	// placement.Device: as a whole on the device; else in chunks, with features in host memory or storage
	where   string
	preload bool // samples are drawn there too, from adjacency lists and features on the device (as DGL preloads them)
	scarce  bool // batches get what memory is left, in the smallest chunks
	route   bool // the device prepares a batch by itself
	spilled bool // what layers put out for all nodes is in scratch files
	reasons []string

	terms                  need.Terms           // but for batches, and for the chunk of a layer
	batch                  sampling.BatchMemory // of each
	inputBytes, modelBytes int64                // the graph in memory; the model's device memory, activations included
	// Device memory of a layer for each node and edge of a chunk, and what does not grow with the chunk.
	nodeBytes, edgeBytes, layers int64
	chunkBytes                   int64 // of device memory for a chunk, where the graph comes in chunks
	// chunkMemory is the memory of the largest chunk, chunkModel what the model keeps of it; 0: not known yet.
	chunkMemory, chunkModel int64
	spillBytes              int64 // of scratch files
	scarceBytes             int64 // what batches are expected to take at most, if there is less
}

// leastChunkBytes and mostChunkBytes bound the memory of chunks that layers are computed in.
const (
	leastChunkBytes = 2 << 20
	mostChunkBytes  = 128 << 20
)

// candidates are the ways to lay out a graph, the best first. Features that are read from storage are dense.
func (o graphJob) candidates() (all []*graphPlan) {
	places, kinds := []string{o.Placement}, []*features.Elements{o.elements}
	auto := o.Placement == placement.Auto
	if o.all {
		places = []string{placement.Device}
	} else if auto {
		places = []string{placement.Device, placement.Host, placement.Storage}
	}
	if !o.keepsSparse() {
		kinds[0] = nil
	} else if o.elements != nil && auto && !o.all {
		kinds = append(kinds, nil)
	}
	for _, o.elements = range kinds {
		for i := range 4 {
			scarce, spilled := i >= 2, i%2 > 0
			for _, where := range places {
				if o.elements != nil && where == placement.Storage ||
					scarce && (o.all || auto && where == placement.Device) ||
					spilled && (!o.maySpill || where == placement.Device) {
					continue
				}
				for _, job := range o.choices() {
					if where == placement.Device && !spilled && job.preloads() {
						all = append(all, &graphPlan{graphJob: job, where: where, preload: true, scarce: scarce})
					}
					all = append(all, &graphPlan{graphJob: job, where: where, scarce: scarce, spilled: spilled})
				}
			}
		}
	}
	return all
}

// choices are the job and, where the schedule decides who prepares batches, the job without a device that does, with
// half of the workers, a quarter, and so on.
func (o graphJob) choices() []graphJob {
	all := []graphJob{o}
	if o.sampled == nil || o.Schedule.Name != scheduler.Auto {
		return all
	}
	if o.sampled.Routed {
		s := *o.sampled
		s.Routed, o.sampled = false, &s
		all = append(all, o)
	}
	for workers := o.sampled.Workers / 2; workers > 0 && o.Sampling.Workers == 0; workers /= 2 {
		s := *o.sampled
		s.Workers, o.sampled = workers, &s
		o.batches = scheduler.LeastHeld(scheduler.Auto, workers, o.Machine.Devices.Info.Unified)
		all = append(all, o)
	}
	return all
}

// planGraph decides where a graph lies: the first candidate that fits. What batches of samples take is an estimate, so
// it decides what is tried first, and refuses nothing: the memory of the device is what bounds them.
func planGraph(graph *format.Dir, job graphJob) (p *graphPlan, err error) {
	if job.all && job.Placement != placement.Auto && job.Placement != placement.Device {
		return nil, session.Refuse("--placement %s: batches of all nodes need the graph on the device (give --batch, or "+
			"another --sampler)", job.Placement)
	}
	all := job.candidates()
	first, why := placement.First(all, func(c *graphPlan) error { return c.fit(graph) })
	var reasons []string
	var refused error // the last candidate that has room for batches
	for i, c := range all {
		whole := c.sampled == job.sampled
		if c.where == placement.Device && whole {
			reasons = nil
		}
		if i == first {
			break
		}
		if !c.scarce {
			refused = why[i]
		}
		if !c.scarce && whole {
			where := c.where
			if c.spilled {
				where += " with layers in " + c.Scratch
			}
			reasons = append(reasons, "not from "+where+": "+why[i].Error())
		}
	}
	if first < 0 {
		if !job.maySpill {
			job.maySpill = true
			if _, err := planGraph(graph, job); err == nil {
				refused = fmt.Errorf("%w (or give --scratch, a folder for layers of all nodes)", refused)
			}
		}
		return nil, refused
	}
	p = all[first]
	if last := len(reasons) - 1; !p.scarce && p.sampled != job.sampled {
		// The last reason is of this place with all workers.
		reasons[last] = fmt.Sprintf("%d of %d workers, and no batch by the device itself: %s", p.sampled.Workers,
			job.sampled.Workers, strings.TrimPrefix(reasons[last], "not from "+p.where+": "))
	}
	if job.Placement == placement.Auto {
		p.reasons = append(reasons, p.reasons...)
	} else if !job.all {
		p.reasons = append(p.reasons, "asked for by --placement")
	}
	if e := p.elements; e != nil {
		p.reasons = append(p.reasons, fmt.Sprintf("features are sparse, and kept so: %s instead of %s",
			units.Bytes(e.Bytes()),
			units.Bytes(gds.Bytes(int(graph.Manifest.Nodes), graph.Manifest.Features, gds.Float32))))
	}
	return p, nil
}

// fit plans for the candidate, or says why it does not fit.
func (p *graphPlan) fit(graph *format.Dir) error {
	m, name := p.Machine, fmt.Sprintf("%s on %d nodes and %d edges", p.Spec.Model, graph.Manifest.Nodes,
		graph.Manifest.Edges)
	if err := p.count(graph); err != nil {
		return err
	}
	var err error
	if p.where == placement.Device {
		if edges := wholegraph.Edges(&graph.Manifest, p.aggregation); edges > sampling.MaxBlockEdges {
			err := fmt.Errorf("%w: %s, as a whole on the device, has %d edges, and a block has 2^32-1 at most",
				machine.ErrDoesNotFit, name, edges)
			if p.all {
				err = fmt.Errorf("%w (give --batch, or another --sampler)", err)
			}
			return err
		}
		err = m.Fits(name+", as a whole on the device,", p.memory())
	} else {
		from := map[string]string{placement.Host: "host memory", placement.Storage: "storage"}[p.where]
		p.chunkBytes = leastChunkBytes
		err = m.Fits(fmt.Sprintf("%s, with features in %s and in chunks on the device,", name, from), p.memory())
		for larger := *p; err == nil && !p.scarce && p.chunkBytes < mostChunkBytes; p.chunkBytes *= 2 {
			if larger.chunkBytes = 4 * p.chunkBytes; m.Fits("", larger.memory()) != nil {
				break
			}
		}
		p.reasons = []string{"layers of all nodes are computed in chunks of up to " +
			units.Bytes(p.chunkBytes).String()}
		if p.spilled {
			p.reasons[0] += fmt.Sprintf(", and kept in %s: %s", p.Scratch, units.Bytes(p.spillBytes))
		}
	}
	if p.scarce {
		p.reasons = append(p.reasons, fmt.Sprintf("batches are expected to take up to %s, for which there may be too "+
			"little room", units.Bytes(p.scarceBytes)))
	}
	return err
}

// explain says what the batches of a graph were expected to need, where there was too little device memory.
func (p *graphPlan) explain(err error) error {
	if p.scarceBytes == 0 || !errors.Is(err, gds.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w; batches and their activations were expected to need up to %s "+
		"(give more --memory, fewer seed nodes by --batch, or a smaller --fanout)", err, units.Bytes(p.scarceBytes))
}

// InferenceRows is how many rows a model that reads a graph is evaluated on at a time.
const InferenceRows = 8192

// optimalTraceBytes is the memory of an optimal cache's look-ahead in trainings.
const optimalTraceBytes = 64 << 20

// The names of terms that are counted again once more is known.
const (
	modelTerm        = "model"
	copiesTerm       = "copies of parameters"
	profiledTerm     = "model while batches are measured"
	neighborhoodTerm = "neighbourhood of validated nodes"
	validationTerm   = "layers of validation"
)

// count lists what the graph in its place, its model and its batches take.
func (p *graphPlan) count(graph *format.Dir) (failed error) {
	bytes := func(bytes int64, err error) int64 {
		failed = cmp.Or(failed, err)
		return bytes
	}
	m, spec, info := &graph.Manifest, p.Spec, p.Machine.Devices.Info
	n, sparse, labels := m.Nodes, p.elements != nil, sampling.LabelsNeed(m).Bytes
	layers, _, stateColumns, err := spec.GraphShape(sparse)
	if err != nil {
		return err
	}
	from := p.source(graph)
	inMemory, onDevice := from.FeatureBytes(), gds.Bytes(int(n), m.Features, gds.Float32)
	if sparse {
		onDevice = inMemory
	}
	topology, edges := from.TopologyBytes(), wholegraph.Edges(m, p.aggregation)
	p.inputBytes = inMemory + topology + labels + 8*n
	evaluated := n
	if rows := len(p.Part.Valid.List) + len(p.Part.Test.List); p.Train && rows > 0 {
		evaluated = int64(rows)
	}
	p.terms = append(slices.Clone(p.Held), from.Terms()...)
	add := func(name string, place need.Place, bytes int64, from, until need.Phase) {
		p.terms = append(p.terms, need.Term{Name: name, Place: place, Bytes: bytes, From: from, Until: until})
	}
	add("lists of nodes", need.Heap, 8*n, "", "")
	add("nodes that are evaluated", need.FirstDevice, (labels/max(n, 1)+8)*evaluated+2*3*gds.Align, // two sets, three
		need.Epoch, "") // vectors each
	if p.sampled != nil && p.Options.Sampling.divides() {
		p.terms = append(p.terms, sampling.PartitionNeed(m)...)
	}
	if p.pins() {
		add("topology in pinned memory", need.Pinned, topology, "", need.Topology)
	}
	if p.preload {
		p.terms = append(p.terms, sampling.AllListsNeed(m)...)
	}

	rows := p.modelRows(n)
	model := bytes(spec.DeviceBytes(rows, p.Train))
	pinned := bytes(spec.PinnedBytes(rows, p.devices, p.gradients, p.Train))
	add(profiledTerm, need.Pinned, pinned, need.Profile, need.Profile)
	add(modelTerm, need.Pinned, pinned, need.Epoch, "")
	add(copiesTerm, need.Heap, bytes(spec.HostBytes(p.devices)), need.Epoch, "")
	if p.gradients > 0 { // what a step changes, as of the last synchronisation
		model += 4 * gds.Aligned(4*bytes(spec.Parameters()))
	}
	var blocks []sampling.BlockShape
	switch {
	case p.all:
		model += labels
		blocks = slices.Repeat([]sampling.BlockShape{{Destinations: n, Sources: n, Edges: edges}}, layers)
	case p.sampled != nil:
		s, seeds := p.sampled, int64((p.BatchRows+p.devices-1)/p.devices) // which devices share
		blocks = sampling.ExpectedBlocks(s.Sampler, s.Sampling.Fanouts, seeds, m, p.aggregation)
		elements := 0.0
		if sparse {
			elements = float64(p.elements.Count()+1) / float64(n)
		}
		rows := sampling.ExpectedRows{Inputs: blocks[0].Sources, Features: m.Features, DType: graph.Layout().DType,
			Cached: s.Cache != "", There: p.there(graph), Elements: elements}
		p.batch = sampling.ExpectedBatch(m, []sampling.ExpectedRows{rows}, s.Sampler, blocks, info.Unified)
		sampler, err := s.SamplerTerms(graph, info, p.where, blocks[0].Sources)
		if err != nil {
			return err
		}
		sampler = append(sampler, sampling.LabelsNeed(m), need.OnHeap("training nodes", n/8+4*int64(len(s.Seeds))))
		for _, t := range sampler.During(need.Profile, "") {
			if t.Place != need.Device {
				t.Bytes *= int64(p.devices)
			}
			p.terms = append(p.terms, t)
		}
	}
	p.route = p.sampled != nil && p.sampled.Routed && !p.scarce
	activations, work := p.computing(blocks, bytes)
	if p.scarce {
		p.scarceBytes = activations + work + int64(p.batches.OnDevice)*p.batch.Device
		p.batches, activations, work = scheduler.Held{}, 0, 0
	}
	add(modelTerm, need.Device, model, need.Profile, "")
	add("activations", need.Device, activations, need.Profile, "")
	add("work along edges", need.Device, work, need.Profile, "")
	p.modelBytes = model + activations + work

	scratch := bytes(spec.GraphBytes(int(n), sparse, false))
	if info.EdgeWork {
		p.edgeBytes = spec.EdgeWorkBytes(1, 1)
	}
	if p.where != placement.Device {
		p.spillBytes = 4 * n * int64(stateColumns)
		p.terms = append(p.terms, wholegraph.ChunksNeed(m, p.aggregation, stateColumns, p.spilled)...)
		const some = 1 << 14
		few, one := min(n, some), bytes(spec.GraphBytes(some, sparse, false))
		p.nodeBytes = (bytes(spec.GraphBytes(2*some, sparse, false)) - one) / some
		p.layers = max(0, bytes(spec.GraphBytes(int(few), sparse, false))-few*p.nodeBytes)
		return failed
	}
	whole := append(wholegraph.OpeningNeed(m, p.aggregation),
		need.Term{Name: "features on the device", Place: need.FirstDevice, Bytes: onDevice, From: need.Features},
		need.Term{Name: "edges on the device", Place: need.FirstDevice, From: need.Edges,
			Bytes: wholegraph.Bytes(m, p.aggregation, p.elements) + 4*gds.Align - onDevice},
		need.Term{Name: "layers of all nodes", Place: need.FirstDevice, Bytes: scratch, From: need.Epoch})
	p.reasons = []string{"the whole graph fits on the device: " + units.Bytes(whole.Peak(need.FirstDevice)).String()}
	if p.preload {
		p.reasons = append(p.reasons, "and the device samples it there")
	}
	p.terms = append(p.terms, whole...)
	since := need.Profile // samples take features from the whole graph where they can
	if sparse {
		since = need.Features
	} else {
		add("features while they are read", need.OffHeap, inMemory, need.Features, need.Features)
	}
	if sparse || p.sampled != nil && !p.there(graph) {
		add("features", need.OffHeap, inMemory, since, "")
	}
	if info.EdgeWork {
		add("work along edges of all nodes", need.FirstDevice, max(0, spec.EdgeWorkBytes(n, edges)-work), need.Profile, "")
	}
	if p.Train {
		neighborhood := wholegraph.NeighborhoodBytes(n, m.Edges)
		if sparse {
			neighborhood += inMemory
		}
		add(neighborhoodTerm, need.FirstDevice, neighborhood, need.Epoch, "")
		add(validationTerm, need.FirstDevice, bytes(spec.GraphBytes(int(n), sparse, true))-scratch, need.Epoch, "")
	}
	return failed
}

// computing is the device memory of activations of these blocks, and of work along edges.
func (p *graphPlan) computing(shapes []sampling.BlockShape, bytes func(int64, error) int64) (activations, work int64) {
	if shapes == nil {
		return 0, 0
	}
	var blocks []loader.Block
	for _, s := range shapes {
		blocks = append(blocks, loader.Block{Destinations: int(s.Destinations), Sources: int(s.Sources)})
	}
	activations = bytes(p.Spec.BlockBytes(blocks[len(blocks)-1].Destinations, blocks, nil, p.elements != nil))
	if p.sampled != nil {
		activations = gds.Room(activations)
	}
	if p.Machine.Devices.Info.EdgeWork {
		work = p.Spec.EdgeWorkBytes(shapes[0].Sources, shapes[0].Edges)
	}
	return activations, work
}

// modelRows is the most rows that a model of a graph of n nodes computes at a time.
func (o *graphJob) modelRows(n int64) int {
	rows := 0
	switch {
	case o.all:
		rows = int(n)
	case o.sampled == nil:
	case sampling.ChoosesSeeds(o.sampled.Sampler):
		rows = min(o.BatchRows*(len(o.sampled.Sampling.Fanouts)+1), len(o.sampled.Seeds))
	default:
		rows = o.BatchRows
	}
	return max(rows, int(min(InferenceRows, n)))
}

// workBytes is the device memory of model, batches and activations.
func (p *graphPlan) workBytes() int64 { return p.modelBytes + int64(p.batches.OnDevice)*p.batch.Device }

// memory is the memory of the plan, as far as it is known by now.
func (p *graphPlan) memory() need.Memory {
	terms := need.Terms{
		{Name: "batches", Place: need.Device, Bytes: int64(p.batches.OnDevice) * p.batch.Device},
		{Name: "batches on their way to the device", Place: need.Pinned,
			Bytes: int64(p.devices*p.batches.Pinned) * p.batch.Pinned},
		{Name: "samples", Place: need.Heap, Bytes: int64(p.devices*p.batches.Samples) * p.batch.Sample},
	}
	if p.route {
		terms = append(terms, need.Term{Name: "batch that the device prepares", Place: need.Device, Bytes: p.batch.Route})
	}
	unified := p.Machine.Devices.Info.Unified
	if p.where != placement.Device {
		memory := cmp.Or(p.chunkMemory, p.chunkBytes)
		terms = append(terms, need.OnHeap("chunk that is sampled", memory), need.Term{Name: "chunk of a layer",
			Place: need.FirstDevice, Bytes: p.layers + memory + p.chunkModel})
		if !unified {
			terms = append(terms, need.Term{Name: "chunk before it is copied", Place: need.Pinned, Bytes: memory})
		}
	}
	return slices.Concat(p.terms, terms.During(need.Profile, "")).Sum(p.devices, unified)
}
