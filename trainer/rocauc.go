package trainer

import (
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

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
