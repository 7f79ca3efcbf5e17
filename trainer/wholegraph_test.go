package trainer

import (
	"context"
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

// wholeToy is a graph on a device, of which batches are some nodes.
type wholeToy struct {
	whole  *loader.WholeGraph
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
			b := &loader.Batch{Index: i, Rows: hi - lo, GlobalRows: hi - lo, X: []gds.Tensor{w.whole.X},
				Labels: w.labels.Columns(lo, hi), NodeIDs: w.nodes.Columns(lo, hi), RowNumbers: w.nodes.Columns(lo, hi), Whole: w.whole}
			if w.chunks != nil {
				b.Whole = &loader.WholeGraph{Chunks: w.chunks, Nodes: w.ids[lo:hi]}
				b.X = []gds.Tensor{{Cols: w.whole.X.Cols, Stride: w.whole.X.Cols, DType: gds.Float32}}
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
	mem   *memory
	block toyBlock // of all nodes
	x     *hostRows
}

func (c *toyChunks) Nodes() int { return c.block.Destinations }

func (c *toyChunks) Each(ctx context.Context, stream gds.Stream, rows loader.RowSource) iter.Seq2[loader.GraphChunk, error] {
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
					b.Indices, b.Weights = append(b.Indices, add(c.block.Indices[e])), append(b.Weights, c.block.Weights[e])
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
			tensor, err := c.mem.matrix("test", len(nodes), rows.Columns(), gds.Float32)
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
	const nodes, features, classes = chunkRows + 300, 3, 4 // more than a chunk
	for _, c := range []Spec{
		{Model: "gcn", Settings: blocksOf(5, 2, 0.3, 0, 0)},
		{Model: "gcn", Settings: blocksOf(5, 3, 0.3, 1, 1)},
		{Model: "sage", Settings: blocksOf(5, 1, 0.3, 1, 0)},
		{Model: "gat", Settings: gatOf(6, 2, 0.2, 2)},
	} {
		t.Run(c.Model, func(t *testing.T) {
			dev := openDevice(t, host.Options{Discrete: true, Threads: 2})
			c.Matrices, c.Features, c.Classes = hops("sym", 0), features, classes
			n, err := newNetwork(dev, c, nodes, taskFor(t, false))
			if err != nil {
				t.Fatal(err)
			}
			defer n.close()
			mem := memory{dev: dev}
			defer func() {
				if err := mem.free(); err != nil {
					t.Error(err)
				}
			}()
			upload := func(rows, cols int, kind gds.DType, data []byte) gds.Tensor {
				tensor, err := mem.matrix("test", rows, cols, kind)
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
				x[i] = float32(rng.Normal(1, uint64(i)))
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
			whole := &loader.WholeGraph{X: upload(nodes, features, gds.Float32, dtype.BytesOf(x)), Block: onDevice}
			set := &wholeToy{whole: whole, nodes: upload(1, nodes, gds.Uint32, dtype.BytesOf(ids)), labels: upload(1, nodes, gds.Int32, dtype.BytesOf(labels)), batch: 3000, ids: ids}
			if err := n.upload(n.params.value, someValues(n.params, 6)); err != nil {
				t.Fatal(err)
			}
			n.scales[0] = 0.5
			b := &loader.Batch{Rows: nodes, GlobalRows: nodes, X: []gds.Tensor{whole.X}, Labels: set.labels,
				Blocks: slices.Repeat([]loader.Block{onDevice}, n.levels.layers)}
			if err := n.admit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			out, _ := n.forward(b, false, 0).of(&n.pass)
			want := make([]float32, nodes*classes)
			if err := gds.Download(dev, n.stream, want, out); err != nil {
				t.Fatal(err)
			}
			exact := map[bool][]float32{}
			for _, inChunks := range []bool{false, true} {
				if set.chunks = nil; inChunks { // of one node, of two, and so on
					set.chunks = &toyChunks{dev: dev, mem: &mem, block: block, x: hostRowsOf(t, x, features), t: t}
				}
				at := 0
				alone := group{ranks: []*network{n}}
				_, err = alone.eachBatch(t.Context(), []Epocher{set}, 0, 0, func(n *network, b *loader.Batch) {
					out, _ := n.forward(b, false, 0).of(&n.pass)
					got := make([]float32, b.Rows*classes)
					if err := gds.Download(dev, n.stream, got, out); err != nil {
						t.Error(err)
					}
					for i, v := range got {
						node := int(ids[at+i/classes])
						if w := want[node*classes+i%classes]; math.Abs(float64(v-w)) > 1e-5*(1+math.Abs(float64(w))) {
							t.Fatalf("node %d: output %d is %v, want %v (in chunks: %v)", node, i%classes, v, w, inChunks)
						}
					}
					exact[inChunks] = append(exact[inChunks], got...)
					at += b.Rows
				}, nil)
				if err != nil || at != nodes {
					t.Errorf("%d nodes, %v (in chunks: %v)", at, err, inChunks)
				}
			}
			if !slices.Equal(exact[false], exact[true]) {
				t.Error("in chunks, outputs are other bits")
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
		"blocks for a model of a store":     {"sgc", func(b *loader.Batch) { b.X[0].Rows = 8 }},
		"too few blocks":                    {"gcn", func(b *loader.Batch) { b.Blocks = b.Blocks[:1] }},
		"blocks that do not join":           {"gcn", func(b *loader.Batch) { b.Blocks[1].Sources++ }},
		"a block for other rows":            {"gcn", func(b *loader.Batch) { b.Blocks[1].Destinations-- }},
		"fewer sources than destinations":   {"gcn", func(b *loader.Batch) { b.Blocks[0].Sources, b.X[0].Rows = 5, 5 }},
		"features of the destinations":      {"gcn", func(b *loader.Batch) { b.X[0].Rows = 4 }},
		"a whole graph with blocks":         {"gcn", func(b *loader.Batch) { b.Whole = &loader.WholeGraph{Block: b.Blocks[0]} }},
		"a whole graph for a store's model": {"sgc", func(b *loader.Batch) { b.Blocks, b.Whole, b.X[0].Rows = nil, &loader.WholeGraph{}, 0 }},
	} {
		n, err := newNetwork(dev, Spec{Model: c.model, Matrices: hops("sym", 0), Features: 2, Classes: 3}, 10, taskFor(t, true))
		if err != nil {
			t.Fatal(err)
		}
		x, labels := gds.Tensor{Rows: 8, Cols: 2, Stride: 2, DType: gds.Float32}, gds.Tensor{Rows: 1, Cols: 4, DType: gds.Int32}
		b := &loader.Batch{Rows: 4, GlobalRows: 4, X: []gds.Tensor{x}, Labels: labels, Blocks: []loader.Block{{Sources: 8, Destinations: 6}, {Sources: 6, Destinations: 4}}}
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
