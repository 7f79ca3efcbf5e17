package sampling

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
)

// TopologyBytes is the memory of LoadTopology: offsets, sources and weights, in parts that end within a page.
func TopologyBytes(m *format.Manifest) int64 {
	const parts = 8
	perEdge := int64(4)
	if m.Weighted {
		perEdge = 8
	}
	return 8*(m.Nodes+1) + perEdge*m.Edges + parts*gds.Align
}

// LabelBytes is the memory of ReadLabels, on the Go heap.
func LabelBytes(m *format.Manifest) int64 { return m.Nodes * labelRowBytes(m) }

func labelRowBytes(m *format.Manifest) int64 {
	t, columns := loader.LabelType(m)
	return int64(columns * t.Size())
}

// CacheNeed is the host memory of OpenCache and CacheLists for a cache of feature rows, off the Go heap and on it,
// without the rows. An optimal cache looks traceRows rows of batches ahead.
func CacheNeed(spec cache.Spec, m *format.Manifest, rowBytes, traceRows int64) (off, heap int64) {
	heap = spec.TableBytes(m.Nodes, rowBytes) + 12*m.Nodes // and what a batch finds there
	switch spec.Policy {
	case "optimal":
		heap += cache.TraceBytes(traceRows)
	case "ducati": // adjacency lists, and where they are
		off = min(spec.Bytes, 8*m.Edges)
		heap += 12*m.Nodes + min(spec.Bytes-off, 16*m.Nodes)
	}
	return off, heap
}

// LoadingBytes is the pinned memory by way of which rows come to the slots of a cache; a device with memory of its own
// takes as much.
func LoadingBytes(slots, rowBytes int64) int64 { return min(maxLoadRows, slots) * (rowBytes + 4) }

// RoutedCacheBytes is the table of a cache on a device that prepares batches by itself.
func RoutedCacheBytes(nodes int64) int64 { return 4 * nodes }

// BlockShape is the expected size of one block of a batch.
type BlockShape struct{ Destinations, Sources, Edges int64 }

// ExpectedBlocks estimates the blocks of a batch of so many seed nodes, the first layer's first. It takes the mean
// degree for every node, and no node as drawn twice.
func ExpectedBlocks(name string, fanouts []int, seeds int64, m *format.Manifest, a Aggregation) []BlockShape {
	kind := methodKinds[name]
	loops := int64(1) // of each node
	if a == Mean {
		loops = 0
	}
	degree, all := (m.Edges+max(m.Nodes, 1)-1)/max(m.Nodes, 1), m.Edges+loops*m.Nodes
	nodes, layers := seeds, len(fanouts)
	if kind.graphWise { // the subgraph has the nodes of all layers
		nodes = min(m.Nodes, seeds*int64(layers+1))
	}
	blocks := make([]BlockShape, layers)
	for i, fanout := range fanouts {
		each := degree
		if fanout >= 0 {
			each = min(int64(fanout), degree)
		}
		b := BlockShape{nodes, min(m.Nodes, nodes*(each+1)), nodes * (each + loops)}
		switch {
		case kind.graphWise:
			b.Sources, b.Edges = nodes, nodes*(min(nodes, degree)+loops)
		case kind.layerWise: // a fanout is of a layer
			b.Sources, b.Edges = min(m.Nodes, nodes+int64(max(fanout, 0))), nodes*(degree+loops)
		}
		b.Edges = min(all, b.Edges)
		blocks[layers-1-i], nodes = b, b.Sources
	}
	return blocks
}

// BatchMemory is what one batch takes, in bytes.
type BatchMemory struct {
	Device int64 // its buffer on the device
	Pinned int64 // its buffer on the host, of a device with memory of its own
	Sample int64 // on the Go heap, while it is sampled
	Route  int64 // on the device, where that prepares batches by itself
}

// BatchShape says what a batch of a loader holds.
type BatchShape struct {
	Blocks      []BlockShape
	SeedWeights bool
	RowBytes    int64 // of a row of features as stored
	FloatBytes  int64 // of a row as float32
	Sparse      bool  // rows are sparse, of RowBytes on average
	Cached      bool
	LabelBytes  int64 // of a node
	Unified     bool
}

// BatchShapeOf is the shape of batches of a graph, without sparse rows and a cache.
func BatchShapeOf(m *format.Manifest, dtype gds.DType, name string, blocks []BlockShape, unified bool) BatchShape {
	return BatchShape{
		Blocks: blocks, SeedWeights: ChoosesSeeds(name), LabelBytes: labelRowBytes(m), Unified: unified,
		RowBytes: gds.Bytes(1, m.Features, dtype), FloatBytes: gds.Bytes(1, m.Features, gds.Float32),
	}
}

// Memory is what a batch of this shape takes, as Loader.layOut lays it out.
func (s BatchShape) Memory() (b BatchMemory) {
	sources, seeds := s.Blocks[0].Sources, s.Blocks[len(s.Blocks)-1].Destinations
	written := seeds * s.LabelBytes // by the host
	if s.SeedWeights {
		written += 4 * seeds
	}
	edges, most, nodes := int64(0), int64(0), int64(0)
	for _, k := range s.Blocks {
		written += 4*(k.Destinations+1) + 8*k.Edges
		edges, most, nodes = edges+k.Edges, max(most, k.Edges), max(nodes, k.Destinations+k.Edges)
	}
	b.Sample = gds.Room(8*edges + 8*sources)
	if s.Unified {
		b.Device = gds.Aligned(gds.Room(sources*s.FloatBytes + written))
		return b
	}
	b.Route = gds.Room(written+4*most+4*nodes) + int64(3*len(s.Blocks)+4)*gds.Align
	written += sources * s.RowBytes
	device, float := int64(0), s.RowBytes == s.FloatBytes || s.Sparse
	if s.Cached { // rows of the cache and others are put together
		device += sources * s.RowBytes
		written += 12 * sources
	}
	if !float {
		device += sources * s.FloatBytes
	}
	b.Device, b.Pinned = gds.Aligned(gds.Room(device+written)), gds.Aligned(gds.Room(written))
	return b
}
