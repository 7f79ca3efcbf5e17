package wholegraph

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// chunkNodes is the most destinations of a chunk.
const chunkNodes = 8192

// chunks bring a graph to a device chunk after chunk: a chunk is as many nodes as there is memory for with all
// edges to them. It implements loader.GraphChunks.
type chunks struct {
	device    gds.Device
	topology  sampling.Topology
	features  features.Source
	edges     *allEdges
	limit     int64 // see Options
	nodeBytes int64
	edgeBytes int64
	added     int64 // self-loops of a node that the topology does not have, at most

	nodes  []uint32
	lists  []sampling.List
	memory gds.Buffer // of a chunk
	pinned gds.Buffer // what the host writes of it, unless it can write to the device
}

func newChunks(ctx context.Context, device gds.Device, o Options) (_ *chunks, err error) {
	if o.Features == nil {
		return nil, errors.New("a graph in chunks without features")
	}
	c := &chunks{device: device, topology: o.Topology, features: o.Features, limit: o.ChunkBytes,
		nodeBytes: o.NodeBytes, edgeBytes: o.EdgeBytes,
		nodes: make([]uint32, 0, chunkNodes), lists: make([]sampling.List, chunkNodes)}
	if o.Aggregation != sampling.Mean {
		c.added = 1
	}
	c.edges, err = newAllEdges(ctx, o)
	return c, err
}

func (c *chunks) close() error {
	var errs []error
	if c.edges != nil {
		errs = append(errs, c.edges.close())
	}
	return errors.Join(append(errs, c.free())...)
}

func (c *chunks) free() error {
	var errs []error
	for _, b := range []gds.Buffer{c.memory, c.pinned} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	c.memory, c.pinned = nil, nil
	return errors.Join(errs...)
}

func (c *chunks) Nodes() int { return int(c.topology.Nodes()) }

// Sparse tells whether the features are.
func (c *chunks) Sparse() bool { _, ok := c.features.(*features.Sparse); return ok }

// chunkLayout is where the parts of a chunk are in its memory.
type chunkLayout struct{ offsets, indices, weights, end int64 }

// align is what parts of a chunk are aligned to.
const align = 256

func layOut(destinations, sources, edges int64, columns int) (l chunkLayout) {
	at := int64(0)
	take := func(bytes int64) int64 {
		start := at
		at += (bytes + align - 1) / align * align
		return start
	}
	take(gds.Bytes(int(sources), columns, gds.Float32))
	l.offsets, l.indices, l.weights = take(4*(destinations+1)), take(4*edges), take(4*edges)
	l.end = at
	return l
}

// needs bounds what a chunk of so many nodes and edges of the topology takes.
func (c *chunks) needs(nodes, edges int64, columns int) int64 {
	sources := min(nodes+edges, c.topology.Nodes())
	edges += c.added * nodes
	return layOut(nodes, sources, edges, columns).end + sources*c.nodeBytes + edges*c.edgeBytes
}

// list sets c.nodes to as many as a chunk that begins with node first can have, and c.lists to their edges.
func (c *chunks) list(first int64) error {
	c.nodes = c.nodes[:0]
	for v := first; v < min(first+chunkNodes, c.topology.Nodes()); v++ {
		c.nodes = append(c.nodes, uint32(v))
	}
	return c.topology.Lists(c.nodes, c.lists[:len(c.nodes)])
}

// choose sets c.nodes to those of the chunk that begins with node first.
func (c *chunks) choose(first int64, columns int) error {
	if err := c.list(first); err != nil {
		return err
	}
	edges := int64(0)
	for i := range c.nodes {
		if edges += c.lists[i].Degree(); i > 0 && c.needs(int64(i+1), edges, columns) > c.limit {
			c.nodes = c.nodes[:i]
			break
		}
	}
	return nil
}

// LargestChunk bounds the device memory that a chunk takes, and what the model keeps of it, as Options count it, where
// rows have so many columns: less than the limit, or more where the edges to a single node take more. It is an error if
// these edges are more than a block has.
func (g *Graph) LargestChunk(columns int) (memory, model int64, err error) {
	c := g.chunks
	for first := int64(0); first < c.topology.Nodes(); first += int64(len(c.nodes)) {
		if err := c.choose(first, columns); err != nil {
			return 0, 0, err
		}
		nodes, edges := int64(len(c.nodes)), int64(0)
		for _, l := range c.lists[:nodes] {
			edges += l.Degree()
		}
		if edges+c.added*nodes > sampling.MaxBlockEdges {
			return 0, 0, fmt.Errorf("node %d has %d in-neighbours, and a block has 2^32-1 edges at most", first, edges)
		}
		sources := min(nodes+edges, c.topology.Nodes())
		edges += c.added * nodes
		memory = max(memory, layOut(nodes, sources, edges, columns).end)
		model = max(model, sources*c.nodeBytes+edges*c.edgeBytes)
	}
	for first := int64(0); first < c.topology.Nodes(); {
		rows := c.featureRows(first)
		memory, model = max(memory, c.featureBytes(first, rows)), max(model, rows*c.nodeBytes)
		first += rows
	}
	return max(memory, min(gds.Room(memory), c.limit)), model, nil // as it grows
}

// Each yields chunks: see loader.GraphChunks.
func (c *chunks) Each(ctx context.Context, stream gds.Stream, rows loader.RowSource) iter.Seq2[loader.GraphChunk,
	error] {
	if rows == nil {
		rows = c.features
	}
	return func(yield func(loader.GraphChunk, error) bool) {
		for first := int64(0); first < c.topology.Nodes(); first += int64(len(c.nodes)) {
			chunk, err := c.bring(ctx, stream, first, rows)
			if !yield(chunk, err) || err != nil {
				return
			}
		}
	}
}

// EachRows yields features: see loader.GraphChunks.
func (c *chunks) EachRows(ctx context.Context, stream gds.Stream) iter.Seq2[loader.GraphChunk, error] {
	return func(yield func(loader.GraphChunk, error) bool) {
		for first := int64(0); first < c.topology.Nodes(); first += int64(len(c.nodes)) {
			chunk, err := c.bringRows(ctx, stream, first)
			if !yield(chunk, err) || err != nil {
				return
			}
		}
	}
}

// featureRows is how many nodes from first on have their features in a chunk: one, or as many as the limit has room
// for.
func (c *chunks) featureRows(first int64) int64 {
	most := min(chunkNodes, c.topology.Nodes()-first)
	more := sort.Search(int(most-1), func(i int) bool {
		rows := int64(i) + 2
		return c.featureBytes(first, rows)+rows*c.nodeBytes > c.limit
	})
	return int64(more) + 1
}

// featureBytes is what the features of so many nodes from first on take.
func (c *chunks) featureBytes(first, rows int64) int64 {
	if sparse, ok := c.features.(*features.Sparse); ok {
		return layOut(rows, 0, sparse.ElementsOf(first, rows), 0).end
	}
	return gds.Bytes(int(rows), c.features.Columns(), gds.Float32)
}

// bringRows brings the features of some nodes from first on to the device.
func (c *chunks) bringRows(ctx context.Context, stream gds.Stream, first int64) (chunk loader.GraphChunk, err error) {
	if err := context.Cause(ctx); err != nil {
		return chunk, err
	}
	columns := c.features.Columns()
	sparse, _ := c.features.(*features.Sparse)
	rows := c.featureRows(first)
	c.nodes = append(c.nodes[:0], places(uint32(first), int(rows))...)
	n := int(rows)
	chunk = loader.GraphChunk{First: int(first), X: shapeOf(n, columns),
		Block: loader.Block{Destinations: n, Sources: n}}
	if sparse != nil {
		chunk.Sparse, err = c.bringSparse(stream, sparse)
		return chunk, err
	}
	bytes := gds.Bytes(n, columns, gds.Float32)
	if err := c.grow(bytes); err != nil {
		return chunk, fmt.Errorf("features of nodes %d to %d: %w", first, first+rows-1, err)
	}
	chunk.X = c.tensor(0, n, columns, gds.Float32)
	if err := c.features.Gather(ctx, c.hostMemory()[:bytes], gds.Float32, c.nodes); err != nil {
		return chunk, err
	}
	c.copyIn(stream, bytes)
	return chunk, nil
}

// bringSparse brings the sparse rows of c.nodes to the device.
func (c *chunks) bringSparse(stream gds.Stream, source *features.Sparse) (*loader.SparseRows, error) {
	n := source.Elements(c.nodes)
	l := layOut(int64(len(c.nodes)), 0, n, 0) // a block from columns to rows
	if err := c.grow(l.end); err != nil {
		return nil, fmt.Errorf("features of nodes %d to %d: %w", c.nodes[0], c.nodes[len(c.nodes)-1], err)
	}
	memory := c.hostMemory()
	offsets, columns, values := memory[l.offsets:][:4*(len(c.nodes)+1)], memory[l.indices:][:4*n],
		memory[l.weights:][:4*n]
	if err := source.GatherElements(dtype.Uint32s(offsets), dtype.Uint32s(columns), dtype.Float32s(values),
		c.nodes); err != nil {
		return nil, err
	}
	c.copyIn(stream, l.end)
	return &loader.SparseRows{
		Cols:    source.Columns(),
		Offsets: c.tensor(l.offsets, 1, len(c.nodes)+1, gds.Uint32),
		Columns: c.tensor(l.indices, 1, int(n), gds.Uint32),
		Values:  c.tensor(l.weights, 1, int(n), gds.Float32),
	}, nil
}

// hostMemory is where the host writes a chunk, and copyIn brings so much of it to the device.
func (c *chunks) hostMemory() []byte {
	if c.pinned != nil {
		return c.pinned.Bytes()
	}
	return c.memory.Bytes()
}

func (c *chunks) copyIn(stream gds.Stream, bytes int64) {
	if c.pinned != nil {
		stream.Copy(gds.NewTensor(c.memory, 1, int(bytes), gds.Uint8),
			gds.NewTensor(c.pinned, 1, int(bytes), gds.Uint8))
	}
}

// tensor is a matrix in the memory of a chunk.
func (c *chunks) tensor(at int64, rows, cols int, t gds.DType) gds.Tensor {
	v := gds.NewTensor(c.memory, rows, cols, t)
	v.Offset = at
	return v
}

// bring brings the chunk that begins with node first to the device.
func (c *chunks) bring(ctx context.Context, stream gds.Stream, first int64,
	rows loader.RowSource) (chunk loader.GraphChunk, err error) {
	if err := context.Cause(ctx); err != nil {
		return chunk, err
	}
	if err := c.choose(first, rows.Columns()); err != nil {
		return chunk, err
	}
	batch := &c.edges.batch
	if err := c.edges.Sample(ctx, batch, c.nodes, 0); err != nil {
		return chunk, err
	}
	b := &batch.Blocks[0]
	l := layOut(int64(b.Destinations), int64(b.Sources), int64(len(b.Indices)), rows.Columns())
	if err := c.grow(l.end); err != nil {
		return chunk, fmt.Errorf("nodes %d to %d with %d edges: %w", first, first+int64(len(c.nodes))-1, len(b.Indices),
			err)
	}
	memory := c.hostMemory()
	if err := rows.Gather(ctx, memory[:gds.Bytes(b.Sources, rows.Columns(), gds.Float32)], gds.Float32,
		batch.Inputs); err != nil {
		return chunk, err
	}
	copy(dtype.Uint32s(memory[l.offsets:][:4*len(b.Offsets)]), b.Offsets)
	copy(dtype.Uint32s(memory[l.indices:][:4*len(b.Indices)]), b.Indices)
	copy(dtype.Float32s(memory[l.weights:][:4*len(b.Weights)]), b.Weights)
	c.copyIn(stream, l.end)
	return loader.GraphChunk{
		First: int(first), X: c.tensor(0, b.Sources, rows.Columns(), gds.Float32), Block: loader.Block{
			Destinations: b.Destinations, Sources: b.Sources,
			Offsets: c.tensor(l.offsets, 1, len(b.Offsets), gds.Uint32),
			Indices: c.tensor(l.indices, 1, len(b.Indices), gds.Uint32),
			Weights: c.tensor(l.weights, 1, len(b.Weights), gds.Float32),
		},
	}, nil
}

// grow makes room for a chunk. Nothing uses the memory.
func (c *chunks) grow(bytes int64) (err error) {
	if c.memory != nil && c.memory.Len() >= bytes {
		return nil
	}
	if err := c.free(); err != nil {
		return err
	}
	more := max(bytes, min(gds.Room(bytes), c.limit))
	return gds.AllocateRoom(bytes, more, func(bytes int64) (err error) {
		memory, err := c.device.Alloc(bytes)
		if err != nil {
			return err
		}
		if c.memory = memory; c.device.Info().Unified {
			return nil
		}
		if c.pinned, err = c.device.AllocPinned(bytes); err != nil {
			c.pinned = nil
			return errors.Join(err, c.free())
		}
		return nil
	})
}
