package trainer

import (
	"math"

	"github.com/hopfeed/hopfeed/gds"
)

// basesSetting is for models with weights for each relation.
func basesSetting() Setting {
	return Setting{Name: "bases", Help: "of a typed graph: matrices of a layer that relations share (in the first, " +
		"those from one type): a relation's weights are a weighted sum of them; 0: each relation has its own",
		Below: maxMatrices + 1, Integer: true}
}

// basisSum makes the weights of relations (Schlichtkrull et al. 2018, Equation 3), anew in each pass:
//
//	W_r = sum over b of a_rb V_b
type basisSum struct {
	v       *linear     // weights [bases*out, in]: V_b from row b*out on
	a       *parameter  // [relations, bases]
	weights *activation // [1, relations*out*in], with its gradient
	linears []*linear   // of the relations, on parts of weights
}

// basisSum declares bases, so that weights begin as large as those of a linear layer.
func (b *builder) basisSum(name string, bases, relations, out, in int) *basisSum {
	m := &basisSum{v: newProduct(&b.params, name+".bases", bases*out, in), weights: b.activation(0, relations*out*in),
		a: b.params.declare(name+".factors", relations, bases, math.Sqrt(3/float64(bases)))}
	m.weights.rows = 1
	for range relations {
		m.linears = append(m.linears, &linear{weight: &parameter{rows: out, cols: in}})
	}
	return m
}

// flat are the bases, or their gradients, as [bases, out*in].
func (m *basisSum) flat(v gds.Tensor) gds.Tensor {
	v.Rows, v.Cols, v.Stride = m.a.cols, v.Rows/m.a.cols*v.Cols, v.Rows/m.a.cols*v.Cols
	return v
}

// part is relation r's part of the weights of all, or of their gradients.
func (m *basisSum) part(all gds.Tensor, r int) gds.Tensor {
	return asTokens(token(all, r, len(m.linears)), m.linears[r].weight.rows)
}

// forward sets the weights.
func (m *basisSum) forward(p *pass) {
	p.Gemm(false, false, 1, m.a.value, m.flat(m.v.weight.value), 0, asTokens(m.weights.out, len(m.linears)))
	for r, l := range m.linears {
		l.weight.value = m.part(m.weights.out, r)
	}
}

// begin begins the gradient of the weights, to which the linear layers add.
func (m *basisSum) begin(p *pass) {
	p.Fill(m.weights.grad, 0)
	for r, l := range m.linears {
		l.weight.grad = m.part(m.weights.grad, r)
	}
}

// backward adds to the gradients of bases and factors.
func (m *basisSum) backward(p *pass) {
	of := asTokens(m.weights.grad, len(m.linears))
	p.Gemm(true, false, 1, m.a.value, of, 1, m.flat(m.v.weight.grad))
	p.Gemm(false, true, 1, of, m.flat(m.v.weight.value), 1, m.a.grad)
}
