package sampling

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// lent is device memory of one batch at a time. By a schedule, batches that wait in memory of the host have
// none of a device with memory of its own: they are lent it when they move there, until they are trained.
type lent struct {
	memory gds.Buffer  // nil before the first batch
	after  []gds.Event // when nothing uses the memory any more
}

// lend makes batches of the epoch that begins be lent device memory, for so many at a time, unless it is
// the host's. It returns what there is beyond that, which is put back when the epoch ends.
func (l *Loader) lend(batches int) (aside []*lent) {
	if l.lends = !l.unified; !l.lends {
		return nil
	}
	for len(l.lents) < min(batches, len(l.buffers)) {
		m := &lent{}
		l.lents = append(l.lents, m)
		l.lending <- m
	}
	for range len(l.lents) - batches {
		select {
		case m := <-l.lending:
			aside = append(aside, m)
		default: // the others are lent to batches that are held
		}
	}
	return aside
}

// growPinned makes room for what the host writes of a batch.
func (b *batchBuffer) growPinned(j *job) error {
	l, p := b.l, &j.layout
	if err := l.tooLarge(j); err != nil {
		return err
	}
	if err := b.freeDevice(); err != nil { // its own, of an epoch without a schedule
		return err
	}
	if b.pinned != nil && b.pinned.Len() >= p.written {
		return nil
	}
	if b.pinned != nil {
		if err := b.pinned.Free(); err != nil {
			return err
		}
	}
	var err error
	if b.pinned, err = gds.AllocRoom(p.written, l.o.Device.AllocPinned); err != nil {
		return noRoom(j, err)
	}
	return nil
}

// takeDevice lends a batch device memory, and makes its tensors views of that.
func (l *Loader) takeDevice(w *pipeline.Worker, j *job) error {
	m, err := pipeline.Take(w, l.lending) // of which there are as many as the schedule has batches on the device
	if err != nil {
		return err
	}
	b := j.buffer
	b.lent = m
	for i, e := range m.after {
		// An error is of the stream that used the memory, and is seen there.
		if _ = w.WaitForRoom(e); w.Context().Err() != nil {
			m.after = m.after[i:]
			return context.Cause(w.Context())
		}
	}
	m.after = nil
	need := j.layout.host + j.layout.end
	if m.memory == nil || m.memory.Len() < need {
		if m.memory != nil {
			if err := m.memory.Free(); err != nil {
				return err
			}
		}
		if m.memory, err = gds.AllocRoom(need, l.o.Device.Alloc); err != nil {
			return noRoom(j, err)
		}
	}
	b.device = m.memory
	batch := &b.batch
	all := []*gds.Tensor{&batch.Labels, &batch.RowWeights, &batch.NodeIDs, &batch.InputIDs}
	for i := range b.blocks {
		k := &b.blocks[i]
		all = append(all, &k.Offsets, &k.Indices, &k.Weights)
	}
	for _, t := range all {
		if t.DType.Size() > 0 && t.Stride > 0 { // it is there
			t.Buf = b.device
		}
	}
	return nil
}

// giveDeviceBack ends the loan of a batch's device memory, which is used until the events.
func (b *batchBuffer) giveDeviceBack(held []gds.Event) {
	m := b.lent
	if m == nil {
		return
	}
	b.lent, b.device = nil, nil
	if m.after = append(m.after, held...); b.released != nil {
		m.after = append(m.after, b.released)
	}
	b.released = nil
	b.l.lending <- m // there is room for all
}

// free waits until nothing uses the memory, and frees it.
func (m *lent) free() error {
	for _, e := range m.after {
		_ = e.Wait(context.Background())
	}
	if m.memory == nil {
		return nil
	}
	return m.memory.Free()
}
