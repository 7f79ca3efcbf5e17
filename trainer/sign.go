package trainer

import (
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
)

// signKind is SIGN (Frasca et al. 2020; preprop-gnn section 2.5): matrices of the
// same hop from different operators are concatenated, each hop has a linear
// layer of its own, and an MLP works on the concatenation of what they put out.
// Layers counts the linear layers on the way from input to logits. Each matrix
// is centred, and brought to elements of about one (group.measureScales): without that, the
// biases drown features as small as those of rows that are divided by their sum.
var signKind = kind{
	name:  "sign",
	about: "a linear layer for each hop, then an MLP on all of them",
	chooseMatrices: func(input MatrixID, last []MatrixID) []MatrixID {
		ids := []MatrixID{input}
		for _, l := range last {
			for hop := 1; hop <= l.Hop; hop++ {
				ids = append(ids, MatrixID{Operator: l.Operator, Hop: hop})
			}
		}
		return ids
	},
	settings: []Setting{
		{Name: "hidden", Help: "number of hidden units", Default: 128, Least: 1, Below: maxWidth + 1, Integer: true},
		{Name: "layers", Help: "number of layers", Default: 3, Least: 2, Below: 257, Integer: true},
		{Name: "dropout", Help: "dropout probability", Default: 0.7, Least: 0, Below: 1},
	},
	build:    newSIGN,
	size:     func(int) float64 { return 1 },
	defaults: Settings{LearningRate: 0.003, Epochs: 200, Patience: 20, EvalEvery: 1, BatchRows: 512},
	decay:    3,
}

type sign struct {
	hops   []*inputLayer
	joined *activation // [n, hops*hidden]: the hops' outputs side by side
	act    nonlinearity
	hidden []signHidden
	out    *linear
	logits *activation
}

type signHidden struct {
	*linear
	nonlinearity
	y *activation
}

func newSIGN(s Spec, b *builder) model {
	hidden, dropout := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	m := &sign{act: nonlinearity{dropout, 0}}
	for hop := range s.lastHop() + 1 {
		var from []int
		for i, id := range s.Matrices {
			if id.Hop == hop {
				from = append(from, i)
			}
		}
		if len(from) > 0 {
			m.hops = append(m.hops, b.inputLayer(fmt.Sprintf("hop-%d", hop), hidden, s, from))
		}
	}
	width := len(m.hops) * hidden
	m.joined = b.activation(width)
	for i := range s.Settings.integer("layers") - 2 {
		m.hidden = append(m.hidden, signHidden{
			linear:       newLinear(&b.parameters, fmt.Sprintf("hidden-%d", i+1), hidden, width),
			nonlinearity: nonlinearity{dropout, uint64(i + 1)},
			y:            b.activation(hidden),
		})
		width = hidden
	}
	m.out = newLinear(&b.parameters, "out", s.Classes, width)
	m.logits = b.activation(s.Classes)
	return m
}

func (m *sign) forward(p *pass) *activation {
	y, _ := m.joined.of(p)
	for i, h := range m.hops {
		h.forward(p, m.slot(y, i))
	}
	m.act.forward(p, y)
	for _, h := range m.hidden {
		next, _ := h.y.of(p)
		h.linear.forward(p, next, operand{y, 1})
		h.nonlinearity.forward(p, next)
		y = next
	}
	logits, _ := m.logits.of(p)
	m.out.forward(p, logits, operand{y, 1})
	return m.logits
}

func (m *sign) backward(p *pass) {
	layer := m.out
	_, grad := m.logits.of(p)
	for _, h := range slices.Backward(m.hidden) {
		y, gy := h.y.of(p)
		layer.backward(p, grad, operand{y, 1})
		layer.inputGradient(p, gy, grad)
		h.nonlinearity.backward(p, gy, y)
		layer, grad = h.linear, gy
	}
	y, gy := m.joined.of(p)
	layer.backward(p, grad, operand{y, 1})
	layer.inputGradient(p, gy, grad)
	m.act.backward(p, gy, y)
	for i, h := range m.hops {
		h.backward(p, m.slot(gy, i))
	}
}

// slot is the part of the joined matrix that belongs to the i-th hop.
func (m *sign) slot(joined gds.Tensor, i int) gds.Tensor {
	width := joined.Cols / len(m.hops)
	return joined.Columns(i*width, (i+1)*width)
}
