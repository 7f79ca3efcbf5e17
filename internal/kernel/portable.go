package kernel

import "math"

var portable = implementation{
	name:         "portable",
	lanes:        1,
	columns:      math.MaxInt,
	fewest:       1,
	numbers:      1,
	listsFloat32: portableLists(addScaled),
	listsFloat16: portableLists(func(sum []float32, by float32, row []uint16) {
		values := float16Values()
		for j, h := range row {
			sum[j] += float32(by * values[h])
		}
	}),
	listsBFloat16: portableLists(func(sum []float32, by float32, row []uint16) {
		for j, h := range row {
			sum[j] += float32(by * BFloat16ToFloat32(h))
		}
	}),
	scaleFloat32: func(dst, src, factors []float32, columns int, _ bool) bool {
		finite := true
		for i, s := range factors {
			row := dst[i*columns:][:columns]
			for j, v := range src[i*columns:][:columns] {
				row[j] = s * v
				finite = finite && isFinite(row[j])
			}
		}
		return finite
	},
	scaleFloat16: func(dst []uint16, src, factors []float32, columns int, _ bool) bool {
		return scaleCodes(Float32ToFloat16, 0x7c00, dst, src, factors, columns)
	},
	scaleBFloat16: func(dst []uint16, src, factors []float32, columns int, _ bool) bool {
		return scaleCodes(Float32ToBFloat16, 0x7f80, dst, src, factors, columns)
	},
	decodeFloat16: func(dst []float32, src []uint16) {
		values := float16Values()
		for j, h := range src {
			dst[j] = values[h]
		}
	},
	decodeBFloat16: func(dst []float32, src []uint16) {
		for j, h := range src {
			dst[j] = BFloat16ToFloat32(h)
		}
	},
	dot: func(x, y []float32) float32 {
		var sums [dotSums]float32
		for ; len(x) >= dotSums; x, y = x[dotSums:], y[dotSums:] {
			for i := range sums {
				sums[i] += float32(x[i] * y[i])
			}
		}
		return foldSums(sums[:])
	},
	scaled: func(dst []float32, by float32, x []float32) {
		for i, v := range x {
			dst[i] = by * v
		}
	},
	exp: func(dst, src []float32, less float32) float32 {
		var sums [expSums]float32
		for i, v := range src {
			dst[i] = exp(v - less)
			sums[i%expSums] += dst[i]
		}
		return foldSums(sums[:])
	},
	largest: func(x []float32) float32 {
		most := float32(math.Inf(-1))
		for _, v := range x {
			if v > most {
				most = v
			}
		}
		return most
	},
	addScaled: addScaled,
	gather:    gather,
	feistel:   feistel,
	gemm:      gemmTile{2, 4, gemm},
}

// scaleCodes rounds products to 16-bit numbers, whose exponents are infinite for infinity and NaN.
func scaleCodes(round func(float32) uint16, infinite uint16, dst []uint16, src, factors []float32, columns int) bool {
	finite := true
	for i, s := range factors {
		row := dst[i*columns:][:columns]
		for j, v := range src[i*columns:][:columns] {
			row[j] = round(float32(s * v))
			finite = finite && row[j]&infinite != infinite
		}
	}
	return finite
}

// foldSums adds the upper half of sums to the lower one until one is left; their number is a power of 2.
func foldSums(sums []float32) float32 {
	for n := len(sums) / 2; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[n+i]
		}
	}
	return sums[0]
}

func addScaled(dst []float32, by float32, x []float32) {
	for i, v := range x {
		dst[i] += float32(by * v)
	}
}
