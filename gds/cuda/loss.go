//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import "github.com/hopfeed/hopfeed/gds"

var (
	softmaxCrossEntropyKernel = newKernel("loss", "softmax_cross_entropy")
	sigmoidCrossEntropyKernel = newKernel("loss", "sigmoid_cross_entropy")
	errorLossKernel           = newKernel("loss", "error_loss")
	addLossesKernel           = newKernel("loss", "add_losses")
	countCorrectKernel        = newKernel("loss", "count_correct")
)

// losses begins a loss of each row of out: it passes where they go, the gradient, or none, out, and the
// weights of rows, or none.
func (c *call) losses(loss, grad, out, rows gds.Tensor) (losses uint64) {
	c.require(loss.Rows == 1 && loss.Cols == 1, errShape)
	c.require(grad == gds.Tensor{} || grad.Rows == out.Rows && grad.Cols == out.Cols, errShape)
	c.typed(loss, gds.Float32)
	losses = c.scratch(8 * out.Rows)
	c.number(losses)
	c.matrix(grad)
	c.matrix(out)
	c.require(rows == gds.Tensor{} || isVector(rows, out.Rows), errShape)
	c.vector(rows)
	return losses
}

// addLosses adds all rows' to loss.
func (c *call) addLosses(loss gds.Tensor, losses uint64, rows int) {
	if rows == 0 || c.err != nil {
		return
	}
	c.vector(loss)
	c.number(losses)
	c.number(uint64(rows))
	c.launch(addLossesKernel, C.hopfeed_shape{grid_x: 1, grid_y: 1, block_x: blockThreads, block_y: 1})
}

func (s *stream) SoftmaxCrossEntropy(loss, grad, logits, labels, weights, rows gds.Tensor, scale float32) {
	s.enqueue("SoftmaxCrossEntropy", []gds.Tensor{loss, grad, logits, labels, weights, rows}, func(c *call) {
		c.vectors(logits.Rows, labels)
		c.require(weights == gds.Tensor{} || isVector(weights, logits.Cols), errShape)
		losses := c.losses(loss, grad, logits, rows)
		c.number(c.typed(labels, gds.Int32))
		c.vector(weights)
		c.size(logits.Rows, logits.Cols)
		c.real(scale)
		c.checked()
		c.eachRow(softmaxCrossEntropyKernel, logits.Rows)
		c.addLosses(loss, losses, logits.Rows)
	})
}

func (s *stream) SigmoidCrossEntropy(loss, grad, logits, labels, rows gds.Tensor, scale float32) {
	s.enqueue("SigmoidCrossEntropy", []gds.Tensor{loss, grad, logits, labels, rows}, func(c *call) {
		c.sameShape(logits, labels)
		losses := c.losses(loss, grad, logits, rows)
		c.number(c.typed(labels, gds.Int8))
		c.number(uint64(labels.Stride))
		c.size(logits.Rows, logits.Cols)
		c.real(scale)
		c.checked()
		if logits.Cols > 0 {
			c.eachRow(sigmoidCrossEntropyKernel, logits.Rows)
			c.addLosses(loss, losses, logits.Rows)
		}
	})
}

func (s *stream) SquaredError(loss, grad, out, labels, units, rows gds.Tensor, scale float32) {
	s.errorLoss("SquaredError", loss, grad, out, labels, units, rows, scale, true)
}

func (s *stream) AbsoluteError(loss, grad, out, labels, units, rows gds.Tensor, scale float32) {
	s.errorLoss("AbsoluteError", loss, grad, out, labels, units, rows, scale, false)
}

func (s *stream) errorLoss(name string, loss, grad, out, labels, units, rows gds.Tensor, scale float32, squared bool) {
	s.enqueue(name, []gds.Tensor{loss, grad, out, labels, units, rows}, func(c *call) {
		c.sameShape(out, labels)
		c.vectors(out.Cols, units)
		losses := c.losses(loss, grad, out, rows)
		c.matrix(labels)
		c.vector(units)
		c.size(out.Rows, out.Cols)
		c.real(scale)
		c.truth(squared)
		if out.Cols > 0 {
			c.eachRow(errorLossKernel, out.Rows)
			c.addLosses(loss, losses, out.Rows)
		}
	})
}

func (s *stream) CountCorrect(count, logits, labels gds.Tensor) {
	s.enqueue("CountCorrect", []gds.Tensor{count, logits, labels}, func(c *call) {
		c.vectors(logits.Rows, labels)
		c.vectors(2, count)
		c.number(c.typed(count, gds.Int64))
		c.matrix(logits)
		c.number(c.typed(labels, gds.Int32))
		c.size(logits.Rows, logits.Cols)
		c.eachRow(countCorrectKernel, logits.Rows)
	})
}
