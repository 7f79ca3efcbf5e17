package kernel

var portable = implementation{
	name:  "portable",
	lanes: 1,
	addFloat32: func(sum, x []float32, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, _ int) int {
		return addFloat32(sum, x, stride, nodes[:k], coefficients, byNode)
	},
	addFloat16: func(sum []float32, x []uint16, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, _ int) int {
		return addCodes(sum, x, stride, nodes[:k], coefficients, byNode, float16Values())
	},
	addBFloat16: func(sum []float32, x []uint16, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, _ int) int {
		return addCodes(sum, x, stride, nodes[:k], coefficients, byNode, bfloat16Values())
	},
	scaleFloat32: func(dst, src []float32, s float32) bool {
		finite := true
		for j, v := range src {
			dst[j] = s * v
			finite = finite && isFinite(dst[j])
		}
		return finite
	},
	scaleFloat16: func(dst []uint16, src []float32, s float32) bool {
		finite := true
		for j, v := range src {
			dst[j] = Float32ToFloat16(float32(s * v))
			finite = finite && dst[j]&0x7c00 != 0x7c00
		}
		return finite
	},
	scaleBFloat16: func(dst []uint16, src []float32, s float32) bool {
		finite := true
		for j, v := range src {
			dst[j] = Float32ToBFloat16(float32(s * v))
			finite = finite && dst[j]&0x7f80 != 0x7f80
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
}

// addFloat32 is the loop of AddFloat32, four rows at a time: sums stay in
// registers for four additions, and four rows are on their way from memory at once.
func addFloat32(sum, x []float32, stride int, nodes []uint32, coefficients []float32, byNode bool) int {
	f := len(sum)
	c := [4]float32{1, 1, 1, 1}
	i := 0
	for ; i+4 <= len(nodes); i += 4 {
		switch {
		case byNode:
			c = [4]float32{coefficients[nodes[i]], coefficients[nodes[i+1]], coefficients[nodes[i+2]], coefficients[nodes[i+3]]}
		case coefficients != nil:
			c = [4]float32(coefficients[i:])
		}
		x0 := x[int(nodes[i])*stride:][:f]
		x1 := x[int(nodes[i+1])*stride:][:f]
		x2 := x[int(nodes[i+2])*stride:][:f]
		x3 := x[int(nodes[i+3])*stride:][:f]
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
		row := x[int(nodes[i])*stride:][:f]
		for j := range sum {
			sum[j] += float32(c[0] * row[j])
		}
	}
	return i
}

// addCodes is addFloat32 on 16-bit numbers, whose values are found in a table.
func addCodes(sum []float32, x []uint16, stride int, nodes []uint32, coefficients []float32, byNode bool, values *[1 << 16]float32) int {
	f := len(sum)
	c := [4]float32{1, 1, 1, 1}
	i := 0
	for ; i+4 <= len(nodes); i += 4 {
		switch {
		case byNode:
			c = [4]float32{coefficients[nodes[i]], coefficients[nodes[i+1]], coefficients[nodes[i+2]], coefficients[nodes[i+3]]}
		case coefficients != nil:
			c = [4]float32(coefficients[i:])
		}
		x0 := x[int(nodes[i])*stride:][:f]
		x1 := x[int(nodes[i+1])*stride:][:f]
		x2 := x[int(nodes[i+2])*stride:][:f]
		x3 := x[int(nodes[i+3])*stride:][:f]
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
		row := x[int(nodes[i])*stride:][:f]
		for j := range sum {
			sum[j] += float32(c[0] * values[row[j]])
		}
	}
	return i
}
