package host

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// viewTokens views the tensors of Attention or its backward pass: output [n, T*w], weights [n, H*T*T] and
// qkv [n, T*3w], or their gradients.
func (s *stream) viewTokens(output, weights, qkv gds.Tensor) error {
	tokens, heads := s.op.tokens, s.op.heads
	if tokens < 1 || heads < 1 || output.Cols%tokens != 0 || output.Cols/tokens%heads != 0 {
		return fmt.Errorf("%d columns are not %d tokens for %d heads: %w", output.Cols, tokens, heads, errShape)
	}
	if qkv.Rows != output.Rows || qkv.Cols != 3*output.Cols || weights.Rows != output.Rows ||
		weights.Cols != heads*tokens*tokens {
		return errShape
	}
	_, err := s.viewFloats()
	return err
}

// head is where a head of a token lies in a row of queries, keys and values.
type head struct{ width, at, size int } // of a token; of the head in it, and how many elements

// heads of an output that is so wide.
func (o *op) head(cols, h int) head {
	width := cols / o.tokens
	return head{width, h * width / o.heads, width / o.heads}
}

func (h head) query(row []float32, token int) []float32 {
	return row[token*3*h.width+h.at:][:h.size]
}
func (h head) key(row []float32, token int) []float32 {
	return row[(token*3+1)*h.width+h.at:][:h.size]
}
func (h head) value(row []float32, token int) []float32 {
	return row[(token*3+2)*h.width+h.at:][:h.size]
}

func (h head) output(row []float32, token int) []float32 {
	return row[token*h.width+h.at:][:h.size]
}

// scale is that of products of queries and keys.
func (h head) scale() float32 { return float32(1 / math.Sqrt(float64(h.size))) }

var attentionOp = kind{name: "Attention", tensors: 3, run: func(s *stream) error {
	dst, weights, qkv := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if err := s.viewTokens(dst, weights, qkv); err != nil {
		return err
	}
	return s.eachRow(dst.Rows, dst.Cols*(3+s.op.tokens), func(s *stream, p part) error {
		v, tokens := &s.views.floats, s.op.tokens
		for i := p.lo; i < p.hi; i++ {
			out, weights, qkv := v[0].row(i, 0, v[0].cols), v[1].row(i, 0, v[1].cols), v[2].row(i, 0, v[2].cols)
			clear(out)
			for h := range s.op.heads {
				head := s.op.head(len(out), h)
				scale := head.scale()
				for t := range tokens {
					w := weights[(h*tokens+t)*tokens:][:tokens]
					for u := range w {
						w[u] = scale * kernel.Dot(head.query(qkv, t), head.key(qkv, u))
					}
					softmax(w, w)
					for u, by := range w {
						kernel.AddScaled(head.output(out, t), by, head.value(qkv, u))
					}
				}
			}
		}
		return nil
	})
}}

func (s *stream) Attention(dst, weights, qkv gds.Tensor, tokens, heads int) {
	s.push(op{kind: &attentionOp, tensors: [maxTensors]gds.Tensor{dst, weights, qkv}, tokens: tokens, heads: heads})
}

var attentionGradOp = kind{name: "AttentionGrad", tensors: 4, run: func(s *stream) error {
	dst, grad, weights, qkv := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2], s.op.tensors[3]
	if err := s.viewTokens(grad, weights, qkv); err != nil {
		return err
	}
	if sameShape(dst, qkv) != nil {
		return errShape
	}
	room(&s.scratch.scores, s.device.options.Threads*s.op.tokens)
	return s.eachRow(grad.Rows, grad.Cols*(3+s.op.tokens), func(s *stream, p part) error {
		v, tokens := &s.views.floats, s.op.tokens
		score := s.scratch.scores[p.thread*tokens:][:tokens]
		for i := p.lo; i < p.hi; i++ {
			dst, grad := v[0].row(i, 0, v[0].cols), v[1].row(i, 0, v[1].cols)
			weights, qkv := v[2].row(i, 0, v[2].cols), v[3].row(i, 0, v[3].cols)
			clear(dst)
			for h := range s.op.heads {
				head := s.op.head(len(grad), h)
				scale := head.scale()
				for t := range tokens {
					w, g := weights[(h*tokens+t)*tokens:][:tokens], head.output(grad, t)
					for u, by := range w {
						score[u] = kernel.Dot(g, head.value(qkv, u))
						kernel.AddScaled(head.value(dst, u), by, g)
					}
					softmaxGrad(score, score, w)
					for u, by := range score {
						kernel.AddScaled(head.query(dst, t), scale*by, head.key(qkv, u))
						kernel.AddScaled(head.key(dst, u), scale*by, head.query(qkv, t))
					}
				}
			}
		}
		return nil
	})
}}

func (s *stream) AttentionGrad(dst, grad, weights, qkv gds.Tensor, tokens, heads int) {
	s.push(op{kind: &attentionGradOp, tensors: [maxTensors]gds.Tensor{dst, grad, weights, qkv}, tokens: tokens,
		heads: heads})
}

// softmax of a row; dst may be src.
func softmax(dst, src []float32) {
	sum := kernel.Exp(dst, src, kernel.Max(src))
	for j := range src {
		dst[j] /= sum
	}
}

// softmaxGrad is its backward pass; dst may be grad.
func softmaxGrad(dst, grad, out []float32) {
	mean := kernel.Dot(grad, out)
	for j, p := range out {
		dst[j] = p * (grad[j] - mean)
	}
}

var softmaxRowsOp = kind{name: "SoftmaxRows", tensors: 2, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if err := sameShape(dst, src); err != nil {
		return err
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	return s.eachRow(src.Rows, 8*src.Cols, func(s *stream, p part) error {
		v := &s.views.floats
		for i := p.lo; i < p.hi; i++ {
			softmax(v[0].row(i, 0, v[0].cols), v[1].row(i, 0, v[0].cols))
		}
		return nil
	})
}}

func (s *stream) SoftmaxRows(dst, src gds.Tensor) {
	s.push(op{kind: &softmaxRowsOp, tensors: [maxTensors]gds.Tensor{dst, src}})
}

var softmaxRowsGradOp = kind{name: "SoftmaxRowsGrad", tensors: 3, run: func(s *stream) error {
	dst, grad, out := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if err := sameShape(dst, grad, out); err != nil {
		return err
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	return s.eachRow(out.Rows, out.Cols, func(s *stream, p part) error {
		v := &s.views.floats
		for i := p.lo; i < p.hi; i++ {
			softmaxGrad(v[0].row(i, 0, v[0].cols), v[1].row(i, 0, v[0].cols), v[2].row(i, 0, v[0].cols))
		}
		return nil
	})
}}

func (s *stream) SoftmaxRowsGrad(dst, grad, out gds.Tensor) {
	s.push(op{kind: &softmaxRowsGradOp, tensors: [maxTensors]gds.Tensor{dst, grad, out}})
}

// checkTokens returns an error unless row is [n,w], weights [n,T] and tokens [n, T*w].
func checkTokens(row, weights, tokens gds.Tensor) error {
	if row.Rows != tokens.Rows || weights.Rows != tokens.Rows || weights.Cols*row.Cols != tokens.Cols {
		return errShape
	}
	return nil
}

var weighTokensOp = kind{name: "WeighTokens", tensors: 3, run: func(s *stream) error {
	dst, weights, tokens := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if err := checkTokens(dst, weights, tokens); err != nil {
		return err
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	return s.eachRow(tokens.Rows, tokens.Cols, func(s *stream, p part) error {
		v := &s.views.floats
		for i := p.lo; i < p.hi; i++ {
			out, tokens := v[0].row(i, 0, v[0].cols), v[2].row(i, 0, v[2].cols)
			clear(out)
			for t, by := range v[1].row(i, 0, v[1].cols) {
				kernel.AddScaled(out, by, tokens[t*len(out):][:len(out)])
			}
		}
		return nil
	})
}}

func (s *stream) WeighTokens(dst, weights, tokens gds.Tensor) {
	s.push(op{kind: &weighTokensOp, tensors: [maxTensors]gds.Tensor{dst, weights, tokens}})
}

var weighTokensGradOp = kind{name: "WeighTokensGrad", tensors: 5, run: func(s *stream) error {
	gradWeights, gradTokens, grad, weights, tokens := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2],
		s.op.tensors[3], s.op.tensors[4]
	if err := checkTokens(grad, weights, tokens); err != nil {
		return err
	}
	if sameShape(gradWeights, weights) != nil || sameShape(gradTokens, tokens) != nil {
		return errShape
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	return s.eachRow(tokens.Rows, tokens.Cols, func(s *stream, p part) error {
		v := &s.views.floats
		for i := p.lo; i < p.hi; i++ {
			gradWeights, gradTokens := v[0].row(i, 0, v[0].cols), v[1].row(i, 0, v[1].cols)
			grad, tokens := v[2].row(i, 0, v[2].cols), v[4].row(i, 0, v[4].cols)
			for t, by := range v[3].row(i, 0, v[3].cols) {
				gradWeights[t] = kernel.Dot(grad, tokens[t*len(grad):][:len(grad)])
				kernel.AddScaled(gradTokens[t*len(grad):][:len(grad)], by, grad)
			}
		}
		return nil
	})
}}

func (s *stream) WeighTokensGrad(gradWeights, gradTokens, grad, weights, tokens gds.Tensor) {
	s.push(op{kind: &weighTokensGradOp, tensors: [maxTensors]gds.Tensor{gradWeights, gradTokens, grad, weights,
		tokens}})
}
