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

func (c *call) softmaxRows() {
	src := c.Tensors[1]
	c.eachRow("softmax_rows", src.Rows, matrix(0), matrix(1), src.Rows, src.Cols)
}

func (c *call) softmaxRowsGrad() {
	out := c.Tensors[2]
	c.eachRow("softmax_rows_grad", out.Rows, matrix(0), matrix(1), matrix(2), out.Rows, out.Cols)
}

func (c *call) weighTokens() {
	dst, weights := c.Tensors[0], c.Tensors[1]
	c.each("weigh_tokens", dst.Rows*dst.Cols, matrix(0), matrix(1), matrix(2), dst.Rows, dst.Cols, weights.Cols)
}

func (c *call) weighTokensGrad() {
	grad, weights := c.Tensors[2], c.Tensors[3]
	c.eachRow("weigh_tokens_grad", weights.Rows*weights.Cols, matrix(0), matrix(1), matrix(2), matrix(3), matrix(4),
		grad.Rows, grad.Cols, weights.Cols)
}
