// Package wholegraph brings a graph to a device, features and edges: for inference layer by layer over all nodes as
// a whole or in chunks, and as a whole for training on batches of all nodes.
package wholegraph

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// Options say what is read of a graph.
type Options struct {
	Graph       *format.Dir
	Topology    sampling.Topology
	Aggregation sampling.Aggregation // of the weights of edges
	Threads     int                  // 0: parallel.Threads
	// Features has the graph's features; nil: they are read. Topology and Features stay open as long as the Graph if it
	// comes in chunks, or Neighborhood is called, and are not used after Open otherwise.
	Features features.Source
	// ChunkBytes is not 0 where the graph is to come in chunks, for inference alone: the device memory for one of
	// them, with what the model keeps of each of its nodes and edges. A chunk of one node with many in-neighbours may
	// take more, as LargestChunk says.
	ChunkBytes, NodeBytes, EdgeBytes int64
	// Scratch is a folder for what layers put out for all nodes of a graph in chunks; nil: that is in host memory.
	Scratch *folder.Scratch
}

// Graph is on a device until Close. Its sets may be used as long, one epoch at a time for each.
type Graph struct {
	device gds.Device
	stream gds.Stream
	o      Options
	x      gds.Tensor
	sparse *loader.SparseRows // not nil: the elements of x, which has no memory
	block  loader.Block       // of all nodes
	labels *loader.Labels
	memory gds.Memory
	chunks *chunks // nil: the graph is on the device
}

// Bytes is the device memory that the graph takes at least: features as float32, or as sparse rows if they have
// elements, offsets, and source and weight of each edge, where as many self-loops may be added as there are nodes.
func Bytes(m *format.Manifest, a sampling.Aggregation, elements *features.Elements) int64 {
	rows := gds.Bytes(int(m.Nodes), m.Features, gds.Float32)
	if elements != nil {
		rows = elements.Bytes()
	}
	return rows + 4*(m.Nodes+1) + 8*Edges(m, a)
}

// Open reads a graph to a device, or prepares to read its chunks.
func Open(ctx context.Context, device gds.Device, o Options) (_ *Graph, err error) {
	g := &Graph{device: device, o: o, memory: gds.Memory{Device: device}}
	if g.stream, err = device.NewStream(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	if g.labels, err = loader.ReadLabels(ctx, o.Graph); err != nil {
		return nil, err
	}
	if o.ChunkBytes > 0 {
		g.chunks, err = newChunks(ctx, device, o)
		return g, err
	}
	if err := g.readFeatures(ctx, o); err != nil {
		return nil, err
	}
	return g, g.readEdges(ctx, o)
}

// Rows are the features that the graph has on its device, float32 [n,F]. They have no memory where they are sparse, or
// the graph comes in chunks.
func (g *Graph) Rows() gds.Tensor { return g.x }

// Labels are the labels of all nodes, on the host.
func (g *Graph) Labels() *loader.Labels { return g.labels }

// AllocatedBytes is the memory of the device that the graph and its sets have.
func (g *Graph) AllocatedBytes() int64 { return g.memory.Bytes }

// Close frees the memory. Work that uses it must be done.
func (g *Graph) Close() error {
	err := g.stream.Close()
	if g.chunks != nil {
		err = errors.Join(err, g.chunks.close())
	}
	return errors.Join(err, g.memory.Free())
}

// upload is a vector on the device.
func upload[T dtype.Number](g *Graph, what string, t gds.DType, values []T) (gds.Tensor, error) {
	v := g.memory.Matrix(what+" of a whole graph", 1, len(values), t)
	if g.memory.Err != nil {
		return v, g.memory.Err
	}
	return v, gds.Upload(g.device, g.stream, v, values)
}

func (g *Graph) readFeatures(ctx context.Context, o Options) (err error) {
	source := o.Features
	if source == nil {
		loaded, err := features.LoadHost(ctx, o.Graph, nil, o.Threads)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, loaded.Close()) }()
		source = loaded
	}
	rows, cols := int(source.Rows()), source.Columns()
	if sparse, ok := source.(*features.Sparse); ok {
		g.sparse, err = g.uploadSparse(sparse, places(0, rows))
		g.x = shapeOf(rows, cols)
		return err
	}
	if g.x = g.memory.Matrix("features of a whole graph", rows, cols, gds.Float32); g.memory.Err != nil {
		return g.memory.Err
	}
	return features.Upload(ctx, g.device, g.stream, g.x, source)
}

// shapeOf is a matrix whose elements are sparse.
func shapeOf(rows, cols int) gds.Tensor {
	return gds.Tensor{Rows: rows, Cols: cols, Stride: cols, DType: gds.Float32}
}

// uploadSparse brings sparse rows of nodes to the device: their elements are laid out as a block from columns to rows.
func (g *Graph) uploadSparse(source *features.Sparse, nodes []uint32) (*loader.SparseRows, error) {
	n := source.In(nodes)
	offsets, columns, values := make([]uint32, len(nodes)+1), make([]uint32, n), make([]float32, n)
	if err := source.GatherElements(offsets, columns, values, nodes); err != nil {
		return nil, err
	}
	b, err := g.uploadBlock("sparse features", &sampling.Block{Offsets: offsets, Indices: columns, Weights: values})
	return &loader.SparseRows{Cols: source.Columns(), Offsets: b.Offsets, Columns: b.Indices, Values: b.Weights}, err
}

// readEdges makes the block of all nodes: that which the full sampler makes of them as seeds.
func (g *Graph) readEdges(ctx context.Context, o Options) (err error) {
	all, err := newAllEdges(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	if err := all.Sample(ctx, &all.batch, places(0, int(o.Topology.Nodes())), 0); err != nil {
		return err
	}
	g.block, err = g.uploadBlock("edges", &all.batch.Blocks[0])
	return err
}

// uploadBlock brings a block to the device; errors name it.
func (g *Graph) uploadBlock(what string, b *sampling.Block) (to loader.Block, err error) {
	to.Destinations, to.Sources = b.Destinations, b.Sources
	if to.Offsets, err = upload(g, what, gds.Uint32, b.Offsets); err == nil {
		to.Indices, err = upload(g, what, gds.Uint32, b.Indices)
	}
	if err == nil {
		to.Weights, err = upload(g, what, gds.Float32, b.Weights)
	}
	return to, err
}

// allEdges makes blocks of all edges to some nodes: it is the full sampler of one layer.
type allEdges struct {
	*sampling.Method
	batch sampling.MiniBatch
}

func newAllEdges(ctx context.Context, o Options) (*allEdges, error) {
	m, err := sampling.NewMethod(ctx, "full", o.Topology,
		sampling.Options{Fanouts: []int{sampling.All}, Aggregation: o.Aggregation, Threads: o.Threads})
	return &allEdges{Method: m}, err
}

// Set yields batches of some nodes, whose memory is on the device.
type Set struct {
	rows    int64
	batches []*loader.Batch
	seeds   [][]uint32 // of each batch
}

// Rows is the number of nodes of an epoch.
func (s *Set) Rows() int64 { return s.rows }

// Gathers tells whether its batches read some rows of the features, which are dense: see Neighborhood.
func (s *Set) Gathers() bool {
	return len(s.batches) > 0 && s.batches[0].Whole != nil && s.batches[0].Whole.Inputs.Cols > 0
}

// EpochFrom yields the batches from batch first on: the same in each epoch.
func (s *Set) EpochFrom(ctx context.Context, _ gds.Stream, _, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for _, b := range s.batches[min(first, len(s.batches)):] {
			if err := context.Cause(ctx); err != nil {
				yield(nil, err)
				return
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// RowNumbers are the nodes that a batch of any epoch is of.
func (s *Set) RowNumbers(_, batch int) []uint32 { return s.seeds[batch] }

// Batch is a set of one batch of all nodes, whose blocks, one for each layer, are the whole graph: training on it
// is full-batch training on nodes, the others have no labels.
func (g *Graph) Batch(nodes []uint32, layers int) (*Set, error) {
	if g.chunks != nil {
		return nil, errors.New("one batch of all nodes needs the whole graph on the device")
	}
	n := g.block.Destinations
	tensor, err := g.uploadLabels(n, func(label func(row int, node uint32)) {
		for _, v := range nodes {
			label(int(v), v)
		}
	})
	if err != nil {
		return nil, err
	}
	b := &loader.Batch{Rows: n, GlobalRows: len(nodes), X: []gds.Tensor{g.x}, Sparse: g.sparse, Labels: tensor}
	b.Traffic = loader.Traffic{Rows: int64(n), Edges: int64(layers) * int64(g.block.Indices.Cols)}
	read := gds.Bytes(n, g.x.Cols, gds.Float32)
	if s := g.sparse; s != nil {
		read = 4*int64(s.Offsets.Cols) + 8*int64(s.Values.Cols)
	}
	b.Traffic.AddBytes(loader.Device, read)
	for range layers {
		b.Blocks = append(b.Blocks, g.block)
	}
	s := &Set{rows: int64(len(nodes)), batches: []*loader.Batch{b}, seeds: [][]uint32{nodes}}
	if len(nodes) == 0 {
		s.batches = nil
	}
	return s, nil
}

// Nodes is a set of nodes, in their order, for inference. Their places in nodes are the row numbers.
func (g *Graph) Nodes(nodes []uint32, batchRows int) (*Set, error) {
	ids, err := upload(g, "nodes", gds.Uint32, nodes)
	if err != nil {
		return nil, err
	}
	all := loader.Batch{X: []gds.Tensor{g.x}, Sparse: g.sparse,
		Whole: &loader.WholeGraph{Blocks: []loader.Block{g.block}}}
	return g.inference(nodes, batchRows, &all, ids)
}

// inference is a set of nodes whose local ids among the destinations of the last layer are given, for inference.
// Batches have the features and the graph of all.
func (g *Graph) inference(nodes []uint32, batchRows int, all *loader.Batch, ids gds.Tensor) (*Set, error) {
	tensor, err := g.uploadLabels(len(nodes), func(label func(row int, node uint32)) {
		for i, v := range nodes {
			label(i, v)
		}
	})
	if err != nil {
		return nil, err
	}
	numbers, err := upload(g, "nodes", gds.Uint32, places(0, len(nodes)))
	if err != nil {
		return nil, err
	}
	s := &Set{rows: int64(len(nodes))}
	for lo := 0; lo < len(nodes); lo += batchRows {
		hi := min(lo+batchRows, len(nodes))
		b := &loader.Batch{
			Index: len(s.batches), Rows: hi - lo, GlobalRows: hi - lo, X: slices.Clone(all.X), Sparse: all.Sparse,
			NodeIDs: ids.Columns(lo, hi), RowNumbers: numbers.Columns(lo, hi), Whole: all.Whole,
		}
		if c := g.chunks; c != nil {
			b.X[0] = shapeOf(0, c.features.Columns())
			b.Whole = &loader.WholeGraph{Chunks: c, Nodes: nodes[lo:hi]}
		}
		if b.Labels = tensor.Columns(lo, hi); g.labelsPerRow() {
			b.Labels = tensor.Slice(lo, hi)
		}
		s.batches, s.seeds = append(s.batches, b), append(s.seeds, nodes[lo:hi])
	}
	return s, nil
}

// places are n numbers from first on.
func places(first uint32, n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = first + uint32(i)
	}
	return list
}

// uploadLabels makes the labels of rows on the device. A row to which visit gives no node is unlabelled.
func (g *Graph) uploadLabels(rows int, visit func(label func(row int, node uint32))) (gds.Tensor, error) {
	l, size := g.labels, g.labels.RowBytes()
	data := bytes.Repeat([]byte{0xff}, rows*size) // -1; as float32 it is NaN
	visit(func(row int, node uint32) { copy(data[row*size:][:size], l.Data[int(node)*size:]) })
	cols := l.Columns
	if !g.labelsPerRow() {
		rows, cols = 1, rows
	}
	m := g.memory.Matrix("labels of a whole graph", rows, cols, l.Type)
	if g.memory.Err != nil {
		return m, g.memory.Err
	}
	return m, gds.Upload(g.device, g.stream, m, data)
}

// labelsPerRow tells whether a row has several labels, or values: their tensor is then a matrix.
func (g *Graph) labelsPerRow() bool { return g.labels.Type != gds.Int32 }

// Edges is how many edges the block of all nodes has: the graph's edges, and as many self-loops as may be added.
func Edges(m *format.Manifest, a sampling.Aggregation) int64 {
	if a == sampling.Mean {
		return m.Edges
	}
	return m.Edges + m.Nodes
}

// OpeningNeed is the host memory of Open beside the topology: the staging of features and, while all edges come, their
// sampler, the vector that is uploaded, and the block, which grows.
func OpeningNeed(m *format.Manifest, a sampling.Aggregation) need.Terms {
	edges := Edges(m, a)
	sampler := samplerBytes(m, a) + 4*max(edges, m.Nodes+1)
	return need.Terms{
		features.UploadNeed(m.Nodes, m.Features),
		{Name: "sampler of all edges", Place: need.OffHeap, Bytes: sampler, From: need.Edges, Until: need.Edges},
		{Name: "edges on their way to the device", Place: need.Heap, Bytes: 20*edges + 8*m.Nodes, From: need.Edges,
			Until: need.Edges},
	}
}

// ChunksNeed is the host memory of a graph in chunks, beside topology, features and the chunk itself: the sampler of
// all edges, and so many columns that layers put out for all nodes, with the rows that are on their way. If they are
// spilled to a scratch file, their checksums are in memory instead.
func ChunksNeed(m *format.Manifest, a sampling.Aggregation, columns int, spilled bool) need.Terms {
	const statesStaging = 2048
	all, terms := m.Nodes, need.Terms{{Name: "sampler of all edges", Place: need.OffHeap, Bytes: samplerBytes(m, a)}}
	if spilled {
		all, terms = 0, append(terms, need.OnHeap("checksums of layers of all nodes", 8*m.Nodes))
	}
	return append(terms, need.Term{Name: "layers of all nodes", Place: need.OffHeap,
		Bytes: (all + statesStaging) * int64(columns) * 4, From: need.Epoch})
}

func samplerBytes(m *format.Manifest, a sampling.Aggregation) int64 {
	return sampling.SamplersNeed("full", a, m, 1).Bytes
}
