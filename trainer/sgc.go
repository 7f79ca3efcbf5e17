package trainer

// sgcKind is Simple Graph Convolution (Wu et al. 2019; preprop-gnn section 2.5): a
// linear classifier on the last hop alone. With several operators their last
// hops are concatenated. It sees the features as they are, so that settings
// published for it hold.
var sgcKind = kind{
	name:  "sgc",
	about: "one linear layer on the last hop",
	choose: func(input MatrixID, last []MatrixID) []MatrixID {
		if len(last) == 0 {
			return []MatrixID{input}
		}
		return last
	},
	settle: func(s *Spec) error {
		s.Hidden, s.Layers, s.Dropout = 0, 1, 0
		return nil
	},
	build: func(s Spec, b *builder) model {
		return &sgc{out: newLinear(&b.parameters, "out", s.Classes, s.inputs(s.Matrices)...), logits: b.activation(s.Classes)}
	},
	defaults: Settings{Layers: 1, LearningRate: 0.5, Epochs: 100, BatchRows: 512},
}

type sgc struct {
	out    *linear
	logits *activation
}

func (m *sgc) forward(p *pass, x []operand) *activation {
	m.out.forward(p, m.logits.out.Slice(0, p.rows), x...)
	return m.logits
}

func (m *sgc) backward(p *pass, x []operand) {
	m.out.backward(p, m.logits.grad.Slice(0, p.rows), x...)
}
