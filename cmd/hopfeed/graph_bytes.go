package main

import (
	"cmp"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/trainer"
)

// memoryPlan is the memory that a job takes at most, in bytes.
type memoryPlan struct {
	HostBytes   int64 `json:"host_bytes"`   // that is not the device's
	HeapBytes   int64 `json:"heap_bytes"`   // the part of HostBytes on the heap of Go
	DeviceBytes int64 `json:"device_bytes"` // of the device that takes most
	// OtherBytes are of each other device.
	OtherBytes int64 `json:"other_device_bytes,omitempty"`
}

// hostBytes is host memory.
type hostBytes struct {
	off  int64 // off the heap of Go, pinned or not
	heap int64
}

func (b hostBytes) plus(more hostBytes) hostBytes {
	return hostBytes{b.off + more.off, b.heap + more.heap}
}

func (b hostBytes) times(n int) hostBytes { return hostBytes{int64(n) * b.off, int64(n) * b.heap} }

// graphBytes are the parts of what a graph takes, in bytes.
type graphBytes struct {
	topology hostBytes // with labels and lists of nodes
	features int64     // as stored
	reading  hostBytes // to read features from storage
	tables   hostBytes // of samplers and caches, for all devices
	chunks   hostBytes // of a graph in chunks: its sampler, and what layers put out for all nodes
	pinned   int64     // of the model, for all devices
	pinning  int64     // while the topology comes to pinned memory
	staging  int64     // by way of which features come to the device
	opening  hostBytes // while edges come to the device as a whole
	// Of the device:
	wholeFeatures, whole int64 // the features of the graph as a whole, and all of it with what layers put out
	model                int64 // parameters, and rows of batches
	sets                 int64 // labels and numbers of the nodes that are evaluated
	validation           int64 // what validation of a graph as a whole takes beside it, at most
	validationLayers     int64 // and what layers put out for it
	activations          int64 // of nodes of a batch; about
	cacheRows            int64 // or of the host before storage
	// What a layer of a chunk takes for each of its nodes and edges, and beside.
	nodeBytes, edgeBytes, scratch int64
	traceRows                     int64 // that an optimal cache looks ahead
	batch                         batchBytes

	nodes, edges int64 // of a block of all nodes
	float        bool  // features are stored as float32
}

// batchBytes estimates what a batch of samples takes, in bytes.
type batchBytes struct {
	device int64 // in a buffer on the device
	pinned int64 // of the host, beside it
	sample int64 // on the heap, on its way
	route  int64 // of the device, to prepare batches by itself
}

// optimalTraceBytes is what an optimal cache may take to look ahead in trainings.
const optimalTraceBytes = 64 << 20

// countGraph counts what a graph takes in bytes.
func (a *app) countGraph(graph *format.Dir, o graphNeeds, info gds.Info) (b graphBytes, err error) {
	m, sparse := &graph.Manifest, o.elements != nil
	layers, _, stateColumns, err := o.spec.GraphShape(sparse)
	if err != nil {
		return b, err
	}
	aggregation, err := trainer.AggregationOf(o.spec.Model)
	if err != nil {
		return b, err
	}
	n, stored := m.Nodes, gds.Bytes(1, m.Features, graph.Layout().DType)
	labelType, labelColumns := loader.LabelType(m)
	labels := int64(labelColumns * labelType.Size())
	perEdge := int64(4)
	if m.Weighted {
		perEdge = 8
	}
	edges := m.Edges // of a block of all nodes
	if aggregation != sampling.Mean {
		edges += n
	}
	const parts = 8 // buffers of the host, each of which ends within a page
	b.topology = hostBytes{8*(n+1) + perEdge*m.Edges + parts*gds.Align, (labels + 8) * n}
	b.nodes, b.edges, b.float = n, edges, graph.Layout().DType == gds.Float32
	if b.features = n * stored; sparse {
		b.features = o.elements.Bytes()
	}
	b.reading.off, b.reading.heap = features.StorageBytes(n, stored, 0)
	if o.scheduled && !info.Unified && info.MapsPinned {
		b.pinning = b.topology.off
	}
	shared, each := sampling.SamplerBytes("full", aggregation, m.Weighted, n, m.Edges)
	b.opening = hostBytes{shared + each + 4*max(edges, n+1), 20*edges + 8*n} // its upload; the block, in memory that grows
	b.staging = min(8<<20, gds.Bytes(int(n), m.Features, gds.Float32))
	const statesStaging = 2048
	b.chunks.off = shared + each + (n+statesStaging)*int64(stateColumns)*4
	scratch, err := o.spec.GraphBytes(int(n), edges, sparse, false)
	if err != nil {
		return b, err
	}
	if b.wholeFeatures = gds.Bytes(int(n), m.Features, gds.Float32); sparse {
		b.wholeFeatures = b.features
	}
	b.whole = wholegraph.Bytes(m, aggregation, o.elements) + 4*gds.Align + scratch
	if err := b.countLayers(o.spec, n, sparse); err != nil {
		return b, err
	}
	rows := o.modelRows(n)
	if b.model, err = o.spec.DeviceBytes(rows, o.train); err != nil {
		return b, err
	}
	if o.train {
		if b.validation = wholegraph.NeighborhoodBytes(n, m.Edges); sparse {
			b.validation += b.features
		}
		both, err := o.spec.GraphBytes(int(n), edges, sparse, true)
		if err != nil {
			return b, err
		}
		b.validationLayers = both - scratch
	}
	b.sets = (labels+8)*cmp.Or(o.evaluated, n) + 2*3*gds.Align // of two sets, three vectors each
	devices := max(1, len(o.devices))
	if b.pinned, err = o.spec.PinnedBytes(rows, devices, o.gradients, o.train); err != nil {
		return b, err
	}
	if o.gradients > 0 { // what a step changes, as of the last synchronisation
		parameters, err := o.spec.Parameters()
		if err != nil {
			return b, err
		}
		b.model += 4 * gds.Aligned(4*parameters)
	}
	if o.all {
		blocks := make([]loader.Block, layers)
		for i := range blocks {
			blocks[i] = loader.Block{Destinations: int(n), Sources: int(n)}
		}
		b.model += labels * n
		b.activations, err = o.spec.BlockBytes(int(n), blocks, edges, sparse, true)
		return b, err
	}
	if o.sampler == "" {
		return b, nil
	}
	blocks, sampled := estimateBlocks(m, o, aggregation)
	if b.activations, err = o.spec.BlockBytes(blocks[len(blocks)-1].Destinations, blocks, sampled[0], sparse, true); err != nil {
		return b, err
	}
	b.activations = gds.Room(b.activations)
	b.countBatch(graph, o, info, blocks, sampled)
	shared, each = sampling.SamplerBytes(o.sampler, aggregation, m.Weighted, n, m.Edges)
	b.tables = hostBytes{shared + int64(o.workers)*each, labels*n + n/8 + 4*int64(o.trainSet)}
	if o.cache != "" {
		if err := b.countCache(graph, o, info, each, int64(blocks[0].Sources)); err != nil {
			return b, err
		}
	}
	b.tables = b.tables.times(devices)
	return b, nil
}

// modelRows is the most rows that a model of a graph of n nodes computes at a time.
func (o *graphNeeds) modelRows(n int64) int {
	rows := o.seeds
	if sampling.ChoosesSeeds(o.sampler) {
		rows = min(o.seeds*(len(o.fanouts)+1), o.trainSet)
	}
	if o.all {
		return int(n)
	}
	return max(rows, inferenceRows)
}

// countLayers counts what a layer takes for each node and edge of a chunk of a graph of n nodes.
func (b *graphBytes) countLayers(spec trainer.Spec, n int64, sparse bool) error {
	const some = 1 << 14
	less, err := spec.GraphBytes(some, 0, sparse, false)
	if err != nil {
		return err
	}
	more, err := spec.GraphBytes(2*some, some, sparse, false)
	if err != nil {
		return err
	}
	both, err := spec.GraphBytes(2*some, 0, sparse, false)
	if err != nil {
		return err
	}
	b.nodeBytes, b.edgeBytes = (both-less)/some, (more-both)/some
	// What does not grow with the nodes, which is less only where there are few.
	few := min(n, some)
	all, err := spec.GraphBytes(int(few), 0, sparse, false)
	b.scratch = max(0, all-few*b.nodeBytes)
	return err
}

// countBatch counts what a batch takes.
func (b *graphBytes) countBatch(graph *format.Dir, o graphNeeds, info gds.Info, blocks []loader.Block, edges []int64) {
	m, layout := &graph.Manifest, graph.Layout()
	labelType, labelColumns := loader.LabelType(m)
	sources := int64(blocks[0].Sources)
	seeds := int64(blocks[len(blocks)-1].Destinations)
	written := seeds * int64(labelColumns*labelType.Size())
	all, most, nodes := int64(0), int64(0), int64(0)
	for i, e := range edges {
		written += 4*int64(blocks[i].Destinations+1) + 8*e
		all, most, nodes = all+e, max(most, e), max(nodes, int64(blocks[i].Destinations)+e)
	}
	if sampling.ChoosesSeeds(o.sampler) {
		written += 4 * seeds
	}
	float, stored := gds.Bytes(int(sources), m.Features, gds.Float32), sources*gds.Bytes(1, m.Features, layout.DType)
	if o.elements != nil {
		float = sources * (b.features/m.Nodes + 1) // the mean
		stored = float
	}
	b.batch.sample = gds.Room(8*all + 8*sources)
	if info.Unified {
		b.batch.device = gds.Aligned(gds.Room(float + written))
		return
	}
	b.batch.route = gds.Room(written+4*most+4*nodes) + int64(3*len(blocks)+4)*gds.Align
	written += stored
	device := int64(0)
	switch {
	case o.cache != "": // rows of the cache and others are put together
		device += stored
		written += 12 * sources
		if layout.DType != gds.Float32 {
			device += float
		}
	case layout.DType != gds.Float32 && o.elements == nil:
		device += float
	}
	b.batch.device, b.batch.pinned = gds.Aligned(gds.Room(device+written)), gds.Aligned(gds.Room(written))
}

// countCache counts what a cache of rows takes on each device, where each sampler has so many bytes, and batches so many
// rows.
func (b *graphBytes) countCache(graph *format.Dir, o graphNeeds, info gds.Info, sampler, rows int64) error {
	m := &graph.Manifest
	n, stored := m.Nodes, gds.Bytes(1, m.Features, graph.Layout().DType)
	spec, err := cache.Parse(o.cache)
	if err != nil {
		return usagef("--cache: %s", err)
	}
	slots := spec.Slots(n, stored)
	b.cacheRows = slots * stored
	b.tables.heap += spec.TableBytes(n, stored) + 12*n // and what a batch finds there
	switch spec.Policy {
	case "optimal": // it looks ahead by samplers of its own
		b.traceRows = max(n, cache.TraceRows(optimalTraceBytes))
		b.tables.heap += cache.TraceBytes(b.traceRows)
		b.tables.off += int64(o.workers) * sampler
	case "ducati": // of rows and lists
		b.tables.off += min(spec.Bytes, 8*m.Edges)
	}
	loading := min(4096, slots) * (stored + 4)
	if info.Unified {
		b.reading.off += b.cacheRows + loading + gds.Room(rows*stored) // rows that the cache does not have
		return nil
	}
	b.tables.off += loading
	b.cacheRows += loading
	if o.scheduled {
		b.cacheRows += 4 * n // where rows are, for the device
	}
	return nil
}
