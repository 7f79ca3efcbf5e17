package kernel

import (
	"math"
	"unsafe"
)

var portable = implementation{
	name:          "portable",
	lanes:         1,
	columns:       math.MaxInt,
	fewest:        1,
	numbers:       1,
	sumFloat32:    sumEachList(func() *[1 << 16]float32 { return nil }, addRows[float32]),
	sumFloat16:    sumEachList(float16Values, addRows[uint16]),
	sumBFloat16:   sumEachList(bfloat16Values, addRows[uint16]),
	listsFloat32:  portableLists(func(x float32) float32 { return x }),
	listsFloat16:  portableLists(Float16ToFloat32),
	listsBFloat16: portableLists(BFloat16ToFloat32),
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
	addScaled: func(dst []float32, by float32, x []float32) {
		for i, v := range x {
			dst[i] += float32(by * v)
		}
	},
	gather:  gather,
	feistel: feistel,
	gemm:    gemmTile{2, 4, gemm},
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

// sumEachList adds the rows of each list, from 0. The portable loops take all columns, so that these are the stride too.
func sumEachList[T float32 | uint16](table func() *[1 << 16]float32, add func(sum []float32, x []T, nodes []uint32,
	coefficients []float32, byNode bool, values *[1 << 16]float32)) sumRows[T] {
	return func(sums []float32, x []T, _, columns int, nodes []uint32, lengths []int, coefficients []float32,
		byNode bool, _ int) int {
		added, values := 0, table()
		for l, k := range lengths {
			sum := sums[l*columns:][:columns]
			clear(sum)
			c := coefficients
			if c != nil && !byNode {
				c = c[added:][:k]
			}
			add(sum, x, nodes[added:][:k], c, byNode, values)
			added += k
		}
		return added
	}
}

// valueOf is a number of a matrix: float32, or a code of 16 bits that is found in a table.
func valueOf[T float32 | uint16](x T, values *[1 << 16]float32) float32 {
	if unsafe.Sizeof(x) == 4 { // the compiler knows it for each T
		return float32(x)
	}
	return values[uint16(x)]
}

// addRows adds rows four at a time: sums stay in registers for four additions, and four rows are on their way from
// memory at once.
func addRows[T float32 | uint16](sum []float32, x []T, nodes []uint32, coefficients []float32, byNode bool,
	values *[1 << 16]float32) {
	f := len(sum)
	c := [4]float32{1, 1, 1, 1}
	i := 0
	for ; i+4 <= len(nodes); i += 4 {
		switch {
		case byNode:
			c = [4]float32{coefficients[nodes[i]], coefficients[nodes[i+1]], coefficients[nodes[i+2]],
				coefficients[nodes[i+3]]}
		case coefficients != nil:
			c = [4]float32(coefficients[i:])
		}
		x0 := x[int(nodes[i])*f:][:f]
		x1 := x[int(nodes[i+1])*f:][:f]
		x2 := x[int(nodes[i+2])*f:][:f]
		x3 := x[int(nodes[i+3])*f:][:f]
		for j := range sum {
			s := sum[j] + float32(c[0]*valueOf(x0[j], values))
			s += float32(c[1] * valueOf(x1[j], values))
			s += float32(c[2] * valueOf(x2[j], values))
			s += float32(c[3] * valueOf(x3[j], values))
			sum[j] = s
		}
	}
	for ; i < len(nodes); i++ {
		switch {
		case byNode:
			c[0] = coefficients[nodes[i]]
		case coefficients != nil:
			c[0] = coefficients[i]
		}
		row := x[int(nodes[i])*f:][:f]
		for j := range sum {
			sum[j] += float32(c[0] * valueOf(row[j], values))
		}
	}
}
