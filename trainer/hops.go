package trainer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
)

// allHops is the input and all hops of all operators: kind.chooseMatrices of models that read them.
func allHops(input, last []MatrixID) []MatrixID {
	ids := slices.Clone(input)
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
// input, which is hop 0 of all of them (preprop-gnn Eq. 2), before.
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

// hopLayers adds a linear layer for each hop, on the concatenation of the hop's matrices, with ReLU and dropout of id
// 0. It returns their outputs side by side.
func (b *builder) hopLayers(s Spec, width int, probability float32) (out *activation, hops int) {
	var layers []*inputLayer
	for _, from := range s.byHop() {
		layers = append(layers, b.inputLayer(fmt.Sprintf("hop-%d", s.Matrices[from[0]].Hop), width, s, from))
	}
	out = b.readInput(layers...)
	b.relu(dropout{probability, 0}, out)
	return out, len(layers)
}

// The tokens of a row, one for each hop, lie side by side in a matrix [n, tokens*width]. The same memory is a matrix
// [n*tokens, width], which linear layers and normalisation work on.

// asTokens is a dense matrix [n, tokens*width] as [n*tokens, width].
func asTokens(x gds.Tensor, tokens int) gds.Tensor {
	if tokens > 1 {
		x.Rows, x.Cols, x.Stride = x.Rows*tokens, x.Cols/tokens, x.Cols/tokens
	}
	return x
}

// token is the part of tokens [n, count*width] that is token i.
func token(tokens gds.Tensor, i, count int) gds.Tensor {
	width := tokens.Cols / count
	return tokens.Columns(i*width, (i+1)*width)
}
