package trainer

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/gather"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
)

// wholeToy is a graph on a device; its batches are some of its nodes.
type wholeToy struct {
	whole  *loader.WholeGraph
	x      gds.Tensor
	sparse *loader.SparseRows // nil: x has memory
	nodes  gds.Tensor
	labels gds.Tensor
	batch  int
	ids    []uint32   // nodes, on the host
	chunks *toyChunks // nil: the graph is on the device
}

func (w *wholeToy) Rows() int64 { return int64(w.nodes.Cols) }

func (w *wholeToy) EpochFrom(context.Context, gds.Stream, int, int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for i, lo := 0, 0; lo < w.nodes.Cols; i, lo = i+1, lo+w.batch {
			hi := min(lo+w.batch, w.nodes.Cols)
			b := &loader.Batch{Index: i, Rows: hi - lo, GlobalRows: hi - lo, X: []gds.Tensor{w.x}, Sparse: w.sparse,
				Labels: w.labels.Columns(lo, hi), NodeIDs: w.nodes.Columns(lo, hi), RowNumbers: w.nodes.Columns(lo, hi),
				Whole: w.whole}
			if w.chunks != nil {
				b.Whole = &loader.WholeGraph{Chunks: w.chunks, Nodes: w.ids[lo:hi]}
				b.X = []gds.Tensor{{Cols: w.x.Cols, Stride: w.x.Cols, DType: gds.Float32}}
				b.Sparse = nil
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// toyChunks are chunks of one node, of two, of three and so on.
type toyChunks struct {
	t     *testing.T
	dev   gds.Device
	mem   *gds.Memory
	block toyBlock // of all nodes
	x     *hostRows
	// sparse makes features so.
	sparse bool
}

func (c *toyChunks) Nodes() int   { return c.block.Destinations }
func (c *toyChunks) Sparse() bool { return c.sparse }

func (c *toyChunks) EachRows(_ context.Context, stream gds.Stream) iter.Seq2[loader.GraphChunk, error] {
	return func(yield func(loader.GraphChunk, error) bool) {
		for first, size := 0, 5; first < c.block.Destinations; first, size = first+size, size+997 {
			end := min(first+size, c.block.Destinations)
			x := dtype.Float32s(c.x.memory.Bytes())[first*c.x.columns : end*c.x.columns]
			chunk := loader.GraphChunk{First: first, Block: loader.Block{Destinations: end - first,
				Sources: end - first}}
			chunk.X, chunk.Sparse = uploadFeatures(c.t, c.mem, stream, x, c.x.columns, c.sparse)
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

// uploadFeatures brings rows of features to a device, as they are or sparse.
func uploadFeatures(t *testing.T, mem *gds.Memory, stream gds.Stream, x []float32, columns int, sparse bool) (
	gds.Tensor, *loader.SparseRows,
) {
	t.Helper()
	if !sparse {
		tensor, err := matrixOf(mem, "test", len(x)/columns, columns, gds.Float32)
		if err == nil {
			err = gds.Upload(mem.Device, stream, tensor, x)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tensor, nil
	}
	shape, elements, err := toySparse(mem, stream, x, columns)
	if err != nil {
		t.Fatal(err)
	}
	return shape, elements
}

// neighborhoodOf is the blocks of layers that some nodes need, and the nodes that the first reads.
func neighborhoodOf(all toyBlock, nodes []uint32, layers int) (blocks []toyBlock, inputs []uint32) {
	for range layers {
		local := map[uint32]uint32{}
		inputs = nil
		add := func(v uint32) uint32 {
			if _, ok := local[v]; !ok {
				local[v] = uint32(len(inputs))
				inputs = append(inputs, v)
			}
			return local[v]
		}
		for _, v := range nodes {
			add(v)
		}
		b := toyBlock{Destinations: len(nodes), Offsets: []uint32{0}}
		for _, v := range nodes {
			for e := all.Offsets[v]; e < all.Offsets[v+1]; e++ {
				b.Indices, b.Weights = append(b.Indices, add(all.Indices[e])), append(b.Weights, all.Weights[e])
			}
			b.Offsets = append(b.Offsets, uint32(len(b.Indices)))
		}
		b.Sources = len(inputs)
		blocks, nodes = append([]toyBlock{b}, blocks...), inputs
	}
	return blocks, inputs
}

func (c *toyChunks) Rows(int) loader.NodeRows { return nil }

func (c *toyChunks) Each(ctx context.Context, stream gds.Stream, rows loader.RowSource) iter.Seq2[loader.GraphChunk,
	error] {
	if rows == nil {
		rows = c.x
	}
	return func(yield func(loader.GraphChunk, error) bool) {
		for first, size := 0, 1; first < c.block.Destinations; first, size = first+size, size+97 {
			end := min(first+size, c.block.Destinations)
			local, nodes := map[uint32]uint32{}, []uint32{}
			add := func(v uint32) uint32 {
				if _, ok := local[v]; !ok {
					local[v] = uint32(len(nodes))
					nodes = append(nodes, v)
				}
				return local[v]
			}
			for v := first; v < end; v++ {
				add(uint32(v))
			}
			b := toyBlock{Destinations: end - first, Offsets: []uint32{0}}
			for v := first; v < end; v++ {
				for e := c.block.Offsets[v]; e < c.block.Offsets[v+1]; e++ {
					b.Indices, b.Weights = append(b.Indices, add(c.block.Indices[e])),
						append(b.Weights, c.block.Weights[e])
				}
				b.Offsets = append(b.Offsets, uint32(len(b.Indices)))
			}
			b.Sources = len(nodes)
			x := make([]float32, len(nodes)*rows.Columns())
			if err := rows.Gather(ctx, dtype.BytesOf(x), gds.Float32, nodes); err != nil {
				c.t.Fatal(err)
			}
			onDevice, err := b.upload(c.mem, stream)
			if err != nil {
				c.t.Fatal(err)
			}
			tensor, err := matrixOf(c.mem, "test", len(nodes), rows.Columns(), gds.Float32)
			if err == nil {
				err = gds.Upload(c.dev, stream, tensor, dtype.BytesOf(x))
			}
			if err != nil {
				c.t.Fatal(err)
			}
			if !yield(loader.GraphChunk{First: first, X: tensor, Block: onDevice}, nil) {
				return
			}
		}
	}
}

// hostRowsOf are rows that are freed after the test.
func hostRowsOf(t *testing.T, values []float32, columns int) *hostRows {
	t.Helper()
	memory, err := offheap.Alloc(4 * int64(len(values)))
	if err != nil {
		t.Fatal(err)
	}
	copy(dtype.Float32s(memory.Bytes()), values)
	pool := gather.NewPool(2)
	t.Cleanup(func() { pool.Close(); _ = memory.Free() })
	return &hostRows{columns: columns, memory: memory, pool: pool}
}

// TestWholeGraphsAreComputedAsBlocksOfAllNodes compares inference layer by layer with the forward pass of a batch
// of all nodes whose blocks are all edges.
func TestWholeGraphsAreComputedAsBlocksOfAllNodes(t *testing.T) {
	const nodes, classes = chunkRows + 300, 4 // more than a chunk
	for i, c := range []struct {
		Spec
		features int
		sparse   bool
	}{
		{Spec{Model: "gcn", Settings: blocksOf(5, 2, 0.3, 0, 0)}, 3, false},
		{Spec{Model: "gcn", Settings: blocksOf(5, 3, 0.3, 1, 1)}, 3, false},
		{Spec{Model: "sage", Settings: blocksOf(5, 1, 0.3, 1, 0)}, 3, false},
		{Spec{Model: "gat", Settings: gatOf(6, 2, 0.2, 2)}, 3, false},
		{Spec{Model: "gcn", Settings: blocksOf(3, 2, 0.3, 0, 0)}, 8, false},
		{Spec{Model: "sage", Settings: blocksOf(3, 2, 0.3, 1, 0)}, 8, false},
		{Spec{Model: "gcn", Settings: blocksOf(3, 1, 0.3, 0, 0)}, 12, true},
		{Spec{Model: "sage", Settings: blocksOf(3, 2, 0.3, 1, 0)}, 12, true},
		{Spec{Model: "gat", Settings: gatOf(6, 2, 0.2, 2)}, 4, true},
		{Spec{Model: "gcn", Settings: printedOf(3, 2, 0.3, 1)}, 8, false},
		{Spec{Model: "gcn", Settings: printedOf(6, 1, 0.3, 1)}, 12, true},
		{Spec{Model: "sage", Settings: printedOf(6, 3, 0.3, 1)}, 3, false},
		{Spec{Model: "gat", Settings: printedOf(6, 2, 0.2, 2)}, 3, false},
		{Spec{Model: "gat", Settings: printedOf(12, 3, 0.2, 2)}, 4, true},
	} {
		t.Run(fmt.Sprintf("%d: %s of %d features, sparse=%t", i, c.Model, c.features, c.sparse), func(t *testing.T) {
			features := c.features
			dev := openDevice(t, host.Options{Discrete: true, Threads: 2})
			c.Matrices, c.Features, c.Classes = hops("sym", 0), features, classes
			n, err := newNetwork(dev, c.Spec, nodes, taskFor(t, false))
			if err != nil {
				t.Fatal(err)
			}
			defer n.close()
			mem := gds.Memory{Device: dev}
			defer func() {
				if err := mem.Free(); err != nil {
					t.Error(err)
				}
			}()
			upload := func(rows, cols int, kind gds.DType, data []byte) gds.Tensor {
				tensor, err := matrixOf(&mem, "test", rows, cols, kind)
				if err == nil {
					err = gds.Upload(dev, n.stream, tensor, data)
				}
				if err != nil {
					t.Fatal(err)
				}
				return tensor
			}
			block := toyBlock{Destinations: nodes, Sources: nodes, Offsets: []uint32{0}}
			x, ids, labels := make([]float32, nodes*features), make([]uint32, nodes), make([]int32, nodes)
			for i := range x {
				if !c.sparse || rng.Hash(4, uint64(i))%8 == 0 {
					x[i] = float32(rng.Normal(1, uint64(i)))
				}
			}
			for v := range nodes {
				for e := range v % 5 {
					block.Indices = append(block.Indices, uint32(rng.Hash(2, uint64(5*v+e))%nodes))
					block.Weights = append(block.Weights, rng.Float32(rng.Hash(3, uint64(5*v+e))))
				}
				block.Offsets = append(block.Offsets, uint32(len(block.Indices)))
				ids[v], labels[v] = uint32((v*7)%nodes), int32(v%classes) // in another order
			}
			onDevice, err := block.upload(&mem, n.stream)
			if err != nil {
				t.Fatal(err)
			}
			denseX, _ := uploadFeatures(t, &mem, n.stream, x, features, false)
			wholeX, sparse := uploadFeatures(t, &mem, n.stream, x, features, c.sparse)
			whole := &loader.WholeGraph{Blocks: []loader.Block{onDevice}}
			set := &wholeToy{whole: whole, x: wholeX, sparse: sparse,
				nodes:  upload(1, nodes, gds.Uint32, dtype.BytesOf(ids)),
				labels: upload(1, nodes, gds.Int32, dtype.BytesOf(labels)), batch: 3000, ids: ids}
			if err := n.upload(n.params.value, someValues(n.params, 6)); err != nil {
				t.Fatal(err)
			}
			n.scales[0] = 0.5
			b := &loader.Batch{Rows: nodes, GlobalRows: nodes, X: []gds.Tensor{denseX}, Labels: set.labels,
				Blocks: slices.Repeat([]loader.Block{onDevice}, n.blocks)}
			if err := n.admit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			out := n.forward(b, false, 0)
			want := make([]float32, nodes*classes)
			if err := gds.Download(dev, n.stream, want, out); err != nil {
				t.Fatal(err)
			}
			exact := map[bool][]float32{}
			for _, inChunks := range []bool{false, true} {
				if set.chunks = nil; inChunks { // of one node, of two, and so on
					set.chunks = &toyChunks{dev: dev, mem: &mem, block: block, x: hostRowsOf(t, x, features), t: t,
						sparse: c.sparse}
				}
				at := 0
				alone := group{ranks: []*network{n}}
				_, err = alone.eachBatch(t.Context(), []Epocher{set}, 0, 0, func(n *network, b *loader.Batch) {
					out := n.forward(b, false, 0)
					got := make([]float32, b.Rows*classes)
					if err := gds.Download(dev, n.stream, got, out); err != nil {
						t.Error(err)
					}
					for i, v := range got {
						node := int(ids[at+i/classes])
						if w := want[node*classes+i%classes]; math.Abs(float64(v-w)) > 1e-5*(1+math.Abs(float64(w))) {
							t.Fatalf("node %d: output %d is %v, want %v (in chunks: %v)", node, i%classes, v, w,
								inChunks)
						}
					}
					exact[inChunks] = append(exact[inChunks], got...)
					at += b.Rows
				}, nil)
				if err != nil || at != nodes {
					t.Errorf("%d nodes, %v (in chunks: %v)", at, err, inChunks)
				}
			}
			if !samePredictions(dev, exact[false], exact[true]) {
				t.Error("in chunks, outputs are other bits")
			}

			// What a few nodes need alone.
			some := ids[100:140]
			blocks, inputs := neighborhoodOf(block, some, n.blocks)
			near := &loader.WholeGraph{}
			for _, b := range blocks {
				onDevice, err := b.upload(&mem, n.stream)
				if err != nil {
					t.Fatal(err)
				}
				near.Blocks = append(near.Blocks, onDevice)
			}
			set = &wholeToy{whole: near, x: denseX, nodes: upload(1, len(some), gds.Uint32,
				dtype.BytesOf(ids[:len(some)])), labels: set.labels, batch: 17}
			local := make([]uint32, len(some))
			for i := range local {
				local[i] = uint32(i)
			}
			if err := gds.Upload(dev, n.stream, set.nodes, local); err != nil {
				t.Fatal(err)
			}
			if c.sparse {
				var rows []float32
				for _, v := range inputs {
					rows = append(rows, x[int(v)*features:][:features]...)
				}
				set.x, set.sparse = uploadFeatures(t, &mem, n.stream, rows, features, true)
			} else {
				near.Inputs = upload(1, len(inputs), gds.Uint32, dtype.BytesOf(inputs))
			}
			at := 0
			alone := group{ranks: []*network{n}}
			_, err = alone.eachBatch(t.Context(), []Epocher{set}, 0, 0, func(n *network, b *loader.Batch) {
				out := n.forward(b, false, 0)
				got := make([]float32, b.Rows*classes)
				if err := gds.Download(dev, n.stream, got, out); err != nil {
					t.Error(err)
				}
				for i, v := range got {
					w := want[int(some[at+i/classes])*classes+i%classes]
					if math.Abs(float64(v-w)) > 1e-5*(1+math.Abs(float64(w))) {
						t.Fatalf("node %d of the neighborhood: output %d is %v, want %v", at+i/classes, i%classes, v, w)
					}
				}
				at += b.Rows
			}, nil)
			if err != nil || at != len(some) {
				t.Errorf("%d nodes, %v", at, err)
			}
		})
	}
}

func TestBatchesThatAModelCannotComputeAreRefused(t *testing.T) {
	dev := openDevice(t, host.Options{})
	for name, c := range map[string]struct {
		model string
		edit  func(b *loader.Batch)
	}{
		"blocks for a model of a store":   {"sgc", func(b *loader.Batch) { b.X[0].Rows = 8 }},
		"too few blocks":                  {"gcn", func(b *loader.Batch) { b.Blocks = b.Blocks[:1] }},
		"blocks that do not join":         {"gcn", func(b *loader.Batch) { b.Blocks[1].Sources++ }},
		"a block for other rows":          {"gcn", func(b *loader.Batch) { b.Blocks[1].Destinations-- }},
		"fewer sources than destinations": {"gcn", func(b *loader.Batch) { b.Blocks[0].Sources, b.X[0].Rows = 5, 5 }},
		"features of the destinations":    {"gcn", func(b *loader.Batch) { b.X[0].Rows = 4 }},
		"destinations apart":              {"sage", func(b *loader.Batch) { b.Apart = true }},
		"a whole graph with blocks": {"gcn",
			func(b *loader.Batch) { b.Whole = &loader.WholeGraph{Blocks: b.Blocks} }},
		"a whole graph for a store's model": {"sgc", func(b *loader.Batch) {
			b.Blocks, b.Whole, b.X[0].Rows = nil, &loader.WholeGraph{Blocks: make([]loader.Block, 1)}, 0
		}},
		"sparse rows for a store's model": {"sgc", func(b *loader.Batch) {
			b.Blocks, b.X[0].Rows, b.Sparse = nil, 4,
				&loader.SparseRows{}
		}},
	} {
		n, err := newNetwork(dev, Spec{Model: c.model, Matrices: hops("sym", 0), Features: 2, Classes: 3}, 10,
			taskFor(t, true))
		if err != nil {
			t.Fatal(err)
		}
		x, labels := gds.Tensor{Rows: 8, Cols: 2, Stride: 2, DType: gds.Float32},
			gds.Tensor{Rows: 1, Cols: 4, DType: gds.Int32}
		b := &loader.Batch{Rows: 4, GlobalRows: 4, X: []gds.Tensor{x}, Labels: labels,
			Blocks: []loader.Block{{Sources: 8, Destinations: 6}, {Sources: 6, Destinations: 4}}}
		if c.model == "gcn" {
			if err := n.admit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		c.edit(b)
		if err := n.admit(t.Context(), b); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}
}
