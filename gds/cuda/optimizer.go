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
)

var (
	adamKernel       = newKernel("optimizer", "adam")
	squaresKernel    = newKernel("optimizer", "squares")
	clipFactorKernel = newKernel("optimizer", "clip_factor")
	clipKernel       = newKernel("optimizer", "clip")
)

func (s *stream) Adam(param, grad, m, v gds.Tensor, o gds.AdamOptions) {
	s.enqueue("Adam", []gds.Tensor{param, grad, m, v}, func(c *call) {
		if o.Step < 1 {
			c.err = fmt.Errorf("step %d: the first is 1", o.Step)
			return
		}
		step := float64(o.Step)
		n := c.elements(param, grad, m, v)
		c.real(float32(float64(o.LearningRate) / (1 - math.Pow(float64(o.Beta1), step))))
		c.real(float32(1 / math.Sqrt(1-math.Pow(float64(o.Beta2), step))))
		c.real(o.Beta1)
		c.real(o.Beta2)
		c.real(o.Epsilon)
		c.real(o.WeightDecay)
		c.each(adamKernel, n)
	})
}

// clipGrain is how many squares a block adds up.
const clipGrain = 1 << 14

func (s *stream) ClipNorm(x gds.Tensor, most float32) {
	s.enqueue("ClipNorm", []gds.Tensor{x}, func(c *call) {
		n := x.Cols
		c.vectors(n, x)
		start := c.typed(x, gds.Float32)
		if n == 0 {
			return
		}
		parts := (n + clipGrain - 1) / clipGrain
		sums := c.scratch(8 * (parts + 1))
		one := C.hopfeed_shape{grid_x: 1, grid_y: 1, block_x: blockThreads, block_y: 1}
		several := one
		several.grid_x = C.uint(parts)
		c.number(sums)
		c.number(start)
		c.size(n, clipGrain)
		c.launch(squaresKernel, several)
		c.number(sums)
		c.number(uint64(parts))
		c.real(most)
		c.launch(clipFactorKernel, one)
		c.number(start)
		c.number(uint64(n))
		c.number(sums + uint64(8*parts))
		c.each(clipKernel, n)
	})
}
