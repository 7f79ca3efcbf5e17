package sampling

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/loader/features"
)

// deviceRoute is the route on which the device prepares batches by itself: it samples the topology and gathers features
// through its cache of rows, while topology and features stay in pinned host memory (Route 1 of MorphGL, section 4.1).
// The host's part is to say how large blocks are, and to write labels. Batches are the same as on the other route.
//
// On an emulated device (gds/host), what crosses the link takes its time, and the processor does the device's work.
type deviceRoute struct {
	s        *Set
	m        *DeviceMethod
	features gds.Tensor // pinned
}

// PrepareOnDevice makes the loader's device prepare the batches of the set's epochs by itself, by a method that is made
// of the set's (Method.OnDevice). The features must be in pinned memory (features.LoadPinned), and the cache, if there
// is one, must be Fixed: ErrOptions says so. Batches do not change. The method must be open until the loader is closed.
func (s *Set) PrepareOnDevice(m *DeviceMethod) error {
	l := s.l
	host, ok := l.o.Features.(*features.Host)
	if m.method != s.method {
		return fmt.Errorf("the method for the device is made of another sampler than %s of this set", s.method.name)
	}
	r := &deviceRoute{s: s, m: m}
	if ok {
		r.features, ok = host.Pinned()
	}
	switch {
	case !ok:
		return fmt.Errorf("%w: the device cannot gather features by itself: they are not in pinned host memory",
			ErrOptions)
	}
	if err := l.checkCache("devices that look rows up"); err != nil {
		return err
	}
	s.onDevice = r
	return nil
}

// begin begins an epoch on a stream, after the rows of the cache were brought.
func (r *deviceRoute) begin(ctx context.Context, stream gds.Stream) (err error) {
	l := r.s.l
	if d := l.deviceSampler; d != nil && d.m != r.m {
		l.deviceSampler = nil
		if err := d.Close(); err != nil {
			return err
		}
	}
	if l.deviceSampler == nil {
		l.deviceSampler = r.m.NewSampler(l.o.Device, stream)
	}
	l.deviceSampler.stream = stream
	rows := l.rows
	if rows == nil {
		return nil
	}
	table := l.o.Cache.Table()
	if rows.table == nil {
		what := fmt.Sprintf("the table of cached rows of %d nodes", len(table))
		if rows.table = rows.memory.Alloc(what, 4*int64(len(table))); rows.memory.Err != nil {
			return rows.memory.Err
		}
	}
	return gds.Upload(l.o.Device, stream, r.slots(), table)
}

// slots is the table of the cache on the device.
func (r *deviceRoute) slots() gds.Tensor {
	return gds.NewTensor(r.s.l.rows.table, 1, int(r.s.l.o.Features.Rows()), gds.Uint32)
}

// sample samples the mini-batch of a job.
func (r *deviceRoute) sample(w *pipeline.Worker, j *job) (err error) {
	j.onDevice, j.device = true, DeviceBatch{}
	if len(j.seeds) == 0 {
		return nil
	}
	sampler := r.s.l.deviceSampler
	sampler.wait = func(_ context.Context, e gds.Event) error { return w.Wait(e) }
	if j.device, err = sampler.Sample(w.Context(), j.seeds, r.s.key(j)); err != nil {
		return fmt.Errorf("batch %d of epoch %d: %w", j.plan.Index, j.epoch+1, err)
	}
	return nil
}

// gather makes the batch of a job that was sampled on stream, and returns how many of its rows the device found in its
// cache.
func (r *deviceRoute) gather(w *pipeline.Worker, j *job, stream gds.Stream) (hits int64, err error) {
	l := r.s.l
	if err := l.takeMemory(w, j); err != nil {
		return 0, err
	}
	if err := l.takeBuffer(w, j); err != nil {
		return 0, err
	}
	b, p := j.buffer, &j.layout
	r.s.writeLabels(j, j.seeds)
	clear(j.memory(p.hits))
	r.s.beginBatch(j, stream)
	if l.o.NodeIDs && p.inputs > 0 {
		stream.Copy(b.batch.InputIDs, j.device.Inputs)
	}
	for i, k := range j.device.Blocks {
		to := b.blocks[i]
		stream.Copy(to.Offsets, k.Offsets)
		stream.Copy(to.Indices, k.Indices)
		stream.Copy(to.Weights, k.Weights)
	}
	raw := in(b.device.Buffer, p.raw)
	if l.rows != nil {
		hits := in(b.device.Buffer, p.hits)
		stream.GatherCached(raw, l.rows.tensor(), r.features, r.slots(), j.device.Inputs, hits)
		stream.Copy(j.inPinned(p.hits), hits)
	} else {
		stream.Gather(raw, r.features, j.device.Inputs)
	}
	l.endBatch(j, stream)
	if err := w.Wait(b.Ready); err != nil {
		return 0, err
	}
	hits = dtype.Int64s(j.memory(p.hits))[0]
	b.addCached(hits)
	l.putPinned(j)
	return hits, nil
}
