package trainer

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// MetricName is the name of the metric that models are selected and judged by.
const MetricName = "accuracy"

// Accuracy is how many of the labelled rows were classified correctly.
type Accuracy struct {
	Correct, Rows int64
}

// Fraction is Correct / Rows, or nil where there are no labelled rows.
func (a Accuracy) Fraction() *float64 {
	if a.Rows == 0 {
		return nil
	}
	f := float64(a.Correct) / float64(a.Rows)
	return &f
}

// meter adds up loss and correct rows on the device, and reads them when asked.
type meter struct {
	loss, count gds.Tensor
	lossHost    [1]float32
	countHost   [2]int64 // correct, labelled
}

func newMeter(mem *memory) (m *meter, err error) {
	m = &meter{}
	if m.loss, err = mem.matrix("loss", 1, 1, gds.Float32); err != nil {
		return nil, err
	}
	m.count, err = mem.matrix("count", 1, 2, gds.Int64)
	return m, err
}

var zeros [2]int64

func (m *meter) reset(s gds.Stream) {
	s.Fill(m.loss, 0)
	s.CopyIn(m.count, dtype.BytesOf(zeros[:]))
}

// read waits for all work of s.
func (m *meter) read(ctx context.Context, s gds.Stream) error {
	s.CopyOut(dtype.BytesOf(m.lossHost[:]), m.loss)
	s.CopyOut(dtype.BytesOf(m.countHost[:]), m.count)
	return s.Synchronize(ctx)
}
