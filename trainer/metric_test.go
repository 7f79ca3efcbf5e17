package trainer

import (
	"fmt"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// scoreOf counts rows in two parts, as two devices would, and adds them up.
func scoreOf(name string, s Spec, out []float32, labels []byte, cut int) Score {
	a, b, m := newTally(s), newTally(s), metrics[name]
	size := len(labels) / (len(out) / s.Classes)
	m.count(a, out[:cut*s.Classes], labels[:cut*size])
	m.count(b, out[cut*s.Classes:], labels[cut*size:])
	a.add(b)
	return evaluated{0, a}.score(m)
}

func expectScore(t *testing.T, what string, got Score, value float64, rows int64) {
	t.Helper()
	if got.Value == nil || math.Abs(*got.Value-value) > 1e-12 || got.Rows != rows {
		t.Errorf("%s: %+v, want %v of %d rows", what, got, value, rows)
	}
}

// The numbers are those of scikit-learn's f1_score, worked out by hand.
func TestF1ScoresOfClasses(t *testing.T) {
	// Predicted 0 0 1 1 2 2; class 3 is neither had nor predicted.
	out := []float32{
		5, 1, 0, 0, 5, 1, 0, 0, 0, 5, 0, 0, 0, 5, 4, 0, 0, 0, 5, 1, 1, 1, 5, 1, 9, 9, 9, 9,
		float32(math.NaN()), 0, 0, 0, // predicted to be nothing
	}
	labels := dtype.BytesOf([]int32{0, 1, 1, 1, 2, 0, -1, 2})
	s := Spec{Classes: 4}
	// Class 0: 1 of 2 had and 2 predicted; class 1: 2 of 3 and 2; class 2: 1 of 2 and 2.
	expectScore(t, "macro", scoreOf("macro-f1", s, out, labels, 3), (2.0/4+4.0/5+2.0/4)/3, 7)
	expectScore(t, "micro", scoreOf("micro-f1", s, out, labels, 3), 8.0/13, 7)
	// Where every row has a prediction, micro F1 is the accuracy.
	expectScore(t, "micro", scoreOf("micro-f1", s, out[:28], labels[:28], 3), 4.0/6, 6)
	if got := scoreOf("macro-f1", s, out, dtype.BytesOf([]int32{-1, -1, -1, -1, -1, -1, -1, -1}),
		3); got.Value != nil || got.Rows != 0 {
		t.Errorf("without labels: %+v", got)
	}
}

func TestF1ScoresOfSeveralLabels(t *testing.T) {
	out := []float32{1, -1, -1, 2, 1, -1, -3, 2, -1, 1, 1, -1, 7, 7, 7}
	labels := dtype.BytesOf([]int8{1, 0, 0, 0, 1, 0, 1, 1, 0, 1, -1, 0, -1, -1, -1})
	s := Spec{Classes: 3, Target: LabelsTarget}
	// Label 0: 2 of 3 had and 3 predicted; label 1: 2 of 2 and 2; label 2 never.
	expectScore(t, "macro", scoreOf("macro-f1", s, out, labels, 2), (4.0/6+1+0)/3, 4)
	expectScore(t, "micro", scoreOf("micro-f1", s, out, labels, 2), 8.0/10, 4)
}

func TestTheAreaUnderTheROCCurveCountsPairs(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for seed := range uint64(20) {
		const rows, labels = 60, 3
		out, y := make([]float32, rows*labels), make([]int8, rows*labels)
		for i := range out {
			// Few values, so that there are ties, of both zeros too.
			out[i] = []float32{-2, -1, float32(math.Copysign(0, -1)), 0, 0.5, 1, inf, -inf,
				nan}[rng.Hash(seed, uint64(i))%9]
			y[i] = int8(rng.Hash(seed+100, uint64(i))%3) - 1
			if i%labels == 2 {
				y[i] = min(y[i], 0) // no row has the last label
			}
		}
		sum, rowsWith := 0.0, int64(0)
		for j := range labels - 1 {
			above, pairs := 0.0, 0.0
			for a := range rows {
				for b := range rows {
					if y[a*labels+j] != 1 || y[b*labels+j] != 0 {
						continue
					}
					pairs++
					switch high, low := out[a*labels+j], out[b*labels+j]; {
					case high > low:
						above++
					case high == low:
						above += 0.5
					}
				}
			}
			sum += above / pairs
		}
		for i := range rows {
			if max(y[i*labels], y[i*labels+1], y[i*labels+2]) >= 0 {
				rowsWith++
			}
		}
		got := scoreOf("roc-auc", Spec{Classes: labels, Target: LabelsTarget}, out, dtype.BytesOf(y), 17)
		expectScore(t, fmt.Sprintf("seed %d", seed), got, sum/(labels-1), rowsWith)
	}
	// Logits of class 1 above class 0: 1, -1, 3, 1, 0.
	out := []float32{0, 1, 1, 0, -1, 2, 4, 5, 2, 2}
	got := scoreOf("roc-auc", Spec{Classes: 2}, out, dtype.BytesOf([]int32{1, 0, 0, 0, -1}), 2)
	expectScore(t, "two classes", got, 1.5/3, 4)
	if got := scoreOf("roc-auc", Spec{Classes: 2}, out, dtype.BytesOf([]int32{1, 1, 1, 1, -1}), 2); got.Value != nil ||
		got.Rows != 4 {
		t.Errorf("of one class: %+v", got)
	}
}

func TestErrorsOfValues(t *testing.T) {
	nan := float32(math.NaN())
	out := []float32{1, 2, 3, 4, 5, 6}
	labels := dtype.BytesOf([]float32{2, 0, nan, 7, nan, nan})
	s := Spec{Classes: 2, Target: ValuesTarget}
	expectScore(t, "mse", scoreOf("mse", s, out, labels, 1), (1.0+4+9)/3, 2)
	expectScore(t, "mae", scoreOf("mae", s, out, labels, 1), (1.0+2+3)/3, 2)
	expectScore(t, "of no number", scoreOf("mse", s, []float32{nan, 2, 3, 4, 5, 6}, labels, 1),
		math.MaxFloat64, 2)
}

func TestALowerErrorIsBetter(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	low, high := Epoch{Valid: at(1), ValidLoss: 2}, Epoch{Valid: at(2), ValidLoss: 1}
	for metric, lower := range map[string]bool{"accuracy": false, "macro-f1": false, "micro-f1": false,
		"roc-auc": false, "mse": true, "mae": true, "loss": true} {
		if low.better(high, metric) != lower || high.better(low, metric) == lower || LowerIsBetter(metric) != lower {
			t.Errorf("%s: lower is better: %t", metric, !lower)
		}
		a, b := Figures{Metric: metric, ValidMetric: at(1)}, Figures{Metric: metric, ValidMetric: at(2)}
		if a.Better(&b) != lower || b.Better(&a) == lower {
			t.Errorf("runs by %s: lower is better: %t", metric, !lower)
		}
	}
	history := []Epoch{{Number: 1, Valid: at(3)}, {Number: 2, Valid: at(1.02)}, {Number: 3, Valid: at(1.01)},
		{Number: 4, Valid: at(1)}}
	if e := convergence(history, "mse"); *e != 3 {
		t.Errorf("converged in epoch %d, want 3: 99 %% of 1.01 is less than 1", *e)
	}
}

func TestValidationTakesATenthByRowsAlone(t *testing.T) {
	for _, c := range []struct {
		train, valid int64
		epochs, want int
	}{
		{140, 500, 500, 1},           // few rows
		{1000, 10_000, 200, 1},       // as well
		{100_000, 20_000, 200, 1},    // 6.7 %
		{100_000, 30_000, 200, 1},    // 10 %
		{100_000, 30_001, 200, 2},    // more
		{50_000, 100_000, 200, 7},    // 10 * 100000 / (3 * 50000) = 6.7
		{50_000, 9_000_000, 200, 10}, // some twenty validations at least
		{50_000, 9_000_000, 5, 1},
	} {
		if got := DefaultEvalEvery(c.train, c.valid, c.epochs); got != c.want {
			t.Errorf("%+v: every %d epochs", c, got)
		}
	}
}

func TestBalancedWeightsMakeClassesCountTheSame(t *testing.T) {
	got := BalancedWeights([]int64{3, 1, 0, 1})
	for class, want := range []float64{5.0 / 12, 5.0 / 4, 0, 5.0 / 4} {
		if math.Abs(got[class]-want) > 1e-15 {
			t.Errorf("class %d weighs %v, want %v", class, got[class], want)
		}
	}
}
