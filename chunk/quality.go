package chunk

import (
	"maps"
	"math"
	"slices"
)

// Quality compares the batches of an epoch with batches under row reshuffling.
type Quality struct {
	// LabelVariance is the variance of the counts of labels in batches, divided by that under row reshuffling: the
	// design effect of cluster sampling (Kish 1965). 1 is as good as row reshuffling; at c, a batch says as much
	// about the mix of labels as one with c times fewer rows. NaN if no labels are known, or if there is only one
	// label or batch.
	LabelVariance float64
	// Neighbours is the fraction of pairs of consecutive rows in storage that are in one batch; RRNeighbours is the
	// same under row reshuffling.
	Neighbours, RRNeighbours float64
}

// Quality measures the first batches of an epoch, over all ranks, until they have the given number of rows. labels
// are the labels of the plan's rows in storage order, or nil.
func (p Plan) Quality(epoch int, rows int64, labels []int32) Quality {
	p.Rank, p.World = 0, 0
	q := Quality{LabelVariance: math.NaN()}
	totals := map[int32]float64{}
	for _, label := range labels {
		totals[label]++
	}
	names := slices.Sorted(maps.Keys(totals)) // one order of summation
	n := float64(p.Rows)
	var seen, pairs, chiSquare, expected float64
	for b := range p.Epoch(epoch) {
		if seen >= float64(rows) {
			break
		}
		size := float64(b.Rows)
		seen += size
		spans := b.Spans()
		pairs += float64(adjacent(spans))
		q.RRNeighbours += size * (size - 1) / max(n-1, 1)
		if labels == nil {
			continue
		}
		counts := map[int32]float64{}
		for _, s := range spans {
			for _, label := range labels[s.First : s.First+int64(s.Rows)] {
				counts[label]++
			}
		}
		// Pearson's statistic. Its mean over batches drawn without replacement is (labels-1) (n-size)/(n-1), exactly.
		for _, label := range names {
			mean := size * totals[label] / n
			chiSquare += (counts[label] - mean) * (counts[label] - mean) / mean
		}
		expected += float64(len(names)-1) * (n - size) / max(n-1, 1)
	}
	if expected > 0 {
		q.LabelVariance = chiSquare / expected
	}
	// n-1 of n rows have a next row, and so does the same share of the rows seen.
	next := max(seen*(n-1)/max(n, 1), 1)
	q.Neighbours, q.RRNeighbours = pairs/next, q.RRNeighbours/max(seen, 1)
	return q
}

// adjacent counts the rows of a batch whose successor in storage is in it too.
func adjacent(batch []Span) int {
	pairs := 0
	starts := make(map[int64]bool, len(batch))
	for _, s := range batch {
		starts[s.First] = true
		pairs += s.Rows - 1
	}
	for _, s := range batch {
		if starts[s.First+int64(s.Rows)] {
			pairs++
		}
	}
	return pairs
}
