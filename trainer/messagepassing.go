package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// messagePassing is a model on the blocks of sampled mini-batches, or on a whole graph: a layer for each
// block, of which each is a convolution along edges, plus a linear layer of the destination's own features
// where there is one, then layer normalisation where there is one, ReLU and dropout; and a linear layer at the
// end (Luo et al. 2024, "Classic GNNs are strong baselines", section 2).
//
// Features are brought to one unit, but not centred: what centring adds differs between nodes, as the
// coefficients of their edges do.
type messagePassing struct {
	layers []*messageLayer
	out    *linear
	logits *activation

	// Of a whole graph: what layers put out for all nodes, in turn, and what is read of it for a batch.
	states [2]*activation
	stats  *activation // of norm, for some nodes
	rows   *activation
}

type messageLayer struct {
	convolution
	self   *linear     // or nil
	y      *activation // of convolution and self; without norm, after act too
	norm   *layerNorm  // or nil
	normed *activation // after act
	act    nonlinearity
}

// convolution computes something of the sources of each edge, and sums it up at destinations.
type convolution interface {
	// forward sets y, a row for each destination of the block, from x, a row for each source.
	forward(p *pass, y gds.Tensor, x operand, block loader.Block)
	// backward adds to the gradients of parameters, from gy = dL/dy and the x of the last forward, and sets
	// gx = dL/dx unless it is the zero Tensor.
	backward(p *pass, gx, gy gds.Tensor, x operand, block loader.Block)
}

// convolutionBuilder declares the convolution of a layer whose sources are the rows of a level, and a bias.
// input tells that it reads the input matrix.
type convolutionBuilder func(b *builder, name string, level, in, out int, input bool) (convolution, *linear)

// messagePassingSettings are those of all models on blocks.
func messagePassingSettings(hidden, layers, dropout, norm float64) []Setting {
	return []Setting{
		{Name: "hidden", Help: "number of hidden units", Default: hidden, Least: 1, Below: maxWidth + 1, Integer: true},
		{Name: "layers", Help: "number of layers", Default: layers, Least: 1, Below: 65, Integer: true},
		{Name: "dropout", Help: "dropout probability", Default: dropout, Least: 0, Below: 1},
		{Name: "norm", Help: "layer normalisation after each layer along edges: 1 yes, 0 no", Default: norm, Least: 0, Below: 2, Integer: true},
	}
}

// residualSetting is that of models which a node's own features need not reach by themselves.
func residualSetting(value float64) Setting {
	return Setting{Name: "residual", Help: "add a linear layer of a node's own features to each layer along edges: 1 yes, 0 no", Default: value, Least: 0, Below: 2, Integer: true}
}

// inputOnly is kind.chooseMatrices of models on blocks: features as they are.
func inputOnly(input MatrixID, _ []MatrixID) []MatrixID { return []MatrixID{input} }

// newMessagePassing declares a model. Level i are the nodes that are i layers away from the rows of a batch.
func newMessagePassing(s Spec, b *builder, self bool, convolve convolutionBuilder) model {
	m := &messagePassing{}
	hidden, layers := s.Settings.integer("hidden"), s.Settings.integer("layers")
	in := s.Features
	for i := range layers {
		level := layers - i // of the sources
		name := fmt.Sprintf("layer-%d", i+1)
		l := &messageLayer{act: newNonlinearity(float32(s.Settings["dropout"]), uint64(i+1))}
		var reads *linear
		l.convolution, reads = convolve(b, name, level, in, hidden, i == 0)
		if i == 0 {
			b.reader(reads, []read{{0, 1, 0}})
		}
		if self {
			l.self = newProduct(&b.parameters, name+".self", hidden, in)
			if i == 0 {
				b.reader(l.self, []read{{0, 1, 0}})
			}
		}
		l.y = b.activationAt(level-1, hidden)
		l.normed = l.y
		if s.Settings["norm"] == 1 {
			l.norm = newLayerNorm(b, name+".norm", 1, hidden)
			l.norm.stats.level = level - 1
			l.normed = b.activationAt(level-1, hidden)
		}
		m.layers = append(m.layers, l)
		in = hidden
	}
	m.out = newLinear(&b.parameters, "out", s.Classes, hidden)
	m.logits = b.activation(s.Classes)
	for i := range m.states {
		m.states[i] = b.activationAt(targetLevel, hidden)
		m.states[i].scratch = true
	}
	m.stats = b.activationAt(chunkLevel, 2)
	m.stats.scratch = true
	m.rows = b.scratch(hidden)
	b.blocks, b.uncentred, b.messages = layers, true, m
	return m
}

// add enqueues y += x W^T.
func (l *linear) add(p *pass, y gds.Tensor, x operand) {
	p.Gemm(false, true, x.scale, x.Tensor, x.block(l.weight.value), 1, y)
}

// sum sets y to the convolution of x and the linear layer of the destinations, which are the first rows of x.
func (l *messageLayer) sum(p *pass, y gds.Tensor, x operand, block loader.Block) {
	l.convolution.forward(p, y, x, block)
	if l.self != nil {
		l.self.add(p, y, operand{x.Slice(0, block.Destinations), x.scale, 0})
	}
}

func (m *messagePassing) forward(p *pass) *activation {
	logits, _ := m.logits.of(p)
	if p.rows == 0 && p.whole == nil {
		return m.logits
	}
	x := p.x[0]
	if p.whole == nil {
		for i, l := range m.layers {
			y, _ := l.y.of(p)
			normed, _ := l.normed.of(p)
			l.sum(p, y, x, p.blocks[i])
			if l.norm != nil {
				l.norm.forward(p, normed, y)
			}
			l.act.forward(p, normed)
			x = operand{normed, 1, 0}
		}
	} else {
		rows, _ := m.rows.of(p)
		if p.whole.Chunks == nil { // else they are there: see graphStates
			if p.first {
				m.ofGraph(p)
			}
			states, _ := m.states[0].of(p)
			p.Gather(rows, states, p.nodes)
		}
		x = operand{rows, 1, 0}
	}
	m.out.forward(p, logits, x)
	return m.logits
}

// ofGraph sets states[0] to what the last layer puts out for all nodes of a graph. It computes a layer for all of
// them before the next.
func (m *messagePassing) ofGraph(p *pass) {
	x := p.x[0]
	for _, l := range m.layers {
		x = operand{m.layerOfGraph(p, l, x), 1, 0}
	}
}

// layerOfGraph returns states[0], which it sets to what a layer puts out for the destinations of the block of a
// whole graph, or of a chunk of one, from the x of its sources.
func (m *messagePassing) layerOfGraph(p *pass, l *messageLayer, x operand) gds.Tensor {
	from, _ := m.states[0].of(p)
	to, _ := m.states[1].of(p)
	l.sum(p, to, x, p.whole.Block)
	if l.norm == nil {
		p.Copy(from, to)
	} else {
		p.eachChunk(func(lo, hi int) {
			stats, _ := m.stats.of(p)
			p.NormalizeRows(from.Slice(lo, hi), stats, to.Slice(lo, hi), l.norm.gain.value, l.norm.shift.value, normEpsilon)
		})
	}
	l.act.forward(p, from)
	return from
}

func (m *messagePassing) backward(p *pass) {
	if p.rows == 0 {
		return
	}
	last := m.layers[len(m.layers)-1]
	_, glogits := m.logits.of(p)
	x, gx := last.normed.of(p)
	m.out.backward(p, glogits, operand{x, 1, 0})
	m.out.inputGradient(p, gx, 0, glogits)
	for i := len(m.layers) - 1; i >= 0; i-- {
		l := m.layers[i]
		normed, gy := l.normed.of(p)
		l.act.backward(p, gy, normed)
		if l.norm != nil {
			y, g := l.y.of(p)
			l.norm.backward(p, g, gy, y)
			gy = g
		}
		x, gx := p.x[0], gds.Tensor{}
		if i > 0 {
			x.scale = 1
			x.Tensor, gx = m.layers[i-1].normed.of(p)
		}
		block := p.blocks[i]
		l.convolution.backward(p, gx, gy, x, block)
		if l.self != nil {
			x.Tensor = x.Slice(0, block.Destinations)
			l.self.backward(p, gy, x)
			if i > 0 {
				l.self.inputGradient(p, gx.Slice(0, block.Destinations), 1, gy)
			}
		}
	}
}
