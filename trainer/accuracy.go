package trainer

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// accuracy is the part of labelled rows that are classified correctly.
func accuracy(mem *memory, _ Spec, _ int) (meter, error) {
	return &accuracyMeter{mem.matrix("count", 1, 2, gds.Int64), mem.pinned("count", gds.Bytes(1, 2, gds.Int64))}, nil
}

type accuracyMeter struct {
	count gds.Tensor // correct, labelled
	host  gds.Buffer // pinned, to read them
}

func (m *accuracyMeter) reset(s gds.Stream) { s.Fill(m.count, 0) }

func (m *accuracyMeter) add(s gds.Stream, out, labels gds.Tensor) {
	s.CountCorrect(m.count, out, labels)
}

func (m *accuracyMeter) read(ctx context.Context, s gds.Stream) (tally, error) {
	s.Copy(gds.NewTensor(m.host, 1, 2, gds.Int64), m.count)
	if err := s.Synchronize(ctx); err != nil {
		return nil, err
	}
	count := dtype.Int64s(m.host.Bytes())
	return &correctRows{count[0], count[1]}, nil
}

// correctRows is the tally of accuracy.
type correctRows struct{ correct, rows int64 }

func (c *correctRows) add(other tally) {
	o := other.(*correctRows)
	c.correct, c.rows = c.correct+o.correct, c.rows+o.rows
}

func (c *correctRows) score() Score {
	if c.rows == 0 {
		return Score{}
	}
	value := float64(c.correct) / float64(c.rows)
	return Score{&value, c.rows}
}
