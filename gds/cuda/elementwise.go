//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

var (
	axpyKernel      = newKernel("elementwise", "axpy")
	reluKernel      = newKernel("elementwise", "relu")
	reluGradKernel  = newKernel("elementwise", "relu_grad")
	preluKernel     = newKernel("elementwise", "prelu")
	preluGradKernel = newKernel("elementwise", "prelu_grad")
	mulKernel       = newKernel("elementwise", "mul")
	dropoutKernel   = newKernel("elementwise", "dropout")
)

func (s *stream) Axpy(alpha float32, x, y gds.Tensor) {
	s.enqueue("Axpy", []gds.Tensor{x, y}, func(c *call) {
		n := c.elements(x, y)
		c.real(alpha)
		c.each(axpyKernel, n)
	})
}

func (s *stream) ReLU(dst, src gds.Tensor) {
	s.enqueue("ReLU", []gds.Tensor{dst, src}, func(c *call) { c.each(reluKernel, c.elements(dst, src)) })
}

func (s *stream) ReLUGrad(dst, grad, out gds.Tensor, scale float32) {
	s.enqueue("ReLUGrad", []gds.Tensor{dst, grad, out}, func(c *call) {
		n := c.elements(dst, grad, out)
		c.real(scale)
		c.each(reluGradKernel, n)
	})
}

func (s *stream) PReLU(dst, src, slope gds.Tensor) {
	s.enqueue("PReLU", []gds.Tensor{dst, src, slope}, func(c *call) {
		c.require(slope.Rows == 1 && slope.Cols == 1, errShape)
		c.sameShape(dst, src)
		c.matrix(dst)
		c.matrix(src)
		c.vector(slope)
		c.size(dst.Rows, dst.Cols)
		c.each(preluKernel, dst.Rows*dst.Cols)
	})
}

// preluBlocks is how many blocks sum up the gradient of a slope, whatever the device.
const preluBlocks = 128

func (s *stream) PReLUGrad(dst, gradSlope, grad, src, slope gds.Tensor) {
	s.enqueue("PReLUGrad", []gds.Tensor{dst, gradSlope, grad, src, slope}, func(c *call) {
		c.require(slope.Rows == 1 && slope.Cols == 1 && gradSlope.Rows == 1 && gradSlope.Cols == 1, errShape)
		c.sameShape(dst, grad, src)
		n := dst.Rows * dst.Cols
		blocks := min((n+blockThreads-1)/blockThreads, preluBlocks)
		parts, out := c.scratch(4*blocks), c.typed(gradSlope, gds.Float32)
		c.matrix(dst)
		c.number(parts)
		c.matrix(grad)
		c.matrix(src)
		c.vector(slope)
		c.size(dst.Rows, dst.Cols)
		c.launch(preluGradKernel, C.hopfeed_shape{grid_x: C.uint(blocks), grid_y: 1, block_x: blockThreads, block_y: 1})
		columnSums{parts: parts, cols: 1, sums: 1, slabs: blocks}.addTo(c, out, 1, 0, 1)
	})
}

func (s *stream) Mul(dst, a, b gds.Tensor) {
	s.enqueue("Mul", []gds.Tensor{dst, a, b}, func(c *call) { c.each(mulKernel, c.elements(dst, a, b)) })
}

func (s *stream) Dropout(dst, src gds.Tensor, p float32, seed uint64) {
	s.dropout("Dropout", dst, src, p, seed, false)
}

func (s *stream) ReLUDropout(dst, src gds.Tensor, p float32, seed uint64) {
	s.dropout("ReLUDropout", dst, src, p, seed, true)
}

func (s *stream) dropout(name string, dst, src gds.Tensor, p float32, seed uint64, relu bool) {
	s.enqueue(name, []gds.Tensor{dst, src}, func(c *call) {
		if !(p >= 0 && p < 1) {
			c.err = fmt.Errorf("dropout probability %v: want 0 <= p < 1", p)
			return
		}
		n := c.elements(dst, src)
		c.number(rng.Start(seed))
		// Float32(hash) < p of internal/rng, without the conversion: scaling by 2^24 is exact.
		c.number(uint64(math.Ceil(float64(p) * (1 << 24))))
		c.real(1 / (1 - p))
		c.truth(relu)
		c.each(dropoutKernel, n)
	})
}
