package loader

import "github.com/hopfeed/hopfeed/gds"

// Batch is what one step of training sees. It is valid for work enqueued on the stream that was
// given to Epoch, until the loop asks for the next batch, or longer, if it is held. Its tensors are
// on the device, and must not be written to: they may be views of preloaded memory.
type Batch struct {
	Index      int
	Rows       int // of this rank; may be 0
	GlobalRows int // over all ranks: what the loss is divided by
	// X is one matrix [Rows, F] for each of Options.Matrices, float32 unless Options.AsStored,
	// whose rows may lie apart.
	X []gds.Tensor
	// Labels are int32 [1, Rows], -1 unlabelled; those of a multi-label store int8 [Rows, L] of 0
	// and 1, -1 unlabelled; those that are values float32 [Rows, L], NaN unlabelled.
	// With Options.NoLabels it is the zero Tensor.
	Labels gds.Tensor
	// RowNumbers are those of the store, uint32 [1, Rows], and NodeIDs those of the graph, uint32
	// [1, Rows], both if Options ask for them.
	RowNumbers, NodeIDs gds.Tensor
	// Blocks are the layers of a sampled mini-batch, in the order in which a model computes them;
	// nil for batches of a hop store. X is then one matrix, with a row for each source of the
	// first block, and the destinations of the last are the Rows of the batch.
	Blocks []Block

	loader *Loader
	buffer *batchBuffer
	inStep bool // of the loop; under Loader.mu
	holds  int  // the same
}

// Block is one layer of a sampled mini-batch on a device: edges from sources to destinations, by
// destination. Nodes have local ids, and the destinations are the first of the sources.
type Block struct {
	Destinations, Sources int
	Offsets               gds.Tensor // uint32 [1, Destinations+1]: where the edges of each destination are
	Indices               gds.Tensor // uint32 [1, edges]: their sources
	Weights               gds.Tensor // float32 [1, edges]
}

// Hold keeps the memory of the batch beyond its step of the loop, and beyond the epoch, until
// Release. It is called in that step, or by one who holds the batch already; each Hold takes a
// Release. While all of Options.Buffers are held, the loader waits, so hold fewer, or release from
// another goroutine. A loader of which batches are held cannot be closed.
func (b *Batch) Hold() {
	if b.loader == nil {
		return
	}
	b.loader.mu.Lock()
	defer b.loader.mu.Unlock()
	if b.inStep || b.holds > 0 {
		b.holds++
	}
}

// Release ends one Hold; without one it does nothing. The memory is used again after the given
// event, which is recorded on the stream that uses the batch; nil: nothing uses it any more. Any
// goroutine may call it.
func (b *Batch) Release(after gds.Event) {
	if b.loader == nil {
		return
	}
	b.loader.mu.Lock()
	defer b.loader.mu.Unlock()
	if b.holds == 0 {
		return
	}
	b.holds--
	if after != nil {
		b.buffer.held = append(b.buffer.held, after)
	}
	b.giveBack()
}

// endStep ends the step of the loop.
func (b *Batch) endStep() {
	b.loader.mu.Lock()
	defer b.loader.mu.Unlock()
	b.inStep = false
	b.giveBack()
}

// giveBack gives the buffer back if nobody uses the batch. Loader.mu is locked.
func (b *Batch) giveBack() {
	if !b.inStep && b.holds == 0 {
		b.loader.free <- b.buffer // there is room for all
	}
}
