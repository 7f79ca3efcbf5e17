package training

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

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
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// graphJob is what is done with a graph, as far as its memory depends on it.
type graphJob struct {
	spec        trainer.Spec // normalized
	aggregation sampling.Aggregation
	placement   string
	held        need.Terms // by the caller
	devices     int
	train       bool
	evaluated   int64 // nodes of sets in order
	gradients   int   // that wait on each device; 0: none
	all         bool  // batches are all nodes
	// Of trainings on samples:
	sampler   string
	fanouts   []int // -1: all
	seeds     int   // of a batch, or draws
	trainSet  int   // nodes
	cache     string
	workers   int // that sample
	batches   batchCount
	scheduled bool // topology and features are pinned, where the device can read them so
	// elements are the non-zero elements of features that are kept as sparse rows; nil: features are dense.
	elements *features.Elements
}

// job says what the options do with a graph on so many devices. It completes the options.
func (o *Options) job(devices int) (j graphJob, err error) {
	if o.Spec, err = o.Spec.Normalized(); err != nil {
		return j, err
	}
	j = graphJob{spec: o.Spec, placement: cmp.Or(o.Placement, placement.Auto), held: o.Held, devices: devices,
		train: o.Train}
	if j.aggregation, err = trainer.AggregationOf(o.Spec.Model); err != nil || !o.Train {
		return j, err
	}
	s, info := &o.Sampling, o.Machine.Devices.Info
	j.trainSet, j.evaluated = len(o.Part.Train.List), int64(len(o.Part.Valid.List)+len(o.Part.Test.List))
	if !sampling.ChoosesSeeds(s.Sampler) {
		o.BatchRows = min(o.BatchRows, j.trainSet)
	}
	if o.Schedule.Name == scheduler.MultiQueue {
		j.gradients = cmp.Or(o.Schedule.Gradients, multiqueue.MostGradients)
	}
	j.all = s.Sampler == FullSampler && o.BatchRows == j.trainSet && s.Cache == ""
	if err := o.checkTogether(j.all); j.all || err != nil {
		return j, err
	}
	j.sampler, j.fanouts, j.seeds, j.cache = s.Sampler, s.Fanouts, o.BatchRows, s.Cache
	if s.TakesAllEdges() {
		j.fanouts = slices.Repeat([]int{sampling.All}, int(o.Spec.Settings["layers"]))
	}
	// Schedules and queues ask for larger buffers when batches have been measured.
	j.workers = o.workers(devices)
	switch o.Schedule.Name {
	case "":
		buffers := cmp.Or(s.Buffers, placement.Buffers)
		j.batches = batchCount{onDevice: buffers, samples: sampling.MostSamples(j.workers, buffers),
			pinned: pipelinedMoves(buffers - 1)}
	case scheduler.MultiQueue:
		j.batches = queuedBatches(multiqueue.Synchronous.Queue)
	default:
		j.scheduled, j.batches = true, scheduledBatches(1, 1, 2, j.workers, 0, info.Unified)
		j.batches.route = !info.Unified && slices.Contains([]string{scheduler.Auto, "gpu", "mixed", "collective"},
			o.Schedule.Name)
	}
	return j, nil
}

func (o *Options) workers(devices int) int {
	threads := o.Machine.Threads
	switch o.Schedule.Name {
	case "":
		return cmp.Or(o.Sampling.Workers, threads)
	case scheduler.MultiQueue:
		threads = max(1, threads/devices)
	}
	return cmp.Or(o.Sampling.Workers, o.Stages.Workers, threads)
}

// keepsSparse tells whether sparse features may be kept as sparse rows: caches, devices that prepare batches by
// themselves, and storage have dense ones.
func (o *graphJob) keepsSparse() bool {
	return o.cache == "" && !o.scheduled && o.placement != placement.Storage
}

// batchCount is how many batches there are at a time, for each device.
type batchCount struct {
	onDevice int  // buffers that have device memory
	samples  int  // that are being sampled, or wait for a buffer
	pinned   int  // that have pinned memory, of a device with memory of its own
	route    bool // the device prepares some by itself
}

// scheduledBatches counts the batches of a schedule with buffers of these lengths, in epochs of so many batches.
func scheduledBatches(cpuBuffer, gpuBuffer, pinned, workers, batches int, unified bool) batchCount {
	buffers := min(sampling.Buffers(cpuBuffer, gpuBuffer), max(batches, sampling.Buffers(1, 1)))
	c := batchCount{onDevice: min(gpuBuffer+2, buffers), samples: buffers + workers, pinned: pinned}
	if unified {
		c.onDevice = buffers
	}
	return c
}

// pipelinedMoves is how many batches move at a time at most, where so many are on the device or on their way.
func pipelinedMoves(gpuBuffer int) int { return max(1, min(schedule.PipelinedMoves, gpuBuffer)) }

// queuedBatches counts the batches that wait in queues of a length.
func queuedBatches(length int) batchCount {
	return batchCount{onDevice: sampling.QueueBuffers(length), samples: 2 * length, pinned: pipelinedMoves(length)}
}

// graphPlan is where a graph lies, why, and what that takes.
type graphPlan struct {
	// placement.Device: as a whole on the device; else in chunks, with features in host memory or storage
	placement string
	reasons   []string
	job       graphJob
	need      graphNeed
	batches   batchCount
	unified   bool

	chunkBytes int64 // of device memory for a chunk, where the graph comes in chunks
	// chunkMemory is the memory of the largest chunk, chunkModel what the model keeps of it; 0: not known yet.
	chunkMemory, chunkModel int64
	scarceBytes             int64 // what batches are expected to take at most, if there is less
}

// leastChunkBytes and mostChunkBytes bound the memory of chunks that layers are computed in.
const (
	leastChunkBytes = 2 << 20
	mostChunkBytes  = 128 << 20
)

type candidate struct {
	graphJob        // its placement is not placement.Auto
	scarce   bool   // batches get what memory is left, in the smallest chunks
	name     string // of the job, in errors
}

// candidates are the ways to lay out a graph, the best first. Features that are read from storage are dense.
func (o graphJob) candidates(graph *format.Manifest) (all []candidate) {
	places, kinds := []string{o.placement}, []*features.Elements{o.elements}
	auto := o.placement == placement.Auto
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
	name := fmt.Sprintf("%s on %d nodes and %d edges", o.spec.Model, graph.Nodes, graph.Edges)
	for _, o.elements = range kinds {
		for _, scarce := range []bool{false, true} {
			for _, where := range places {
				if o.elements != nil && where == placement.Storage ||
					scarce && (o.all || auto && where == placement.Device) {
					continue
				}
				o.placement = where
				all = append(all, candidate{o, scarce, name})
			}
		}
	}
	return all
}

// planGraph decides where a graph lies: the first candidate that fits. What batches of samples take is an estimate, so
// it decides what is tried first, and refuses nothing: the memory of the device is what bounds them.
func planGraph(m session.Machine, graph *format.Dir, job graphJob) (p graphPlan, err error) {
	if job.all && job.placement != placement.Auto && job.placement != placement.Device {
		return p, session.Refuse("--placement %s: batches of all nodes need the graph on the device (give --batch, or "+
			"another --sampler)", job.placement)
	}
	var reasons []string
	var refused error // the last candidate that has room for batches
	for _, c := range job.candidates(&graph.Manifest) {
		if c.placement == placement.Device {
			reasons = nil
		}
		if p, err = c.plan(m, graph); err == nil {
			break
		}
		if !c.scarce {
			reasons, refused = append(reasons, "not from "+c.placement+": "+err.Error()), err
		}
	}
	if err != nil {
		return p, refused
	}
	if job.placement == placement.Auto {
		p.reasons = append(reasons, p.reasons...)
	} else if !job.all {
		p.reasons = append(p.reasons, "asked for by --placement")
	}
	if e := p.job.elements; e != nil {
		p.reasons = append(p.reasons, fmt.Sprintf("features are sparse, and kept so: %s instead of %s",
			units.Bytes(e.Bytes()),
			units.Bytes(gds.Bytes(int(graph.Manifest.Nodes), graph.Manifest.Features, gds.Float32))))
	}
	return p, nil
}

// plan is the plan of the candidate, or why it does not fit.
func (c *candidate) plan(m session.Machine, graph *format.Dir) (p graphPlan, err error) {
	p = graphPlan{job: c.graphJob, placement: c.placement, batches: c.batches, unified: m.Devices.Info.Unified}
	if p.need, err = c.needOf(graph, m.Devices.Info); err != nil {
		return p, err
	}
	if c.scarce {
		p.scarceBytes = p.workBytes() - p.need.model
		p.batches, p.need.activations, p.need.batchWork = batchCount{}, 0, 0
	}
	if c.placement == placement.Device {
		if edges := p.need.edges; edges > sampling.MaxBlockEdges {
			err := fmt.Errorf("%w: %s, as a whole on the device, has %d edges, and a block has 2^32-1 at most",
				machine.ErrDoesNotFit, c.name, edges)
			if c.all {
				err = fmt.Errorf("%w (give --batch, or another --sampler)", err)
			}
			return p, err
		}
		p.reasons = []string{"the whole graph fits on the device: " + units.Bytes(p.need.whole).String()}
		err = m.Fits(c.name+", as a whole on the device,", p.memory())
	} else {
		from := map[string]string{placement.Host: "host memory", placement.Storage: "storage"}[c.placement]
		p.chunkBytes = leastChunkBytes
		err = m.Fits(fmt.Sprintf("%s, with features in %s and in chunks on the device,", c.name, from), p.memory())
		for larger := p; err == nil && !c.scarce && p.chunkBytes < mostChunkBytes; p.chunkBytes *= 2 {
			if larger.chunkBytes = 4 * p.chunkBytes; m.Fits("", larger.memory()) != nil {
				break
			}
		}
		p.reasons = []string{"layers of all nodes are computed in chunks of up to " +
			units.Bytes(p.chunkBytes).String()}
	}
	if c.scarce {
		p.reasons = append(p.reasons, fmt.Sprintf("batches are expected to take up to %s, for which there may be too "+
			"little room", units.Bytes(p.scarceBytes)))
	}
	return p, err
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

// optimalTraceBytes is what an optimal cache may take to look ahead in trainings.
const optimalTraceBytes = 64 << 20

// graphNeed is what a graph in its place, its model and its batches take.
type graphNeed struct {
	terms need.Terms // that are known before the graph is opened
	// In bytes: the graph in host memory; the graph as a whole on the device.
	input, whole int64
	batch        sampling.BatchMemory
	// Pinned memory of the model, for all devices, in epochs and while batches are measured.
	pinned, profilePinned int64
	// Device memory: parameters and rows of batches, activations of a batch, validated nodes, and their layers.
	model, activations, validation, validationLayers int64
	// Work along edges of a batch and of the whole graph.
	batchWork, wholeWork int64
	// Memory of a layer for each node and edge of a chunk, and what does not grow with the chunk.
	nodeBytes, edgeBytes, layers int64
	traceRows                    int64 // that an optimal cache looks ahead
	edges                        int64 // of a block of all nodes
	float                        bool  // features are stored as float32
}

// needOf counts what a job takes on devices like info, in the job's placement.
func (o *graphJob) needOf(graph *format.Dir, info gds.Info) (b graphNeed, err error) {
	m, sparse := &graph.Manifest, o.elements != nil
	layers, _, stateColumns, err := o.spec.GraphShape(sparse)
	if err != nil {
		return b, err
	}
	scratch, err := o.spec.GraphBytes(int(m.Nodes), sparse, false)
	if err != nil {
		return b, err
	}
	n, stored, labels := m.Nodes, gds.Bytes(1, m.Features, graph.Layout().DType), sampling.LabelsNeed(m)
	b.edges, b.float = wholegraph.Edges(m, o.aggregation), graph.Layout().DType == gds.Float32
	inMemory, onDevice := n*stored, gds.Bytes(int(n), m.Features, gds.Float32) // features
	if sparse {
		inMemory, onDevice = o.elements.Bytes(), o.elements.Bytes()
	}
	topology := sampling.TopologyNeed(m)
	evaluated := (labels.Bytes/max(n, 1)+8)*cmp.Or(o.evaluated, n) + 2*3*gds.Align // of two sets, three vectors each
	b.input = inMemory + topology.Bytes + labels.Bytes + 8*n
	b.terms = append(slices.Clone(o.held), session.Program, topology, labels, need.OnHeap("lists of nodes", 8*n),
		need.Term{Name: "nodes that are evaluated", Place: need.FirstDevice, Bytes: evaluated, From: need.Epoch})
	if o.scheduled && !info.Unified && info.MapsPinned && o.placement != placement.Storage {
		b.terms = append(b.terms, need.Term{Name: "topology in pinned memory", Place: need.Pinned,
			Bytes: topology.Bytes, Until: need.Topology})
	}
	held := need.Term{Name: "features", Place: need.OffHeap, Bytes: inMemory}
	read := need.Term{Name: "features while they are read", Place: need.OffHeap, Bytes: inMemory, From: need.Features,
		Until: need.Features}
	switch o.placement {
	case placement.Device:
		edges := wholegraph.Bytes(m, o.aggregation, o.elements) + 4*gds.Align - onDevice
		whole := append(wholegraph.OpeningNeed(m, o.aggregation),
			need.Term{Name: "features on the device", Place: need.FirstDevice, Bytes: onDevice, From: need.Features},
			need.Term{Name: "edges on the device", Place: need.FirstDevice, Bytes: edges, From: need.Edges},
			need.Term{Name: "layers of all nodes", Place: need.FirstDevice, Bytes: scratch, From: need.Epoch})
		b.whole = whole.Peak(need.FirstDevice)
		b.terms = append(b.terms, whole...)
		switch { // samples take features from the whole graph where the host can read it
		case sparse:
			held.From = need.Features
			b.terms = append(b.terms, held)
		case o.sampler != "" && !(info.Unified && b.float):
			held.From = need.Profile
			b.terms = append(b.terms, held, read)
		default:
			b.terms = append(b.terms, read)
		}
	case placement.Host:
		b.terms = append(append(b.terms, wholegraph.ChunksNeed(m, o.aggregation, stateColumns)...), held)
	default:
		b.terms = slices.Concat(b.terms, wholegraph.ChunksNeed(m, o.aggregation, stateColumns),
			features.StorageNeed(n, stored).During(need.Profile, ""))
	}
	if info.EdgeWork {
		b.wholeWork, b.edgeBytes = o.spec.EdgeWorkBytes(n, b.edges), o.spec.EdgeWorkBytes(1, 1)
	}
	if err := b.countLayers(o.spec, n, sparse); err != nil {
		return b, err
	}
	rows := o.modelRows(n)
	if b.model, err = o.spec.DeviceBytes(rows, o.train); err != nil {
		return b, err
	}
	if o.train {
		both, err := o.spec.GraphBytes(int(n), sparse, true)
		if err != nil {
			return b, err
		}
		b.validation, b.validationLayers = wholegraph.NeighborhoodBytes(n, m.Edges), both-scratch
		if sparse {
			b.validation += inMemory
		}
	}
	if b.pinned, err = o.spec.PinnedBytes(rows, o.devices, o.gradients, o.train); err != nil {
		return b, err
	}
	b.profilePinned = b.pinned
	if o.gradients > 0 { // what a step changes, as of the last synchronisation
		parameters, err := o.spec.Parameters()
		if err != nil {
			return b, err
		}
		b.model += 4 * gds.Aligned(4*parameters)
	}
	switch {
	case o.all:
		b.model += labels.Bytes
		shape := sampling.BlockShape{Destinations: n, Sources: n, Edges: b.edges}
		err = b.countActivations(o, slices.Repeat([]sampling.BlockShape{shape}, layers), info)
	case o.sampler != "":
		err = b.countSamples(graph, o, info)
	}
	return b, err
}

// countActivations counts what the model computes of a batch of these blocks.
func (b *graphNeed) countActivations(o *graphJob, shapes []sampling.BlockShape, info gds.Info) (err error) {
	var blocks []loader.Block
	for _, s := range shapes {
		blocks = append(blocks, loader.Block{Destinations: int(s.Destinations), Sources: int(s.Sources)})
	}
	b.activations, err = o.spec.BlockBytes(blocks[len(blocks)-1].Destinations, blocks, o.elements != nil)
	if info.EdgeWork {
		b.batchWork = o.spec.EdgeWorkBytes(shapes[0].Sources, shapes[0].Edges)
	}
	return err
}

// countSamples counts what batches take that are sampled, with their samplers and caches.
func (b *graphNeed) countSamples(graph *format.Dir, o *graphJob, info gds.Info) error {
	m, dtype := &graph.Manifest, graph.Layout().DType
	seeds := int64((o.seeds + o.devices - 1) / o.devices) // which devices share
	blocks := sampling.ExpectedBlocks(o.sampler, o.fanouts, seeds, m, o.aggregation)
	if err := b.countActivations(o, blocks, info); err != nil {
		return err
	}
	b.activations = gds.Room(b.activations)
	elements := 0.0
	if o.elements != nil {
		elements = float64(o.elements.Count()+1) / float64(m.Nodes)
	}
	b.batch = sampling.ExpectedBatch(m, dtype, o.sampler, blocks, info.Unified, o.cache != "", elements)
	samplers, tables := o.workers, need.Terms{sampling.LabelsNeed(m),
		need.OnHeap("training nodes", m.Nodes/8+4*int64(o.trainSet))}
	if o.cache != "" {
		spec, err := cache.Parse(o.cache)
		if err != nil {
			return session.Refuse("--cache: %s", err)
		}
		if spec.Policy == "optimal" { // it looks ahead by samplers of its own
			b.traceRows, samplers = max(m.Nodes, cache.TraceRows(optimalTraceBytes)), 2*o.workers
		}
		stored := gds.Bytes(1, m.Features, dtype)
		tables = append(tables, sampling.CacheNeed(spec, m, stored, b.traceRows)...)
		rows := sampling.RowCacheNeed(spec.Slots(m.Nodes, stored), stored, m.Nodes, blocks[0].Sources, info.Unified,
			o.scheduled).During(need.Profile, "")
		if !info.Unified || o.placement == placement.Storage { // else it gains nothing by rows in other memory
			tables = append(tables, rows...)
		}
	}
	tables = append(tables, sampling.SamplersNeed(o.sampler, o.aggregation, m, samplers))
	for _, t := range tables.During(need.Profile, "") {
		if t.Place != need.Device {
			t.Bytes *= int64(o.devices)
		}
		b.terms = append(b.terms, t)
	}
	return nil
}

// modelRows is the most rows that a model of a graph of n nodes computes at a time.
func (o *graphJob) modelRows(n int64) int {
	rows := o.seeds
	switch {
	case o.all:
		rows = int(n)
	case sampling.ChoosesSeeds(o.sampler):
		rows = min(o.seeds*(len(o.fanouts)+1), o.trainSet)
	}
	return max(rows, int(min(InferenceRows, n)))
}

// countLayers counts what a layer takes for each node of a chunk of a graph of n nodes.
func (b *graphNeed) countLayers(spec trainer.Spec, n int64, sparse bool) (err error) {
	const some = 1 << 14
	few := min(n, some)
	var took [3]int64
	for i, nodes := range []int64{some, 2 * some, few} {
		if took[i], err = spec.GraphBytes(int(nodes), sparse, false); err != nil {
			return err
		}
	}
	b.nodeBytes = (took[1] - took[0]) / some
	b.layers = max(0, took[2]-few*b.nodeBytes) // which does not grow with the nodes
	return nil
}

// workBytes is what the model, its batches and its activations take of the device.
func (p *graphPlan) workBytes() int64 {
	return p.need.model + p.need.activations + p.need.batchWork + int64(p.batches.onDevice)*p.need.batch.Device
}

// memory is the memory of the plan, as far as it is known by now.
func (p *graphPlan) memory() need.Memory {
	b, o, c := &p.need, &p.job, &p.batches
	devices := int64(o.devices)
	terms := slices.Clone(b.terms)
	add := func(name string, place need.Place, bytes int64, from, until need.Phase) {
		if bytes > 0 {
			terms = append(terms, need.Term{Name: name, Place: place, Bytes: bytes, From: from, Until: until})
		}
	}
	add("model", need.Device, b.model, need.Profile, "")
	add("activations", need.Device, b.activations, need.Profile, "")
	add("batches", need.Device, int64(c.onDevice)*b.batch.Device, need.Profile, "")
	add("model while batches are measured", need.Pinned, b.profilePinned, need.Profile, need.Profile)
	add("model", need.Pinned, b.pinned, need.Epoch, "")
	add("batches on their way to the device", need.Pinned, devices*int64(c.pinned)*b.batch.Pinned, need.Profile, "")
	add("samples", need.Heap, devices*int64(c.samples)*b.batch.Sample, need.Profile, "")
	if c.route {
		add("batch that the device prepares", need.Device, b.batch.Route, need.Profile, "")
	}
	if p.placement == placement.Device {
		add("work along edges of all nodes", need.FirstDevice, max(0, b.wholeWork-b.batchWork), need.Profile, "")
		add("neighbourhood of validated nodes", need.FirstDevice, b.validation, need.Epoch, "")
		add("layers of validation", need.FirstDevice, b.validationLayers, need.Epoch, "")
	} else {
		memory := cmp.Or(p.chunkMemory, p.chunkBytes)
		add("chunk of a layer", need.FirstDevice, b.layers+memory+p.chunkModel, need.Profile, "")
		if add("chunk that is sampled", need.Heap, memory, need.Profile, ""); !p.unified {
			add("chunk before it is copied", need.Pinned, memory, need.Profile, "")
		}
	}
	add("work along edges", need.Device, b.batchWork, need.Profile, "")
	return terms.Sum(o.devices, p.unified)
}
