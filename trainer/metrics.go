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
	host        gds.Buffer // pinned: the count, then the loss
}

func newMeter(mem *memory) (m *meter, err error) {
	m = &meter{}
	if m.loss, err = mem.matrix("loss", 1, 1, gds.Float32); err != nil {
		return nil, err
	}
	if m.count, err = mem.matrix("count", 1, 2, gds.Int64); err != nil {
		return nil, err
	}
	m.host, err = mem.pinned("loss and count", 2*8+4)
	return m, err
}

func (m *meter) reset(s gds.Stream) {
	s.Fill(m.loss, 0)
	s.Fill(m.count, 0)
}

// read waits for all work of s, and returns the sum of losses, and the accuracy.
func (m *meter) read(ctx context.Context, s gds.Stream) (loss float64, a Accuracy, err error) {
	host := gds.NewTensor(m.host, 1, 5, gds.Float32)
	s.Copy(gds.NewTensor(m.host, 1, 2, gds.Int64), m.count)
	s.Copy(host.Columns(4, 5), m.loss)
	if err := s.Synchronize(ctx); err != nil {
		return 0, a, err
	}
	counts := dtype.Int64s(m.host.Bytes()[:16])
	return float64(dtype.Float32s(m.host.Bytes())[4]), Accuracy{Correct: counts[0], Rows: counts[1]}, nil
}
