package trainer

import (
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

var labelled = []Target{ClassTarget, LabelsTarget}

// metrics select and judge models. To add one, add it here.
var metrics = map[string]metric{
	"accuracy": {targets: []Target{ClassTarget}, onDevice: true, score: accuracy},
	"macro-f1": {targets: labelled, count: countF1, score: macroF1},
	"micro-f1": {targets: labelled, count: countF1, score: microF1},
	"roc-auc":  {targets: labelled, check: checkROC, count: countScores, score: areaUnderROC},
	"mse":      {targets: []Target{ValuesTarget}, lower: true, count: countErrors(2), score: meanError},
	"mae":      {targets: []Target{ValuesTarget}, lower: true, count: countErrors(1), score: meanError},
}

// lossMetric is the mean loss as a metric, over the rows that the default metric of the target counts.
const lossMetric = "loss"

// metric is a metric of models of some targets.
type metric struct {
	targets []Target
	lower   bool // lower is better; otherwise it is a fraction of 1, and higher is better
	loss    bool // it is the mean loss
	// check returns an error if models of a Spec have no such metric; nil: all have.
	check func(Spec) error
	// count adds rows to a tally: out is the output of the model, [rows, Spec.Classes], and labels are the
	// bytes of loader.Batch.Labels. Rows without a label do not count.
	count func(t *tally, out []float32, labels []byte)
	// onDevice, instead of count: the device counts rows that are classified correctly, in tally.counts[0].
	onDevice bool
	// score is the value of the metric on the rows of a tally, at least one; false: there are too few.
	score func(t *tally) (value float64, ok bool)
}

// tally holds the counts of a metric. Each metric uses the fields that it needs.
type tally struct {
	spec   Spec
	rows   int64 // with a label
	counts []int64
	sum    float64
	keys   [][]uint64
}

func newTally(s Spec) *tally {
	return &tally{spec: s, counts: make([]int64, 3*s.Classes), keys: make([][]uint64, s.Classes)}
}

// add adds the counts of other rows.
func (t *tally) add(other *tally) {
	t.rows, t.sum = t.rows+other.rows, t.sum+other.sum
	for i, n := range other.counts {
		t.counts[i] += n
	}
	for i, keys := range other.keys {
		t.keys[i] = append(t.keys[i], keys...)
	}
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

// Score is the value of a metric, and the number of rows that it was computed on.
type Score struct {
	Value *float64 `json:"value"` // nil if there are no such rows, or too few
	Rows  int64    `json:"rows"`  // labelled
}

// evaluated is the result of an evaluation on some rows: the sum of their losses, and a tally.
type evaluated struct {
	loss float64
	*tally
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
func (e evaluated) meanLoss() float64 { return finite(e.loss / float64(e.rows)) }

// score is the value of a metric on the rows.
func (e evaluated) score(m metric) Score {
	if e.tally == nil || e.rows == 0 {
		return Score{}
	}
	value, ok := m.score(e.tally)
	if m.loss {
		value, ok = e.meanLoss(), true
	}
	if !ok {
		return Score{Rows: e.rows}
	}
	return Score{&value, e.rows}
}

// finite is v, or the largest number there is if v is none, as for a model that has diverged.
func finite(v float64) float64 {
	if v <= math.MaxFloat64 {
		return v
	}
	return math.MaxFloat64
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

// accuracy is the part of labelled rows that are classified correctly.
func accuracy(t *tally) (float64, bool) { return float64(t.counts[0]) / float64(t.rows), true }

// countErrors adds up the errors of labelled values to a power, in the units of the labels.
func countErrors(power float64) func(t *tally, out []float32, labels []byte) {
	return func(t *tally, out []float32, labels []byte) {
		t.rows += eachLabel(labels, t.spec.Classes, isNumber, func(at, _ int, label float32) {
			d := math.Abs(float64(out[at]) - float64(label))
			if power == 2 {
				d = float64(d * d)
			}
			t.sum += d
			t.counts[0]++
		})
	}
}

// meanError is the mean over all labelled values.
func meanError(t *tally) (float64, bool) { return finite(t.sum / float64(t.counts[0])), true }

// f1 is what F1 scores count: for each class or label the rows that have it, the rows predicted to have it, and the
// rows that do both. The F1 score of a class is 2 both / (had + predicted), the harmonic mean of precision and recall.
// These are the definitions of scikit-learn. A label is predicted if its logit is above 0.
func (t *tally) f1() (had, predicted, both []int64) {
	n := t.spec.Classes
	return t.counts[:n], t.counts[n : 2*n], t.counts[2*n:]
}

func countF1(t *tally, out []float32, labels []byte) {
	had, predicted, both := t.f1()
	cols := t.spec.Classes
	if t.spec.Target == ClassTarget {
		for i, label := range dtype.Int32s(labels) {
			if label < 0 || int(label) >= cols { // the loss refuses it
				continue
			}
			t.rows++
			had[label]++
			if p := kernel.ArgMax(out[i*cols : (i+1)*cols]); p >= 0 {
				predicted[p]++
				if p == int(label) {
					both[p]++
				}
			}
		}
		return
	}
	t.rows += eachLabel(labels, cols, isLabel, func(at, j int, label int8) {
		had[j] += int64(label)
		if out[at] > 0 {
			predicted[j]++
			both[j] += int64(label)
		}
	})
}

// microF1 is the score of the sums over classes; where each row has one class, that is the accuracy.
func microF1(t *tally) (float64, bool) {
	had, predicted, both := t.f1()
	var twice, either int64
	for j, n := range both {
		twice, either = twice+2*n, either+had[j]+predicted[j]
	}
	return float64(twice) / float64(max(either, 1)), true
}

// macroF1 is the mean over classes that any row has or is predicted to have; with several labels a row it is the mean
// over all labels, where a label that does not occur counts as 0.
func macroF1(t *tally) (float64, bool) {
	had, predicted, both := t.f1()
	sum, classes := 0.0, 0
	for j, n := range both {
		if total := had[j] + predicted[j]; total > 0 || t.spec.Target == LabelsTarget {
			classes++
			sum += 2 * float64(n) / float64(max(total, 1))
		}
	}
	return sum / float64(classes), true
}

// checkROC is metric.check of roc-auc.
func checkROC(s Spec) error {
	return must(s.Target != ClassTarget || s.Classes == 2,
		"%w: roc-auc is a metric of two classes, or of several labels a row, not of %d classes", ErrOptions, s.Classes)
}

// rankingKey is a number that orders scores. Its last bit tells whether the row has the label; equal scores have equal
// other bits.
func rankingKey(score float32, positive bool) uint64 {
	bit := uint64(0)
	if positive {
		bit = 1
	}
	if score != score {
		return (1-bit)<<63 | bit // lowest of all if positive, else highest
	}
	bits := math.Float32bits(score + 0) // -0 is 0
	if bits>>31 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 31
	}
	return (uint64(bits)+1)<<1 | bit
}

// countScores keeps the scores of all rows, by label. For two classes there is one: the logit of class 1 minus that of
// class 0.
func countScores(t *tally, out []float32, labels []byte) {
	if t.spec.Target == ClassTarget {
		for i, label := range dtype.Int32s(labels) {
			if label >= 0 {
				t.rows++
				t.keys[0] = append(t.keys[0], rankingKey(out[2*i+1]-out[2*i], label == 1))
			}
		}
		return
	}
	t.rows += eachLabel(labels, t.spec.Classes, isLabel, func(at, j int, label int8) {
		t.keys[j] = append(t.keys[j], rankingKey(out[at], label == 1))
	})
}

// areaUnderROC is the area under the ROC curve: among all pairs of a row that has a label and a row that does not, the
// part in which the first has the higher score; equal scores count as half a pair. A score that is no number ranks as
// the worst one. With several labels a row, the area is the mean over labels that some labelled rows have and others do
// not (as ogbn-proteins defines it).
func areaUnderROC(t *tally) (float64, bool) {
	sum, labels := 0.0, 0.0
	for _, keys := range t.keys {
		if area, ok := areaUnder(keys); ok {
			sum, labels = sum+area, labels+1
		}
	}
	return sum / labels, labels > 0
}

// areaUnder is the area for one label. There is none if all rows have the label, or no row has. It sorts the keys.
func areaUnder(keys []uint64) (area float64, ok bool) {
	slices.Sort(keys)
	var below, above, pairs int64 // rows without the label so far, rows with it, and pairs, twice
	for lo := 0; lo < len(keys); {
		hi, with := lo, int64(0)
		for hi < len(keys) && keys[hi]>>1 == keys[lo]>>1 {
			with += int64(keys[hi] & 1)
			hi++
		}
		without := int64(hi-lo) - with
		pairs += with * (2*below + without)
		below, above, lo = below+without, above+with, hi
	}
	if below == 0 || above == 0 {
		return 0, false
	}
	return float64(pairs) / (2 * float64(below) * float64(above)), true
}

// MetricText prints the value of a metric, "-" for none.
func MetricText(metric string, value *float64) string {
	if value != nil && LowerIsBetter(metric) {
		return LossText(*value)
	}
	return Percent(value)
}

// Percent prints a fraction of 1, "-" for none.
func Percent(p *float64) string {
	if p == nil || math.IsNaN(*p) {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100**p)
}

// LossText is a loss with four decimals, or, if it is large, with six digits.
func LossText(loss float64) string {
	if math.Abs(loss) < 1000 {
		return fmt.Sprintf("%.4f", loss)
	}
	return fmt.Sprintf("%.6g", loss)
}
