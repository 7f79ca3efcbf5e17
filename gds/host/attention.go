package host

import (
	"math"

	"github.com/hopfeed/hopfeed/gds/internal/ops"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// head is where a head of a token lies in a row of queries, keys and values.
type head struct{ width, at, size int } // of a token; of the head in it, and how many elements

// headOf is head h of an output that is so wide.
func headOf(c *ops.Call, cols, h int) head {
	width := cols / c.Tokens
	return head{width, h * width / c.Heads, width / c.Heads}
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

// scale is the factor of products of queries and keys.
func (h head) scale() float32 { return float32(1 / math.Sqrt(float64(h.size))) }

func (s *stream) attention() error {
	return s.byRow(0, 3+s.call.Tokens, func(s *stream, i int) {
		v, tokens := &s.views.floats, s.call.Tokens
		out, weights, qkv := v[0].all(i), v[1].all(i), v[2].all(i)
		clear(out)
		for h := range s.call.Heads {
			head := headOf(s.call, len(out), h)
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
	})
}

func (s *stream) attentionGrad() error {
	room(&s.scratch.scores, s.device.options.Threads*s.call.Tokens)
	return s.rowsOf(1, 3+s.call.Tokens, func(s *stream, p part) error {
		v, tokens := &s.views.floats, s.call.Tokens
		score := s.scratch.scores[p.thread*tokens:][:tokens]
		for i := p.lo; i < p.hi; i++ {
			dst, grad := v[0].all(i), v[1].all(i)
			weights, qkv := v[2].all(i), v[3].all(i)
			clear(dst)
			for h := range s.call.Heads {
				head := headOf(s.call, len(grad), h)
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

func (s *stream) softmaxRows() error {
	return s.byRow(1, 8, func(s *stream, i int) {
		v := &s.views.floats
		softmax(v[0].all(i), v[1].all(i))
	})
}

func (s *stream) softmaxRowsGrad() error {
	return s.byRow(2, 1, func(s *stream, i int) {
		v := &s.views.floats
		softmaxGrad(v[0].all(i), v[1].all(i), v[2].all(i))
	})
}

func (s *stream) weighTokens() error {
	return s.byRow(2, 1, func(s *stream, i int) {
		v := &s.views.floats
		out, tokens := v[0].all(i), v[2].all(i)
		clear(out)
		for t, by := range v[1].all(i) {
			kernel.AddScaled(out, by, tokens[t*len(out):][:len(out)])
		}
	})
}

func (s *stream) weighTokensGrad() error {
	return s.byRow(4, 1, func(s *stream, i int) {
		v := &s.views.floats
		gradWeights, gradTokens := v[0].all(i), v[1].all(i)
		grad, tokens := v[2].all(i), v[4].all(i)
		for t, by := range v[3].all(i) {
			gradWeights[t] = kernel.Dot(grad, tokens[t*len(grad):][:len(grad)])
			kernel.AddScaled(gradTokens[t*len(grad):][:len(grad)], by, grad)
		}
	})
}
