package trainer

import (
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// Relation names the edges from nodes of one type to nodes of one.
type Relation struct {
	Source      string `json:"source"`
	Name        string `json:"name,omitempty"`
	Destination string `json:"destination"`
}

func (r Relation) String() string {
	if r.Name == "" {
		return r.Source + "__" + r.Destination
	}
	return r.Source + "__" + r.Name + "__" + r.Destination
}

// rgcnKind is R-GCN (Schlichtkrull et al. 2018, Equation 2, with c_ir = |N_i^r|): see relational. On a graph of one
// type it is GraphSAGE without norm.
var rgcnKind = graphKind(kind{
	name: "rgcn", about: "R-GCN: as sage, by default without norm; for typed graphs",
	aggregation: sampling.Mean, relational: true,
	settings: append(messagePassingSettings(0), basesSetting(), embeddingSetting()),
	build:    buildMeans,
})

// buildMeans is a model of means of in-neighbours, by relation if there are relations.
func buildMeans(s Spec, b *builder) *activation {
	if len(s.Relations) > 0 {
		return b.relational(s)
	}
	return b.messagePassing(s, true, alongSums, 1)
}

// relationalLayer is a layer along the edges of relations, on two blocks of a batch: see sampling.Options.ByType. Part
// k of the rows of the first (loader.Block.Parts) has means over relation k or, after the relations, nodes of a type by
// themselves:
//
//	y_i = W_type(i) x_i + b_type(i) + sum over relations r to the type of i of W_r mean(x_j of N_i^r)
type relationalLayer struct {
	place   int         // of its first block
	weights []*linear   // of each relation, then of each type, with a bias
	bases   []*basisSum // that weights of relations are made of
	from    []int       // the matrix of the sources of each of them
	x       *activation // the layer before; nil: features, a matrix for each type
	// means and products have a row for each row of the first block, y one for each destination. The input layer has a
	// matrix of means for each relation instead, since the features of types differ in width.
	means, products, y *activation
	inputMeans         []*activation
	learned            []*embedding // the input layer's, by type; nil: its features are given
}

// relational is a model on sampled mini-batches of a typed graph: relational layers, then normalisation, ReLU, dropout
// and a last linear layer as in messagePassing, which all types share.
func (b *builder) relational(s Spec) *activation {
	hidden, layers := s.Settings.integer("hidden"), s.Settings.integer("layers")
	in := make([]int, len(s.Matrices)) // columns, by type
	for i := range in {
		in[i] = s.Width(i)
	}
	b.blocks, b.parts, b.uncentred = 2*layers, len(s.Relations)+len(in), true
	var rows *activation
	learned := b.embeddings(s)
	for i := range layers {
		level, name := 2*(layers-i), fmt.Sprintf("layer-%d", i+1)
		last, out := s.Settings.asPrinted() && i == layers-1, hidden
		if last {
			out = s.Classes
		}
		l := &relationalLayer{place: 2 * i, x: rows, learned: learned}
		for _, r := range s.Relations {
			l.from = append(l.from, s.typeOf(r.Source))
		}
		if s.Settings["bases"] > 0 {
			l.addBases(b, s, name, out, in)
		} else {
			for k, r := range s.Relations {
				l.weights = append(l.weights, newProduct(&b.params, name+"."+r.String(), out, in[l.from[k]]))
				l.readInput(b, l.weights[k], k)
			}
		}
		for from, id := range s.Matrices {
			l.from = append(l.from, from)
			l.weights = append(l.weights, newLinear(&b.params, name+"."+id.Operator, out, in[from]))
			l.readInput(b, l.weights[len(l.weights)-1], len(l.weights)-1)
		}
		if l.products, l.y = b.activation(level-1, out), b.activation(level-2, out); i > 0 {
			l.means = b.activation(level-1, hidden)
		}
		for k := range s.Relations {
			if i == 0 {
				l.inputMeans = append(l.inputMeans, b.scratch(partLevel-k, in[l.from[k]]))
			}
		}
		b.add(l.forward, l.backward)
		if rows = l.y; last {
			return rows
		}
		if s.Settings["norm"] == 1 {
			rows, _ = b.layerNorm(name+".norm", l.y, hidden)
		}
		b.relu(dropout{float32(s.Settings["dropout"]), uint64(i + 1)}, rows)
		in = slices.Repeat([]int{hidden}, len(in))
	}
	return b.dense(newLinear(&b.params, "out", s.Classes, hidden), rows, 0)
}

// readInput declares that a linear layer reads the sources of part k, if these are features.
func (l *relationalLayer) readInput(b *builder, w *linear, k int) {
	if l.x == nil && l.learned[l.from[k]] == nil {
		b.reader(w, []read{{l.from[k], 1, 0}})
	}
}

// addBases adds the weights of relations, made of bases: of those from one type, whose features these bases are for, or
// in layers that read no features of all.
func (l *relationalLayer) addBases(b *builder, s Spec, name string, out int, in []int) {
	l.weights = make([]*linear, len(s.Relations))
	for from, id := range s.Matrices {
		var of []int
		for k := range s.Relations {
			if l.from[k] == from || l.x != nil {
				of = append(of, k)
			}
		}
		if len(of) == 0 {
			continue
		}
		group := name
		if l.x == nil {
			group += "." + id.Operator
		}
		m := b.basisSum(group, s.Settings.integer("bases"), len(of), out, in[from])
		l.readInput(b, m.v, of[0])
		for i, k := range of {
			l.weights[k] = m.linears[i]
		}
		if l.bases = append(l.bases, m); l.x != nil {
			return
		}
	}
}

// typeOf is the matrix of a type; -1: there is none.
func (s Spec) typeOf(name string) int {
	return slices.Index(s.Matrices, MatrixID{Operator: name})
}

// checkRelations returns an error unless relations lead from types to types.
func (s Spec) checkRelations() error {
	seen := map[Relation]bool{}
	for _, r := range s.Relations {
		if s.typeOf(r.Source) < 0 || s.typeOf(r.Destination) < 0 || seen[r] || len(s.Relations) > maxMatrices {
			return fmt.Errorf("the relations of a model with the types %v cannot be %v", s.Matrices, s.Relations)
		}
		seen[r] = true
	}
	return nil
}

// eachPart calls do with the operand of each part of the rows that there are, and their products.
func (l *relationalLayer) eachPart(p *pass, products gds.Tensor,
	do func(k, lo, hi int, x operand, product gds.Tensor)) {
	parts := p.Blocks[l.place].Parts
	for k := range l.weights {
		lo, hi := int(parts[k]), int(parts[k+1])
		if lo == hi {
			continue
		}
		var x operand
		switch {
		case l.x != nil:
			x = operand{l.means.value(p).Slice(lo, hi), 1, 0}
		case k < len(l.inputMeans):
			x = operand{l.inputMeans[k].value(p), p.scales[l.from[k]], 0}
		default: // the destinations of a type are the first of its inputs
			x = operand{l.rowsOf(p, l.from[k]).Slice(0, hi-lo), p.scales[l.from[k]], 0}
		}
		do(k, lo, hi, x, products.Slice(lo, hi))
	}
}

// rowsOf are the rows of the inputs of a type, of the first layer.
func (l *relationalLayer) rowsOf(p *pass, kind int) gds.Tensor {
	if e := l.learned[kind]; e != nil {
		return e.rows.value(p)
	}
	return p.X[kind]
}

func (l *relationalLayer) forward(p *pass) {
	along, sums := p.Blocks[l.place], p.Blocks[l.place+1]
	for _, m := range l.bases {
		m.forward(p)
	}
	if l.x != nil {
		p.SumEdges(l.means.value(p), l.x.value(p), along.Offsets, along.Indices, along.Weights)
	}
	l.eachPart(p, l.products.value(p), func(k, lo, hi int, x operand, product gds.Tensor) {
		if k < len(l.inputMeans) {
			p.SumEdges(x.Tensor, l.rowsOf(p, l.from[k]), along.Offsets.Columns(lo, hi+1), along.Indices, along.Weights)
		}
		l.weights[k].forward(p, product, x)
	})
	p.SumEdges(l.y.value(p), l.products.value(p), sums.Offsets, sums.Indices, sums.Weights)
}

func (l *relationalLayer) backward(p *pass) {
	along, sums := p.Blocks[l.place], p.Blocks[l.place+1]
	for _, m := range l.bases {
		m.begin(p)
	}
	if l.x == nil {
		for _, e := range l.learned {
			e.begin(p)
		}
	}
	gproducts := l.products.gradient(p)
	p.SumEdgesGrad(gproducts, l.y.gradient(p), sums.Offsets, sums.Indices, sums.Weights)
	l.eachPart(p, gproducts, func(k, lo, hi int, x operand, gproduct gds.Tensor) {
		l.weights[k].backward(p, gproduct, x)
		if l.x != nil {
			l.weights[k].inputGradient(p, l.means.gradient(p).Slice(lo, hi), 0, gproduct)
		} else if e := l.learned[l.from[k]]; e != nil {
			if k >= len(l.inputMeans) {
				l.weights[k].inputGradient(p, e.rows.gradient(p).Slice(0, hi-lo), 1, gproduct)
				return
			}
			l.weights[k].inputGradient(p, x.Tensor, 0, gproduct) // the means are of no more use
			p.SumEdgesGrad(e.sum.value(p), x.Tensor, along.Offsets.Columns(lo, hi+1), along.Indices, along.Weights)
			p.Axpy(1, e.sum.value(p), e.rows.gradient(p))
		}
	})
	if l.x != nil {
		p.SumEdgesGrad(l.x.gradient(p), l.means.gradient(p), along.Offsets, along.Indices, along.Weights)
	}
	for _, m := range l.bases {
		m.backward(p)
	}
}
