//go:build cuda && cgo && linux

package cuda

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
)

var (
	attentionKernel       = newKernel("attention", "attention")
	attentionGradKernel   = newKernel("attention", "attention_grad")
	softmaxRowsKernel     = newKernel("attention", "softmax_rows")
	softmaxRowsGradKernel = newKernel("attention", "softmax_rows_grad")
	weighTokensKernel     = newKernel("attention", "weigh_tokens")
	weighTokensGradKernel = newKernel("attention", "weigh_tokens_grad")
)

// tokens requires shapes of Attention or its backward pass: output [n, T*w], weights [n, H*T*T] and qkv
// [n, T*3w], or their gradients.
func (c *call) tokens(output, weights, qkv gds.Tensor, tokens, heads int) {
	if tokens < 1 || heads < 1 || output.Cols%tokens != 0 || output.Cols/tokens%heads != 0 {
		c.require(false, fmt.Errorf("%d columns are not %d tokens for %d heads: %w", output.Cols, tokens, heads,
			errShape))
		return
	}
	c.require(qkv.Rows == output.Rows && qkv.Cols == 3*output.Cols && weights.Rows == output.Rows &&
		weights.Cols == heads*tokens*tokens, errShape)
}

// heads passes what all heads have in common, and launches a kernel that has a warp for each.
func (c *call) heads(k *kernel, output gds.Tensor, tokens, heads int) {
	if c.err != nil {
		return
	}
	width := output.Cols / tokens
	c.size(output.Rows, width)
	c.size(tokens, heads)
	c.real(float32(1 / math.Sqrt(float64(width/heads))))
	if output.Cols > 0 {
		c.eachRow(k, output.Rows*heads)
	}
}

func (s *stream) Attention(dst, weights, qkv gds.Tensor, tokens, heads int) {
	s.enqueue("Attention", []gds.Tensor{dst, weights, qkv}, func(c *call) {
		c.tokens(dst, weights, qkv, tokens, heads)
		c.matrix(dst)
		c.matrix(weights)
		c.matrix(qkv)
		c.heads(attentionKernel, dst, tokens, heads)
	})
}

func (s *stream) AttentionGrad(dst, grad, weights, qkv gds.Tensor, tokens, heads int) {
	s.enqueue("AttentionGrad", []gds.Tensor{dst, grad, weights, qkv}, func(c *call) {
		c.tokens(grad, weights, qkv, tokens, heads)
		c.sameShape(dst, qkv)
		c.matrix(dst)
		c.matrix(grad)
		c.matrix(weights)
		c.matrix(qkv)
		c.heads(attentionGradKernel, grad, tokens, heads)
	})
}

func (s *stream) SoftmaxRows(dst, src gds.Tensor) {
	s.enqueue("SoftmaxRows", []gds.Tensor{dst, src}, func(c *call) {
		c.sameShape(dst, src)
		c.matrix(dst)
		c.matrix(src)
		c.size(src.Rows, src.Cols)
		c.eachRow(softmaxRowsKernel, src.Rows)
	})
}

func (s *stream) SoftmaxRowsGrad(dst, grad, out gds.Tensor) {
	s.enqueue("SoftmaxRowsGrad", []gds.Tensor{dst, grad, out}, func(c *call) {
		c.sameShape(dst, grad, out)
		c.matrix(dst)
		c.matrix(grad)
		c.matrix(out)
		c.size(out.Rows, out.Cols)
		c.eachRow(softmaxRowsGradKernel, out.Rows)
	})
}

// weights requires that row is [n,w], weights [n,T] and tokens [n, T*w].
func (c *call) weights(row, weights, tokens gds.Tensor) {
	c.require(row.Rows == tokens.Rows && weights.Rows == tokens.Rows && weights.Cols*row.Cols == tokens.Cols, errShape)
}

func (s *stream) WeighTokens(dst, weights, tokens gds.Tensor) {
	s.enqueue("WeighTokens", []gds.Tensor{dst, weights, tokens}, func(c *call) {
		c.weights(dst, weights, tokens)
		c.matrix(dst)
		c.matrix(weights)
		c.matrix(tokens)
		c.size(dst.Rows, dst.Cols)
		c.number(uint64(weights.Cols))
		c.each(weighTokensKernel, dst.Rows*dst.Cols)
	})
}

func (s *stream) WeighTokensGrad(gradWeights, gradTokens, grad, weights, tokens gds.Tensor) {
	s.enqueue("WeighTokensGrad", []gds.Tensor{gradWeights, gradTokens, grad, weights, tokens}, func(c *call) {
		c.weights(grad, weights, tokens)
		c.sameShape(gradWeights, weights)
		c.sameShape(gradTokens, tokens)
		c.matrix(gradWeights)
		c.matrix(gradTokens)
		c.matrix(grad)
		c.matrix(weights)
		c.matrix(tokens)
		c.size(grad.Rows, grad.Cols)
		c.number(uint64(weights.Cols))
		c.eachRow(weighTokensGradKernel, weights.Rows*weights.Cols)
	})
}
