package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
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

	// Of a whole graph: what layers put out, in turn, and what is read of it for a batch.
	states [2]*activation
	stats  *activation // of norm, for some nodes
	rows   *activation
}

type messageLayer struct {
	along   alongEdges
	weights *linear     // with the bias
	self    *linear     // of the destinations' own features; or nil
	input   bool        // it reads features
	y       *activation // of the sum and self; without norm, after act too
	norm    *layerNorm  // or nil
	normed  *activation // after act
	act     nonlinearity

	// Where sums come first: those of destinations, and of some nodes of a whole graph. Of the input layer chunk
	// is for some of its sources too.
	summed, chunk *activation
	// Where products with weights come first: these, of sources.
	productOfBlock, productOfGraph *activation
	// Of the input layer: products of destinations with the weights of self, and, where features are sparse, weights
	// by column.
	ownOfBlock, ownOfGraph, transposed *activation
}

// alongBuilder declares the parameters of alongEdges of a layer whose sources are the rows of a level, and which
// puts out so many columns.
type alongBuilder func(b *builder, name string, level, out int) alongEdges

// messagePassingSettings are those of all models on blocks.
func messagePassingSettings(hidden, layers, dropout, norm float64) []Setting {
	return []Setting{
		{Name: "hidden", Help: "number of hidden units", Default: hidden, Least: 1, Below: maxWidth + 1, Integer: true},
		{Name: "layers", Help: "number of layers", Default: layers, Least: 1, Below: 65, Integer: true},
		{Name: "dropout", Help: "dropout probability", Default: dropout, Least: 0, Below: 1},
		{Name: "norm", Help: "layer normalisation after each layer along edges: 1 yes, 0 no", Default: norm, Least: 0, Below: 2, Integer: true},
	}
}

// fewNodes are the defaults of these models for few training nodes, whose features are learnt by heart soon.
func fewNodes(s *Settings) { s.Values["dropout"] = 0.7 }

// residualSetting is that of models which a node's own features need not reach by themselves.
func residualSetting(value float64) Setting {
	return Setting{Name: "residual", Help: "add a linear layer of a node's own features to each layer along edges: 1 yes, 0 no", Default: value, Least: 0, Below: 2, Integer: true}
}

// inputOnly is kind.chooseMatrices of models on blocks: features as they are.
func inputOnly(input MatrixID, _ []MatrixID) []MatrixID { return []MatrixID{input} }

// newMessagePassing declares a model. Level i are the nodes that are i layers away from the rows of a batch.
func newMessagePassing(s Spec, b *builder, self bool, along alongBuilder) *activation {
	m := &messagePassing{}
	hidden, layers := s.Settings.integer("hidden"), s.Settings.integer("layers")
	in := s.Features
	productOfGraph := b.scratchAt(graphLevel, hidden) // of one layer after another
	for i := range layers {
		level := layers - i // of the sources
		name := fmt.Sprintf("layer-%d", i+1)
		l := &messageLayer{input: i == 0, act: newNonlinearity(float32(s.Settings["dropout"]), uint64(i+1)), productOfGraph: productOfGraph}
		l.weights = newLinear(&b.params, name, hidden, in)
		l.along = along(b, name, level, hidden)
		if l.input {
			b.reader(l.weights, []read{{0, 1, 0}})
		}
		if self {
			l.self = newProduct(&b.params, name+".self", hidden, in)
			if l.input {
				b.reader(l.self, []read{{0, 1, 0}})
			}
		}
		l.declareSums(b, level, in, hidden)
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
	m.out = newLinear(&b.params, "out", s.Classes, hidden)
	m.logits = b.activation(s.Classes)
	for i := range m.states {
		m.states[i] = b.scratchAt(targetLevel, hidden)
	}
	m.stats = b.scratchAt(chunkLevel, 2)
	m.rows = b.scratch(hidden)
	b.blocks, b.uncentred, b.messages = layers, true, m
	b.add(m)
	return m.logits
}

// declareSums declares what sum needs of a layer whose sources are the rows of a level.
func (l *messageLayer) declareSums(b *builder, level, in, out int) {
	linear := l.along.linear()
	if linear {
		l.summed = b.activationAt(level-1, in)
		l.summed.scratch = l.input
	}
	if !linear || l.input {
		l.productOfBlock = b.activationAt(level, out)
	}
	if linear || l.input {
		l.chunk = b.scratchAt(chunkLevel, in)
	}
	if !l.input {
		return
	}
	l.chunk.use, l.transposed = readingRows, b.scratchAt(columnLevel, out)
	if linear {
		l.summed.use, l.productOfBlock.use, l.productOfGraph.use = summingFirst, multiplyingFirst, multiplyingFirst
	}
	if l.self != nil {
		l.ownOfBlock, l.ownOfGraph = b.scratchAt(level-1, out), b.scratchAt(targetLevel, out)
		l.ownOfBlock.use, l.ownOfGraph.use = multiplyingFirst, multiplyingFirst
	}
}

func (m *messagePassing) forward(p *pass) {
	logits, _ := m.logits.of(p)
	if p.rows == 0 && p.whole == nil {
		return
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
			} else {
				p.block = p.whole.LayerBlock(len(m.layers) - 1)
			}
			states, _ := m.states[0].of(p)
			p.Gather(rows, states, p.nodes)
		}
		x = operand{rows, 1, 0}
	}
	m.out.forward(p, logits, x)
}

// ofGraph sets states[0] to what the last layer puts out for all nodes that it is computed for. It computes a layer
// for all of them before the next.
func (m *messagePassing) ofGraph(p *pass) {
	x := p.x[0]
	for i, l := range m.layers {
		p.block = p.whole.LayerBlock(i)
		x = operand{m.layerOfGraph(p, l, x), 1, 0}
	}
}

// layerOfGraph returns states[0], which it sets to what a layer puts out for the destinations of p.block, from the
// x of its sources.
func (m *messagePassing) layerOfGraph(p *pass, l *messageLayer, x operand) gds.Tensor {
	from, _ := m.states[0].of(p)
	to, _ := m.states[1].of(p)
	l.sum(p, to, x, p.block)
	if l.norm == nil {
		p.Copy(from, to)
	} else {
		p.eachChunk(p.block.Destinations, func(lo, hi int) {
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
		l.sumBackward(p, gx, gy, x, p.blocks[i])
	}
}
