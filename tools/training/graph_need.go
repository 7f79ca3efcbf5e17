package training

import (
	"cmp"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// InferenceRows is how many rows a model that reads a graph is evaluated on at a time.
const InferenceRows = 8192

// optimalTraceBytes is what an optimal cache may take to look ahead in trainings.
const optimalTraceBytes = 64 << 20

// graphNeed is what the parts of a graph, its model and its batches take, in bytes, wherever the features are.
type graphNeed struct {
	topology  hostBytes // with labels and lists of nodes
	features  int64     // as stored, or as sparse rows
	reading   hostBytes // to read features from storage
	tables    hostBytes // of samplers and caches, for all devices
	pinned    int64     // of the model, for all devices
	cacheRows int64     // of the device, or of the host before storage
	batch     sampling.BatchMemory
	// Of the device: parameters with rows of batches, activations of a batch, and nodes that are evaluated.
	model, activations, sets int64
	// The whole graph on the device: the host memory while features and edges come to it, and that of the device for
	// features as float32, for all with what layers put out, and for validation with its layers, at most.
	staging                                            int64
	opening                                            hostBytes
	wholeFeatures, whole, validation, validationLayers int64
	// In chunks: host memory, the device memory of a layer for each node and edge of a chunk, and beside them.
	chunks                       hostBytes
	nodeBytes, edgeBytes, layers int64
	pinning                      int64 // while the topology comes to pinned memory
	traceRows                    int64 // that an optimal cache looks ahead
	edges                        int64 // of a block of all nodes
	float                        bool  // features are stored as float32
}

// needOf counts what a job takes on devices like info.
func (o *graphJob) needOf(graph *format.Dir, info gds.Info) (b graphNeed, err error) {
	m, sparse := &graph.Manifest, o.elements != nil
	layers, _, stateColumns, err := o.spec.GraphShape(sparse)
	if err != nil {
		return b, err
	}
	n, stored := m.Nodes, gds.Bytes(1, m.Features, graph.Layout().DType)
	aggregation, labels := o.aggregation, sampling.LabelBytes(m)
	b.edges, b.float = wholegraph.Edges(m, aggregation), graph.Layout().DType == gds.Float32
	b.topology = hostBytes{sampling.TopologyBytes(m), labels + 8*n}
	b.features, b.wholeFeatures = n*stored, gds.Bytes(int(n), m.Features, gds.Float32)
	if sparse {
		b.features, b.wholeFeatures = o.elements.Bytes(), o.elements.Bytes()
	}
	b.reading.off, b.reading.heap = features.StorageBytes(n, stored, 0)
	if o.scheduled && !info.Unified && info.MapsPinned {
		b.pinning = b.topology.off
	}
	b.opening.off, b.opening.heap = wholegraph.OpeningBytes(m, aggregation)
	b.staging, b.chunks.off = wholegraph.StagingBytes(m), wholegraph.ChunksBytes(m, aggregation, stateColumns)
	scratch, err := o.spec.GraphBytes(int(n), b.edges, sparse, false)
	if err != nil {
		return b, err
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
		both, err := o.spec.GraphBytes(int(n), b.edges, sparse, true)
		if err != nil {
			return b, err
		}
		b.validation, b.validationLayers = wholegraph.NeighborhoodBytes(n, m.Edges), both-scratch
		if sparse {
			b.validation += b.features
		}
	}
	b.sets = (labels/max(n, 1)+8)*cmp.Or(o.evaluated, n) + 2*3*gds.Align // of two sets, three vectors each
	if b.pinned, err = o.spec.PinnedBytes(rows, o.devices, o.gradients, o.train); err != nil {
		return b, err
	}
	if o.gradients > 0 { // what a step changes, as of the last synchronisation
		parameters, err := o.spec.Parameters()
		if err != nil {
			return b, err
		}
		b.model += 4 * gds.Aligned(4*parameters)
	}
	switch {
	case o.all:
		b.model += labels
		shape := sampling.BlockShape{Destinations: n, Sources: n, Edges: b.edges}
		b.activations, err = o.activations(graphBlocks(shape, layers))
		return b, err
	case o.sampler == "":
		return b, nil
	}
	return b, b.countSamples(graph, o, info)
}

func graphBlocks(shape sampling.BlockShape, layers int) (blocks []sampling.BlockShape) {
	for range layers {
		blocks = append(blocks, shape)
	}
	return blocks
}

// activations is what the model computes of a batch of these blocks.
func (o *graphJob) activations(shapes []sampling.BlockShape) (int64, error) {
	var blocks []loader.Block
	for _, s := range shapes {
		blocks = append(blocks, loader.Block{Destinations: int(s.Destinations), Sources: int(s.Sources)})
	}
	return o.spec.BlockBytes(blocks[len(blocks)-1].Destinations, blocks, shapes[0].Edges, o.elements != nil, true)
}

// countSamples counts what batches take that are sampled, with their samplers and caches.
func (b *graphNeed) countSamples(graph *format.Dir, o *graphJob, info gds.Info) error {
	m, dtype := &graph.Manifest, graph.Layout().DType
	seeds := int64((o.seeds + o.devices - 1) / o.devices) // which devices share
	blocks := sampling.ExpectedBlocks(o.sampler, o.fanouts, seeds, m, o.aggregation)
	activations, err := o.activations(blocks)
	if err != nil {
		return err
	}
	b.activations = gds.Room(activations)
	shape := sampling.BatchShapeOf(m, dtype, o.sampler, blocks, info.Unified)
	if shape.Cached = o.cache != ""; o.elements != nil {
		mean := b.features/m.Nodes + 1
		shape.Sparse, shape.RowBytes, shape.FloatBytes = true, mean, mean
	}
	b.batch = shape.Memory()
	shared, each := sampling.SamplerBytes(o.sampler, o.aggregation, m.Weighted, m.Nodes, m.Edges)
	b.tables = hostBytes{shared + int64(o.workers)*each, sampling.LabelBytes(m) + m.Nodes/8 + 4*int64(o.trainSet)}
	if o.cache != "" {
		if err := b.countCache(m, o, info, shape.RowBytes, each, blocks[0].Sources); err != nil {
			return err
		}
	}
	b.tables = b.tables.times(o.devices)
	return nil
}

// countCache counts what a cache of rows takes on each device, where each sampler has so many bytes, and batches have
// so many rows.
func (b *graphNeed) countCache(m *format.Manifest, o *graphJob, info gds.Info, rowBytes, sampler, rows int64) error {
	spec, err := cache.Parse(o.cache)
	if err != nil {
		return session.Refuse("--cache: %s", err)
	}
	if spec.Policy == "optimal" { // it looks ahead by samplers of its own
		b.traceRows = max(m.Nodes, cache.TraceRows(optimalTraceBytes))
		b.tables.off += int64(o.workers) * sampler
	}
	off, heap := sampling.CacheNeed(spec, m, rowBytes, b.traceRows)
	b.tables = b.tables.plus(hostBytes{off, heap})
	slots := spec.Slots(m.Nodes, rowBytes)
	b.cacheRows = slots * rowBytes
	loading := sampling.LoadingBytes(slots, rowBytes)
	if info.Unified {
		b.reading.off += b.cacheRows + loading + gds.Room(rows*rowBytes) // rows that the cache does not have
		return nil
	}
	b.tables.off += loading
	if b.cacheRows += loading; o.scheduled {
		b.cacheRows += sampling.RoutedCacheBytes(m.Nodes)
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

// countLayers counts what a layer takes for each node and edge of a chunk of a graph of n nodes.
func (b *graphNeed) countLayers(spec trainer.Spec, n int64, sparse bool) error {
	const some = 1 << 14
	few := min(n, some)
	var took [4]int64
	for i, size := range [][2]int64{{some, 0}, {2 * some, 0}, {2 * some, some}, {few, 0}} {
		var err error
		if took[i], err = spec.GraphBytes(int(size[0]), size[1], sparse, false); err != nil {
			return err
		}
	}
	b.nodeBytes, b.edgeBytes = (took[1]-took[0])/some, (took[2]-took[1])/some
	b.layers = max(0, took[3]-few*b.nodeBytes) // which does not grow with the nodes
	return nil
}
