package sampling

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// batchBuffer is the device memory that a batch is assembled in. It grows with the batches. On a device with memory of
// its own, the host writes to a pinnedBuffer first, which is copied at once.
type batchBuffer struct {
	epoch.Buffer
	l      *Loader
	device gds.Buffer // nil before the first batch
	bytes  atomic.Int64

	batch  loader.Batch
	x      [1]gds.Tensor
	sparse loader.SparseRows
	blocks []loader.Block
}

// pinnedBuffer is pinned memory for what the host writes of a batch, from there until the batch has moved.
type pinnedBuffer struct{ gds.Buffer } // nil before the first batch

// layout is where in its buffer a batch lies, in bytes.
type layout struct {
	inputs, staged int // rows of features; those of them that the host gathers

	// On the device:
	x, raw int64 // rows as float32; as stored, where they are converted or gathered there
	host   int64 // what the host writes, and all that follows

	// From host on:
	rows                   int64      // staged rows, as stored
	sparse                 blockPlace // or, if they are sparse, these: a block from columns to rows
	labels, weights, nodes int64
	index, missAt, into    int64 // of cached rows: see Loader.transfer
	hits                   int64 // of a batch that the device prepares: rows that its cache had
	blocks                 []blockPlace
	written                int64 // end of what the host writes, and of pinned memory
	end                    int64
}

// blockPlace is where a block lies, from layout.host on.
type blockPlace struct{ offsets, indices, weights int64 }

// align is what parts of a batch are aligned to in a buffer.
const align = 256

// batchSize is how large the parts of a batch are.
type batchSize struct {
	onDevice      bool // the device prepares it: the host writes labels alone
	chosen        bool // the sampler has chosen the seed nodes
	seeds, inputs int
	elements      int // of sparse rows
	seedWeights   int
	misses, into  int // of a cache that the host looks rows up in
	blocks        []blockSize
}

type blockSize struct{ destinations, sources, edges int }

// setSize sets the size of a job's batch from what was sampled and looked up.
func (j *job) setSize(chosen bool) {
	b := &j.sample
	j.size = batchSize{
		chosen: chosen,
		seeds:  len(b.Seeds), inputs: len(b.Inputs), seedWeights: len(b.SeedWeights),
		misses: len(j.lookup.Misses), into: len(j.lookup.Into), blocks: j.size.blocks[:0],
	}
	for i := range b.Blocks {
		k := &b.Blocks[i]
		j.size.blocks = append(j.size.blocks, blockSize{k.Destinations, k.Sources, len(k.Indices)})
	}
}

// layOut says where the parts of a job's batch, whose size is known, lie.
func (l *Loader) layOut(j *job) {
	p, b, f := &j.layout, &j.size, l.o.Features
	p.inputs, p.staged = b.inputs, 0
	cached := l.rows != nil && l.rows.onDevice()
	at := int64(0)
	take := func(bytes int64) int64 {
		start := at
		at = (at + bytes + align - 1) / align * align
		return start
	}
	stored := int64(p.inputs) * l.rowBytes()
	p.x, p.raw = 0, 0
	switch float := f.DType() == gds.Float32; {
	case l.sparse != nil: // all of it is written by the host
	case l.unified: // the host writes float32
		p.x = take(gds.Bytes(p.inputs, f.Columns(), gds.Float32))
	case (cached || b.onDevice) && float:
		p.x = take(stored)
		p.raw = p.x
	case cached || b.onDevice:
		p.x, p.raw = take(gds.Bytes(p.inputs, f.Columns(), gds.Float32)), take(stored)
	case !float:
		p.x = take(gds.Bytes(p.inputs, f.Columns(), gds.Float32))
	}
	p.host, at = at, 0
	if !l.unified && !b.onDevice && l.sparse == nil {
		if p.staged = p.inputs; cached {
			p.staged = b.misses
		}
	}
	p.rows = take(int64(p.staged) * l.rowBytes())
	if l.sparse != nil {
		p.sparse = blockPlace{take(4 * int64(p.inputs+1)), take(4 * int64(b.elements)), take(4 * int64(b.elements))}
	}
	if cached && !b.onDevice {
		p.index, p.missAt, p.into = take(4*int64(p.inputs)), take(4*int64(p.staged)), take(4*int64(b.into))
	}
	if l.o.Labels != nil {
		p.labels = take(int64(b.seeds * l.o.Labels.RowBytes()))
	}
	if b.onDevice {
		p.hits = take(8)
	}
	p.written = at
	p.weights = take(4 * int64(b.seedWeights))
	if l.o.NodeIDs {
		p.nodes = take(4 * int64(p.inputs))
	}
	p.blocks = p.blocks[:0]
	for _, k := range b.blocks {
		p.blocks = append(p.blocks, blockPlace{take(4 * int64(k.destinations+1)), take(4 * int64(k.edges)),
			take(4 * int64(k.edges))})
	}
	if p.end = at; !b.onDevice {
		p.written = at
	}
}

// takeBuffer gives a job a free buffer with room for its batch, once nothing uses its memory.
func (l *Loader) takeBuffer(w *pipeline.Worker, j *job) (err error) {
	if j.buffer, err = l.buffers.Take(w); err != nil {
		return err
	}
	b, need := j.buffer, j.layout.host+j.layout.end
	b.bytes.Store(max(b.bytes.Load(), need))
	grows := b.device == nil || b.device.Len() < need
	if l.unified || grows {
		// An error is of a stream of the client, who sees it there.
		if _ = l.buffers.AwaitRelease(w, b); w.Context().Err() != nil {
			return context.Cause(w.Context())
		}
	}
	if grows {
		return b.grow(w.Context(), j)
	}
	return nil
}

// takePinned gives a job pinned memory for what the host writes, unless the host can write to the device.
func (l *Loader) takePinned(j *job) (err error) {
	if l.unified {
		return nil
	}
	l.mu.Lock()
	if n := len(l.pinned); n > 0 {
		j.pinned, l.pinned = l.pinned[n-1], l.pinned[:n-1]
	} else {
		j.pinned = &pinnedBuffer{}
		l.allPinned = append(l.allPinned, j.pinned)
	}
	l.mu.Unlock()
	need := j.layout.written
	if j.pinned.Buffer != nil && j.pinned.Len() >= need {
		return nil
	}
	if err := j.pinned.release(); err != nil {
		return err
	}
	if j.pinned.Buffer, err = gds.AllocRoom(need, l.o.Device.AllocPinned); err != nil {
		j.pinned.Buffer = nil // not a nil pointer
		return noRoom(j, err)
	}
	return nil
}

// putPinned takes the pinned memory of a job back.
func (l *Loader) putPinned(j *job) {
	if j.pinned == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinned, j.pinned = append(l.pinned, j.pinned), nil
}

func (p *pinnedBuffer) release() error {
	if p.Buffer == nil {
		return nil
	}
	err := p.Free()
	p.Buffer = nil
	return err
}

// tooLarge is an error if a batch needs more than one may take.
func (l *Loader) tooLarge(j *job) error {
	p := &j.layout
	if limit, need := l.o.MaxBatchBytes, p.host+p.end; limit > 0 && need > limit {
		return fmt.Errorf("%w: batch %d needs %v for %d rows of features and %d blocks, more than the %v that a "+
			"batch may take: use fewer seeds or smaller fanouts",
			gds.ErrOutOfMemory, j.plan.Index, units.Bytes(need), p.inputs, len(p.blocks), units.Bytes(limit))
	}
	return nil
}

// noRoom explains that there is no memory for a batch.
func noRoom(j *job, err error) error {
	return fmt.Errorf("batch %d of %d rows of features (use fewer seeds, smaller fanouts or fewer buffers): %w",
		j.plan.Index, j.layout.inputs, err)
}

// grow makes room for a batch, and a quarter more, if there is, so that it is seldom called. Nothing uses the memory.
func (b *batchBuffer) grow(ctx context.Context, j *job) error {
	l, p := b.l, &j.layout
	need := p.host + p.end
	limit := l.o.MaxBatchBytes
	if err := b.release(); err != nil {
		return err
	}
	more := gds.Room(need)
	switch {
	case limit > 0 && l.unified && l.o.MostBuffers == l.o.Buffers:
		more = limit // see LoaderOptions
	case limit > 0:
		more = min(more, limit)
	}
	if l.roomBytes() < more {
		if err := l.buffers.EachFree(ctx, (*batchBuffer).release); err != nil {
			return err
		}
		room := l.roomBytes()
		if room < need {
			return fmt.Errorf("%w: batch %d needs %v, and %w %v: hold fewer batches, or use fewer seeds or smaller "+
				"fanouts",
				gds.ErrOutOfMemory, j.plan.Index, units.Bytes(need), ErrHeld, units.Bytes(max(room, 0)))
		}
		more = min(more, room)
	}
	err := gds.AllocateRoom(need, more, func(bytes int64) (err error) {
		b.device, err = l.o.Device.Alloc(bytes)
		return err
	})
	if err != nil {
		b.device = nil // not a nil pointer
		return noRoom(j, err)
	}
	l.batchBytes.Add(gds.Aligned(b.device.Len()))
	return nil
}

// memoryBytes is how much memory it has.
func (b *batchBuffer) memoryBytes() int64 {
	if b.device == nil {
		return 0
	}
	return b.device.Len()
}

// release frees the memory.
func (b *batchBuffer) release() error {
	if b.device == nil {
		return nil
	}
	b.l.batchBytes.Add(-gds.Aligned(b.device.Len()))
	err := b.device.Free()
	b.device = nil
	return err
}

// hostMemory is what the host writes, from layout.host on.
func (j *job) hostMemory() []byte {
	if j.pinned != nil {
		return j.pinned.Bytes()[:j.layout.written]
	}
	return j.buffer.device.Bytes()[j.layout.host:][:j.layout.end]
}

// tensor is a matrix on the device, at a place from layout.host on.
func (b *batchBuffer) tensor(p *layout, at int64, rows, cols int, t gds.DType) gds.Tensor {
	v := gds.NewTensor(b.device, rows, cols, t)
	v.Offset = p.host + at
	return v
}

// gather finds the rows of a job in the cache, takes a buffer, and writes what the host writes of the batch.
func (s *Set) gather(w *pipeline.Worker, j *job) (err error) {
	l, m := s.l, &j.sample
	if c := l.o.Cache; c != nil {
		l.lookup.Lock() // by a schedule, several workers gather
		c.Lookup(m.Inputs, &j.lookup)
		l.lookup.Unlock()
		defer func() {
			if err != nil {
				c.Forget(j.lookup.Into)
			}
		}()
	}
	j.setSize(s.method.kind.graphWise)
	if l.sparse != nil {
		j.size.elements = int(l.sparse.Elements(m.Inputs))
	}
	if err := l.beginBatch(w, j); err != nil {
		return err
	}
	if err := l.gatherRows(w.Context(), j); err != nil {
		return err
	}
	memory, p := j.hostMemory(), &j.layout
	if l.o.Labels != nil {
		s.writeLabels(memory[p.labels:], j)
	}
	if n := len(m.SeedWeights); n > 0 {
		copy(dtype.Float32s(memory[p.weights:][:4*n]), m.SeedWeights)
	}
	if l.o.NodeIDs {
		copy(dtype.Uint32s(memory[p.nodes:][:4*p.inputs]), m.Inputs)
	}
	for i, at := range p.blocks {
		k := &m.Blocks[i]
		copy(dtype.Uint32s(memory[at.offsets:][:4*len(k.Offsets)]), k.Offsets)
		copy(dtype.Uint32s(memory[at.indices:][:4*len(k.Indices)]), k.Indices)
		copy(dtype.Float32s(memory[at.weights:][:4*len(k.Weights)]), k.Weights)
	}
	return nil
}

// beginBatch takes memory that the host can write to for a job whose size is known.
func (l *Loader) beginBatch(w *pipeline.Worker, j *job) error {
	l.layOut(j)
	if err := l.tooLarge(j); err != nil {
		return err
	}
	if l.unified {
		return l.takeBuffer(w, j)
	}
	return l.takePinned(j)
}

// setBatch sets the tensors of a job's batch, but for the features.
func (l *Loader) setBatch(j *job) {
	b, p := j.buffer, &j.layout
	batch := &b.batch
	batch.Index, batch.Rows, batch.GlobalRows = j.plan.Index, j.size.seeds, j.plan.GlobalRows
	if j.size.chosen {
		batch.GlobalRows = j.size.seeds
	}
	batch.Labels, batch.RowWeights, batch.NodeIDs, batch.InputIDs = gds.Tensor{}, gds.Tensor{}, gds.Tensor{},
		gds.Tensor{}
	if labels := l.o.Labels; labels != nil {
		rows, cols := j.size.seeds, labels.Columns
		if labels.Type == gds.Int32 {
			rows, cols = 1, rows
		}
		batch.Labels = b.tensor(p, p.labels, rows, cols, labels.Type)
	}
	if n := j.size.seedWeights; n > 0 {
		batch.RowWeights = b.tensor(p, p.weights, 1, n, gds.Float32)
	}
	if l.o.NodeIDs {
		batch.InputIDs = b.tensor(p, p.nodes, 1, p.inputs, gds.Uint32)
		batch.NodeIDs = batch.InputIDs.Columns(0, j.size.seeds) // which come first
	}
	b.blocks = b.blocks[:0]
	edges := 0
	for i, at := range p.blocks {
		k := j.size.blocks[i]
		b.blocks = append(b.blocks, loader.Block{
			Destinations: k.destinations, Sources: k.sources,
			Offsets: b.tensor(p, at.offsets, 1, k.destinations+1, gds.Uint32),
			Indices: b.tensor(p, at.indices, 1, k.edges, gds.Uint32),
			Weights: b.tensor(p, at.weights, 1, k.edges, gds.Float32),
		})
		edges += k.edges
	}
	batch.Blocks, batch.X = b.blocks, b.x[:]
	batch.Traffic = loader.Traffic{Rows: int64(p.inputs), Edges: int64(edges)}
}

// addCached adds to the batch's traffic that so many of its rows were cached, and the others not.
func (b *batchBuffer) addCached(hits int64) {
	t, l := &b.batch.Traffic, b.l
	t.CachedRows += hits
	t.CacheBytes += hits * l.rowBytes()
	t.AddBytes(l.placement(), (t.Rows-hits)*l.rowBytes())
}

// writeLabels writes the labels of a batch. Seed nodes that a sampler has chosen and that the set does not have are
// unlabelled.
func (s *Set) writeLabels(dst []byte, j *job) {
	labels, seeds := s.l.o.Labels, j.sample.Seeds
	if j.size.onDevice {
		seeds = j.seeds
	}
	size := labels.RowBytes()
	for i, node := range seeds {
		to := dst[i*size:][:size]
		if !j.size.chosen || s.isMember(node) {
			copy(to, labels.Data[int(node)*size:])
			continue
		}
		for k := range to { // -1; as float32 it is NaN
			to[k] = 0xff
		}
	}
}

// gatherRows writes the rows of features of a batch that the host brings.
func (l *Loader) gatherRows(ctx context.Context, j *job) error {
	p, f, memory := &j.layout, l.o.Features, j.hostMemory()
	float := func() []byte { return j.buffer.device.Bytes()[p.x:][:gds.Bytes(p.inputs, f.Columns(), gds.Float32)] }
	switch {
	case l.sparse != nil:
		at, n := p.sparse, 4*j.size.elements
		return l.sparse.GatherElements(dtype.Uint32s(memory[at.offsets:][:4*(p.inputs+1)]),
			dtype.Uint32s(memory[at.indices:][:n]), dtype.Float32s(memory[at.weights:][:n]), j.sample.Inputs)
	case l.rows != nil && l.rows.onDevice():
		index, missAt := dtype.Uint32s(memory[p.index:][:4*p.inputs]), dtype.Uint32s(memory[p.missAt:][:4*p.staged])
		slots := uint32(l.o.Cache.Slots())
		for i, at := range j.lookup.Index {
			if index[i] = at; at >= slots {
				index[i], missAt[at-slots] = 0, uint32(i)
			}
		}
		copy(dtype.Uint32s(memory[p.into:][:4*len(j.lookup.Into)]), j.lookup.Into)
		return f.Gather(ctx, memory[p.rows:][:int64(p.staged)*l.rowBytes()], f.DType(), j.lookup.Misses)
	case l.rows != nil:
		return l.rows.gather(ctx, float(), &j.lookup)
	case l.unified:
		return f.Gather(ctx, float(), gds.Float32, j.sample.Inputs)
	}
	return f.Gather(ctx, memory[p.rows:][:int64(p.staged)*l.rowBytes()], f.DType(), j.sample.Inputs)
}

// transfer takes device memory for a batch that was gathered, and enqueues what brings the batch there.
func (l *Loader) transfer(w *pipeline.Worker, j *job, stream gds.Stream) error {
	if !l.unified {
		if err := l.takeBuffer(w, j); err != nil {
			return err
		}
	}
	l.setBatch(j)
	b, p, f := j.buffer, &j.layout, l.o.Features
	x := gds.NewTensor(b.device, p.inputs, f.Columns(), gds.Float32)
	x.Offset = p.x
	if b.Released != nil {
		stream.WaitEvent(b.Released)
	}
	if !l.unified {
		stream.Copy(b.tensor(p, 0, 1, int(p.end), gds.Uint8), gds.NewTensor(j.pinned.Buffer, 1, int(p.end), gds.Uint8))
		l.copiedIn.Add(p.end)
	}
	switch {
	case l.sparse != nil:
		x.Buf = nil
		n := j.size.elements
		b.sparse = loader.SparseRows{
			Cols: f.Columns(), Offsets: b.tensor(p, p.sparse.offsets, 1, p.inputs+1, gds.Uint32),
			Columns: b.tensor(p, p.sparse.indices, 1, n, gds.Uint32),
			Values:  b.tensor(p, p.sparse.weights, 1, n, gds.Float32),
		}
		b.batch.Sparse = &b.sparse
		b.batch.Traffic.AddBytes(l.placement(), 4*int64(p.inputs+1)+8*int64(n))
	case !l.unified:
		rows := b.tensor(p, p.rows, p.staged, f.Columns(), f.DType())
		raw := rows
		if l.rows != nil {
			// Rows that are missed take the place of any row that is there.
			raw = gds.NewTensor(b.device, p.inputs, f.Columns(), f.DType())
			raw.Offset = p.raw
			stream.Gather(raw, l.rows.tensor(), b.tensor(p, p.index, 1, p.inputs, gds.Uint32))
			stream.Scatter(raw, rows, b.tensor(p, p.missAt, 1, p.staged, gds.Uint32))
			n := len(j.lookup.Into)
			stream.Scatter(l.rows.tensor(), rows.Slice(0, n), b.tensor(p, p.into, 1, n, gds.Uint32))
		}
		switch {
		case f.DType() != gds.Float32:
			stream.Convert(x, raw)
		case l.rows == nil:
			x = rows
		}
	}
	switch {
	case l.o.Cache != nil:
		b.addCached(int64(j.lookup.Hits()))
	case l.sparse == nil:
		b.addCached(0)
	}
	b.x[0] = x
	b.Ready = stream.Record()
	return nil
}
