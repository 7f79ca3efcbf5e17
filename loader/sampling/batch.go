package sampling

import (
	"context"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/loader"
)

// gather finds the rows of a job in the caches, takes memory, and writes what the host writes of the batch.
func (s *Set) gather(w *pipeline.Worker, j *job) (err error) {
	l, m := s.l, &j.sample
	j.lookups = resize(j.lookups, len(l.types))
	l.lookup.Lock() // by a schedule, several workers gather
	for i, t := range l.types {
		if t.Cache != nil {
			t.Cache.Lookup(m.OfType(i), &j.lookups[i])
		}
	}
	l.lookup.Unlock()
	defer func() {
		if err != nil {
			l.forget(j)
		}
	}()
	if err := l.takeMemory(w, j); err != nil {
		return err
	}
	for i := range l.types {
		if err := l.gatherRows(w.Context(), j, i); err != nil {
			return err
		}
	}
	p := &j.layout
	s.writeLabels(j, m.Seeds)
	write(j, p.weights, m.SeedWeights)
	if l.o.NodeIDs {
		write(j, p.nodes, m.Inputs)
		write(j, p.seedNodes, m.Seeds)
	}
	write(j, p.trees, m.Trees)
	if p.links != (gds.Tensor{}) {
		write(j, p.links, j.seeds)
		write(j, p.ends, j.ends)
	}
	for i := range p.blocks {
		write(j, p.blocks[i].Offsets, m.Blocks[i].Offsets)
		write(j, p.blocks[i].Indices, m.Blocks[i].Indices)
		write(j, p.blocks[i].Weights, m.Blocks[i].Weights)
		write(j, p.blocks[i].Edges, m.Blocks[i].Edges)
	}
	return nil
}

// writeLabels writes the labels of a batch. Seed nodes that a sampler has chosen and that the set does not have are
// unlabelled.
func (s *Set) writeLabels(j *job, seeds []uint32) {
	labels := s.l.o.Labels
	if labels == nil {
		return
	}
	dst, size := j.memory(j.layout.labels), labels.RowBytes()
	for i, node := range seeds {
		to := dst[i*size:][:size]
		if !s.method.kind.graphWise || s.members.has(node) {
			copy(to, labels.Data[int(node-s.l.o.First)*size:])
			continue
		}
		for k := range to { // -1; as float32 it is NaN
			to[k] = 0xff
		}
	}
}

// forget tells the caches that the rows of a job have not come.
func (l *Loader) forget(j *job) {
	for i, t := range l.types {
		if t.Cache != nil {
			t.Cache.Forget(j.lookups[i].Into)
		}
	}
}

// gatherRows writes the rows of features of a type that the host brings to a batch.
func (l *Loader) gatherRows(ctx context.Context, j *job, kind int) error {
	t, p, found, inputs := l.types[kind], &j.layout.types[kind], &j.lookups[kind], j.sample.OfType(kind)
	f := t.Features
	switch {
	case l.sparse != nil:
		return l.sparse.GatherElements(dtype.Uint32s(j.memory(p.sparse.Offsets)),
			dtype.Uint32s(j.memory(p.sparse.Columns)), dtype.Float32s(j.memory(p.sparse.Values)), inputs)
	case t.there.Cols > 0:
		write(j, p.index, inputs)
		return nil
	case t.cached != nil && t.cached.onDevice():
		index, missAt := dtype.Uint32s(j.memory(p.index)), dtype.Uint32s(j.memory(p.missAt))
		slots := uint32(t.Cache.Slots())
		for i, at := range found.Index {
			if index[i] = at; at >= slots {
				index[i], missAt[at-slots] = 0, uint32(i)
			}
		}
		write(j, p.into, found.Into)
		inputs = found.Misses
	case t.cached != nil:
		return t.cached.gather(ctx, j.memory(p.x), found)
	case l.unified:
		return f.Gather(ctx, j.memory(p.x), gds.Float32, inputs)
	}
	return f.Gather(ctx, j.memory(p.rows), f.DType(), inputs)
}

// transfer takes device memory for a batch that was gathered, and enqueues what brings the batch there.
func (s *Set) transfer(w *pipeline.Worker, j *job, stream gds.Stream) error {
	l := s.l
	if !l.unified {
		if err := l.takeBuffer(w, j); err != nil {
			return err
		}
	}
	s.beginBatch(j, stream)
	for i, t := range l.types {
		l.transferRows(j, stream, i)
		if l.sparse == nil {
			hits := 0
			if t.Cache != nil {
				hits = j.lookups[i].Hits()
			}
			j.buffer.addCached(t, j.layout.types[i].x.Rows, hits)
		}
	}
	l.endBatch(j, stream)
	return nil
}

// transferRows enqueues what puts the rows of a type together on the device.
func (l *Loader) transferRows(j *job, stream gds.Stream, kind int) {
	t, b, p := l.types[kind], j.buffer, &j.layout.types[kind]
	d := b.device.Buffer
	switch {
	case l.sparse != nil:
		b.batch.Traffic.AddBytes(t.placement(), 4*int64(p.x.Rows+1)+8*int64(p.sparse.Columns.Cols))
	case t.there.Cols > 0:
		if p.x.Rows > 0 {
			stream.Gather(b.x[kind], t.there, in(d, p.index))
		}
	case t.cached != nil && t.cached.onDevice():
		// Rows that are missed take the place of any row that is there.
		rows, raw, slots := in(d, p.rows), in(d, p.raw), t.cached.tensor()
		stream.Gather(raw, slots, in(d, p.index))
		stream.Scatter(raw, rows, in(d, p.missAt))
		stream.Scatter(slots, rows.Slice(0, p.into.Cols), in(d, p.into))
	}
}

// beginBatch sets the tensors of a job's batch, and enqueues the copy from the host.
func (s *Set) beginBatch(j *job, stream gds.Stream) {
	l, b, p := s.l, j.buffer, &j.layout
	if b.Released != nil {
		stream.WaitEvent(b.Released)
	}
	d, batch := b.device.Buffer, &b.batch
	if !l.unified {
		stream.Copy(in(d, p.writtenPart()), j.inPinned(p.writtenPart()))
		l.copiedIn.Add(p.written)
	}
	batch.Index, batch.Rows, batch.GlobalRows = j.plan.Index, p.seeds, j.plan.GlobalRows
	if s.method.kind.graphWise {
		batch.GlobalRows = p.seeds
	}
	batch.Labels, batch.RowWeights, batch.InputIDs = in(d, p.labels), in(d, p.weights), in(d, p.nodes)
	batch.Apart = s.method.kind.apart || s.method.options.ByType
	batch.Trees, batch.Links, batch.LinkEnds = in(d, p.trees), in(d, p.links), in(d, p.ends)
	if s.links != nil {
		batch.Rows = j.plan.Rows
	}
	if l.o.NodeIDs {
		if batch.NodeIDs = in(d, p.seedNodes); !batch.Apart {
			batch.NodeIDs = batch.InputIDs.Columns(0, p.seeds) // which come first
		}
	}
	batch.Traffic = loader.Traffic{}
	b.blocks = append(b.blocks[:0], p.blocks...)
	for i := range b.blocks {
		k := &b.blocks[i]
		k.Offsets, k.Indices, k.Weights, k.Edges = in(d, k.Offsets), in(d, k.Indices), in(d, k.Weights), in(d, k.Edges)
		if !j.onDevice {
			k.Parts = slices.Clone(j.sample.Blocks[i].Parts)
		}
		batch.Traffic.Edges += int64(k.Indices.Cols)
	}
	b.x = b.x[:0]
	for _, t := range p.types {
		if t.x.Cols > 0 {
			batch.Traffic.Rows += int64(t.x.Rows)
		}
		if l.sparse != nil {
			b.sparse = loader.SparseRows{Cols: t.sparse.Cols, Offsets: in(d, t.sparse.Offsets),
				Columns: in(d, t.sparse.Columns), Values: in(d, t.sparse.Values)}
			batch.Sparse = &b.sparse
		} else {
			t.x.Buf = d
		}
		b.x = append(b.x, t.x)
	}
	if batch.Blocks, batch.X = b.blocks, b.x; len(b.blocks) == 0 { // a rank may have no row
		batch.Blocks = nil
	}
}

// endBatch enqueues the conversion of a batch whose rows are on the device, and records when it is ready.
func (l *Loader) endBatch(j *job, stream gds.Stream) {
	b := j.buffer
	for i, t := range j.layout.types {
		if !l.unified && l.sparse == nil && t.raw.DType != gds.Float32 {
			stream.Convert(b.x[i], in(b.device.Buffer, t.raw))
		}
	}
	b.Ready = stream.Record()
}

// addCached adds the hits among a batch's rows of a type, and the others, to its traffic.
func (b *batchBuffer) addCached(t *typeRows, rows, hits int) {
	traffic, size := &b.batch.Traffic, t.rowBytes()
	traffic.CachedRows += int64(hits)
	traffic.CacheBytes += int64(hits) * size
	traffic.AddBytes(t.placement(), int64(rows-hits)*size)
}
