package preprop

import "github.com/hopfeed/hopfeed/internal/dtype"

// accumulate sums one block of rows of the matrix x [n, len(sum)]:
//
//	for j := range sum {
//		sum[j] = 0
//		for i, u := range nodes {
//			sum[j] += float32(coefficients[i] * x[int(u)*len(sum)+j])
//		}
//	}
//
// The conversion keeps the product from being fused with the sum, so the result
// is the same bits on every processor. nodes and coefficients are of one length.
func accumulate(sum, x []float32, nodes []uint32, coefficients []float32) {
	f := len(sum)
	clear(sum)
	// Four rows at a time: the sums stay in registers for four additions, and
	// four rows are on their way from memory at once.
	for len(nodes) >= 4 && len(coefficients) >= 4 {
		c0, c1, c2, c3 := coefficients[0], coefficients[1], coefficients[2], coefficients[3]
		x0 := x[int(nodes[0])*f:][:f]
		x1 := x[int(nodes[1])*f:][:f]
		x2 := x[int(nodes[2])*f:][:f]
		x3 := x[int(nodes[3])*f:][:f]
		for j := range sum {
			s := sum[j] + float32(c0*x0[j])
			s += float32(c1 * x1[j])
			s += float32(c2 * x2[j])
			s += float32(c3 * x3[j])
			sum[j] = s
		}
		nodes, coefficients = nodes[4:], coefficients[4:]
	}
	for i, u := range nodes {
		c, row := coefficients[i], x[int(u)*f:][:f]
		for j := range sum {
			sum[j] += float32(c * row[j])
		}
	}
}

// accumulateHalf is accumulate on a matrix of 16-bit numbers, whose values are
// found in a table.
func accumulateHalf(sum []float32, x []uint16, nodes []uint32, coefficients []float32, values *[1 << 16]float32) {
	f := len(sum)
	clear(sum)
	for len(nodes) >= 4 && len(coefficients) >= 4 {
		c0, c1, c2, c3 := coefficients[0], coefficients[1], coefficients[2], coefficients[3]
		x0 := x[int(nodes[0])*f:][:f]
		x1 := x[int(nodes[1])*f:][:f]
		x2 := x[int(nodes[2])*f:][:f]
		x3 := x[int(nodes[3])*f:][:f]
		for j := range sum {
			s := sum[j] + float32(c0*values[x0[j]])
			s += float32(c1 * values[x1[j]])
			s += float32(c2 * values[x2[j]])
			s += float32(c3 * values[x3[j]])
			sum[j] = s
		}
		nodes, coefficients = nodes[4:], coefficients[4:]
	}
	for i, u := range nodes {
		c, row := coefficients[i], x[int(u)*f:][:f]
		for j := range sum {
			sum[j] += float32(c * values[row[j]])
		}
	}
}

// accumulator is accumulate on the matrix x.
func accumulator(x *matrix) func(sum []float32, nodes []uint32, coefficients []float32) {
	if x.dtype == dtype.Float32 {
		values := dtype.Float32s(x.buf.Bytes())
		return func(sum []float32, nodes []uint32, coefficients []float32) {
			accumulate(sum, values, nodes, coefficients)
		}
	}
	codes := dtype.Uint16s(x.buf.Bytes())
	values := decodeAll(x.dtype)
	return func(sum []float32, nodes []uint32, coefficients []float32) {
		accumulateHalf(sum, codes, nodes, coefficients, values)
	}
}

// decodeAll is the value of every code of a 16-bit type.
func decodeAll(t dtype.DType) *[1 << 16]float32 {
	codes := make([]uint16, 1<<16)
	for i := range codes {
		codes[i] = uint16(i)
	}
	values := new([1 << 16]float32)
	dtype.Decode(values[:], dtype.BytesOf(codes), t)
	return values
}
