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
)

// DeviceMethod is a method by which devices sample a graph by themselves, while it lies in pinned host
// memory: what the samplers of all streams share. It is safe for concurrent use.
type DeviceMethod struct {
	method  *Method
	graph   gds.Graph
	labor   bool
	buffers []gds.Buffer
}

// OnDevice prepares the method for devices of the kind of device. It can be for neighbor (unless by
// weight), full and labor, of a PinnedTopology, on a device with memory of its own that reads pinned
// memory by itself (gds.Info.MapsPinned); else the error is ErrOptions and says why not. The caller
// closes the result before the method and the topology.
func (m *Method) OnDevice(device gds.Device) (_ *DeviceMethod, err error) {
	topology := m.topology
	if c, ok := topology.(*ListCache); ok {
		topology = c.Topology
	}
	pinned, ok := topology.(*PinnedTopology)
	info := device.Info()
	var why string
	switch {
	case m.name != "neighbor" && m.name != "full" && m.name != "labor":
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
	d := &DeviceMethod{method: m, labor: m.name == "labor"}
	d.graph = gds.Graph{Offsets: pinned.offsets, Sources: pinned.sources, Weights: pinned.weights, Mean: f.mean,
		AddLoops: f.added}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("coefficients of %d nodes for a device: %w", m.topology.Nodes(), err),
				d.Close())
		}
	}()
	if d.graph.RowFactors, err = pinCopy(d, device, f.s, gds.Float32); err != nil {
		return nil, err
	}
	if f.t != nil { // it is s
		d.graph.ColumnFactors = d.graph.RowFactors
	}
	d.graph.Loops, err = pinCopy(d, device, f.loops, gds.Uint32)
	return d, err
}

// pinCopy is a vector in pinned memory; of nil the zero Tensor.
func pinCopy[T dtype.Number](d *DeviceMethod, device gds.Device, values []T, t gds.DType) (gds.Tensor, error) {
	if values == nil {
		return gds.Tensor{}, nil
	}
	b, err := device.AllocPinned(gds.Bytes(1, len(values), t))
	if err != nil {
		return gds.Tensor{}, err
	}
	d.buffers = append(d.buffers, b)
	copy(dtype.As[T](b.Bytes()), values)
	return gds.NewTensor(b, 1, len(values), t), nil
}

// Close frees what samplers share, after all of them are closed.
func (d *DeviceMethod) Close() error {
	var errs []error
	for _, b := range d.buffers {
		errs = append(errs, b.Free())
	}
	d.buffers = nil
	return errors.Join(errs...)
}

// DeviceSampler samples mini-batches on a device, the same as those that a Sampler of the method makes. It has memory
// of its own there, which grows with the batches, and belongs to one goroutine at a time.
type DeviceSampler struct {
	m      *DeviceMethod
	device gds.Device
	stream gds.Stream

	nodes, items vector // of the batch; of a block, before they get local ids
	blocks       []blockVectors
	total, count vector
	host         gds.Buffer // pinned: counts, then seeds
	sorted       []uint32   // seeds

	wait func(ctx context.Context, e gds.Event) error
}

// blockVectors are the memory of a block.
type blockVectors struct{ offsets, indices, weights vector }

// vector is device memory for [1,n], which grows as needed.
type vector struct {
	buffer gds.Buffer
	dtype  gds.DType
}

// countBytes is the space of counts in pinned memory, before seeds.
const countBytes = gds.Align

// NewSampler makes a sampler that works on a stream of a device. The caller closes it, before both.
func (d *DeviceMethod) NewSampler(device gds.Device, stream gds.Stream) *DeviceSampler {
	s := &DeviceSampler{m: d, device: device, stream: stream}
	s.wait = func(ctx context.Context, e gds.Event) error { return e.Wait(ctx) }
	s.nodes.dtype, s.items.dtype, s.count.dtype, s.total.dtype = gds.Uint32, gds.Uint32, gds.Uint32, gds.Int64
	s.blocks = make([]blockVectors, d.method.Layers())
	for i := range s.blocks {
		b := &s.blocks[i]
		b.offsets.dtype, b.indices.dtype, b.weights.dtype = gds.Uint32, gds.Uint32, gds.Float32
	}
	return s
}

// DeviceBatch is a mini-batch on the device: see MiniBatch. It is valid until the next call of Sample,
// for work on the sampler's stream.
type DeviceBatch struct {
	Inputs gds.Tensor     // uint32 [1,N]: node ids, the seeds first
	Blocks []loader.Block // in the order in which a model computes them
}

// Sample makes the mini-batch of seeds, which are distinct nodes: that which Sampler.Sample makes of
// them with this key. It waits for the device twice a layer, since the host has to know how large
// blocks are; work that was enqueued on the stream before is done then.
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
	b.Inputs = s.nodes.tensor(known)
	return b, nil
}

// begin brings the seeds to the device, and returns how many there are.
func (s *DeviceSampler) begin(ctx context.Context, seeds []uint32) (int, error) {
	n := len(seeds)
	if need := countBytes + 4*int64(n); s.host == nil || s.host.Len() < need {
		if err := s.regrow(ctx, &s.host, need, s.device.AllocPinned); err != nil {
			return 0, err
		}
	}
	for v, size := range map[*vector]int{&s.total: 1, &s.count: 1, &s.nodes: n} {
		if err := s.room(ctx, v, size, 0); err != nil {
			return 0, err
		}
	}
	copy(dtype.Uint32s(s.host.Bytes()[countBytes:][:4*n]), seeds)
	s.stream.Copy(s.nodes.tensor(n), gds.Tensor{Buf: s.host, Offset: countBytes, Rows: 1, Cols: n, Stride: n,
		DType: gds.Uint32})
	return n, nil
}

// sampleBlock samples the block whose destinations are the first nodes, and adds its sources to them.
func (s *DeviceSampler) sampleBlock(ctx context.Context, v *blockVectors, destinations int,
	o gds.Sampling) (b loader.Block, err error) {
	graph := &s.m.graph
	if err := s.room(ctx, &v.offsets, destinations+1, 0); err != nil {
		return b, err
	}
	b.Destinations, b.Offsets = destinations, v.offsets.tensor(destinations+1)
	s.stream.CountSampled(b.Offsets, s.total.tensor(1), s.nodes.tensor(destinations), graph, o)
	counts := s.host.Bytes()
	if err := s.readCount(ctx, s.total.tensor(1)); err != nil {
		return b, err
	}
	total := dtype.Int64s(counts[:8])[0]
	if total < 0 || int64(destinations)+total > MaxBlockEdges {
		return b, errBlockEdges
	}
	edges := int(total)
	for _, v := range []*vector{&s.items, &v.indices, &v.weights} {
		if err := s.room(ctx, v, edges, 0); err != nil {
			return b, err
		}
	}
	if err := s.room(ctx, &s.nodes, destinations+edges, destinations); err != nil {
		return b, err
	}
	b.Indices, b.Weights = v.indices.tensor(edges), v.weights.tensor(edges)
	s.stream.SampleEdges(s.items.tensor(edges), b.Weights, b.Offsets, s.nodes.tensor(destinations), graph, o)
	s.stream.Relabel(b.Indices, s.nodes.tensor(destinations+edges), s.count.tensor(1), s.items.tensor(edges),
		destinations)
	if err := s.readCount(ctx, s.count.tensor(1)); err != nil {
		return b, err
	}
	b.Sources = int(dtype.Uint32s(counts[:4])[0])
	return b, nil
}

// readCount copies a count to the start of pinned memory, and waits for it.
func (s *DeviceSampler) readCount(ctx context.Context, count gds.Tensor) error {
	to := count
	to.Buf, to.Offset = s.host, 0
	s.stream.Copy(to, count)
	return s.wait(ctx, s.stream.Record())
}

func (v *vector) tensor(n int) gds.Tensor { return gds.NewTensor(v.buffer, 1, n, v.dtype) }

// room makes room for n elements, of which the first keep are kept.
func (s *DeviceSampler) room(ctx context.Context, v *vector, n, keep int) error {
	size := int64(v.dtype.Size())
	if v.buffer != nil && v.buffer.Len() >= int64(n)*size {
		return nil
	}
	if keep == 0 {
		return s.regrow(ctx, &v.buffer, int64(max(n, 1))*size, s.device.Alloc)
	}
	larger := vector{dtype: v.dtype}
	err := s.regrow(ctx, &larger.buffer, int64(n)*size, s.device.Alloc)
	if err != nil {
		return err
	}
	s.stream.Copy(larger.tensor(keep), v.tensor(keep))
	if err := s.stream.Synchronize(ctx); err != nil {
		return errors.Join(err, larger.buffer.Free())
	}
	err = v.buffer.Free()
	*v = larger
	return err
}

// regrow replaces memory, which what is enqueued on the stream may use, by so many bytes, and room for more.
func (s *DeviceSampler) regrow(ctx context.Context, b *gds.Buffer, bytes int64,
	alloc func(int64) (gds.Buffer, error)) (err error) {
	if *b != nil {
		if err := s.stream.Synchronize(ctx); err != nil {
			return err
		}
		if err := (*b).Free(); err != nil {
			return err
		}
		*b = nil
	}
	if *b, err = gds.AllocRoom(bytes, alloc); err != nil {
		return fmt.Errorf("memory to sample a batch on the device (use fewer seeds or smaller fanouts): %w", err)
	}
	return nil
}

// Close waits for the stream's work, and frees the memory.
func (s *DeviceSampler) Close() error {
	_ = s.stream.Synchronize(context.Background()) // its error is for those who enqueue work
	buffers := []gds.Buffer{s.nodes.buffer, s.items.buffer, s.total.buffer, s.count.buffer, s.host}
	for _, b := range s.blocks {
		buffers = append(buffers, b.offsets.buffer, b.indices.buffer, b.weights.buffer)
	}
	var errs []error
	for _, b := range buffers {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	return errors.Join(errs...)
}
