package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// gcnKind is GCN (Kipf and Welling 2017; mq-gnn Eq. 1, 2, 18) on blocks with the weights of D^-1/2 (W+I) D^-1/2.
var gcnKind = graphKind(kind{
	name: "gcn", about: "graph convolutions, then a linear layer; reads a graph",
	aggregation: sampling.Sym,
	settings:    append(messagePassingSettings(0), residualSetting(0)),
	build: func(s Spec, b *builder) *activation {
		return b.messagePassing(s, s.Settings["residual"] == 1, alongSums, 1)
	},
})

// sageKind is GraphSAGE with the mean (Hamilton et al. 2017, Algorithm 1; mq-gnn Eq. 17): a linear layer of a node's
// own features and of the mean of its in-neighbours, side by side.
var sageKind = graphKind(kind{
	name: "sage", about: "GraphSAGE: means of in-neighbours beside a node's own features; reads a graph",
	aggregation: sampling.Mean, relational: true,
	settings: append(messagePassingSettings(1), embeddingSetting()),
	build:    buildMeans,
})

// graphKind fills in what kinds that read a graph have in common.
func graphKind(k kind) kind {
	// Features as they are.
	k.chooseMatrices = func(input, _ []MatrixID) []MatrixID { return input }
	k.size = func(int) float64 { return 1 }
	k.defaults = Settings{Options: Options{LearningRate: 0.003, Epochs: 200, Patience: 50}, BatchRows: 1024}
	k.decay = 0.3
	k.few = func(s *Settings) { s.Values["dropout"] = 0.7 } // features of few nodes are soon learnt by heart
	return k
}

// messagePassingSettings are the settings that all models on blocks have.
func messagePassingSettings(norm float64) []Setting {
	return []Setting{hiddenSetting(256), layersSetting(2, 1, 65), dropoutSetting(0.5),
		yesSetting("norm", "layer normalisation after each layer along edges", norm), printedSetting()}
}

// residualSetting is for models in which a node's own features may be missing from its sum.
func residualSetting(value float64) Setting {
	return yesSetting("residual", "add a linear layer of a node's own features to each layer along edges", value)
}

// messagePassing is a model on the blocks of sampled mini-batches, or on a whole graph. It has a layer for each block:
// a convolution along edges, plus an optional linear layer of the destination's own features, then optional layer
// normalisation, ReLU and dropout. A linear layer follows at the end (Luo et al. 2024, "Classic GNNs are strong
// baselines", section 2).
//
// As printed, it has no linear layer at the end: the last layer along edges puts out the logits, without norm,
// residual, activation and dropout (Kipf and Welling 2017, Equation 9; Hamilton et al. 2017, Algorithm 1, without its
// line 7, which scales rows to length one; Velickovic et al. 2018, section 3.3, where other layers have ELU, and the
// logits are the mean of the heads, Equation 6).
//
// Features are brought to one unit, but not centred: what centring adds differs between nodes, as the coefficients of
// their edges do.
type messagePassing struct {
	layers []*messageLayer
	after  int         // place in builder.layers of the first layer that is not along edges
	rows   *activation // output of the last layer along edges for the rows of a batch
	own    bool        // a layer reads the rows of destinations themselves

	// For a whole graph:
	states [2]*activation // outputs of layers, in turn
	stats  *activation    // of norm, for a chunk of nodes
}

type messageLayer struct {
	place   int // of its block
	along   alongEdges
	weights *linear     // with the bias
	self    *linear     // on the destinations' own features; or nil
	x       *activation // the layer before; nil: features
	y       *activation // sum plus self
	norm    *affine     // of the layer normalisation of y; or nil
	// activate computes what follows norm, in place, without dropout; nil: nothing.
	activate func(p *pass, y gds.Tensor)

	summed     *activation // if sums come first: the sums of destinations
	chunk      *activation // the same for a chunk of a whole graph; the input layer also has some of its sources there
	product    *activation // if products with the weights come first: the products of sources
	own        *activation // in the input layer: products of destinations with the weights of self
	transposed *activation // in the input layer, if features are sparse: the weights by column
}

// alongBuilder declares the parameters of alongEdges for a layer whose sources are the rows of a level, with out
// columns.
type alongBuilder func(b *builder, name string, level, out int) alongEdges

// width is how many columns a layer puts out.
func (l *messageLayer) width() int { return l.weights.weight.rows }

// widest is how many columns the layer that puts out most of them does.
func (m *messagePassing) widest() (columns int) {
	for _, l := range m.layers {
		columns = max(columns, l.width())
	}
	return columns
}

// messagePassing adds a model whose layers along edges have heads. Level i are the nodes that are i layers away from
// the rows of a batch.
func (b *builder) messagePassing(s Spec, self bool, along alongBuilder, heads int) *activation {
	m := &messagePassing{}
	hidden, layers, probability := s.Settings.integer("hidden"), s.Settings.integer("layers"), s.Settings["dropout"]
	in, widest := s.Features, hidden
	if s.Settings.asPrinted() {
		widest = max(hidden, heads*s.Classes)
	}
	product := b.scratch(graphLevel, widest) // of a whole graph, for one layer after another
	for i := range layers {
		level := layers - i // of the sources
		name := fmt.Sprintf("layer-%d", i+1)
		last, out := s.Settings.asPrinted() && i == layers-1, hidden
		if last {
			out = heads * s.Classes
		}
		l := &messageLayer{place: i, x: m.rows, weights: newLinear(&b.params, name, out, in)}
		l.along = along(b, name, level, out)
		m.own = m.own || self || !l.along.linear()
		if self {
			l.self = newProduct(&b.params, name+".self", out, in)
		}
		for _, reads := range []*linear{l.weights, l.self} {
			if i == 0 && reads != nil {
				b.reader(reads, []read{{0, 1, 0}})
			}
		}
		l.declareSums(b, level, in, product)
		l.y = b.activation(level-1, out)
		b.add(l.forward, l.backward)
		m.rows, m.layers = l.y, append(m.layers, l)
		if last {
			break
		}
		if s.Settings["norm"] == 1 {
			var norm affine
			m.rows, norm = b.layerNorm(name+".norm", l.y, hidden)
			l.norm = &norm
		}
		drop := dropout{float32(probability), uint64(i + 1)}
		if s.Settings.asPrinted() && !l.along.linear() {
			l.activate = func(p *pass, y gds.Tensor) { p.ELU(y, y) }
			b.elu(drop, m.rows)
		} else {
			l.activate = func(p *pass, y gds.Tensor) { p.ReLU(y, y) }
			b.relu(drop, m.rows)
		}
		in = out
	}
	for i := range m.states {
		m.states[i] = b.scratch(targetLevel, widest)
	}
	m.stats = b.scratch(chunkLevel, 2)
	m.after, b.blocks, b.uncentred, b.messages = len(b.layers), layers, true, m
	switch {
	case !s.Settings.asPrinted():
		return b.dense(newLinear(&b.params, "out", s.Classes, hidden), m.rows, 0)
	case heads > 1:
		return b.meanOfHeads(m.rows, heads)
	}
	return m.rows
}

// meanOfHeads adds the mean of the parts of x, one of each head, and returns it.
func (b *builder) meanOfHeads(x *activation, heads int) *activation {
	y, part := b.activation(x.level, x.cols/heads), 1/float32(heads)
	b.add(func(p *pass) {
		p.Fill(y.value(p), 0)
		for h := range heads {
			p.Axpy(part, token(x.value(p), h, heads), y.value(p))
		}
	}, func(p *pass) {
		p.Fill(x.gradient(p), 0)
		for h := range heads {
			p.Axpy(part, y.gradient(p), token(x.gradient(p), h, heads))
		}
	})
	return y
}

// declareSums declares the activations of sum, for a layer whose sources are the rows of a level, with in columns.
// product is for products of a whole graph.
func (l *messageLayer) declareSums(b *builder, level, in int, product *activation) {
	linear, input, out := l.along.linear(), l.x == nil, l.width()
	if linear {
		l.summed = b.activation(level-1, in)
		l.summed.scratch = input
	}
	if !linear || input {
		l.product = b.activation(level, out)
		l.product.ofGraph = product
	}
	if linear || input {
		l.chunk = b.scratch(chunkLevel, in)
	}
	if !input {
		return
	}
	l.transposed = b.scratch(columnLevel, out)
	multipliesFirst := func(p *pass) bool { return p.order == multiplyFirst }
	l.chunk.when = func(p *pass) bool {
		return p.order == sumFirst || p.order == multiplyFirst && p.readsRows() // computes some dense rows at a time
	}
	if linear {
		l.summed.when = func(p *pass) bool { return p.order == sumFirst }
		l.product.when, product.when = multipliesFirst, multipliesFirst
	}
	if l.self != nil {
		l.own = b.scratch(level-1, out)
		l.own.ofGraph = b.scratch(targetLevel, out)
		l.own.when, l.own.ofGraph.when = multipliesFirst, multipliesFirst
	}
}

// forward sets y to the sum, of the blocks of a batch.
func (l *messageLayer) forward(p *pass) {
	x, _ := l.input(p)
	l.sum(p, l.y.value(p), x, p.Blocks[l.place])
}

func (l *messageLayer) backward(p *pass) {
	x, gx := l.input(p)
	l.sumBackward(p, gx, l.y.gradient(p), x, p.Blocks[l.place])
}

// input is the input of the layer, and its gradient; the zero Tensor for features.
func (l *messageLayer) input(p *pass) (x operand, gx gds.Tensor) {
	if l.x == nil {
		return p.input(0), gx
	}
	return operand{l.x.value(p), 1, 0}, l.x.gradient(p)
}

// ofGraph sets the output of the layers along edges for the rows of a batch of a whole graph. With the first batch it
// computes that output for all nodes, a layer before the next.
func (m *messagePassing) ofGraph(p *pass) {
	if p.Whole.Chunks != nil { // computeChunks has set the rows
		return
	}
	if p.Index == 0 {
		x := p.input(0)
		for i, l := range m.layers {
			p.block = p.Whole.LayerBlock(i)
			x = operand{m.layerOfGraph(p, l, x), 1, 0}
		}
	} else {
		p.block = p.Whole.LayerBlock(len(m.layers) - 1)
	}
	p.Gather(m.rows.value(p), m.states[0].value(p).Columns(0, m.rows.cols), p.NodeIDs)
}

// layerOfGraph sets states[0] to the output of a layer for the destinations of p.block, from the x of its sources, and
// returns it.
func (m *messagePassing) layerOfGraph(p *pass, l *messageLayer, x operand) gds.Tensor {
	from, to := m.states[0].value(p).Columns(0, l.width()), m.states[1].value(p).Columns(0, l.width())
	l.sum(p, to, x, p.block)
	if l.norm == nil {
		p.Copy(from, to)
	} else {
		p.eachChunk(p.block.Destinations, func(lo, hi int) {
			l.norm.normalizeRows(p, from.Slice(lo, hi), m.stats.value(p), to.Slice(lo, hi))
		})
	}
	if l.activate != nil {
		l.activate(p, from)
	}
	return from
}
