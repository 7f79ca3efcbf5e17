package sampling

import (
	"context"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
)

// gather finds the rows of a job in the cache, takes memory, and writes what the host writes of the batch.
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
	if err := l.takeMemory(w, j); err != nil {
		return err
	}
	if err := l.gatherRows(w.Context(), j); err != nil {
		return err
	}
	p := &j.layout
	s.writeLabels(j, m.Seeds)
	write(j, p.weights, m.SeedWeights)
	if l.o.NodeIDs {
		features.Places(l.o.Features, dtype.Uint32s(j.memory(p.nodes)), m.Inputs)
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

// gatherRows writes the rows of features of a batch that the host brings.
func (l *Loader) gatherRows(ctx context.Context, j *job) error {
	p, f, inputs := &j.layout, l.o.Features, j.sample.Inputs
	switch {
	case l.sparse != nil:
		return l.sparse.GatherElements(dtype.Uint32s(j.memory(p.sparse.Offsets)),
			dtype.Uint32s(j.memory(p.sparse.Columns)), dtype.Float32s(j.memory(p.sparse.Values)), inputs)
	case l.there != nil:
		features.Places(f, dtype.Uint32s(j.memory(p.index)), inputs)
		return nil
	case l.rows != nil && l.rows.onDevice():
		index, missAt := dtype.Uint32s(j.memory(p.index)), dtype.Uint32s(j.memory(p.missAt))
		slots := uint32(l.o.Cache.Slots())
		for i, at := range j.lookup.Index {
			if index[i] = at; at >= slots {
				index[i], missAt[at-slots] = 0, uint32(i)
			}
		}
		write(j, p.into, j.lookup.Into)
		inputs = j.lookup.Misses
	case l.rows != nil:
		return l.rows.gather(ctx, j.memory(p.x), &j.lookup)
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
	b, p := j.buffer, &j.layout
	s.beginBatch(j, stream)
	if l.sparse != nil {
		b.batch.Traffic.AddBytes(l.placement(), 4*int64(p.inputs+1)+8*int64(b.sparse.Columns.Cols))
	} else if l.there != nil {
		l.gatherThere(j, stream)
	} else if !l.unified && l.rows != nil {
		// Rows that are missed take the place of any row that is there.
		d := b.device.Buffer
		rows, raw, slots := in(d, p.rows), in(d, p.raw), l.rows.tensor()
		stream.Gather(raw, slots, in(d, p.index))
		stream.Scatter(raw, rows, in(d, p.missAt))
		stream.Scatter(slots, rows.Slice(0, p.into.Cols), in(d, p.into))
	}
	switch {
	case l.o.Cache != nil:
		b.addCached(int64(j.lookup.Hits()))
	case l.typed != nil:
		b.batch.Traffic.AddBytes(l.placement(), 4*int64(p.x.Cols))
	case l.sparse == nil:
		b.addCached(0)
	}
	l.endBatch(j, stream)
	return nil
}

// gatherThere enqueues that the device gathers the rows of a batch.
func (l *Loader) gatherThere(j *job, stream gds.Stream) {
	index, first := in(j.buffer.device.Buffer, j.layout.index), 0
	for i, x := range j.buffer.x {
		if x.Rows > 0 && x.Cols > 0 {
			stream.Gather(x, l.there[i], index.Columns(first, first+x.Rows))
		}
		first += x.Rows
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
	batch.Traffic = loader.Traffic{Rows: int64(p.inputs)}
	b.blocks = append(b.blocks[:0], p.blocks...)
	for i := range b.blocks {
		k := &b.blocks[i]
		k.Offsets, k.Indices, k.Weights, k.Edges = in(d, k.Offsets), in(d, k.Indices), in(d, k.Weights), in(d, k.Edges)
		if l.typed != nil {
			k.Parts = slices.Clone(j.sample.Blocks[i].Parts)
		}
		batch.Traffic.Edges += int64(k.Indices.Cols)
	}
	b.x = append(b.x[:0], p.x)
	if l.sparse != nil {
		b.sparse = loader.SparseRows{Cols: p.sparse.Cols, Offsets: in(d, p.sparse.Offsets),
			Columns: in(d, p.sparse.Columns), Values: in(d, p.sparse.Values)}
		batch.Sparse = &b.sparse
	} else {
		b.x[0].Buf = d
	}
	if l.typed != nil {
		b.splitInputs(j.sample.Types)
	}
	batch.Blocks, batch.X = b.blocks, b.x
}

// splitInputs makes of the rows of all types a matrix for each type. They begin at these places.
func (b *batchBuffer) splitInputs(places []int) {
	all := b.x[0]
	b.x = b.x[:0]
	for i, first := range places[:len(places)-1] {
		x := gds.NewTensor(all.Buf, places[i+1]-first, b.l.typed.Width(i), gds.Float32)
		x.Offset = all.Offset
		all.Offset += gds.Bytes(x.Rows, x.Cols, gds.Float32)
		b.x = append(b.x, x)
	}
}

// endBatch enqueues the conversion of a batch whose rows are on the device, and records when it is ready.
func (l *Loader) endBatch(j *job, stream gds.Stream) {
	b, raw := j.buffer, j.layout.raw
	if !l.unified && l.sparse == nil && raw.DType != gds.Float32 {
		stream.Convert(b.x[0], in(b.device.Buffer, raw))
	}
	b.Ready = stream.Record()
}

// addCached adds the batch's cached rows, and the others, to its traffic.
func (b *batchBuffer) addCached(hits int64) {
	t, l := &b.batch.Traffic, b.l
	t.CachedRows += hits
	t.CacheBytes += hits * l.rowBytes()
	t.AddBytes(l.placement(), (t.Rows-hits)*l.rowBytes())
}
