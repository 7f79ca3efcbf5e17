//go:build cuda && cgo && linux

package cuda

// losses launches a kernel for the loss of each row, after losses, gradient, output and the weights of rows, and adds
// the losses up.
func (c *call) losses(kernel string, args ...any) {
	out := c.Tensors[2]
	if out.Rows == 0 {
		return
	}
	losses := c.scratch(8 * out.Rows)
	c.pass(losses, matrix(1), matrix(2), vector(3))
	c.eachRow(kernel, out.Rows, args...)
	c.launch("add_losses", blocks(1), vector(0), losses, out.Rows)
}

func (c *call) softmaxCrossEntropy() {
	logits := c.Tensors[2]
	c.losses("softmax_cross_entropy", vector(4), vector(5), logits.Rows, logits.Cols, c.Alpha, faults{})
}

func (c *call) sigmoidCrossEntropy() {
	if logits := c.Tensors[2]; logits.Cols > 0 {
		c.losses("sigmoid_cross_entropy", matrix(4), logits.Rows, logits.Cols, c.Alpha, faults{})
	}
}

func (c *call) squaredError() { c.errorLoss(true) }

func (c *call) absoluteError() { c.errorLoss(false) }

func (c *call) errorLoss(squared bool) {
	if out := c.Tensors[2]; out.Cols > 0 {
		c.losses("error_loss", matrix(4), vector(5), out.Rows, out.Cols, c.Alpha, squared)
	}
}
