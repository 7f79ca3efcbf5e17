package trainer

import (
	"context"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// rowTally is a tally that rows are added to on the host. Out is [rows, cols], labels are as in
// loader.Batch, as bytes.
type rowTally interface {
	tally
	count(out []float32, labels []byte, cols int)
}

// onHost makes meters that count on the host.
func onHost(start func(Spec) rowTally) func(*memory, Spec, int) (meter, error) {
	return func(mem *memory, s Spec, batchRows int) (meter, error) {
		m := &hostMeter{cols: s.Classes, start: func() rowTally { return start(s) }, counted: start(s)}
		for i := range m.slots {
			slot := &m.slots[i]
			out, err := mem.pinned("metric", gds.Bytes(batchRows, s.Classes, gds.Float32))
			if err != nil {
				return nil, err
			}
			labels, err := mem.pinned("metric", s.labelBytes(batchRows))
			if err != nil {
				return nil, err
			}
			slot.out, slot.labels = gds.NewTensor(out, batchRows, s.Classes, gds.Float32), labels
		}
		return m, nil
	}
}

// hostMeter copies batches to pinned memory, and counts one when the next but one comes: so the
// device does not wait.
type hostMeter struct {
	cols    int
	start   func() rowTally
	counted rowTally
	slots   [2]meterSlot
	next    int
}

type meterSlot struct {
	out    gds.Tensor
	labels gds.Buffer
	rows   int
	bytes  int64     // of the labels
	copied gds.Event // nil: nothing
}

func (m *hostMeter) reset(gds.Stream) {
	m.counted = m.start()
	for i := range m.slots {
		m.slots[i].copied = nil
	}
}

func (m *hostMeter) add(s gds.Stream, out, labels gds.Tensor) {
	slot := &m.slots[m.next]
	m.next = 1 - m.next
	m.take(slot)
	slot.rows, slot.bytes = out.Rows, gds.Bytes(labels.Rows, labels.Cols, labels.DType)
	s.Copy(slot.out.Slice(0, out.Rows), out)
	s.Copy(gds.NewTensor(slot.labels, labels.Rows, labels.Cols, labels.DType), labels)
	slot.copied = s.Record()
}

// take counts what a slot holds. An error of the copies stays with their stream.
func (m *hostMeter) take(slot *meterSlot) {
	if slot.copied != nil && slot.copied.Wait(context.Background()) == nil {
		m.counted.count(dtype.Float32s(slot.out.Buf.Bytes())[:slot.rows*m.cols], slot.labels.Bytes()[:slot.bytes], m.cols)
	}
	slot.copied = nil
}

func (m *hostMeter) read(ctx context.Context, s gds.Stream) (tally, error) {
	m.take(&m.slots[m.next])
	m.take(&m.slots[1-m.next])
	return m.counted, s.Synchronize(ctx)
}

// argmax is the first largest element, or -1 where one is no number, as in gds.LossOps.CountCorrect.
func argmax(row []float32) int {
	best := -1
	for i, v := range row {
		if v != v {
			return -1
		}
		if best < 0 || v > row[best] {
			best = i
		}
	}
	return best
}

// finite is v, or the largest number there is if v is none, as of a model that has diverged.
func finite(v float64) float64 {
	if v <= math.MaxFloat64 {
		return v
	}
	return math.MaxFloat64
}
