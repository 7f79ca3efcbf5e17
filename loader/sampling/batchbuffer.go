package sampling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
)

// batchBuffer is the memory that a batch is assembled in. It grows with the batches. On a device with
// memory of its own, what the host writes is written to pinned memory first, and copied at once.
type batchBuffer struct {
	l      *Loader
	device gds.Buffer // nil before the first batch
	pinned gds.Buffer // of what the host writes, unless the host can write to device
	lent   *lent      // whose memory device is; nil: its own
	bytes  atomic.Int64

	batch  loader.Batch
	x      [1]gds.Tensor
	sparse loader.SparseRows
	blocks []loader.Block

	inPipeline bool      // taken, and not yet passed to the loop
	ready      gds.Event // the batch is assembled, and pinned memory free
	released   gds.Event // the work that the loop has enqueued on the batch is done
	giveBack   func(held []gds.Event)

	mu   sync.Mutex
	held []gds.Event // after which those who held the batch do not use it any more
}

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
	index, missAt, into    int64 // of cached rows: see job.transfer
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
	seeds, inputs int
	elements      int // of sparse rows
	seedWeights   int
	misses, into  int // of a cache that the host looks rows up in
	blocks        []blockSize
}

type blockSize struct{ destinations, sources, edges int }

// setSize sets the size of a job's batch from what was sampled and looked up.
func (j *job) setSize() {
	b := &j.sample
	j.size = batchSize{
		seeds: len(b.Seeds), inputs: len(b.Inputs), seedWeights: len(b.SeedWeights),
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
		p.labels = take(int64(b.seeds * l.o.Labels.rowBytes()))
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
		p.blocks = append(p.blocks, blockPlace{take(4 * int64(k.destinations+1)), take(4 * int64(k.edges)), take(4 * int64(k.edges))})
	}
	if p.end = at; !b.onDevice {
		p.written = at
	}
}

// takeBuffer gives a job a free buffer with room for its batch, once nothing uses its memory.
func (l *Loader) takeBuffer(w *pipeline.Worker, j *job) error {
	start := time.Now()
	defer func() {
		j.waitedForRoom = time.Since(start)
		l.waited.Add(int64(j.waitedForRoom))
	}()
	b, err := pipeline.Take(w, l.free)
	if err != nil {
		return err
	}
	j.buffer, b.inPipeline = b, true
	held := b.takeHeld()
	for i, e := range held {
		// An error is of a stream of the holder, who sees it there.
		if _ = w.WaitForRoom(e); w.Context().Err() != nil {
			b.putHeld(held[i:])
			return context.Cause(w.Context())
		}
	}
	p := &j.layout
	b.bytes.Store(max(b.bytes.Load(), p.host+p.end))
	if l.lends {
		if b.device != nil && b.released != nil {
			if _ = w.WaitForRoom(b.released); w.Context().Err() != nil {
				return context.Cause(w.Context())
			}
		}
		return b.growPinned(j)
	}
	grows := b.device == nil || b.device.Len() < p.host+p.end || !l.unified && b.pinned.Len() < p.written
	if b.released != nil && (l.unified || grows) {
		if _ = w.WaitForRoom(b.released); w.Context().Err() != nil {
			return context.Cause(w.Context())
		}
		b.released = nil
	}
	if grows {
		return b.grow(w.Context(), j)
	}
	return nil
}

// tooLarge is an error if a batch needs more than one may take.
func (l *Loader) tooLarge(j *job) error {
	p := &j.layout
	if limit, need := l.o.MaxBatchBytes, p.host+p.end; limit > 0 && need > limit {
		return fmt.Errorf("%w: batch %d needs %v for %d rows of features and %d blocks, more than the %v that a batch may take: use fewer seeds or smaller fanouts",
			gds.ErrOutOfMemory, j.plan.Index, units.Bytes(need), p.inputs, len(p.blocks), units.Bytes(limit))
	}
	return nil
}

// noRoom explains that there is no memory for a batch.
func noRoom(j *job, err error) error {
	return fmt.Errorf("batch %d of %d rows of features (use fewer seeds, smaller fanouts or fewer buffers): %w", j.plan.Index, j.layout.inputs, err)
}

// grow makes room for a batch, and a quarter more, if there is, so that it is seldom called. Nothing
// uses the memory.
func (b *batchBuffer) grow(ctx context.Context, j *job) error {
	l, p := b.l, &j.layout
	need := p.host + p.end
	limit := l.o.MaxBatchBytes
	if err := l.tooLarge(j); err != nil {
		return err
	}
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
		if err := l.freeIdle(ctx); err != nil {
			return err
		}
		room := l.roomBytes()
		if room < need {
			return fmt.Errorf("%w: batch %d needs %v, and %w %v: hold fewer batches, or use fewer seeds or smaller fanouts",
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
	} else {
		l.batchBytes.Add(gds.Aligned(b.device.Len()))
	}
	if err == nil && !l.unified {
		b.pinned, err = gds.AllocRoom(p.written, l.o.Device.AllocPinned)
	}
	if err != nil {
		_ = b.release() // an epoch may end before it sees the error; the next needs both
		return noRoom(j, err)
	}
	return nil
}

// memoryBytes is how much memory it has.
func (b *batchBuffer) memoryBytes() (bytes int64) {
	for _, m := range []gds.Buffer{b.device, b.pinned} {
		if m != nil {
			bytes += m.Len()
		}
	}
	return bytes
}

// release frees the memory.
func (b *batchBuffer) release() error {
	err := b.freeDevice()
	if b.pinned != nil {
		err = errors.Join(err, b.pinned.Free())
	}
	b.pinned = nil
	return err
}

// freeDevice frees the device memory, which is the buffer's own.
func (b *batchBuffer) freeDevice() error {
	if b.device == nil {
		return nil
	}
	b.l.batchBytes.Add(-gds.Aligned(b.device.Len()))
	err := b.device.Free()
	b.device = nil
	return err
}

func (b *batchBuffer) takeHeld() []gds.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.held
	b.held = nil
	return held
}

func (b *batchBuffer) putHeld(events []gds.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = append(b.held, events...)
}

// waitReleased waits until the work on the last batch is done. It ignores errors of that work, which
// those see who enqueued it.
func (b *batchBuffer) waitReleased(ctx context.Context) error {
	events := b.takeHeld()
	if b.released != nil {
		events = append(events, b.released)
	}
	for i, e := range events {
		if _ = e.Wait(ctx); ctx.Err() != nil {
			b.putHeld(events[i:])
			return context.Cause(ctx)
		}
	}
	b.ready, b.released = nil, nil
	return nil
}

// hostMemory is what the host writes, from layout.host on.
func (b *batchBuffer) hostMemory(p *layout) []byte {
	if b.pinned != nil {
		return b.pinned.Bytes()[:p.written]
	}
	return b.device.Bytes()[p.host:][:p.end]
}

// tensor is a matrix on the device, at a place from layout.host on.
func (b *batchBuffer) tensor(p *layout, at int64, rows, cols int, t gds.DType) gds.Tensor {
	v := gds.NewTensor(b.device, rows, cols, t)
	v.Offset = p.host + at
	return v
}

// gather finds the rows of a job in the cache, takes a buffer, and writes what the host writes of the
// batch.
func (s *Set) gather(w *pipeline.Worker, j *job) (err error) {
	l, m := s.l, &j.sample
	if c := l.o.Cache; c != nil {
		l.lookup.Lock() // by a schedule, several workers gather
		c.Lookup(m.Inputs, &j.lookup)
		l.lookup.Unlock()
		defer func() {
			if err != nil { // as at the early end of an epoch, after which others come
				c.Forget(j.lookup.Into)
			}
		}()
	}
	j.setSize()
	if l.sparse != nil {
		j.size.elements = int(l.sparse.Elements(m.Inputs))
	}
	if err := l.beginBatch(w, j); err != nil {
		return err
	}
	b, p := j.buffer, &j.layout
	given := !s.method.kind.graphWise // else the sampler has chosen them
	batch := &b.batch
	if !given {
		batch.GlobalRows = len(m.Seeds)
	}
	if err := l.gatherRows(w.Context(), j); err != nil {
		return err
	}
	memory := b.hostMemory(p)
	if labels := l.o.Labels; labels != nil {
		batch.Labels = s.writeLabels(memory[p.labels:], j, given)
	}
	batch.RowWeights = gds.Tensor{}
	if n := len(m.SeedWeights); n > 0 {
		copy(dtype.Float32s(memory[p.weights:][:4*n]), m.SeedWeights)
		batch.RowWeights = b.tensor(p, p.weights, 1, n, gds.Float32)
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
	if l.sparse != nil {
		batch.Traffic.AddBytes(l.placement(), 4*int64(p.inputs+1)+8*int64(j.size.elements))
		return nil
	}
	hits := 0
	if l.o.Cache != nil {
		hits = j.lookup.Hits()
	}
	b.addCached(int64(hits))
	return nil
}

// beginBatch takes a buffer for a job whose size is known, and sets the tensors of its batch.
func (l *Loader) beginBatch(w *pipeline.Worker, j *job) error {
	l.layOut(j)
	if err := l.takeBuffer(w, j); err != nil {
		return err
	}
	b, p := j.buffer, &j.layout
	batch := &b.batch
	if j.size.onDevice && l.lends {
		if err := l.takeDevice(w, j); err != nil {
			return err
		}
	}
	batch.Index, batch.Rows, batch.GlobalRows = j.plan.Index, j.size.seeds, j.plan.GlobalRows
	batch.NodeIDs, batch.InputIDs = gds.Tensor{}, gds.Tensor{}
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
	return nil
}

// addCached adds to the batch's traffic that so many of its rows were cached, and the others not.
func (b *batchBuffer) addCached(hits int64) {
	t, l := &b.batch.Traffic, b.l
	t.CachedRows += hits
	t.CacheBytes += hits * l.rowBytes()
	t.AddBytes(l.placement(), (t.Rows-hits)*l.rowBytes())
}

// writeLabels writes the labels of a batch. Of seeds that a sampler has chosen, those that are not
// of the set are unlabelled.
func (s *Set) writeLabels(dst []byte, j *job, given bool) gds.Tensor {
	labels, seeds := s.l.o.Labels, j.sample.Seeds
	if j.size.onDevice {
		seeds = j.seeds
	}
	size := labels.rowBytes()
	for i, node := range seeds {
		to := dst[i*size:][:size]
		if given || s.isMember(node) {
			copy(to, labels.Data[int(node)*size:])
			continue
		}
		for k := range to { // -1; as float32 it is NaN
			to[k] = 0xff
		}
	}
	rows, cols := len(seeds), labels.Columns
	if labels.Type == gds.Int32 {
		rows, cols = 1, rows
	}
	return j.buffer.tensor(&j.layout, j.layout.labels, rows, cols, labels.Type)
}

// gatherRows writes the rows of features of a batch that the host brings.
func (l *Loader) gatherRows(ctx context.Context, j *job) error {
	b, p, f := j.buffer, &j.layout, l.o.Features
	switch {
	case l.sparse != nil:
		memory, at, n := b.hostMemory(p), p.sparse, 4*j.size.elements
		return l.sparse.GatherElements(dtype.Uint32s(memory[at.offsets:][:4*(p.inputs+1)]), dtype.Uint32s(memory[at.indices:][:n]), dtype.Float32s(memory[at.weights:][:n]), j.sample.Inputs)
	case l.rows != nil && l.rows.onDevice():
		memory := b.hostMemory(p)
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
		return l.rows.gather(ctx, b.device.Bytes()[p.x:][:gds.Bytes(p.inputs, f.Columns(), gds.Float32)], &j.lookup)
	case l.unified:
		return f.Gather(ctx, b.device.Bytes()[p.x:][:gds.Bytes(p.inputs, f.Columns(), gds.Float32)], gds.Float32, j.sample.Inputs)
	}
	return f.Gather(ctx, b.hostMemory(p)[p.rows:][:int64(p.staged)*l.rowBytes()], f.DType(), j.sample.Inputs)
}

// transfer enqueues what brings the batch to the device.
func (j *job) transfer(stream gds.Stream) {
	b, p, l := j.buffer, &j.layout, j.buffer.l
	f := l.o.Features
	x := gds.NewTensor(b.device, p.inputs, f.Columns(), gds.Float32)
	x.Offset = p.x
	if b.released != nil {
		stream.WaitEvent(b.released)
	}
	if !l.unified {
		stream.Copy(b.tensor(p, 0, 1, int(p.end), gds.Uint8), gds.NewTensor(b.pinned, 1, int(p.end), gds.Uint8))
		l.copiedIn.Add(p.end)
	}
	switch {
	case l.sparse != nil:
		x.Buf = nil
		n := j.size.elements
		b.sparse = loader.SparseRows{
			Cols: f.Columns(), Offsets: b.tensor(p, p.sparse.offsets, 1, p.inputs+1, gds.Uint32),
			Columns: b.tensor(p, p.sparse.indices, 1, n, gds.Uint32), Values: b.tensor(p, p.sparse.weights, 1, n, gds.Float32),
		}
		b.batch.Sparse = &b.sparse
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
	b.x[0] = x
	b.ready = stream.Record()
}
