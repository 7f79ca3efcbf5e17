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
	types         []typeLayout

	// From here on, all lies together: on a device with memory of its own, the host writes its part, up to written,
	// into pinned memory, which is copied to place host of the buffer.
	host               gds.Tensor // nothing; its place is where this begins
	labels             gds.Tensor
	hits               gds.Tensor // of a batch that the device prepares: rows that its cache had
	weights, nodes     gds.Tensor
	seedNodes          gds.Tensor // unless nodes begin with them
	trees, links, ends gds.Tensor
	blocks             []loader.Block
	written, end       int64 // from host on: of the host's part, and of all
}

// typeLayout is the rows of a type in a batch.
type typeLayout struct {
	x, raw gds.Tensor // rows of features as float32; as stored, where they are converted or put together
	// From here on, what lies behind host:
	rows         gds.Tensor // rows that the host gathers, as stored
	sparse       loader.SparseRows
	index        gds.Tensor // of rows that the device gathers
	missAt, into gds.Tensor // of cached rows: see Loader.transfer
}

// form describes all batches of a loader.
type form struct {
	types   []typeForm
	labels  loader.Labels // without Data
	unified bool          // the host can write to device memory
	nodeIDs bool          // batches tell which nodes their rows are
}

// typeForm describes the rows of a type in all batches.
type typeForm struct {
	columns int       // of features
	dtype   gds.DType // as stored
	sparse  bool      // features are sparse
	cached  bool      // rows are cached in device memory
	gathers bool      // the device gathers all rows, float32, from its own memory
}

// batchSize is how large the parts of a batch are.
type batchSize struct {
	onDevice                   bool // the device prepares it: the host writes labels alone
	seeds, inputs, seedWeights int
	types                      []typeSize
	seedNodes                  int // if inputs do not begin with them
	trees, links, ends         int
	edgeIDs                    bool
	blocks                     []blockSize
}

// typeSize is how large the rows of a type are.
type typeSize struct {
	inputs       int
	elements     int // of sparse rows
	misses, into int // of a cache that the host looks rows up in
}

// blockSize is how large a block is.
type blockSize struct{ rows, destinations, sources, edges int }

// setSize sets the size of a job's batch, once it is sampled and looked up.
func (l *Loader) setSize(j *job) {
	m := &j.sample
	j.size = batchSize{seeds: len(m.Seeds), inputs: len(m.Inputs), types: j.size.types[:0],
		seedWeights: len(m.SeedWeights), trees: len(m.Trees), ends: len(j.ends), blocks: j.size.blocks[:0]}
	if len(j.ends) > 0 {
		j.size.links = len(j.seeds)
	}
	if j.onDevice {
		inputs := j.device.inputs.Cols
		j.size = batchSize{onDevice: true, seeds: len(j.seeds), inputs: inputs,
			types: append(j.size.types, typeSize{inputs: inputs}), blocks: j.size.blocks}
		for _, k := range j.device.blocks {
			j.size.blocks = append(j.size.blocks, blockSize{k.Destinations, k.Destinations, k.Sources, k.Indices.Cols})
		}
		return
	}
	for i := range l.types {
		t := typeSize{inputs: len(m.OfType(i)), misses: len(j.lookups[i].Misses), into: len(j.lookups[i].Into)}
		if l.sparse != nil {
			t.elements = int(l.sparse.In(m.Inputs))
		}
		j.size.types = append(j.size.types, t)
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
	*p = layout{seeds: b.seeds, inputs: b.inputs, types: p.types[:0], blocks: p.blocks[:0]}
	var all epoch.Arena
	take := all.Take
	vector := func(n int, t gds.DType) gds.Tensor { return take(1, n, t) }

	for i, size := range b.types {
		t := &f.types[i]
		r := typeLayout{}
		converted := t.dtype != gds.Float32
		switch {
		case t.sparse:
			r.x = gds.NewTensor(nil, size.inputs, t.columns, gds.Float32)
		case f.unified || t.together(b) || converted:
			r.x = take(size.inputs, t.columns, gds.Float32)
		}
		if r.raw = r.x; t.together(b) && converted {
			r.raw = take(size.inputs, t.columns, t.dtype)
		}
		p.types = append(p.types, r)
	}
	p.host.Offset = all.Bytes
	for i, size := range b.types {
		t, r := &f.types[i], &p.types[i]
		cached, staged := t.cached && !b.onDevice, size.inputs // rows
		switch {
		case t.sparse, f.unified, b.onDevice, t.gathers:
			staged = 0
		case cached:
			staged = size.misses
		}
		r.rows = take(staged, t.columns, t.dtype)
		if !t.sparse && !f.unified && !t.together(b) {
			if r.raw = r.rows; t.dtype == gds.Float32 {
				r.x = r.rows
			}
		}
		if t.sparse {
			r.sparse = loader.SparseRows{Cols: t.columns, Offsets: vector(size.inputs+1, gds.Uint32),
				Columns: vector(size.elements, gds.Uint32), Values: vector(size.elements, gds.Float32)}
		}
		if cached || t.gathers && !b.onDevice {
			r.index = vector(size.inputs, gds.Uint32)
		}
		if cached {
			r.missAt, r.into = vector(staged, gds.Uint32), vector(size.into, gds.Uint32)
		}
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

// together tells that the device puts the rows of a type together from its own memory.
func (t *typeForm) together(b *batchSize) bool { return t.cached || b.onDevice || t.gathers }

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
