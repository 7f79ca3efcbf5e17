package trainer

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// rowTally is a tally that counts rows on the host.
type rowTally interface {
	tally
	// count counts rows: out is [rows, cols], and labels are the bytes of loader.Batch.Labels.
	count(out []float32, labels []byte, cols int)
}

func isLabel(label int8) bool     { return label >= 0 }
func isNumber(label float32) bool { return label == label }

// eachLabel calls do for each label that is there in [rows, cols] labels: at is its place, and column its column. It
// returns the number of rows that have any.
func eachLabel[T int8 | float32](labels []byte, cols int, there func(T) bool,
	do func(at, column int, label T)) (rows int64) {
	last := -1
	for at, label := range dtype.As[T](labels) {
		if there(label) {
			do(at, at%cols, label)
			if at/cols > last {
				last = at / cols
				rows++
			}
		}
	}
	return rows
}

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

// onHost makes meters that count on the host.
func onHost(start func(Spec) rowTally) func(*gds.Memory, Spec, int) (meter, error) {
	return func(mem *gds.Memory, s Spec, batchRows int) (meter, error) {
		m := &hostMeter{cols: s.Classes, start: func() rowTally { return start(s) }, counted: start(s)}
		for i := range m.slots {
			m.slots[i] = newCopied(mem, "metric", s, batchRows, s.labelBytes(batchRows))
		}
		return m, nil
	}
}

// hostMeter copies batches to pinned memory, and counts a batch when the next but one comes: the device does not wait.
type hostMeter struct {
	cols    int
	start   func() rowTally
	counted rowTally
	slots   [2]copied
	next    int
}

func (m *hostMeter) reset(gds.Stream) {
	m.counted, m.slots[0].done, m.slots[1].done = m.start(), nil, nil
}

func (m *hostMeter) add(s gds.Stream, out, labels gds.Tensor) {
	slot := &m.slots[m.next]
	m.next = 1 - m.next
	m.take(slot)
	slot.copy(s, out, labels)
}

// take counts the batch in a slot. An error of the copies stays with their stream.
func (m *hostMeter) take(slot *copied) {
	if slot.done != nil && slot.done.Wait(context.Background()) == nil {
		m.counted.count(dtype.Float32s(slot.out.Bytes())[:slot.rows*m.cols], slot.of.Bytes()[:slot.bytes], m.cols)
	}
	slot.done = nil
}

func (m *hostMeter) read(ctx context.Context, s gds.Stream) (tally, error) {
	m.take(&m.slots[m.next])
	m.take(&m.slots[1-m.next])
	return m.counted, s.Synchronize(ctx)
}

// argmax is the place of the first largest element, or -1 if any is no number, as in gds.LossOps.CountCorrect.
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
