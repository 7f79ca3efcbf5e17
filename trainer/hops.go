package trainer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
)

// allHops is the input and all hops of all operators: kind.chooseMatrices of models that read them.
func allHops(input MatrixID, last []MatrixID) []MatrixID {
	ids := []MatrixID{input}
	for _, l := range last {
		for hop := 1; hop <= l.Hop; hop++ {
			ids = append(ids, MatrixID{Operator: l.Operator, Hop: hop})
		}
	}
	return ids
}

// byHop lists, for each hop that there is, the places of its matrices, one of each operator.
func (s Spec) byHop() (hops [][]int) {
	for hop := range s.lastHop() + 1 {
		var from []int
		for i, id := range s.Matrices {
			if id.Hop == hop {
				from = append(from, i)
			}
		}
		if len(from) > 0 {
			hops = append(hops, from)
		}
	}
	return hops
}

// byOperator lists, for each operator, the places of its matrices from the first hop to the last, with the
// input, which is hop 0 of all of them (preprop-gnn Equation 2), before.
func (s Spec) byOperator() (operators [][]int) {
	var input []int
	places := map[string]int{}
	order := make([]int, len(s.Matrices))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Matrices[a].Hop, s.Matrices[b].Hop) })
	for _, i := range order {
		id := s.Matrices[i]
		if id.Hop == 0 {
			input = append(input, i)
			continue
		}
		at, known := places[id.Operator]
		if !known {
			at = len(operators)
			places[id.Operator] = at
			operators = append(operators, slices.Clone(input))
		}
		operators[at] = append(operators[at], i)
	}
	if len(operators) == 0 {
		return [][]int{input}
	}
	return operators
}

// hopLayers are a linear layer for each hop, with ReLU and dropout, on the concatenation of the
// hop's matrices. Their outputs lie side by side.
type hopLayers struct {
	layers []*inputLayer
	act    nonlinearity
	out    *activation // [n, hops*width]
}

// newHopLayers declares them. Their dropout has the id 0.
func newHopLayers(b *builder, s Spec, width int, probability float32) *hopLayers {
	l := &hopLayers{act: newNonlinearity(probability, 0)}
	for _, from := range s.byHop() {
		l.layers = append(l.layers, b.inputLayer(fmt.Sprintf("hop-%d", s.Matrices[from[0]].Hop), width, s, from))
	}
	l.out = b.activation(len(l.layers) * width)
	return l
}

func (l *hopLayers) forward(p *pass) gds.Tensor {
	y, _ := l.out.of(p)
	for i, layer := range l.layers {
		layer.forward(p, token(y, i, len(l.layers)))
	}
	l.act.forward(p, y)
	return y
}

// backward is for the gradient in out.
func (l *hopLayers) backward(p *pass) {
	y, gy := l.out.of(p)
	l.act.backward(p, gy, y)
	for i, layer := range l.layers {
		layer.backward(p, token(gy, i, len(l.layers)))
	}
}

// token is the part of tokens [n, count*width] that is token i.
func token(tokens gds.Tensor, i, count int) gds.Tensor {
	width := tokens.Cols / count
	return tokens.Columns(i*width, (i+1)*width)
}
