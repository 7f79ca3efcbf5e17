package training

import (
	"cmp"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

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
