package sampling

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// deviceSampler is how a loader's device prepares batches by itself (Route 1 of MorphGL, section 4.1): it samples
// adjacency lists and gathers features, which are in its own memory or, beyond its caches, in pinned host memory.
// The host says how large blocks are, and writes labels. Batches are the same that Method.Sample makes. Its
// memory on the device grows with the batches.
//
// On an emulated device (gds/host), what crosses the link takes its time, and the processor does the device's work.
type deviceSampler struct {
	method   *Method
	device   gds.Device
	graph    gds.Graph
	pinned   bool       // the graph's lists, but for cached ones
	features gds.Tensor // pinned as stored, or on the device as float32
	factors  gds.Memory // pinned, of graph
	stream   gds.Stream // of the epoch

	nodes, items epoch.Growing // uint32: of the batch; of a block, before they get local ids
	blocks       []blockMemory
	counts       epoch.Growing // int64, uint32, int64
	host         epoch.Growing // pinned: counts, then seeds
}

// blockMemory is memory for a block.
type blockMemory struct{ offsets, indices, weights epoch.Growing }

// seedsAt is the place of seeds in pinned memory, behind counts.
const seedsAt = gds.Align

// PrepareOnDevice lets the loader's device prepare the batches of a method by itself, where a schedule asks for that.
// The method can be neighbor (unless by weight), full and labor, of a PinnedTopology unless all lists are on the
// device; nil: none are. The device must have memory of its own and read pinned memory by itself (gds.Info.MapsPinned),
// and features must be on it, or in such memory (features.LoadHost); else the error is ErrOptions and says why not. It
// is called once. Lists stay the caller's.
func (l *Loader) PrepareOnDevice(m *Method, lists *DeviceLists) error {
	if err := m.CheckOnDevice(l.o.Device, lists); err != nil {
		return err
	}
	rows := l.types[0].there // of the one type, since the method is of a plain graph
	have := rows.Cols > 0
	if host, ok := l.types[0].Features.(*features.Host); ok {
		rows, have = host.Pinned()
	}
	if !have {
		return fmt.Errorf("%w: the device cannot gather features by itself: they are not in pinned host memory",
			ErrOptions)
	}
	s, err := newDeviceSampler(l.o.Device, m, lists)
	if err != nil {
		return err
	}
	s.features, l.onDevice = rows, s
	return nil
}

// CheckOnDevice is ErrOptions, and says why, if a device cannot sample by a method: see Loader.PrepareOnDevice.
func (m *Method) CheckOnDevice(device gds.Device, lists *DeviceLists) error {
	_, pinned := m.topology.(*PinnedTopology)
	info := device.Info()
	var why string
	switch {
	case !m.kind.onDevice:
		why = fmt.Sprintf("sampler %s runs on the processor alone (neighbor, full and labor on devices too)", m.name)
	case m.typed != nil:
		why = "a node of a typed graph has several lists of in-neighbours, and devices read one"
	case m.options.ByWeight:
		why = "drawing by the weights of edges runs on the processor alone"
	case info.Unified:
		why = "the memory of device " + info.Name + " is the host's, and so are its processors"
	case !info.MapsPinned:
		why = "device " + info.Name + " cannot read host memory by itself"
	case !pinned && !lists.all():
		why = "the topology is not in pinned memory, nor all of it on the device"
	default:
		return nil
	}
	return fmt.Errorf("%w: batches cannot be prepared on the device: %s", ErrOptions, why)
}

func newDeviceSampler(device gds.Device, m *Method, lists *DeviceLists) (*deviceSampler, error) {
	f, what := m.factors, fmt.Sprintf("coefficients of %d nodes", m.topology.Nodes())
	s := &deviceSampler{method: m, device: device, factors: gds.Memory{Device: device},
		blocks: make([]blockMemory, m.Layers())}
	s.graph = gds.Graph{Mean: f.mean, AddLoops: f.added, RowFactors: pin(&s.factors, what, f.s, gds.Float32),
		Loops: pin(&s.factors, what, f.loops, gds.Uint32)}
	if g := &s.graph; lists.all() {
		g.Offsets, g.Sources, g.Weights = lists.offsets, lists.sources, lists.weights
	} else {
		t := m.topology.(*PinnedTopology)
		s.pinned, g.Offsets, g.Sources, g.Weights = true, t.offsets, t.sources, t.weights
		if lists != nil {
			g.Slots, g.CachedOffsets, g.CachedSources, g.CachedWeights = lists.slots, lists.offsets, lists.sources,
				lists.weights
		}
	}
	if f.t != nil { // it is s
		s.graph.ColumnFactors = s.graph.RowFactors
	}
	if s.factors.Err != nil {
		return nil, errors.Join(s.factors.Err, s.factors.Free())
	}
	return s, nil
}

// begin begins an epoch of a loader on a stream, after the rows of the cache were brought.
func (s *deviceSampler) begin(l *Loader, stream gds.Stream) error {
	s.stream = stream
	rows := l.types[0].cached
	if rows == nil {
		return nil
	}
	table := rows.t.Cache.Table()
	if rows.table == nil {
		what := fmt.Sprintf("the table of cached rows of %d nodes", len(table))
		if rows.table = rows.memory.Alloc(what, 4*int64(len(table))); rows.memory.Err != nil {
			return rows.memory.Err
		}
	}
	return gds.Upload(l.o.Device, stream, rows.slots(), table)
}

// deviceBatch is a mini-batch on the device: see MiniBatch. It is valid until the next call of sample, for work on the
// stream of the epoch.
type deviceBatch struct {
	inputs gds.Tensor     // uint32 [1,N]: node ids, the seeds first
	blocks []loader.Block // in the order in which a model computes them
	read   int64          // bytes of lists in pinned memory
}

// sample makes the mini-batch of seeds, which are distinct nodes (see CheckSeeds): the same that Method.Sample makes
// with this key. It waits for the device twice a layer, since the host has to know how large blocks are; work that was
// enqueued on the stream before is done then.
func (s *deviceSampler) sample(w *pipeline.Worker, seeds []uint32, key uint64) (b deviceBatch, err error) {
	m := s.method
	known, nodeBytes := len(seeds), 4*int64(len(seeds))
	err = s.room(w, &s.host, seedsAt+nodeBytes, s.device.AllocPinned)
	if err == nil {
		err = s.room(w, &s.counts, countsBytes, s.device.Alloc)
	}
	if err == nil {
		err = s.room(w, &s.nodes, nodeBytes, s.device.Alloc)
	}
	if err != nil {
		return b, err
	}
	copy(dtype.Uint32s(s.host.Bytes()[seedsAt:][:nodeBytes]), seeds)
	from := vector(&s.host, known, gds.Uint32)
	from.Offset = seedsAt
	s.stream.Copy(vector(&s.nodes, known, gds.Uint32), from)
	s.stream.Fill(s.count(readAt, gds.Int64), 0)
	b.blocks = make([]loader.Block, m.Layers())
	for layer, fanout := range m.options.Fanouts {
		o := gds.Sampling{Fanout: fanout, Random: rng.Start(rng.Hash(key, uint64(layer))),
			Replace: m.options.Replace, Labor: m.name == "labor"}
		at := m.Layers() - 1 - layer
		if b.blocks[at], err = s.sampleBlock(w, &s.blocks[at], known, o); err != nil {
			return b, err
		}
		known = b.blocks[at].Sources
	}
	b.inputs = vector(&s.nodes, known, gds.Uint32)
	if s.pinned {
		b.read = dtype.Int64s(s.host.Bytes()[readAt:][:8])[0]
	}
	return b, nil
}

// Places of counts: the edges of a block, its sources, and the bytes of lists outside caches that a batch has read.
const (
	edgesAt, sourcesAt, readAt = 0, 8, 16
	countsBytes                = 24
)

// count is a count on the device.
func (s *deviceSampler) count(at int64, t gds.DType) gds.Tensor {
	c := vector(&s.counts, 1, t)
	c.Offset = at
	return c
}

// sampleBlock samples the block whose destinations are the first nodes, and adds its sources to them.
func (s *deviceSampler) sampleBlock(w *pipeline.Worker, m *blockMemory, destinations int, o gds.Sampling) (
	b loader.Block, err error,
) {
	if err := s.room(w, &m.offsets, 4*int64(destinations+1), s.device.Alloc); err != nil {
		return b, err
	}
	b.Destinations, b.Offsets = destinations, vector(&m.offsets, destinations+1, gds.Uint32)
	s.stream.CountSampled(b.Offsets, s.count(edgesAt, gds.Int64), s.count(readAt, gds.Int64),
		vector(&s.nodes, destinations, gds.Uint32), &s.graph, o)
	if err := s.readCounts(w); err != nil {
		return b, err
	}
	edges := dtype.Int64s(s.host.Bytes()[edgesAt:][:8])[0]
	if edges < 0 || int64(destinations)+edges > MaxBlockEdges {
		return b, errBlockEdges
	}
	for _, m := range []*epoch.Growing{&s.items, &m.indices, &m.weights} {
		if err := s.room(w, m, 4*edges, s.device.Alloc); err != nil {
			return b, err
		}
	}
	if err := s.keepRoom(w, destinations, destinations+int(edges)); err != nil {
		return b, err
	}
	items := vector(&s.items, int(edges), gds.Uint32)
	b.Indices, b.Weights = vector(&m.indices, items.Cols, gds.Uint32), vector(&m.weights, items.Cols, gds.Float32)
	s.stream.SampleEdges(items, b.Weights, b.Offsets, vector(&s.nodes, destinations, gds.Uint32), &s.graph, o)
	s.stream.Relabel(b.Indices, vector(&s.nodes, destinations+items.Cols, gds.Uint32),
		s.count(sourcesAt, gds.Uint32), items, destinations)
	if err := s.readCounts(w); err != nil {
		return b, err
	}
	b.Sources = int(dtype.Uint32s(s.host.Bytes()[sourcesAt:][:4])[0])
	return b, nil
}

// readCounts copies the counts to the start of pinned memory, and waits for them.
func (s *deviceSampler) readCounts(w *pipeline.Worker) error {
	s.stream.Copy(vector(&s.host, countsBytes, gds.Uint8), vector(&s.counts, countsBytes, gds.Uint8))
	return w.Wait(s.stream.Record())
}

func vector(m *epoch.Growing, n int, t gds.DType) gds.Tensor { return gds.NewTensor(m.Buffer, 1, n, t) }

// room makes room for bytes in memory that work on the stream may use.
func (s *deviceSampler) room(w *pipeline.Worker, m *epoch.Growing, bytes int64,
	alloc func(int64) (gds.Buffer, error)) error {
	if m.Buffer != nil && m.Len() < bytes {
		if err := s.stream.Synchronize(w.Context()); err != nil {
			return err
		}
	}
	bytes = max(bytes, 1)
	if err := m.Grow(bytes, gds.Room(bytes), alloc); err != nil {
		return fmt.Errorf("memory to sample a batch on the device (use fewer seeds or smaller fanouts): %w", err)
	}
	return nil
}

// keepRoom makes room for nodes, and keeps the known ones.
func (s *deviceSampler) keepRoom(w *pipeline.Worker, known, nodes int) error {
	if s.nodes.Len() >= 4*int64(nodes) {
		return nil
	}
	before := s.nodes
	s.nodes = epoch.Growing{}
	err := s.room(w, &s.nodes, 4*int64(nodes), s.device.Alloc)
	if err == nil {
		s.stream.Copy(vector(&s.nodes, known, gds.Uint32), vector(&before, known, gds.Uint32))
	}
	return errors.Join(err, s.stream.Synchronize(context.WithoutCancel(w.Context())), before.Free())
}

// close frees the memory, which no work uses any more.
func (s *deviceSampler) close() error {
	errs := []error{s.nodes.Free(), s.items.Free(), s.counts.Free(), s.host.Free(), s.factors.Free()}
	for i := range s.blocks {
		b := &s.blocks[i]
		errs = append(errs, b.offsets.Free(), b.indices.Free(), b.weights.Free())
	}
	return errors.Join(errs...)
}

// sampleOnDevice has the device sample the mini-batch of a job.
func (s *Set) sampleOnDevice(w *pipeline.Worker, j *job) (err error) {
	j.onDevice, j.device = true, deviceBatch{}
	if len(j.seeds) == 0 {
		return nil
	}
	if j.device, err = s.l.onDevice.sample(w, j.seeds, s.key(j)); err != nil {
		return j.failed(err)
	}
	return nil
}

// gatherOnDevice makes the batch of a job that was sampled on stream.
func (s *Set) gatherOnDevice(w *pipeline.Worker, j *job, stream gds.Stream) error {
	l := s.l
	if err := l.takeMemory(w, j); err != nil {
		return err
	}
	if err := l.takeBuffer(w, j); err != nil {
		return err
	}
	b, p := j.buffer, &j.layout
	s.writeLabels(j, j.seeds)
	clear(j.memory(p.hits))
	s.beginBatch(j, stream)
	if l.o.NodeIDs && p.inputs > 0 {
		stream.Copy(b.batch.InputIDs, j.device.inputs)
	}
	for i, k := range j.device.blocks {
		to := b.blocks[i]
		stream.Copy(to.Offsets, k.Offsets)
		stream.Copy(to.Indices, k.Indices)
		stream.Copy(to.Weights, k.Weights)
	}
	t, raw, features := l.types[0], in(b.device.Buffer, p.types[0].raw), l.onDevice.features
	switch {
	case !features.Pinned():
		stream.Gather(b.x[0], features, j.device.inputs)
		b.Ready = stream.Record()
	case t.cached != nil:
		hits := in(b.device.Buffer, p.hits)
		stream.GatherCached(raw, t.cached.tensor(), features, t.cached.slots(), j.device.inputs, hits)
		stream.Copy(j.inPinned(p.hits), hits)
		l.endBatch(j, stream)
	default:
		stream.Gather(raw, features, j.device.inputs)
		l.endBatch(j, stream)
	}
	if err := w.Wait(b.Ready); err != nil {
		return err
	}
	if b.batch.Traffic.TopologyBytes = j.device.read; features.Pinned() {
		b.addCached(t, p.inputs, int(dtype.Int64s(j.memory(p.hits))[0]))
	} else {
		b.batch.Traffic.AddBytes(loader.Device, b.batch.Traffic.Rows*gds.Bytes(1, features.Cols, features.DType))
	}
	l.putPinned(j)
	return nil
}
