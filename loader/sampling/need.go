package sampling

import (
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
)

// TopologyNeed is the memory of LoadTopology: offsets, sources and weights, in parts that end within a page.
func TopologyNeed(m *format.Manifest) need.Term {
	const parts = 8
	perEdge := int64(4)
	if m.Weighted {
		perEdge = 8
	}
	return need.Term{Name: "topology", Place: need.OffHeap, Bytes: 8*(m.Nodes+1) + perEdge*m.Edges + parts*gds.Align}
}

// LabelsNeed is the memory of loader.ReadLabels.
func LabelsNeed(m *format.Manifest) need.Term {
	labels := loader.LabelsOf(m)
	return need.Term{Name: "labels", Place: need.Heap, Bytes: m.Nodes * int64(labels.RowBytes())}
}

// SamplersNeed is the memory of a method's samplers, which share factors, the places of self-loops, and what
// the method prepares. Each has local ids.
func SamplersNeed(name string, a Aggregation, m *format.Manifest, samplers int) need.Term {
	shared, each := int64(0), 4*m.Nodes
	if a == Sym || a == Mean && m.Weighted { // a factor for each list
		shared += 4 * max(m.Nodes, m.Rows)
	}
	if a == Sym || a == Plain {
		shared += 4 * m.Nodes
	}
	if kind := methodKinds[name]; kind != nil {
		shared += kind.nodeBytes*m.Nodes + kind.edgeBytes*m.Edges
		if kind.relabels {
			each += 4 * m.Nodes
		}
	}
	return need.Term{Name: "samplers", Place: need.OffHeap, Bytes: shared + int64(samplers)*each}
}

// CacheNeed is the host memory of OpenCaches for caches of the feature rows of types, without the rows. Optimal caches
// look traceRows rows of batches ahead in all.
func CacheNeed(spec cache.Spec, types []cache.Rows, traceRows int64) need.Terms {
	table := int64(0)
	for i, one := range spec.Divide(types) {
		t := types[i]
		table += one.TableBytes(t.Nodes, t.Bytes) + 12*t.Nodes // and what a batch finds there
	}
	terms := need.Terms{{Name: "table of the cache", Place: need.Heap, Bytes: table}}
	if spec.Policy == "optimal" {
		terms = append(terms, need.Term{Name: "rows of coming batches", Place: need.Heap,
			Bytes: cache.TraceBytes(traceRows)})
	}
	return terms
}

// BlockShape is the size of one block of a batch. Parts are as in Block.
type BlockShape struct {
	Destinations, Sources, Edges int64
	Parts                        []uint32
}

// ExpectedBlocks estimates the blocks of a batch of seed nodes of the target, the first layer's first, and the nodes of
// each type among its inputs. It takes the mean degree for every node, and no node as drawn twice. A batch of a
// typed graph has the blocks that Options.ByType makes.
func ExpectedBlocks(s *Shape, name string, fanouts []int, seeds int64, a Aggregation) (blocks []BlockShape,
	inputs []int64) {
	kind := methodKinds[name]
	loops := int64(1) // of each node
	if a == Mean {
		loops = 0
	}
	sum := func(counts []int64) (n int64) {
		for _, c := range counts {
			n += c
		}
		return n
	}
	inputs = make([]int64, len(s.Types))
	if inputs[s.Target()] = seeds; kind.graphWise { // the subgraph has the nodes of all layers
		inputs[0] = min(s.All.Nodes, seeds*int64(len(fanouts)+1))
	}
	for _, fanout := range fanouts {
		more, nodes, edges, rows, parts := slices.Clone(inputs), sum(inputs), int64(0), int64(0), []uint32{0}
		add := func(more int64) {
			rows += more
			parts = append(parts, uint32(rows))
		}
		for _, r := range s.Relations {
			from, to, degree := s.Types[r.From].Nodes, inputs[r.To], s.degree(r)
			each := degree
			if fanout >= 0 {
				each = min(int64(fanout), degree)
			}
			along, all := to*(each+loops), r.Edges+loops*s.Types[r.To].Nodes
			switch {
			case kind.graphWise:
				along = to * (min(to, degree) + loops)
			case kind.layerWise: // a fanout is of a layer
				along, more[0] = to*(degree+loops), min(from, to+int64(max(fanout, 0)))
				if kind.apart && fanout >= 0 {
					more[0] = min(from, int64(fanout))
				}
			default:
				more[r.From] = min(from, more[r.From]+min(r.Edges, to*each))
			}
			edges += min(all, along)
			add(to)
		}
		block := BlockShape{Destinations: nodes, Sources: sum(more), Edges: edges}
		if s.Typed == nil {
			blocks = append(blocks, block)
		} else {
			for _, n := range inputs {
				add(n)
			}
			blocks = append(blocks, BlockShape{Destinations: nodes, Sources: rows, Edges: rows},
				BlockShape{rows, block.Sources, edges + nodes, parts})
		}
		inputs = more
	}
	slices.Reverse(blocks)
	return blocks, inputs
}

// BatchMemory is the memory of one batch, in bytes.
type BatchMemory struct {
	Device int64 // its buffer on the device
	Pinned int64 // its buffer on the host, if the device has memory of its own
	Sample int64 // on the Go heap, while it is sampled
	Route  int64 // on the device, where that prepares batches by itself
}

// ExpectedRows are the rows of a type in a batch.
type ExpectedRows struct {
	Inputs   int64
	Features int
	DType    gds.DType
	Cached   bool    // in device memory
	There    bool    // all are on the device (features.Resident)
	Elements float64 // of a sparse row, on average; 0: rows are dense
}

// ExpectedBatch is what a batch of a graph with these blocks and rows takes. All its rows may miss the caches.
func ExpectedBatch(m *format.Manifest, types []ExpectedRows, name string, blocks []BlockShape, unified bool) (
	b BatchMemory) {
	f, sources := form{unified: unified, labels: loader.LabelsOf(m)}, int(blocks[0].Sources)
	seeds := int(blocks[len(blocks)-1].Destinations)
	size := batchSize{seeds: seeds, inputs: sources}
	for _, t := range types {
		f.types = append(f.types, typeForm{columns: t.Features, dtype: t.DType, cached: t.Cached,
			gathers: t.There && !unified, sparse: t.Elements > 0})
		n := int(t.Inputs)
		size.types = append(size.types, typeSize{inputs: n, elements: int(t.Elements * float64(n)), misses: n, into: n})
	}
	if ChoosesSeeds(name) {
		size.seedWeights = seeds
	}
	edges, most, nodes := int64(0), int64(0), int64(0)
	for _, k := range blocks {
		edges, most, nodes = edges+k.Edges, max(most, k.Edges), max(nodes, k.Destinations+k.Edges)
		size.blocks = append(size.blocks, blockSize{int(k.Destinations), int(k.Destinations), int(k.Sources), int(k.Edges)})
	}
	var p layout
	f.layOut(&p, &size)
	b.Device, b.Sample = gds.Aligned(gds.Room(p.bytes())), gds.Room(8*edges+8*int64(sources))
	if unified {
		return b
	}
	b.Pinned = gds.Aligned(gds.Room(p.written))
	b.Route = gds.Room(p.host.Offset+p.end-p.labels.Offset+4*most+4*nodes) + int64(3*len(blocks)+3)*gds.Align
	return b
}

// BatchBytes bounds the memory of a mini-batch, and of its sampler beside the table of local ids, in a
// graph of n nodes and m edges. A labor batch may exceed it slightly: its fanouts are expected numbers.
func BatchBytes(name string, o Options, seeds, n, m int64) int64 {
	kind := methodKinds[name]
	if kind == nil {
		return 0
	}
	ofNode, ofEdge := int64(4+4), int64(4+4) // input, offset of a block; source, weight
	if o.EdgeIDs {
		ofEdge += 8
	}
	if o.Disjoint {
		ofNode += 48 // local id by tree and node
	}
	const (
		ofChosen = 8 + 4 + 4 + 4  // number, coefficient, source, weight in the graph; of a chunk
		ofDrawn  = 4 + 8 + 8 + 28 // source, weight, sum or coefficient, draw; of a layer
	)
	if o.Disjoint { // each seed's tree may have all nodes
		n, m = n*max(seeds, 1), m*max(seeds, 1)
	}
	nodes := min(seeds, n)
	if kind.graphWise {
		nodes = min(n, seeds*int64(len(o.Fanouts)+1))
	}
	bytes, scratch := int64(0), int64(0)
	for _, fanout := range o.Fanouts {
		f := int64(fanout) * max(kind.fanouts, 1)
		edges, sources := nodes*f, nodes*f
		if fanout == All || kind.graphWise || name == "full" || edges > m && !o.Replace {
			edges, sources = m, m
		}
		if kind.layerWise && fanout != All {
			edges, sources = min(nodes*f, m), f
			drawn := min(n, m+nodes) // LADIES looks at all sources of the layer
			if kind.prepare != nil {
				drawn = min(drawn, 2*f)
			}
			scratch = max(scratch, ofDrawn*drawn)
		}
		edges += nodes // self-loops
		bytes += ofEdge*edges + ofNode*nodes
		scratch = max(scratch, ofChosen*min(edges, chunkNodes*(max(f, 0)+1)))
		switch {
		case kind.graphWise:
			nodes = min(n, seeds*int64(len(o.Fanouts)+1))
		case kind.apart && fanout != All:
			nodes = min(n, sources)
		default:
			nodes = min(n, nodes+sources)
		}
	}
	return (bytes + scratch + ofNode*nodes) * 5 / 4 // as slices grow
}

// PinnedBuffers is how many batches are expected to have pinned memory at a time, by rules: batches on their way to the
// device and, unless rows are gathered as a batch moves or there is one batch at a time, batches being gathered and the
// predicted number that wait.
func PinnedBuffers(r schedule.Rules, waiting int) int {
	moving := max(r.Moving, 1)
	if r.LateGather || r.Serial {
		return moving
	}
	return min(r.CPUBuffer, r.CPUBatches, waiting+max(r.Workers, 1)) + moving
}
