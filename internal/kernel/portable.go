package kernel

import "math"

var portable = implementation{
	name:    "portable",
	lanes:   1,
	columns: math.MaxInt,
	fewest:  1,
	numbers: 1,
	sumFloat32: func(sums, x []float32, _, columns int, nodes []uint32, lengths []int, coefficients []float32,
		byNode bool, _ int) int {
		return sumLists(addFloat32, sums, x, columns, nodes, lengths, coefficients, byNode)
	},
	sumFloat16: func(sums []float32, x []uint16, _, columns int, nodes []uint32, lengths []int, coefficients []float32,
		byNode bool, _ int) int {
		return sumLists(adderOfCodes(float16Values()), sums, x, columns, nodes, lengths, coefficients, byNode)
	},
	sumBFloat16: func(sums []float32, x []uint16, _, columns int, nodes []uint32, lengths []int, coefficients []float32,
		byNode bool, _ int) int {
		return sumLists(adderOfCodes(bfloat16Values()), sums, x, columns, nodes, lengths, coefficients, byNode)
	},
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
		finite := true
		for i, s := range factors {
			row := dst[i*columns:][:columns]
			for j, v := range src[i*columns:][:columns] {
				row[j] = Float32ToFloat16(float32(s * v))
				finite = finite && row[j]&0x7c00 != 0x7c00
			}
		}
		return finite
	},
	scaleBFloat16: func(dst []uint16, src, factors []float32, columns int, _ bool) bool {
		finite := true
		for i, s := range factors {
			row := dst[i*columns:][:columns]
			for j, v := range src[i*columns:][:columns] {
				row[j] = Float32ToBFloat16(float32(s * v))
				finite = finite && row[j]&0x7f80 != 0x7f80
			}
		}
		return finite
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
		for n := dotSums / 2; n > 0; n /= 2 {
			for i := range n {
				sums[i] += sums[n+i]
			}
		}
		return sums[0]
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
		for n := expSums / 2; n > 0; n /= 2 {
			for i := range n {
				sums[i] += sums[n+i]
			}
		}
		return sums[0]
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

// sumLists adds the rows of each list, from 0. The portable loops take all columns, so that these are the stride too.
func sumLists[T float32 | uint16](add func(sum []float32, x []T, nodes []uint32, coefficients []float32, byNode bool),
	sums []float32, x []T, columns int, nodes []uint32, lengths []int, coefficients []float32, byNode bool) int {
	added := 0
	for l, k := range lengths {
		sum := sums[l*columns:][:columns]
		clear(sum)
		c := coefficients
		if c != nil && !byNode {
			c = c[added:][:k]
		}
		add(sum, x, nodes[added:][:k], c, byNode)
		added += k
	}
	return added
}

// addFloat32 is the inner loop of SumFloat32, four rows at a time: sums stay in registers for four additions, and
// four rows are on their way from memory at once.
func addFloat32(sum, x []float32, nodes []uint32, coefficients []float32, byNode bool) {
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
			s := sum[j] + float32(c[0]*x0[j])
			s += float32(c[1] * x1[j])
			s += float32(c[2] * x2[j])
			s += float32(c[3] * x3[j])
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
			sum[j] += float32(c[0] * row[j])
		}
	}
}

// adderOfCodes is addCodes with its table.
func adderOfCodes(values *[1 << 16]float32) func(sum []float32, x []uint16, nodes []uint32, coefficients []float32,
	byNode bool) {
	return func(sum []float32, x []uint16, nodes []uint32, coefficients []float32, byNode bool) {
		addCodes(sum, x, nodes, coefficients, byNode, values)
	}
}

// addCodes is addFloat32 on 16-bit numbers, whose values are found in a table.
func addCodes(sum []float32, x []uint16, nodes []uint32, coefficients []float32, byNode bool,
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
			s := sum[j] + float32(c[0]*values[x0[j]])
			s += float32(c[1] * values[x1[j]])
			s += float32(c[2] * values[x2[j]])
			s += float32(c[3] * values[x3[j]])
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
			sum[j] += float32(c[0] * values[row[j]])
		}
	}
}
