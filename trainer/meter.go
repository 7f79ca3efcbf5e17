package trainer

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// copied is the outputs of a model for a batch, and labels or numbers of its rows, on their way to the host.
type copied struct {
	out, of gds.Buffer // pinned
	rows    int
	bytes   int64     // of the labels or numbers
	done    gds.Event // nil: nothing
}

// newCopied is for batches of up to batchRows rows and this number of bytes of labels or numbers.
func newCopied(mem *gds.Memory, what string, s Spec, batchRows int, bytes int64) copied {
	return copied{out: mem.Pin(what, gds.Bytes(batchRows, s.Classes, gds.Float32)), of: mem.Pin(what, bytes)}
}

// copy enqueues the copies.
func (c *copied) copy(s gds.Stream, out, of gds.Tensor) {
	c.rows, c.bytes = out.Rows, gds.Bytes(of.Rows, of.Cols, of.DType)
	s.Copy(gds.NewTensor(c.out, out.Rows, out.Cols, gds.Float32), out)
	s.Copy(gds.NewTensor(c.of, of.Rows, of.Cols, of.DType), of)
	c.done = s.Record()
}

// meter counts, on one device, what a metric needs. Batches are copied to pinned memory, and a batch is counted when
// the next but one comes: the device does not wait.
type meter struct {
	metric
	counted *tally
	slots   [2]copied
	next    int
	correct gds.Tensor // if the metric is onDevice: rows that are classified correctly, and labelled ones
	host    gds.Buffer // pinned, to read them
}

// newMeter makes a meter for batches of up to batchRows rows.
func newMeter(mem *gds.Memory, metric metric, s Spec, batchRows int) (*meter, error) {
	if metric.check != nil {
		if err := metric.check(s); err != nil {
			return nil, err
		}
	}
	m := &meter{metric: metric, counted: newTally(s)}
	if m.onDevice {
		m.correct = mem.Matrix("count", 1, 2, gds.Int64)
		m.host = mem.Pin("count", gds.Bytes(1, 2, gds.Int64))
		return m, nil
	}
	for i := range m.slots {
		m.slots[i] = newCopied(mem, "metric", s, batchRows, s.labelBytes(batchRows))
	}
	return m, nil
}

// reset enqueues that counts begin at zero.
func (m *meter) reset(s gds.Stream) {
	m.counted, m.slots[0].done, m.slots[1].done = newTally(m.counted.spec), nil, nil
	if m.onDevice {
		s.Fill(m.correct, 0)
	}
}

// add enqueues the counting of rows: out is the output of the model, labels are loader.Batch.Labels.
func (m *meter) add(s gds.Stream, out, labels gds.Tensor) {
	if m.onDevice {
		s.CountCorrect(m.correct, out, labels)
		return
	}
	slot := &m.slots[m.next]
	m.next = 1 - m.next
	m.take(slot)
	slot.copy(s, out, labels)
}

// take counts the batch in a slot. An error of the copies stays with their stream.
func (m *meter) take(slot *copied) {
	if slot.done != nil && slot.done.Wait(context.Background()) == nil {
		out := dtype.Float32s(slot.out.Bytes())[:slot.rows*m.counted.spec.Classes]
		m.count(m.counted, out, slot.of.Bytes()[:slot.bytes])
	}
	slot.done = nil
}

// read waits for all work of the stream, and returns the counts since reset.
func (m *meter) read(ctx context.Context, s gds.Stream) (*tally, error) {
	m.take(&m.slots[m.next])
	m.take(&m.slots[1-m.next])
	if m.onDevice {
		s.Copy(gds.NewTensor(m.host, 1, 2, gds.Int64), m.correct)
	}
	err := s.Synchronize(ctx)
	if m.onDevice && err == nil {
		count := dtype.Int64s(m.host.Bytes())
		m.counted.counts[0], m.counted.rows = count[0], count[1]
	}
	return m.counted, err
}
