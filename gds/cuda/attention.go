//go:build cuda && cgo && linux

package cuda

import "math"

// heads launches a kernel that has a warp for each head of the rows of tensor output, after the tensors.
func (c *call) heads(kernel string, output int, tensors ...any) {
	out := c.Tensors[output]
	if out.Cols == 0 {
		return
	}
	width := out.Cols / c.Tokens
	c.pass(tensors...)
	c.eachRow(kernel, out.Rows*c.Heads, out.Rows, width, c.Tokens, c.Heads,
		float32(1/math.Sqrt(float64(width/c.Heads))))
}

func (c *call) attention() { c.heads("attention", 0, matrix(0), matrix(1), matrix(2)) }

func (c *call) attentionGrad() {
	c.heads("attention_grad", 1, matrix(0), matrix(1), matrix(2), matrix(3))
}

func (c *call) weighTokensGrad() {
	grad, weights := c.Tensors[2], c.Tensors[3]
	c.eachRow("weigh_tokens_grad", weights.Rows*weights.Cols, matrix(0), matrix(1), matrix(2), matrix(3), matrix(4),
		grad.Rows, grad.Cols, weights.Cols)
}
