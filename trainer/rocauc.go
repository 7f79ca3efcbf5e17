package trainer

import (
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// rankings keeps the scores of all rows, for the area under the ROC curve: among all pairs of a row that has a label
// and a row that does not, the part in which the first has the higher score; equal scores count as half a pair. A score
// that is no number ranks as the worst one. For two classes, the score of a row is the logit of class 1 minus that of
// class 0. With several labels a row, the area is the mean over labels that some labelled rows have and others do not
// (as ogbn-proteins defines it).
type rankings struct {
	target Target
	keys   [][]uint64 // of each label: see rankingKey
	rows   int64
}

func rocAUC(mem *gds.Memory, s Spec, batchRows int) (meter, error) {
	if s.Target == ClassTarget && s.Classes != 2 {
		return nil, fmt.Errorf("%w: roc-auc is a metric of two classes, or of several labels a row, not of %d classes",
			ErrOptions, s.Classes)
	}
	return onHost(func(s Spec) rowTally {
		labels := s.Classes
		if s.Target == ClassTarget {
			labels = 1
		}
		return &rankings{target: s.Target, keys: make([][]uint64, labels)}
	})(mem, s, batchRows)
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

func (r *rankings) count(out []float32, labels []byte, cols int) {
	if r.target == ClassTarget {
		for i, label := range dtype.Int32s(labels) {
			if label >= 0 {
				r.rows++
				r.keys[0] = append(r.keys[0], rankingKey(out[2*i+1]-out[2*i], label == 1))
			}
		}
		return
	}
	r.rows += eachLabel(labels, cols, isLabel, func(at, j int, label int8) {
		r.keys[j] = append(r.keys[j], rankingKey(out[at], label == 1))
	})
}

func (r *rankings) add(other tally) {
	o := other.(*rankings)
	r.rows += o.rows
	for j := range r.keys {
		r.keys[j] = append(r.keys[j], o.keys[j]...)
	}
}

func (r *rankings) score() Score {
	sum, labels := 0.0, 0.0
	for _, keys := range r.keys {
		if area, ok := areaUnder(keys); ok {
			sum, labels = sum+area, labels+1
		}
	}
	if labels == 0 {
		return Score{Rows: r.rows}
	}
	value := sum / labels
	return Score{&value, r.rows}
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
