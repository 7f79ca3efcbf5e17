package bench

import "slices"

// withinNoise tells whether the ranges of two lists of times overlap, so that which of
// the two is shorter may be chance. Neither list is empty.
func withinNoise(a, b []float64) bool {
	return slices.Min(a) <= slices.Max(b) && slices.Min(b) <= slices.Max(a)
}

// markNoise marks the results that the noise of this run does not tell from the fastest,
// which is not marked itself. Copying of memory is no way to load, and is left out.
func markNoise(results []LoadResult) {
	fastest := -1
	for i, r := range results {
		if r.Variant != Memcpy && (fastest < 0 || r.EpochSeconds < results[fastest].EpochSeconds) {
			fastest = i
		}
	}
	for i, r := range results {
		results[i].WithinNoise = r.Variant != Memcpy && i != fastest && withinNoise(r.RoundSeconds, results[fastest].RoundSeconds)
	}
}
