package bench

import "slices"

// withinNoise reports whether the ranges of two lists of times overlap, so that it may be
// chance which one is faster. Neither list may be empty.
func withinNoise(a, b []float64) bool {
	return slices.Min(a) <= slices.Max(b) && slices.Min(b) <= slices.Max(a)
}

// markNoise sets WithinNoise of the results whose times overlap with those of the fastest, but
// not of the fastest itself. Memcpy, which does not load, is left out.
func markNoise(results []LoadResult) {
	fastest := -1
	for i, r := range results {
		if r.Variant != Memcpy && (fastest < 0 || r.EpochSeconds < results[fastest].EpochSeconds) {
			fastest = i
		}
	}
	for i, r := range results {
		results[i].WithinNoise = r.Variant != Memcpy && i != fastest &&
			withinNoise(r.RoundSeconds, results[fastest].RoundSeconds)
	}
}

// noiseMark follows a figure whose difference to another may be noise.
func noiseMark(withinNoise bool) string {
	if withinNoise {
		return " ~"
	}
	return ""
}
