//go:build cuda && cgo && linux

package cuda

import "github.com/hopfeed/hopfeed/gds"

var (
	sumSquaresKernel           = newKernel("norm", "sum_squares")
	normalizeColumnsKernel     = newKernel("norm", "normalize_columns")
	normalizeColumnsSumsKernel = newKernel("norm", "normalize_columns_sums")
	normalizeColumnsGradKernel = newKernel("norm", "normalize_columns_grad")
	normalizeRowsKernel        = newKernel("norm", "normalize_rows")
	normalizeRowsSumsKernel    = newKernel("norm", "normalize_rows_sums")
	normalizeRowsGradKernel    = newKernel("norm", "normalize_rows_grad")
)

// vectors requires that all are [1,n].
func (c *call) vectors(n int, tensors ...gds.Tensor) {
	for _, t := range tensors {
		c.require(isVector(t, n), errShape)
	}
}

func (s *stream) SumSquares(dst, src, mean gds.Tensor) {
	s.enqueue("SumSquares", []gds.Tensor{dst, src, mean}, func(c *call) {
		c.vectors(src.Cols, dst, mean)
		sums := c.columnSums(src.Rows, src.Cols, 1)
		out := c.typed(dst, gds.Float32)
		c.number(sums.parts)
		c.matrix(src)
		c.vector(mean)
		sums.launch(c, sumSquaresKernel)
		sums.addTo(c, out, 0, 0, 1)
	})
}

func (s *stream) NormalizeColumns(dst, src, mean, variance, gain, shift gds.Tensor, epsilon float32) {
	s.enqueue("NormalizeColumns", []gds.Tensor{dst, src, mean, variance, gain, shift}, func(c *call) {
		c.sameShape(dst, src)
		c.vectors(src.Cols, mean, variance, gain, shift)
		c.matrix(dst)
		c.matrix(src)
		c.vector(mean)
		c.vector(variance)
		c.vector(gain)
		c.vector(shift)
		c.size(src.Rows, src.Cols)
		c.real(epsilon)
		c.each(normalizeColumnsKernel, src.Rows*src.Cols)
	})
}

func (s *stream) NormalizeColumnsSums(sums, grad, src, mean, variance gds.Tensor, epsilon float32) {
	s.enqueue("NormalizeColumnsSums", []gds.Tensor{sums, grad, src, mean, variance}, func(c *call) {
		c.sameShape(grad, src)
		c.vectors(2*src.Cols, sums)
		c.vectors(src.Cols, mean, variance)
		of := c.columnSums(src.Rows, src.Cols, 2)
		out := c.typed(sums, gds.Float32)
		c.number(of.parts)
		c.matrix(grad)
		c.matrix(src)
		c.vector(mean)
		c.vector(variance)
		of.launch(c, normalizeColumnsSumsKernel, epsilon)
		of.addTo(c, out, 0, 0, 2)
	})
}

func (s *stream) NormalizeColumnsGrad(dst, grad, src, mean, variance, gain, sums gds.Tensor, part, epsilon float32) {
	s.enqueue("NormalizeColumnsGrad", []gds.Tensor{dst, grad, src, mean, variance, gain, sums}, func(c *call) {
		c.sameShape(dst, grad, src)
		c.vectors(src.Cols, mean, variance, gain)
		c.vectors(2*src.Cols, sums)
		c.matrix(dst)
		c.matrix(grad)
		c.matrix(src)
		c.vector(mean)
		c.vector(variance)
		c.vector(gain)
		c.vector(sums)
		c.size(src.Rows, src.Cols)
		c.real(part)
		c.real(epsilon)
		c.each(normalizeColumnsGradKernel, src.Rows*src.Cols)
	})
}

func (s *stream) NormalizeRows(dst, stats, src, gain, shift gds.Tensor, epsilon float32) {
	s.enqueue("NormalizeRows", []gds.Tensor{dst, stats, src, gain, shift}, func(c *call) {
		c.sameShape(dst, src)
		c.vectors(src.Cols, gain, shift)
		c.require(stats.Rows == src.Rows && stats.Cols == 2, errShape)
		c.matrix(dst)
		c.matrix(stats)
		c.matrix(src)
		c.vector(gain)
		c.vector(shift)
		c.size(src.Rows, src.Cols)
		c.real(epsilon)
		c.eachRow(normalizeRowsKernel, src.Rows)
	})
}

func (s *stream) NormalizeRowsGrad(dst, gradGain, gradShift, grad, src, stats, gain gds.Tensor) {
	s.enqueue("NormalizeRowsGrad", []gds.Tensor{dst, gradGain, gradShift, grad, src, stats, gain}, func(c *call) {
		c.sameShape(dst, grad, src)
		c.vectors(src.Cols, gradGain, gradShift, gain)
		c.require(stats.Rows == src.Rows && stats.Cols == 2, errShape)
		ofGain, ofShift := c.typed(gradGain, gds.Float32), c.typed(gradShift, gds.Float32)
		// The sums first, as dst may be grad.
		sums := c.columnSums(src.Rows, src.Cols, 2)
		c.number(sums.parts)
		c.matrix(grad)
		c.matrix(src)
		c.matrix(stats)
		sums.launch(c, normalizeRowsSumsKernel)
		sums.addTo(c, ofGain, 1, 0, 1)
		sums.addTo(c, ofShift, 1, 1, 1)
		c.matrix(dst)
		c.matrix(grad)
		c.matrix(src)
		c.matrix(stats)
		c.vector(gain)
		c.size(src.Rows, src.Cols)
		c.eachRow(normalizeRowsGradKernel, src.Rows)
	})
}
