package wholegraph

import (
	"context"
	"errors"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// Blocks for some nodes are brought to the device beside the whole graph if their destinations, edges and input nodes
// are together at most 1/neighborhoodPart of the graph's nodes and edges.
const neighborhoodPart = 2

// NeighborhoodBytes bounds the device memory that a Neighborhood takes beside the whole graph, without features: 8
// bytes an edge and 4 a node, where each destination may get a self-loop. Sparse rows of features are copied, dense
// ones are read where they are.
func NeighborhoodBytes(nodes, edges int64) int64 { return 12 * (2*nodes + edges) / neighborhoodPart }

// Neighborhood is Nodes that computes for each layer only the nodes that the next one needs, if these are far fewer
// than all. The graph must not come in chunks for that.
func (g *Graph) Neighborhood(ctx context.Context, nodes []uint32, batchRows, layers int) (*Set, error) {
	if g.chunks != nil || len(nodes) == 0 {
		return g.Nodes(nodes, batchRows)
	}
	blocks, inputs, err := g.collect(ctx, nodes, layers)
	if err != nil {
		return nil, err
	}
	if blocks == nil {
		return g.Nodes(nodes, batchRows)
	}
	whole := &loader.WholeGraph{}
	for i := range blocks {
		b, err := g.uploadBlock("edges", &blocks[i])
		if err != nil {
			return nil, err
		}
		whole.Blocks = append(whole.Blocks, b)
	}
	all := loader.Batch{X: []gds.Tensor{g.x}, Whole: whole}
	if sparse, ok := g.o.Features.(*features.Sparse); ok {
		all.X[0] = shapeOf(len(inputs), g.x.Cols)
		all.Sparse, err = g.uploadSparse(sparse, inputs)
	} else {
		whole.Inputs, err = upload(g, "nodes", gds.Uint32, inputs)
	}
	if err != nil {
		return nil, err
	}
	ids, err := upload(g, "nodes", gds.Uint32, places(0, len(nodes)))
	if err != nil {
		return nil, err
	}
	return g.inference(nodes, batchRows, &all, ids)
}

// collect makes the blocks of layers that some nodes need, and lists the nodes that the first reads; no blocks: they
// are not far less than the whole graph.
func (g *Graph) collect(ctx context.Context, nodes []uint32, layers int) (
	blocks []sampling.Block, inputs []uint32, err error,
) {
	all, err := newAllEdges(ctx, g.o)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	left := (int64(g.block.Destinations) + int64(g.block.Indices.Cols)) / neighborhoodPart
	blocks, inputs = make([]sampling.Block, layers), nodes
	lists := make([]sampling.List, 0, chunkNodes)
	for i := range slices.Backward(blocks) {
		// Count before the block is made.
		edges := int64(len(inputs))
		for some := range slices.Chunk(inputs, chunkNodes) {
			lists = lists[:len(some)]
			if err := g.o.Topology.Lists(some, lists); err != nil {
				return nil, nil, err
			}
			for _, l := range lists {
				edges += l.Degree()
			}
		}
		if left -= edges; left < int64(len(inputs)) {
			return nil, nil, nil
		}
		if err := all.Sample(ctx, &all.batch, inputs, 0); err != nil {
			return nil, nil, err
		}
		b := &all.batch.Blocks[0]
		blocks[i] = sampling.Block{Destinations: b.Destinations, Sources: b.Sources,
			Offsets: slices.Clone(b.Offsets), Indices: slices.Clone(b.Indices), Weights: slices.Clone(b.Weights)}
		inputs = slices.Clone(all.batch.Inputs)
	}
	if left < int64(len(inputs)) {
		return nil, nil, nil
	}
	return blocks, inputs, nil
}
