package trainer

import (
	"context"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// metrics select and judge models. To add one, add it here.
var metrics = map[string]metric{
	"accuracy": {meter: accuracy, targets: []Target{ClassTarget}},
	"macro-f1": {meter: onHost(newConfusion(true)), targets: []Target{ClassTarget, LabelsTarget}},
	"micro-f1": {meter: onHost(newConfusion(false)), targets: []Target{ClassTarget, LabelsTarget}},
	"roc-auc":  {meter: rocAUC, targets: []Target{ClassTarget, LabelsTarget}},
	"mse":      {meter: onHost(newErrorSum(2)), targets: []Target{ValuesTarget}, lower: true},
	"mae":      {meter: onHost(newErrorSum(1)), targets: []Target{ValuesTarget}, lower: true},
}

// lossMetric is the mean loss as a metric, over the rows that the default metric of the target counts.
const lossMetric = "loss"

// metric is a metric of models of some targets.
type metric struct {
	// meter makes the meter of one device, with its memory, for batches of up to batchRows rows.
	meter   func(mem *gds.Memory, s Spec, batchRows int) (meter, error)
	targets []Target
	lower   bool // lower is better; otherwise it is a fraction of 1, and higher is better
	loss    bool // it is the mean loss
}

// LowerIsBetter tells whether a metric is an error or a loss, in units of its own. Others are fractions of 1, and
// higher is better.
func LowerIsBetter(name string) bool { return name == lossMetric || metrics[name].lower }

// gain is a value of a metric, negated if lower is better.
func gain(metric string, value float64) float64 {
	if LowerIsBetter(metric) {
		return -value
	}
	return value
}

// meter counts, on a device, the operands of a metric.
type meter interface {
	// reset enqueues that counts begin at zero.
	reset(s gds.Stream)
	// add enqueues that rows are counted: out is what the model puts out for them, [rows, Spec.Classes], and labels are
	// loader.Batch.Labels. Rows without a label do not count.
	add(s gds.Stream, out, labels gds.Tensor)
	// read waits for all work of the stream, and returns the counts.
	read(ctx context.Context, s gds.Stream) (tally, error)
}

// tally is the counts of some rows.
type tally interface {
	add(other tally) // the counts of other rows
	score() Score
}

// Score is the value of a metric, and the number of labelled rows that it was computed on.
type Score struct {
	Value *float64 // nil if there are no such rows, or too few
	Rows  int64
}

// evaluated is the result of an evaluation on some rows: the sum of their losses, and a tally.
type evaluated struct {
	loss float64
	tally
}

// add adds other rows; the zero evaluated has none.
func (e evaluated) add(other evaluated) evaluated {
	switch {
	case e.tally == nil:
		return other
	case other.tally == nil:
		return e
	}
	e.tally.add(other.tally)
	return evaluated{e.loss + other.loss, e.tally}
}

// meanLoss is the mean over the labelled rows; the largest number there is, if it is none.
func (e evaluated) meanLoss() float64 { return finite(e.loss / float64(e.tally.score().Rows)) }

// score is the value of a metric on the rows.
func (e evaluated) score(m metric) Score {
	if e.tally == nil {
		return Score{}
	}
	s := e.tally.score()
	if m.loss && s.Rows > 0 {
		loss := e.meanLoss()
		s.Value = &loss
	}
	return s
}

// finite is v, or the largest number there is if v is none, as for a model that has diverged.
func finite(v float64) float64 {
	if v <= math.MaxFloat64 {
		return v
	}
	return math.MaxFloat64
}

// accuracy is the part of labelled rows that are classified correctly.
func accuracy(mem *gds.Memory, _ Spec, _ int) (meter, error) {
	return &accuracyMeter{mem.Matrix("count", 1, 2, gds.Int64), mem.Pin("count", gds.Bytes(1, 2, gds.Int64))}, nil
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

// errorSum adds up errors to a power: for the mean squared error and the mean absolute error over all labelled values,
// in the units of the labels.
type errorSum struct {
	power        float64
	sum          float64
	values, rows int64 // with a label
}

func newErrorSum(power float64) func(Spec) rowTally {
	return func(Spec) rowTally { return &errorSum{power: power} }
}

func (e *errorSum) count(out []float32, labels []byte, cols int) {
	e.rows += eachLabel(labels, cols, isNumber, func(at, _ int, label float32) {
		d := math.Abs(float64(out[at]) - float64(label))
		if e.power == 2 {
			d = float64(d * d)
		}
		e.sum += d
		e.values++
	})
}

func (e *errorSum) add(other tally) {
	o := other.(*errorSum)
	e.sum, e.values, e.rows = e.sum+o.sum, e.values+o.values, e.rows+o.rows
}

func (e *errorSum) score() Score {
	if e.values == 0 {
		return Score{}
	}
	value := finite(e.sum / float64(e.values))
	return Score{&value, e.rows}
}
