package trainer

import "github.com/hopfeed/hopfeed/gds"

// The tokens of a row, one for each hop, lie side by side in a matrix [n, tokens*width]. The same
// memory is a matrix [n*tokens, width], which linear layers and normalisation work on.

// asTokens is a dense matrix [n, tokens*width] as [n*tokens, width].
func asTokens(x gds.Tensor, tokens int) gds.Tensor { return reshape(x, x.Rows*tokens, x.Cols/tokens) }

// reshape is a dense matrix as one of other rows and columns, with as many elements.
func reshape(x gds.Tensor, rows, cols int) gds.Tensor {
	x.Rows, x.Cols, x.Stride = rows, cols, cols
	return x
}

// attention is multi-head attention among the tokens of a row, with the parameters of PyTorch's
// nn.MultiheadAttention.
type attention struct {
	tokens, heads int
	in, out       *linear
	qkv, attended *activation
	weights       *activation
}

func newAttention(b *builder, name string, tokens, width, heads int) *attention {
	return &attention{
		tokens: tokens, heads: heads,
		in:       newLinear(&b.params, name+".in", 3*width, width),
		out:      newLinear(&b.params, name+".out", width, width),
		qkv:      b.activation(tokens * 3 * width),
		attended: b.activation(tokens * width),
		weights:  b.scratch(heads * tokens * tokens),
	}
}

// forward sets y, of the shape of x [n, tokens*width].
func (l *attention) forward(p *pass, y, x gds.Tensor) {
	qkv, _ := l.qkv.of(p)
	attended, _ := l.attended.of(p)
	weights, _ := l.weights.of(p)
	l.in.forward(p, asTokens(qkv, l.tokens), operand{asTokens(x, l.tokens), 1, 0})
	p.Attention(attended, weights, qkv, l.tokens, l.heads)
	l.out.forward(p, asTokens(y, l.tokens), operand{asTokens(attended, l.tokens), 1, 0})
}

// backward sets gx.
func (l *attention) backward(p *pass, gx, gy, x gds.Tensor) {
	qkv, gqkv := l.qkv.of(p)
	attended, gattended := l.attended.of(p)
	weights, _ := l.weights.of(p)
	gy, gx = asTokens(gy, l.tokens), asTokens(gx, l.tokens)
	l.out.backward(p, gy, operand{asTokens(attended, l.tokens), 1, 0})
	l.out.inputGradient(p, asTokens(gattended, l.tokens), 0, gy)
	p.AttentionGrad(gqkv, gattended, weights, qkv, l.tokens, l.heads)
	gqkv = asTokens(gqkv, l.tokens)
	l.in.backward(p, gqkv, operand{asTokens(x, l.tokens), 1, 0})
	l.in.inputGradient(p, gx, 0, gqkv)
}
