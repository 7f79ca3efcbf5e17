package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// DeviceMethod is a method by which devices sample a graph by themselves, while it lies in pinned host
// memory: what the samplers of all streams share. It is safe for concurrent use.
type DeviceMethod struct {
	method *Method
	graph  gds.Graph
	labor  bool
	memory gds.Memory
}

// OnDevice prepares the method for devices of the kind of device. It can be for neighbor (unless by
// weight), full and labor, of a PinnedTopology, on a device with memory of its own that reads pinned
// memory by itself (gds.Info.MapsPinned); else the error is ErrOptions and says why not. The caller
// closes the result before the method and the topology.
func (m *Method) OnDevice(device gds.Device) (*DeviceMethod, error) {
	topology := m.topology
	if c, ok := topology.(*ListCache); ok {
		topology = c.Topology
	}
	pinned, ok := topology.(*PinnedTopology)
	info := device.Info()
	var why string
	switch {
	case !m.kind.onDevice:
		why = fmt.Sprintf("sampler %s runs on the processor alone (neighbor, full and labor on devices too)", m.name)
	case m.options.ByWeight:
		why = "drawing by the weights of edges runs on the processor alone"
	case info.Unified:
		why = "the memory of device " + info.Name + " is the host's, and so are its processors"
	case !info.MapsPinned:
		why = "device " + info.Name + " cannot read host memory by itself"
	case !ok:
		why = "the topology is not in pinned memory"
	}
	if why != "" {
		return nil, fmt.Errorf("%w: batches cannot be prepared on the device: %s", ErrOptions, why)
	}
	f := m.factors
	d := &DeviceMethod{method: m, labor: m.name == "labor", memory: gds.Memory{Device: device}}
	d.graph = gds.Graph{Offsets: pinned.offsets, Sources: pinned.sources, Weights: pinned.weights, Mean: f.mean,
		AddLoops: f.added}
	what := fmt.Sprintf("coefficients of %d nodes", m.topology.Nodes())
	d.graph.RowFactors = pin(&d.memory, what, f.s, gds.Float32)
	d.graph.Loops = pin(&d.memory, what, f.loops, gds.Uint32)
	if d.memory.Err != nil {
		return nil, errors.Join(d.memory.Err, d.Close())
	}
	if f.t != nil { // it is s
		d.graph.ColumnFactors = d.graph.RowFactors
	}
	return d, nil
}

// Close frees what samplers share, after all of them are closed.
func (d *DeviceMethod) Close() error { return d.memory.Free() }

// DeviceSampler samples mini-batches on a device: the same mini-batches that a Sampler of the method makes. It has
// memory of its own there, which grows with the batches, and belongs to one goroutine at a time.
type DeviceSampler struct {
	m      *DeviceMethod
	device gds.Device
	stream gds.Stream

	nodes, items epoch.Growing // uint32: of the batch; of a block, before they get local ids
	blocks       []blockMemory
	total, count epoch.Growing // int64, uint32
	host         epoch.Growing // pinned: counts, then seeds
	sorted       []uint32      // seeds

	wait func(ctx context.Context, e gds.Event) error
}

// blockMemory is memory for a block.
type blockMemory struct{ offsets, indices, weights epoch.Growing }

// countBytes is the space of counts in pinned memory, before seeds.
const countBytes = gds.Align

// NewSampler makes a sampler that works on a stream of a device. The caller closes it, before both.
func (d *DeviceMethod) NewSampler(device gds.Device, stream gds.Stream) *DeviceSampler {
	s := &DeviceSampler{m: d, device: device, stream: stream}
	s.wait = func(ctx context.Context, e gds.Event) error { return e.Wait(ctx) }
	s.blocks = make([]blockMemory, d.method.Layers())
	return s
}

// DeviceBatch is a mini-batch on the device: see MiniBatch. It is valid until the next call of Sample,
// for work on the sampler's stream.
type DeviceBatch struct {
	Inputs gds.Tensor     // uint32 [1,N]: node ids, the seeds first
	Blocks []loader.Block // in the order in which a model computes them
}

// Sample makes the mini-batch of seeds, which are distinct nodes: the same that Sampler.Sample makes with this key. It
// waits for the device twice a layer, since the host has to know how large blocks are; work that was enqueued on the
// stream before is done then.
func (s *DeviceSampler) Sample(ctx context.Context, seeds []uint32, key uint64) (b DeviceBatch, err error) {
	m := s.m.method
	s.sorted = append(s.sorted[:0], seeds...)
	slices.Sort(s.sorted)
	for i, v := range s.sorted {
		if int64(v) >= m.topology.Nodes() {
			return b, fmt.Errorf("a seed is node %d: the graph has %d nodes", v, m.topology.Nodes())
		}
		if i > 0 && s.sorted[i-1] == v {
			return b, fmt.Errorf("two seeds are node %d: the seeds of a batch must be distinct", v)
		}
	}
	known, err := s.begin(ctx, seeds)
	if err != nil {
		return b, err
	}
	b.Blocks = make([]loader.Block, m.Layers())
	for layer, fanout := range m.options.Fanouts {
		sampling := gds.Sampling{Fanout: fanout, Random: rng.Start(rng.Hash(key, uint64(layer))),
			Replace: m.options.Replace, Labor: s.m.labor}
		at := m.Layers() - 1 - layer
		if b.Blocks[at], err = s.sampleBlock(ctx, &s.blocks[at], known, sampling); err != nil {
			return b, err
		}
		known = b.Blocks[at].Sources
	}
	b.Inputs = vector(&s.nodes, known, gds.Uint32)
	return b, nil
}

// begin brings the seeds to the device, and returns how many there are.
func (s *DeviceSampler) begin(ctx context.Context, seeds []uint32) (int, error) {
	n := len(seeds)
	if err := s.room(ctx, &s.host, countBytes+4*int64(n), s.device.AllocPinned); err != nil {
		return 0, err
	}
	for m, bytes := range map[*epoch.Growing]int64{&s.total: 8, &s.count: 4, &s.nodes: 4 * int64(n)} {
		if err := s.room(ctx, m, bytes, s.device.Alloc); err != nil {
			return 0, err
		}
	}
	copy(dtype.Uint32s(s.host.Bytes()[countBytes:][:4*n]), seeds)
	from := vector(&s.host, n, gds.Uint32)
	from.Offset = countBytes
	s.stream.Copy(vector(&s.nodes, n, gds.Uint32), from)
	return n, nil
}

// sampleBlock samples the block whose destinations are the first nodes, and adds its sources to them.
func (s *DeviceSampler) sampleBlock(ctx context.Context, m *blockMemory, destinations int, o gds.Sampling) (
	b loader.Block, err error,
) {
	graph := &s.m.graph
	if err := s.room(ctx, &m.offsets, 4*int64(destinations+1), s.device.Alloc); err != nil {
		return b, err
	}
	count, counted, counts := vector(&s.total, 1, gds.Int64), vector(&s.count, 1, gds.Uint32), s.host.Bytes()
	b.Destinations, b.Offsets = destinations, vector(&m.offsets, destinations+1, gds.Uint32)
	s.stream.CountSampled(b.Offsets, count, vector(&s.nodes, destinations, gds.Uint32), graph, o)
	if err := s.readCount(ctx, count); err != nil {
		return b, err
	}
	total := dtype.Int64s(counts[:8])[0]
	if total < 0 || int64(destinations)+total > MaxBlockEdges {
		return b, errBlockEdges
	}
	edges := int(total)
	for _, m := range []*epoch.Growing{&s.items, &m.indices, &m.weights} {
		if err := s.room(ctx, m, 4*total, s.device.Alloc); err != nil {
			return b, err
		}
	}
	if err := s.keepRoom(ctx, destinations, destinations+edges); err != nil {
		return b, err
	}
	items := vector(&s.items, edges, gds.Uint32)
	b.Indices, b.Weights = vector(&m.indices, edges, gds.Uint32), vector(&m.weights, edges, gds.Float32)
	s.stream.SampleEdges(items, b.Weights, b.Offsets, vector(&s.nodes, destinations, gds.Uint32), graph, o)
	s.stream.Relabel(b.Indices, vector(&s.nodes, destinations+edges, gds.Uint32), counted, items, destinations)
	if err := s.readCount(ctx, counted); err != nil {
		return b, err
	}
	b.Sources = int(dtype.Uint32s(counts[:4])[0])
	return b, nil
}

// readCount copies a count to the start of pinned memory, and waits for it.
func (s *DeviceSampler) readCount(ctx context.Context, count gds.Tensor) error {
	to := count
	to.Buf, to.Offset = s.host.Buffer, 0
	s.stream.Copy(to, count)
	return s.wait(ctx, s.stream.Record())
}

func vector(m *epoch.Growing, n int, t gds.DType) gds.Tensor { return gds.NewTensor(m.Buffer, 1, n, t) }

// room makes room for so many bytes in memory that work on the stream may use.
func (s *DeviceSampler) room(ctx context.Context, m *epoch.Growing, bytes int64,
	alloc func(int64) (gds.Buffer, error)) error {
	if m.Buffer != nil && m.Len() < bytes {
		if err := s.stream.Synchronize(ctx); err != nil {
			return err
		}
	}
	bytes = max(bytes, 1)
	if err := m.Grow(bytes, gds.Room(bytes), alloc); err != nil {
		return fmt.Errorf("memory to sample a batch on the device (use fewer seeds or smaller fanouts): %w", err)
	}
	return nil
}

// keepRoom makes room for so many nodes, and keeps the known ones.
func (s *DeviceSampler) keepRoom(ctx context.Context, known, nodes int) error {
	if s.nodes.Len() >= 4*int64(nodes) {
		return nil
	}
	before := s.nodes
	s.nodes = epoch.Growing{}
	err := s.room(ctx, &s.nodes, 4*int64(nodes), s.device.Alloc)
	if err == nil {
		s.stream.Copy(vector(&s.nodes, known, gds.Uint32), vector(&before, known, gds.Uint32))
	}
	return errors.Join(err, s.stream.Synchronize(ctx), before.Free())
}

// Close waits for the stream's work, and frees the memory.
func (s *DeviceSampler) Close() error {
	_ = s.stream.Synchronize(context.Background()) // its error is for those who enqueue work
	errs := []error{s.nodes.Free(), s.items.Free(), s.total.Free(), s.count.Free(), s.host.Free()}
	for i := range s.blocks {
		b := &s.blocks[i]
		errs = append(errs, b.offsets.Free(), b.indices.Free(), b.weights.Free())
	}
	return errors.Join(errs...)
}
