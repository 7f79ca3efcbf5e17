package loader

import (
	"context"
	"iter"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// Batch is the input of one step of training. It is valid for work enqueued on the stream that was given to Epoch,
// until the loop asks for the next batch, or longer, if it is held. Its tensors are on the device, and must not be
// written to, since they may be views of preloaded memory, unless batches are Owned.
type Batch struct {
	Index      int
	Rows       int // of this rank; may be 0
	GlobalRows int // over all ranks: what the loss is divided by
	// X is one matrix [Rows, F] for each of Options.Matrices, float32 unless Options.AsStored,
	// whose rows may lie apart.
	X []gds.Tensor
	// Labels are classes, int32 [1, Rows], -1 unlabelled; several labels a row, int8 [Rows, L] of 0 and 1, -1
	// unlabelled; or values, float32 [Rows, L], NaN unlabelled. With Options.NoLabels it is the zero Tensor.
	Labels gds.Tensor
	// RowWeights multiply the losses of the rows, float32 [1, Rows]; the zero Tensor: ones.
	RowWeights gds.Tensor
	// RowNumbers are the rows' numbers in the store, and NodeIDs their nodes in the graph, uint32 [1, Rows], both if
	// Options ask for them.
	RowNumbers, NodeIDs gds.Tensor
	// InputIDs are the nodes of the rows of X of a sampled mini-batch, uint32 [1, rows of X], if its
	// loader is asked for NodeIDs, which are the first of them; of several types, the numbers of nodes within their types.
	InputIDs gds.Tensor
	// Blocks are the layers of a sampled mini-batch, in the order in which a model computes them;
	// nil for batches of a hop store. X is then one matrix, with a row for each source of the
	// first block, and the destinations of the last are the Rows of the batch. Where blocks have Parts, X is a matrix for
	// each type of nodes, and indices of the first block are of rows of the matrix of their type.
	Blocks []Block
	// Apart: the destinations of Blocks are not among their sources, nor NodeIDs the first of InputIDs.
	Apart bool
	// Links are the numbers of the links of the batch, uint32 [1, Rows]. LinkEnds, uint32, has a local id for the
	// source of each link and negative pair, then one for each destination. Both are zero Tensors unless links are
	// seeds.
	Links, LinkEnds gds.Tensor
	// Trees say of each of the InputIDs which of the NodeIDs it was reached from, uint32 [1, rows of X]; the zero
	// Tensor unless each seed has a tree of its own.
	Trees gds.Tensor
	// Whole is not nil where a batch is rows of a whole graph, for inference: Blocks are then nil, and NodeIDs are the
	// local ids of the Rows among the destinations of the last layer; where that has all nodes, the local ids are the
	// nodes.
	Whole *WholeGraph
	// Sparse is not nil where features are sparse: X is then one matrix that has a shape, but no memory, and these are
	// its elements.
	Sparse *SparseRows
	// Traffic counts the features of this rank's share of the batch.
	Traffic Traffic

	loan epoch.Loan
}

// Block is one layer of a sampled mini-batch on a device: edges from sources to destinations, by
// destination. Nodes have local ids, and the destinations are the first of the sources.
type Block struct {
	Destinations, Sources int
	Offsets               gds.Tensor // uint32 [1, Destinations+1]: where the edges of each destination are
	Indices               gds.Tensor // uint32 [1, edges]: their sources
	Weights               gds.Tensor // float32 [1, edges]
	Edges                 gds.Tensor // int64 [1, edges]: their numbers in the graph; the zero Tensor unless asked for
	// Parts is for models with weights for each relation (sampling.Options.ByType): the first destination of each part of
	// them and, last, their number; else nil.
	Parts []uint32
}

// SparseRows are the elements of a matrix of float32 that are not zero, row by row (CSR): row i has the elements
// Offsets[0,i] to Offsets[0,i+1]-1.
type SparseRows struct {
	Cols    int        // of the matrix
	Offsets gds.Tensor // uint32 [1, rows+1]
	Columns gds.Tensor // uint32 [1, elements]; ascending in each row
	Values  gds.Tensor // float32 [1, elements]
}

// WholeGraph is a graph on which models compute a layer for all nodes before the next layer: for all nodes of the
// graph, or for the nodes that later layers need.
type WholeGraph struct {
	// Blocks has a block for each layer, or a single one for all layers, with all nodes by their ids.
	Blocks []Block
	// Inputs are the rows of X that the sources of the first block are, uint32 [1, sources]; the zero Tensor: all, in
	// order.
	Inputs gds.Tensor
	// Chunks is not nil where the graph does not lie on the device, but comes in chunks: X has no
	// rows then, and there are no Blocks. Nodes are the Rows of the batch.
	Chunks GraphChunks
	Nodes  []uint32
	// Products tells that X has products of features with the weights of the first layer, side by side: of a chunk.
	Products bool
}

// LayerBlock is the block of a layer.
func (w *WholeGraph) LayerBlock(layer int) Block { return w.Blocks[min(layer, len(w.Blocks)-1)] }

// GraphChunks bring a graph to a device chunk after chunk.
type GraphChunks interface {
	Nodes() int   // of the graph
	Sparse() bool // the features are
	// Each yields chunks that have all nodes in order as destinations, with rows of a source, or of
	// the features where that is nil. stream waits until a chunk is there, and its work on it must be
	// done when the next is asked for. An error is yielded once, last.
	Each(ctx context.Context, stream gds.Stream, rows RowSource) iter.Seq2[GraphChunk, error]
	// EachRows yields the features of all nodes in order, as Each does: chunks without edges, whose sources are their
	// destinations.
	EachRows(ctx context.Context, stream gds.Stream) iter.Seq2[GraphChunk, error]
	// Rows is the place for matrix i, 0 or 1, of layers' outputs for all nodes; nil: in host memory.
	Rows(i int) NodeRows
}

// GraphChunk is the edges to some consecutive nodes of a graph.
type GraphChunk struct {
	First  int         // node, of so many destinations
	X      gds.Tensor  // float32 [sources, columns of the source of rows]
	Sparse *SparseRows // not nil: its elements, as in Batch
	Block
}

// RowSource has a row for each node.
type RowSource interface {
	Columns() int
	// Gather writes the rows of nodes, in their order and without gaps, to dst.
	Gather(ctx context.Context, dst []byte, as gds.DType, nodes []uint32) error
}

// NodeRows are float32 rows that are written for all nodes, and then read.
type NodeRows interface {
	RowSource
	// Begin says how many columns the rows have that are written next. It forgets the rows before.
	Begin(columns int)
	// Write writes the rows of consecutive nodes from first on.
	Write(first int, rows []byte) error
}

// Loan is for loaders.
func (b *Batch) Loan() *epoch.Loan { return &b.loan }

// Hold keeps the memory of the batch beyond its step of the loop, and beyond the epoch, until
// Release. It is called in that step, or by one who holds the batch already; each Hold takes a
// Release. While all of Options.Buffers are held, the loader waits, so hold fewer, or release from
// another goroutine. A loader cannot be closed while one of its batches is held.
func (b *Batch) Hold() { b.loan.Hold() }

// Release ends one Hold; without one it does nothing. The memory is used again after the given event, which is recorded
// on the stream that uses the batch; nil: nothing uses it any more. Any goroutine may call it.
func (b *Batch) Release(after gds.Event) { b.loan.Release(after) }
