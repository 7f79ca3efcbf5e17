package trainer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// narsKind is NARS (Yu et al. 2020, sections 3.1 and 3.2), for subsets of a typed graph's relations: features that came
// along l relations by the subsets i = 1 ... K are added up column by column,
//
//	H_l = sum over i of a_(i,l) * H_(i,l),
//
// where a_(i,l) has a learnt number for each column; then H_l goes where hop l goes in SIGN. The paper brings the
// features of all types to one width; here each type has a sum of its own, with a linear layer of its own, so that few
// columns say as much as many. Metapaths, and operators of plain graphs, take the place of subsets. Matrices are scaled
// as in SIGN, and a begins as 1/K instead of at random, so that a sum begins as a mean.
var narsKind = kind{
	name: "nars", about: "sums over subsets of relations (metapaths), weighed by column, then as sign",
	chooseMatrices: allHops,
	settings:       mlpSettings(0.7),
	build:          newNARS,
	size:           func(int) float64 { return 1 },
	defaults:       Settings{Options: Options{LearningRate: 0.003, Epochs: 200, Patience: 20}, BatchRows: 512},
	decay:          3,
	mostDecay:      0.002,
	few:            func(s *Settings) { s.Epochs, s.Patience = 400, 50 },
}

func newNARS(s Spec, b *builder) *activation {
	hidden, probability := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	x, sums := b.weighedSums(s)
	h := b.eachPart(hidden, x, sums...)
	b.relu(dropout{probability, 0}, h)
	return b.mlp(h, s.Classes, hidden, s.Settings.integer("layers")-2, probability)
}

// origin is where the features of a matrix come from.
type origin struct {
	hops     int    // relations that they have come along
	features string // the type whose features they are, "" of a plain graph; with ":labels", its labels
	width    int
}

func (s Spec) origin(matrix int) origin {
	o := originOf(s.Matrices[matrix])
	o.width = s.Width(matrix)
	return o
}

// originOf reads the origin of a matrix, without its width, from its operator's name, as docs/format.md ("Typed
// graphs") spells them.
func originOf(id MatrixID) origin {
	o := origin{hops: id.Hop}
	path, flag, labels := strings.Cut(id.Operator[strings.Index(id.Operator, ":")+1:], ":")
	at := strings.LastIndex(path, "<")
	if at < 0 {
		return o
	}
	o.hops, o.features = strings.Count(path, "<"), path[at+1:]
	if _, source, named := strings.Cut(o.features, "."); named {
		o.features = source
	}
	if labels {
		o.features += ":" + flag
	}
	if _, hop, ofSubset := strings.Cut(path, "="); ofSubset {
		hop, _, _ = strings.Cut(hop, "<")
		o.hops, _ = strconv.Atoi(hop)
	}
	return o
}

// byOrigin lists the matrices of each origin, by hops.
func (s Spec) byOrigin() (origins []origin, matrices [][]int) {
	for i := range s.Matrices {
		o := s.origin(i)
		at := slices.Index(origins, o)
		if at < 0 {
			at = len(origins)
			for at > 0 && origins[at-1].hops > o.hops {
				at--
			}
			origins, matrices = slices.Insert(origins, at, o), slices.Insert(matrices, at, nil)
		}
		matrices[at] = append(matrices[at], i)
	}
	return origins, matrices
}

// weighedSums adds up the matrices of each origin, after it has multiplied each column of a matrix by its weight. y has
// the sums side by side, and sums says which columns are which sum.
func (b *builder) weighedSums(s Spec) (y *activation, sums []part) {
	origins, matrices := s.byOrigin()
	y = b.activation(0, 0)
	widest := s.widest()
	product, sum := b.scratch(0, widest), b.vector(widest)
	for i, o := range origins {
		from := y.cols
		y.cols += o.width
		sums = append(sums, part{fmt.Sprintf("sum-%d", i), from, y.cols})
		shift := b.params.declare(fmt.Sprintf("a.bias-%d", i), 1, o.width, 0) // what centring adds
		shift.fixed = true
		inputs := make([]*inputLayer, len(matrices[i]))
		for k, matrix := range matrices[i] {
			a := b.params.declare(fmt.Sprintf("a-%d", matrix), 1, o.width, 0)
			a.centre = 1 / float32(len(inputs))
			inputs[k] = b.reader(&linear{weight: a, bias: shift, diagonal: sum}, []read{{matrix, 1, 0}})
		}
		b.add(func(p *pass) {
			y, u := y.value(p).Columns(from, from+o.width), product.value(p).Columns(0, o.width)
			p.Fill(y, 0)
			for _, l := range inputs {
				x := l.operands(p)[0]
				p.Copy(u, x.Tensor)
				p.MulRow(u, l.weight.value)
				p.Axpy(x.scale, u, y)
			}
			p.AddRow(y, shift.value)
		}, func(p *pass) {
			gy, u := y.gradient(p).Columns(from, from+o.width), product.value(p).Columns(0, o.width)
			p.SumRows(shift.grad, 1, gy)
			for _, l := range inputs {
				x, sum := l.operands(p)[0], sum.out.Columns(0, o.width)
				p.Mul(u, gy, x.Tensor)
				p.SumRows(sum, 0, u)
				p.Axpy(x.scale, sum, l.weight.grad)
			}
		})
	}
	return y, sums
}
