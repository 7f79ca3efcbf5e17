package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
)

// messagePassing is a model on the blocks of sampled mini-batches, or on a whole graph. It has a layer for each block:
// a convolution along edges, plus an optional linear layer of the destination's own features, then optional layer
// normalisation, ReLU and dropout. A linear layer follows at the end (Luo et al. 2024, "Classic GNNs are strong
// baselines", section 2).
//
// Features are brought to one unit, but not centred: what centring adds differs between nodes, as the coefficients of
// their edges do.
type messagePassing struct {
	layers []*messageLayer
	out    *linear
	logits *activation

	// For a whole graph:
	states [2]*activation // outputs of layers, in turn
	stats  *activation    // of norm, for a chunk of nodes
	rows   *activation    // of states, for a batch
}

type messageLayer struct {
	along   alongEdges
	weights *linear     // with the bias
	self    *linear     // on the destinations' own features; or nil
	input   bool        // it reads features
	y       *activation // sum plus self; without norm, after act too
	norm    *layerNorm  // or nil
	normed  *activation // after act
	act     nonlinearity

	summed     *activation // if sums come first: those of destinations
	chunk      *activation // the same for a chunk of a whole graph; the input layer also has some of its sources there
	product    *activation // if products with the weights come first: those of sources
	own        *activation // in the input layer: products of destinations with the weights of self
	transposed *activation // in the input layer, if features are sparse: the weights by column
}

// alongBuilder declares the parameters of alongEdges for a layer whose sources are the rows of a level, with out
// columns.
type alongBuilder func(b *builder, name string, level, out int) alongEdges

// messagePassingSettings are the settings that all models on blocks have.
func messagePassingSettings(hidden, layers, dropout, norm float64) []Setting {
	return []Setting{
		{Name: "hidden", Help: "number of hidden units", Default: hidden, Least: 1, Below: maxWidth + 1, Integer: true},
		{Name: "layers", Help: "number of layers", Default: layers, Least: 1, Below: 65, Integer: true},
		{Name: "dropout", Help: "dropout probability", Default: dropout, Least: 0, Below: 1},
		{Name: "norm", Help: "layer normalisation after each layer along edges: 1 yes, 0 no", Default: norm, Least: 0,
			Below: 2, Integer: true},
	}
}

// fewNodes are the defaults of these models for few training nodes: features of few nodes are soon learnt by heart.
func fewNodes(s *Settings) { s.Values["dropout"] = 0.7 }

// residualSetting is for models in which a node's own features may be missing from its sum.
func residualSetting(value float64) Setting {
	return Setting{
		Name: "residual", Help: "add a linear layer of a node's own features to each layer along edges: 1 yes, 0 no",
		Default: value, Least: 0, Below: 2, Integer: true,
	}
}

// graphKind fills in what kinds that read a graph have in common.
func graphKind(k kind) kind {
	k.chooseMatrices = inputOnly
	k.size = func(int) float64 { return 1 }
	k.defaults = Settings{Options: Options{LearningRate: 0.003, Epochs: 200, Patience: 50}, BatchRows: 1024}
	k.decay, k.few = 0.3, fewNodes
	return k
}

// inputOnly is kind.chooseMatrices of models on blocks: features as they are.
func inputOnly(input MatrixID, _ []MatrixID) []MatrixID { return []MatrixID{input} }

// newMessagePassing declares a model. Level i are the nodes that are i layers away from the rows of a batch.
func newMessagePassing(s Spec, b *builder, self bool, along alongBuilder) *activation {
	m := &messagePassing{}
	hidden, layers := s.Settings.integer("hidden"), s.Settings.integer("layers")
	in := s.Features
	product := b.scratchAt(graphLevel, hidden) // of a whole graph, for one layer after another
	for i := range layers {
		level := layers - i // of the sources
		name := fmt.Sprintf("layer-%d", i+1)
		l := &messageLayer{input: i == 0, act: newNonlinearity(float32(s.Settings["dropout"]), uint64(i+1))}
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
		l.declareSums(b, level, in, product)
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

// declareSums declares the activations of sum, for a layer whose sources are the rows of a level, with in columns.
// product is for products of a whole graph.
func (l *messageLayer) declareSums(b *builder, level, in int, product *activation) {
	linear, out := l.along.linear(), product.cols
	if linear {
		l.summed = b.activationAt(level-1, in)
		l.summed.scratch = l.input
	}
	if !linear || l.input {
		l.product = b.activationAt(level, out)
		l.product.ofGraph = product
	}
	if linear || l.input {
		l.chunk = b.scratchAt(chunkLevel, in)
	}
	if !l.input {
		return
	}
	l.chunk.use, l.transposed = readingRows, b.scratchAt(columnLevel, out)
	if linear {
		l.summed.use, l.product.use, product.use = summingFirst, multiplyingFirst, multiplyingFirst
	}
	if l.self != nil {
		l.own = b.scratchAt(level-1, out)
		l.own.ofGraph = b.scratchAt(targetLevel, out)
		l.own.use, l.own.ofGraph.use = multiplyingFirst, multiplyingFirst
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
		if p.whole.Chunks == nil { // else computeChunks has set the rows
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

// ofGraph sets states[0] to the output of the last layer for all nodes. It computes a layer for all nodes before the
// next.
func (m *messagePassing) ofGraph(p *pass) {
	x := p.x[0]
	for i, l := range m.layers {
		p.block = p.whole.LayerBlock(i)
		x = operand{m.layerOfGraph(p, l, x), 1, 0}
	}
}

// layerOfGraph sets states[0] to the output of a layer for the destinations of p.block, from the x of its sources, and
// returns it.
func (m *messagePassing) layerOfGraph(p *pass, l *messageLayer, x operand) gds.Tensor {
	from, _ := m.states[0].of(p)
	to, _ := m.states[1].of(p)
	l.sum(p, to, x, p.block)
	if l.norm == nil {
		p.Copy(from, to)
	} else {
		p.eachChunk(p.block.Destinations, func(lo, hi int) {
			stats, _ := m.stats.of(p)
			gain, shift := l.norm.gain.value, l.norm.shift.value
			p.NormalizeRows(from.Slice(lo, hi), stats, to.Slice(lo, hi), gain, shift, normEpsilon)
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
