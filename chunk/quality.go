package chunk

import (
	"maps"
	"math"
	"slices"
)

// Quality tells how far the batches of an epoch are from those of random
// reshuffling.
type Quality struct {
	// LabelVariance is the variance of how often each label is in a batch, by
	// what it is under random reshuffling: the design effect of sampling by
	// cluster (Kish 1965). 1 is as good as that; at c, a batch tells as much of
	// the mix of labels as one of c times fewer rows. NaN where no labels are
	// known, or where there is but one label or batch.
	LabelVariance float64
	// Neighbours is the share of the rows next to each other in storage that are
	// in one batch; RRNeighbours is that under random reshuffling.
	Neighbours, RRNeighbours float64
}

// Quality measures an epoch, over all ranks, on the first batches that have rows
// rows together. Labels, of the plan's rows in storage order, may be nil.
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
		// Pearson's statistic. Of a batch drawn without replacement, its mean is
		// (labels-1) (n-size)/(n-1), exactly.
		for _, label := range names {
			mean := size * totals[label] / n
			chiSquare += (counts[label] - mean) * (counts[label] - mean) / mean
		}
		expected += float64(len(names)-1) * (n - size) / max(n-1, 1)
	}
	if expected > 0 {
		q.LabelVariance = chiSquare / expected
	}
	// Of n rows n-1 have a next one, and of those seen the same part.
	next := max(seen*(n-1)/max(n, 1), 1)
	q.Neighbours, q.RRNeighbours = pairs/next, q.RRNeighbours/max(seen, 1)
	return q
}

// adjacent is the number of rows of a batch whose next one is in it too.
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
