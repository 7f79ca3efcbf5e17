//go:build cuda && cgo && linux

package cuda

import "math"

func (c *call) adam() {
	o := c.Adam
	step := float64(o.Step)
	c.elementwise("adam", 4, float32(float64(o.LearningRate)/(1-math.Pow(float64(o.Beta1), step))),
		float32(1/math.Sqrt(1-math.Pow(float64(o.Beta2), step))), o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay)
}

// clipGrain is how many squares a thread block adds up.
const clipGrain = 1 << 14

func (c *call) clipNorm() {
	n := c.Tensors[0].Cols
	parts := (n + clipGrain - 1) / clipGrain
	sums := c.scratch(8 * (parts + 1))
	c.launch("squares", blocks(parts), sums, vector(0), n, clipGrain)
	c.launch("clip_factor", blocks(min(parts, 1)), sums, parts, c.Alpha)
	c.each("clip", n, vector(0), n, sums+uint64(8*parts))
}
