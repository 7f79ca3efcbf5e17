package sampling

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// layout is the parts of a batch as tensors, whose places are those in the batch's buffer on the device. Parts that a
// batch does not have are the zero Tensor.
type layout struct {
	seeds, inputs int

	x, raw gds.Tensor // rows of features as float32; as stored, where they are converted or put together

	// From here on, all lies together: on a device with memory of its own, the host writes its part, up to written,
	// into pinned memory, which is copied to place host of the buffer.
	host                gds.Tensor // nothing; its place is where this begins
	rows                gds.Tensor // rows that the host gathers, as stored
	sparse              loader.SparseRows
	index, missAt, into gds.Tensor // of cached rows: see Loader.transfer
	labels              gds.Tensor
	hits                gds.Tensor // of a batch that the device prepares: rows that its cache had
	weights, nodes      gds.Tensor
	blocks              []loader.Block
	written, end        int64 // from host on: of what the host writes, and of all
}

// layOut says where the parts of a job's batch lie, once it is sampled and looked up.
func (l *Loader) layOut(j *job) {
	p, m, f := &j.layout, &j.sample, l.o.Features
	*p = layout{seeds: len(m.Seeds), inputs: len(m.Inputs), blocks: p.blocks[:0]}
	if j.onDevice {
		p.seeds, p.inputs = len(j.seeds), j.device.Inputs.Cols
	}
	var all epoch.Arena
	take := all.Take
	vector := func(n int, t gds.DType) gds.Tensor { return take(1, n, t) }

	cached := l.rows != nil && l.rows.onDevice() && !j.onDevice
	together, converted := cached || j.onDevice, f.DType() != gds.Float32
	staged := p.inputs // rows
	switch {
	case l.sparse != nil:
		p.x, staged = gds.NewTensor(nil, p.inputs, f.Columns(), gds.Float32), 0
	case l.unified || together || converted:
		p.x = take(p.inputs, f.Columns(), gds.Float32)
	}
	if p.raw = p.x; together && converted {
		p.raw = take(p.inputs, f.Columns(), f.DType())
	}
	switch {
	case l.unified || j.onDevice:
		staged = 0
	case cached:
		staged = len(j.lookup.Misses)
	}

	p.host.Offset = all.Bytes
	p.rows = take(staged, f.Columns(), f.DType())
	if l.sparse == nil && !l.unified && !together {
		if p.raw = p.rows; !converted {
			p.x = p.rows
		}
	}
	if l.sparse != nil {
		n := int(l.sparse.Elements(m.Inputs))
		p.sparse = loader.SparseRows{Cols: f.Columns(), Offsets: vector(p.inputs+1, gds.Uint32),
			Columns: vector(n, gds.Uint32), Values: vector(n, gds.Float32)}
	}
	if cached {
		p.index, p.missAt = vector(p.inputs, gds.Uint32), vector(staged, gds.Uint32)
		p.into = vector(len(j.lookup.Into), gds.Uint32)
	}
	if labels := l.o.Labels; labels != nil {
		if p.labels = take(p.seeds, labels.Columns, labels.Type); labels.Type == gds.Int32 {
			p.labels.Rows, p.labels.Cols, p.labels.Stride = 1, p.seeds, p.seeds
		}
	}
	if j.onDevice {
		p.hits = vector(1, gds.Int64)
		p.written = all.Bytes - p.host.Offset
	} else if n := len(m.SeedWeights); n > 0 {
		p.weights = vector(n, gds.Float32)
	}
	if l.o.NodeIDs {
		p.nodes = vector(p.inputs, gds.Uint32)
	}
	block := func(destinations, sources, edges int) {
		p.blocks = append(p.blocks, loader.Block{Destinations: destinations, Sources: sources,
			Offsets: vector(destinations+1, gds.Uint32), Indices: vector(edges, gds.Uint32),
			Weights: vector(edges, gds.Float32)})
	}
	if j.onDevice {
		for _, k := range j.device.Blocks {
			block(k.Destinations, k.Sources, k.Indices.Cols)
		}
	} else {
		for i := range m.Blocks {
			block(m.Blocks[i].Destinations, m.Blocks[i].Sources, len(m.Blocks[i].Indices))
		}
	}
	if p.end = all.Bytes - p.host.Offset; !j.onDevice {
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

// inPinned is a part of what the host writes in pinned memory.
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
