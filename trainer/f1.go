package trainer

import "github.com/hopfeed/hopfeed/internal/dtype"

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
			if p := argmax(out[i*cols : (i+1)*cols]); p >= 0 {
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
