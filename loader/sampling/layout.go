package sampling

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// layout is the parts of a batch as tensors, placed in the batch's buffer on the device. A part that the batch does not
// have is the zero Tensor.
type layout struct {
	seeds, inputs int

	x, raw gds.Tensor // rows of features as float32; as stored, where they are converted or put together

	// From here on, all lies together: on a device with memory of its own, the host writes its part, up to written,
	// into pinned memory, which is copied to place host of the buffer.
	host               gds.Tensor // nothing; its place is where this begins
	rows               gds.Tensor // rows that the host gathers, as stored
	sparse             loader.SparseRows
	index              gds.Tensor // of rows that the device gathers
	missAt, into       gds.Tensor // of cached rows: see Loader.transfer
	labels             gds.Tensor
	hits               gds.Tensor // of a batch that the device prepares: rows that its cache had
	weights, nodes     gds.Tensor
	seedNodes          gds.Tensor // unless nodes begin with them
	trees, links, ends gds.Tensor
	blocks             []loader.Block
	written, end       int64 // from host on: of the host's part, and of all
}

// form describes all batches of a loader.
type form struct {
	columns int           // of features
	dtype   gds.DType     // as stored
	labels  loader.Labels // without Data
	unified bool          // the host can write to device memory
	sparse  bool          // features are sparse
	typed   bool          // features are of several types: rows of different widths lie one after another
	cached  bool          // rows are cached in device memory
	gathers bool          // the device gathers all rows, float32, from its own memory
	nodeIDs bool          // batches tell which nodes their rows are
}

// batchSize is how large the parts of a batch are.
type batchSize struct {
	onDevice                   bool // the device prepares it: the host writes labels alone
	seeds, inputs, seedWeights int
	seedNodes                  int // if inputs do not begin with them
	elements                   int // of sparse rows, or of rows of several types
	misses, into               int // of a cache that the host looks rows up in
	trees, links, ends         int
	edgeIDs                    bool
	blocks                     []blockSize
}

// blockSize is how large a block is.
type blockSize struct{ rows, destinations, sources, edges int }

// setSize sets the size of a job's batch, once it is sampled and looked up.
func (l *Loader) setSize(j *job) {
	m := &j.sample
	j.size = batchSize{seeds: len(m.Seeds), inputs: len(m.Inputs), seedWeights: len(m.SeedWeights),
		misses: len(j.lookup.Misses), into: len(j.lookup.Into), trees: len(m.Trees), ends: len(j.ends),
		blocks: j.size.blocks[:0]}
	if len(j.ends) > 0 {
		j.size.links = len(j.seeds)
	}
	if j.onDevice {
		j.size = batchSize{onDevice: true, seeds: len(j.seeds), inputs: j.device.inputs.Cols, blocks: j.size.blocks}
		for _, k := range j.device.blocks {
			j.size.blocks = append(j.size.blocks, blockSize{k.Destinations, k.Destinations, k.Sources, k.Indices.Cols})
		}
		return
	}
	switch {
	case l.sparse != nil:
		j.size.elements = int(l.sparse.In(m.Inputs))
	case l.typed != nil:
		j.size.elements = l.typed.Elements(m.Types)
	}
	for i := range m.Blocks {
		k := &m.Blocks[i]
		j.size.seedNodes = len(k.Nodes)
		j.size.blocks = append(j.size.blocks, blockSize{len(k.Offsets) - 1, k.Destinations, k.Sources, len(k.Indices)})
		j.size.edgeIDs = j.size.edgeIDs || len(k.Edges) > 0
	}
}

// layOut says where the parts of a batch of this size lie.
func (f *form) layOut(p *layout, b *batchSize) {
	*p = layout{seeds: b.seeds, inputs: b.inputs, blocks: p.blocks[:0]}
	var all epoch.Arena
	take := all.Take
	vector := func(n int, t gds.DType) gds.Tensor { return take(1, n, t) }

	cached := f.cached && !b.onDevice
	together, converted := cached || b.onDevice || f.gathers, f.dtype != gds.Float32
	staged, columns := p.inputs, f.columns // rows
	if f.typed {
		staged, columns = 1, b.elements
	}
	switch {
	case f.sparse:
		p.x, staged = gds.NewTensor(nil, p.inputs, f.columns, gds.Float32), 0
	case f.unified || together || converted:
		p.x = take(staged, columns, gds.Float32)
	}
	if p.raw = p.x; together && converted {
		p.raw = take(p.inputs, f.columns, f.dtype)
	}
	switch {
	case f.unified || b.onDevice || f.gathers:
		staged = 0
	case cached:
		staged = b.misses
	}

	p.host.Offset = all.Bytes
	p.rows = take(staged, columns, f.dtype)
	if !f.sparse && !f.unified && !together {
		if p.raw = p.rows; !converted {
			p.x = p.rows
		}
	}
	if f.sparse {
		p.sparse = loader.SparseRows{Cols: f.columns, Offsets: vector(p.inputs+1, gds.Uint32),
			Columns: vector(b.elements, gds.Uint32), Values: vector(b.elements, gds.Float32)}
	}
	if cached || f.gathers && !b.onDevice {
		p.index = vector(p.inputs, gds.Uint32)
	}
	if cached {
		p.missAt, p.into = vector(staged, gds.Uint32), vector(b.into, gds.Uint32)
	}
	if f.labels.Columns > 0 {
		if p.labels = take(p.seeds, f.labels.Columns, f.labels.Type); f.labels.Type == gds.Int32 {
			p.labels.Rows, p.labels.Cols, p.labels.Stride = 1, p.seeds, p.seeds
		}
	}
	if b.onDevice {
		p.hits = vector(1, gds.Int64)
		p.written = all.Bytes - p.host.Offset
	} else if b.seedWeights > 0 {
		p.weights = vector(b.seedWeights, gds.Float32)
	}
	if f.nodeIDs {
		p.nodes, p.seedNodes = vector(p.inputs, gds.Uint32), vector(b.seedNodes, gds.Uint32)
	}
	if b.trees > 0 {
		p.trees = vector(b.trees, gds.Uint32)
	}
	if b.ends > 0 {
		p.links, p.ends = vector(b.links, gds.Uint32), vector(b.ends, gds.Uint32)
	}
	for _, k := range b.blocks {
		block := loader.Block{Destinations: k.destinations, Sources: k.sources,
			Offsets: vector(k.rows+1, gds.Uint32), Indices: vector(k.edges, gds.Uint32),
			Weights: vector(k.edges, gds.Float32)}
		if b.edgeIDs {
			block.Edges = vector(k.edges, gds.Int64)
		}
		p.blocks = append(p.blocks, block)
	}
	if p.end = all.Bytes - p.host.Offset; !b.onDevice {
		p.written = p.end
	}
}

// bytes is the memory of the whole batch.
func (p *layout) bytes() int64 { return p.host.Offset + p.end }

// in is a part of the batch in a buffer on the device.
func in(b gds.Buffer, part gds.Tensor) gds.Tensor {
	if part != (gds.Tensor{}) {
		part.Buf = b
	}
	return part
}

// inPinned is a part of the pinned memory that the host writes.
func (j *job) inPinned(part gds.Tensor) gds.Tensor {
	part.Buf = j.pinned.Buffer
	part.Offset -= j.layout.host.Offset
	return part
}

// writtenPart is all that the host writes.
func (p *layout) writtenPart() gds.Tensor {
	t := gds.NewTensor(nil, 1, int(p.written), gds.Uint8)
	t.Offset = p.host.Offset
	return t
}

// memory is where the host writes a part of the batch.
func (j *job) memory(part gds.Tensor) []byte {
	if part == (gds.Tensor{}) {
		return nil
	}
	if j.pinned != nil && part.Offset >= j.layout.host.Offset {
		part = j.inPinned(part)
	} else {
		part.Buf = j.buffer.device.Buffer
	}
	return part.Buf.Bytes()[part.Offset:][:gds.Bytes(part.Rows, part.Cols, part.DType)]
}

// write copies values to where the host writes a part of the batch.
func write[T dtype.Number](j *job, part gds.Tensor, values []T) {
	copy(dtype.As[T](j.memory(part)), values)
}
