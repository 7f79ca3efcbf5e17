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
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
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
	largest   int64 // memory of the largest chunk, once LargestChunk has found it
	nodeBytes int64
	edgeBytes int64
	added     int64 // self-loops of a node that the topology does not have, at most

	spilled [2]*spilled

	nodes  []uint32
	lists  []sampling.List
	memory epoch.Growing // of a chunk
	pinned epoch.Growing // what the host writes of it, unless it can write to the device
}

func newChunks(ctx context.Context, device gds.Device, o Options) (_ *chunks, err error) {
	if o.Features == nil {
		return nil, errors.New("a graph in chunks without features")
	}
	c := &chunks{device: device, topology: o.Topology, features: o.Features, limit: o.ChunkBytes,
		nodeBytes: o.NodeBytes, edgeBytes: o.EdgeBytes,
		lists: make([]sampling.List, chunkNodes)}
	if o.Aggregation != sampling.Mean {
		c.added = 1
	}
	if c.edges, err = newAllEdges(ctx, o); err != nil {
		return nil, err
	}
	for i := range c.spilled {
		if o.Scratch == nil {
			break
		}
		c.spilled[i], err = newSpilled(o.Graph.FS(), o.Scratch.Path(fmt.Sprint("layer-", i)), o.Topology.Nodes(),
			o.Threads)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *chunks) close() error {
	err := errors.Join(c.memory.Free(), c.pinned.Free(), c.edges.Close())
	for _, s := range c.spilled {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	return err
}

// Rows is in a scratch file, if there is a folder for that: see loader.GraphChunks.
func (c *chunks) Rows(i int) loader.NodeRows {
	if c.spilled[i] == nil {
		return nil
	}
	return c.spilled[i]
}

func (c *chunks) Nodes() int { return int(c.topology.Nodes()) }

// Sparse tells whether the features are sparse.
func (c *chunks) Sparse() bool { _, ok := c.features.(*features.Sparse); return ok }

// layOut says where the rows and the edges of a chunk lie in its memory, and how many bytes it takes.
func layOut(destinations, sources, edges int64, columns int) (x gds.Tensor, b loader.Block, bytes int64) {
	var a epoch.Arena
	x = a.Take(int(sources), columns, gds.Float32)
	b = loader.Block{Destinations: int(destinations), Sources: int(sources)}
	b.Offsets, b.Indices = a.Take(1, int(destinations)+1, gds.Uint32), a.Take(1, int(edges), gds.Uint32)
	b.Weights = a.Take(1, int(edges), gds.Float32)
	return x, b, a.Bytes
}

// needs bounds the device memory that a chunk of so many nodes and edges of the topology takes, and what the model
// keeps of it.
func (c *chunks) needs(nodes, edges int64, columns int) (memory, model int64) {
	sources := min(nodes+edges, c.topology.Nodes())
	edges += c.added * nodes
	_, _, memory = layOut(nodes, sources, edges, columns)
	return memory, sources*c.nodeBytes + edges*c.edgeBytes
}

// choose sets c.nodes to the nodes of the chunk that begins with node first, and returns its edges of the topology.
func (c *chunks) choose(first int64, columns int) (edges int64, err error) {
	c.nodes = places(uint32(first), int(min(chunkNodes, c.topology.Nodes()-first)))
	if err := c.topology.Lists(c.nodes, c.lists[:len(c.nodes)]); err != nil {
		return 0, err
	}
	for i := range c.nodes {
		more := edges + c.lists[i].Degree()
		if memory, model := c.needs(int64(i+1), more, columns); i > 0 && memory+model > c.limit {
			c.nodes = c.nodes[:i]
			break
		}
		edges = more
	}
	return edges, nil
}

// LargestChunk bounds the device memory that a chunk takes, which the first one allocates, and what the model keeps of
// it, as Options count it, where rows have so many columns: less than the limit, or more where the edges to a single
// node take more. It is an error if these edges are more than a block has.
func (g *Graph) LargestChunk(columns int) (memory, model int64, err error) {
	c := g.chunks
	for first := int64(0); first < c.topology.Nodes(); first += int64(len(c.nodes)) {
		edges, err := c.choose(first, columns)
		if err != nil {
			return 0, 0, err
		}
		nodes := int64(len(c.nodes))
		if edges+c.added*nodes > sampling.MaxBlockEdges {
			return 0, 0, fmt.Errorf("node %d has %d in-neighbours, and a block has 2^32-1 edges at most", first, edges)
		}
		m, kept := c.needs(nodes, edges, columns)
		memory, model = max(memory, m), max(model, kept)
	}
	for first := int64(0); first < c.topology.Nodes(); {
		rows := c.featureRows(first)
		memory, model = max(memory, c.featureBytes(first, rows)), max(model, rows*c.nodeBytes)
		first += rows
	}
	c.largest = memory
	return memory, model, nil
}

// Each yields chunks: see loader.GraphChunks.
func (c *chunks) Each(ctx context.Context, stream gds.Stream, rows loader.RowSource) iter.Seq2[loader.GraphChunk,
	error] {
	if rows == nil {
		rows = c.features
	}
	return c.each(ctx, func(first int64) (loader.GraphChunk, error) { return c.bring(ctx, stream, first, rows) })
}

// EachRows yields features: see loader.GraphChunks.
func (c *chunks) EachRows(ctx context.Context, stream gds.Stream) iter.Seq2[loader.GraphChunk, error] {
	return c.each(ctx, func(first int64) (loader.GraphChunk, error) { return c.bringRows(ctx, stream, first) })
}

// each yields the chunks that bring brings, each from a node on.
func (c *chunks) each(ctx context.Context, bring func(first int64) (loader.GraphChunk, error)) iter.Seq2[
	loader.GraphChunk, error] {
	return func(yield func(loader.GraphChunk, error) bool) {
		for first := int64(0); first < c.topology.Nodes(); first += int64(len(c.nodes)) {
			var chunk loader.GraphChunk
			err := context.Cause(ctx)
			if err == nil {
				if chunk, err = bring(first); err != nil {
					err = fmt.Errorf("chunk of the graph from node %d on: %w", first, err)
				}
			}
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

// featureBytes is the memory of the features of nodes first to first+rows-1.
func (c *chunks) featureBytes(first, rows int64) int64 {
	if sparse, ok := c.features.(*features.Sparse); ok {
		_, _, bytes := layOut(rows, 0, sparse.InRange(first, rows), 0)
		return bytes
	}
	return gds.Bytes(int(rows), c.features.Columns(), gds.Float32)
}

// bringRows brings the features of some nodes from first on to the device.
func (c *chunks) bringRows(ctx context.Context, stream gds.Stream, first int64) (loader.GraphChunk, error) {
	n, columns := int(c.featureRows(first)), c.features.Columns()
	c.nodes = places(uint32(first), n)
	chunk := loader.GraphChunk{First: int(first), Block: loader.Block{Destinations: n, Sources: n}}
	sparse, ok := c.features.(*features.Sparse)
	if !ok {
		chunk.X, _, _ = layOut(0, int64(n), 0, columns)
		bytes := gds.Bytes(n, columns, gds.Float32)
		if err := c.grow(bytes); err != nil {
			return chunk, err
		}
		err := c.features.Gather(ctx, c.hostMemory(chunk.X), gds.Float32, c.nodes)
		c.copyIn(stream, bytes, &chunk.X)
		return chunk, err
	}
	chunk.X = shapeOf(n, columns)
	_, b, bytes := layOut(int64(n), 0, sparse.In(c.nodes), 0) // a block from columns to rows
	if err := c.grow(bytes); err != nil {
		return chunk, err
	}
	err := sparse.GatherElements(dtype.Uint32s(c.hostMemory(b.Offsets)), dtype.Uint32s(c.hostMemory(b.Indices)),
		dtype.Float32s(c.hostMemory(b.Weights)), c.nodes)
	c.copyIn(stream, bytes, &b.Offsets, &b.Indices, &b.Weights)
	chunk.Sparse = &loader.SparseRows{Cols: columns, Offsets: b.Offsets, Columns: b.Indices, Values: b.Weights}
	return chunk, err
}

// bring brings the chunk that begins with node first to the device.
func (c *chunks) bring(ctx context.Context, stream gds.Stream, first int64, rows loader.RowSource) (
	chunk loader.GraphChunk, err error,
) {
	if _, err := c.choose(first, rows.Columns()); err != nil {
		return chunk, err
	}
	batch := &c.edges.batch
	if err := c.edges.Sample(ctx, batch, c.nodes, 0); err != nil {
		return chunk, err
	}
	k := &batch.Blocks[0]
	x, b, bytes := layOut(int64(k.Destinations), int64(k.Sources), int64(len(k.Indices)), rows.Columns())
	if err := c.grow(bytes); err != nil {
		return chunk, err
	}
	if err := rows.Gather(ctx, c.hostMemory(x), gds.Float32, batch.Inputs); err != nil {
		return chunk, err
	}
	copy(dtype.Uint32s(c.hostMemory(b.Offsets)), k.Offsets)
	copy(dtype.Uint32s(c.hostMemory(b.Indices)), k.Indices)
	copy(dtype.Float32s(c.hostMemory(b.Weights)), k.Weights)
	c.copyIn(stream, bytes, &x, &b.Offsets, &b.Indices, &b.Weights)
	return loader.GraphChunk{First: int(first), X: x, Block: b}, nil
}

// hostMemory is where the host writes a part of a chunk.
func (c *chunks) hostMemory(part gds.Tensor) []byte {
	memory := c.memory
	if c.pinned.Buffer != nil {
		memory = c.pinned
	}
	return memory.Bytes()[part.Offset:][:gds.Bytes(part.Rows, part.Cols, part.DType)]
}

// copyIn copies the first bytes of the host's buffer to the device, where parts then are.
func (c *chunks) copyIn(stream gds.Stream, bytes int64, parts ...*gds.Tensor) {
	if c.pinned.Buffer != nil {
		stream.Copy(gds.NewTensor(c.memory.Buffer, 1, int(bytes), gds.Uint8),
			gds.NewTensor(c.pinned.Buffer, 1, int(bytes), gds.Uint8))
	}
	for _, p := range parts {
		p.Buf = c.memory.Buffer
	}
}

// grow makes room for a chunk. Nothing uses the memory.
func (c *chunks) grow(bytes int64) error {
	more := max(bytes, c.largest)
	err := c.memory.Grow(bytes, more, c.device.Alloc)
	if err == nil && !c.device.Info().Unified {
		err = c.pinned.Grow(bytes, more, c.device.AllocPinned)
	}
	return err
}
