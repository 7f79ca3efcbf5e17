package gdstest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

// product is op(a) op(b) in float64, and the sum of the terms' magnitudes.
func product(transA, transB bool, m, n, inner int, a, b []float32) (sum, magnitude []float64) {
	sum, magnitude = make([]float64, m*n), make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range inner {
				x, y := i*inner+l, l*n+j
				if transA {
					x = l*m + i
				}
				if transB {
					y = j*inner + l
				}
				term := float64(a[x]) * float64(b[y])
				sum[i*n+j] += term
				magnitude[i*n+j] += math.Abs(term)
			}
		}
	}
	return sum, magnitude
}

// sides are the rows and columns of a matrix that is given transposed, or not.
func sides(transposed bool, rows, cols int) (int, int) {
	if transposed {
		return cols, rows
	}
	return rows, cols
}

var denseTests = []test{
	{"Gemm multiplies matrices in all orientations", func(b *fixture) {
		for _, s := range [][3]int{ // m, n, inner
			{1, 1, 1}, {0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {1, 9, 5}, {7, 1, 3}, {16, 16, 16}, {17, 15, 33},
			{5, 3, 513}, {130, 65, 64}, {65, 200, 20}, {20, 8, 1100},
		} {
			m, n, inner := s[0], s[1], s[2]
			for which := range 4 {
				transA, transB := which&1 != 0, which&2 != 0
				for _, l := range layouts {
					for _, scale := range [][2]float32{{1, 0}, {1, 1}, {-0.75, 0.3}, {0, 2}} {
						alpha, beta := scale[0], scale[1]
						name := fmt.Sprintf("m=%d,n=%d,k=%d,transA=%t,transB=%t,alpha=%v,beta=%v,%s", m, n, inner,
							transA, transB, alpha, beta, l.name)
						b.at(name, func(b *fixture) {
							va, vb := b.normal(m*inner), b.normal(inner*n)
							rowsA, colsA := sides(transA, m, inner)
							rowsB, colsB := sides(transB, inner, n)
							x, y := b.floats(l, rowsA, colsA, va), b.floats(l, rowsB, colsB, vb)
							var before []float32 // NaN where beta = 0
							if beta != 0 {
								before = b.normal(m * n)
							}
							c := b.floats(l, m, n, before)
							b.stream.Gemm(transA, transB, alpha, x.Tensor, y.Tensor, beta, c.Tensor)
							sum, magnitude := product(transA, transB, m, n, inner, va, vb)
							b.expect(b.read(c), m*n, func(i int) (float64, float64) {
								value, size := float64(alpha)*sum[i], math.Abs(float64(alpha))*magnitude[i]
								if beta != 0 {
									value += float64(beta) * float64(before[i])
									size += math.Abs(float64(beta) * float64(before[i]))
								}
								return value, float64(inner+4) * unit * size
							})
						})
					}
				}
			}
		}
	}},
	{"Gemm gives the same bits each time", func(b *fixture) {
		x, y := b.floats(strided, 300, 700, b.normal(300*700)), b.floats(dense, 700, 65, b.normal(700*65))
		var first []byte
		for i := range 5 {
			c := b.floats(dense, 300, 65, nil)
			b.stream.Gemm(false, false, 1, x.Tensor, y.Tensor, 0, c.Tensor)
			if got := b.bytes(c); i == 0 {
				first = got
			} else if !bytes.Equal(got, first) {
				b.Error("another result")
			}
		}
	}},
	{"Gemm passes on what is not a number", func(b *fixture) {
		// Also where the other factor is zero.
		nan := float32(math.NaN())
		x, y := b.floats(dense, 1, 2, []float32{0, 1}), b.floats(dense, 2, 2, []float32{nan, 1, 1, 1})
		c := b.floats(dense, 1, 2, nil)
		b.stream.Gemm(false, false, 1, x.Tensor, y.Tensor, 0, c.Tensor)
		if got := b.read(c); got[0] == got[0] || got[1] != 1 {
			b.Errorf("got %v, want NaN and 1", got)
		}
	}},
	{"Transpose adds a transposed matrix", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, scale := range [][2]float32{{1, 0}, {-0.75, 1}, {2, 0.3}} {
				alpha, beta := scale[0], scale[1]
				values := b.normal(rows * cols)
				var before []float32 // NaN where beta = 0
				if beta != 0 {
					before = b.normal(rows * cols)
				}
				x, y := b.floats(l, rows, cols, values), b.floats(l, cols, rows, before)
				b.stream.Transpose(alpha, x.Tensor, beta, y.Tensor)
				b.expect(b.read(y), rows*cols, func(at int) (want, tolerance float64) {
					i, j := at/rows, at%rows
					want = float64(alpha) * float64(values[j*cols+i])
					size := math.Abs(want)
					if beta != 0 {
						old := float64(beta) * float64(before[at])
						want, size = want+old, size+math.Abs(old)
					}
					return want, 2 * unit * size
				})
			}
		})
	}},
	{"SumRows adds up columns", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, beta := range []float32{0, 1, -0.5} {
				values := b.normal(rows * cols)
				var before []float32
				if beta != 0 {
					before = b.normal(cols)
				}
				x, sum := b.floats(l, rows, cols, values), b.floats(shifted, 1, cols, before)
				b.stream.SumRows(sum.Tensor, beta, x.Tensor)
				b.expect(b.read(sum), cols, func(j int) (want, tolerance float64) {
					var size float64
					if beta != 0 {
						want = float64(beta) * float64(before[j])
						size = math.Abs(want)
					}
					for i := range rows {
						v := float64(values[i*cols+j])
						want, size = want+v, size+math.Abs(v)
					}
					return want, float64(rows+2) * unit * size
				})
			}
		})
	}},
	{"a column of a wider matrix is a matrix", func(b *fixture) {
		// As when the hops of a model are laid side by side.
		left, right := b.normal(40*6), b.normal(40*3)
		wide := b.floats(shifted, 40, 9, nil)
		b.stream.Copy(wide.Columns(0, 6), b.floats(dense, 40, 6, left).Tensor)
		b.stream.Copy(wide.Columns(6, 9), b.floats(dense, 40, 3, right).Tensor)
		middle := b.floats(dense, 20, 3, nil)
		b.stream.Copy(middle.Tensor, wide.Slice(10, 30).Columns(6, 9))
		if !bytes.Equal(b.bytes(middle), dtype.BytesOf(right[30:90])) {
			b.Error("other numbers")
		}
		b.stream.Axpy(1, wide.Columns(0, 3), wide.Columns(6, 9))
		got := b.read(wide)
		b.expect(got, 40*9, func(at int) (float64, float64) {
			i, j := at/9, at%9
			if j < 6 {
				return float64(left[i*6+j]), 0
			}
			want := float64(right[i*3+j-6]) + float64(left[i*6+j-6])
			return want, unit * math.Abs(want)
		})
	}},
}
