package kernel

// dotSums is how many sums Dot has.
const dotSums = 32

// Dot is the sum of the products of two vectors; y is at least as long as x:
//
//	var sums [32]float32
//	whole := len(x) - len(x)%32
//	for i, v := range x[:whole] {
//		sums[i%32] += v * y[i]
//	}
//	for n := 16; n > 0; n /= 2 {
//		for i := range n {
//			sums[i] += sums[n+i]
//		}
//	}
//	for i, v := range x[whole:] {
//		sums[0] += v * y[whole+i]
//	}
//	return sums[0]
func Dot(x, y []float32) float32 {
	y = y[:len(x)]
	whole := len(x) &^ (dotSums - 1)
	sum := active.dot(x[:whole], y[:whole])
	for i, v := range x[whole:] {
		sum += float32(v * y[whole+i])
	}
	return sum
}

// AddScaled adds by * x[i] to dst[i], which is at least as long.
func AddScaled(dst []float32, by float32, x []float32) {
	active.addScaled(dst[:len(x)], by, x)
}

// Scale sets dst[i], which is at least as long and may be x, to by * x[i].
func Scale(dst []float32, by float32, x []float32) {
	active.scaled(dst[:len(x)], by, x)
}

// ArgMax is the place of the first largest element; -1 if there is no element, or one is no number.
func ArgMax(x []float32) int {
	best := -1
	for i, v := range x {
		if v != v {
			return -1
		}
		if best < 0 || v > x[best] {
			best = i
		}
	}
	return best
}
