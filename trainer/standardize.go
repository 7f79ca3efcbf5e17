package trainer

import (
	"slices"

	"github.com/hopfeed/hopfeed/gds"
)

// InputScale is how a model takes an input matrix: columns are centred and brought to one unit while
// the model is trained, and the matrix is multiplied by Scale in any case.
type InputScale struct {
	Scale  float32
	Mean   []float32 // of each column
	Factor []float32 // that it is multiplied by: a power of two
}

// columns holds means and factors of the columns of an input matrix, [1,features] each.
type columns struct {
	mean            gds.Tensor
	factor, inverse gds.Tensor // powers of two that columns are multiplied by, and one by them
	scaled          bool       // some factor is not one
}

// allocateColumns gets memory for the columns, and for measuring them.
func (n *network) allocateColumns() {
	n.momentBlock = n.mem.Pin("moments", gds.Bytes(momentRows, n.spec.widest(), gds.Float32))
	n.columns = make([]columns, len(n.spec.Matrices))
	for i := range n.columns {
		three := n.mem.Matrix("means", 3, n.spec.Width(i), gds.Float32)
		n.columns[i] = columns{mean: three.Slice(0, 1), factor: three.Slice(1, 2), inverse: three.Slice(2, 3)}
	}
}

// setInputs sets the scales of the input matrices, and waits until they are there.
func (n *network) setInputs(inputs []InputScale) error {
	for i, in := range inputs {
		n.scales[i] = in.Scale
		c := &n.columns[i]
		inverse := make([]float32, len(in.Factor))
		c.scaled = false
		for j, f := range in.Factor {
			inverse[j] = 1 / f
			c.scaled = c.scaled || f != 1
		}
		for _, v := range []struct {
			to   gds.Tensor
			from []float32
		}{{c.mean, in.Mean}, {c.factor, in.Factor}, {c.inverse, inverse}} {
			if err := n.upload(v.to, v.from); err != nil {
				return err
			}
		}
	}
	return nil
}

// block is a part of the weights of layers that read input matrices, as wide as these. All
// matrices that are multiplied by it have the same factors.
type block struct {
	weights    *parameter
	at, matrix int // its first column; one of its matrices
}

// findBlocks lists the blocks of all layers.
func (b *builder) findBlocks() (all []block) {
	for _, l := range b.inputLayers {
		for _, r := range l.reads {
			known := func(k block) bool { return k.weights == l.weight && k.at == r.at }
			if !slices.ContainsFunc(all, known) {
				all = append(all, block{l.weight, r.at, r.matrix})
			}
		}
	}
	return all
}

// sharesBlocks tells whether some matrices are multiplied by the same weights.
func (n *network) sharesBlocks() bool {
	reads := 0
	for _, l := range n.inputLayers {
		reads += len(l.reads)
	}
	return reads > len(n.weightBlocks)
}

// scaleBlocks multiplies the columns of weights, or their gradients, by numbers of the columns of the input.
func (n *network) scaleBlocks(of func(*parameter) gds.Tensor, by func(columns) gds.Tensor) {
	for _, b := range n.weightBlocks {
		if c := n.columns[b.matrix]; c.scaled {
			n.stream.MulRow(n.block(of(b.weights), b.at, b.matrix), by(c))
		}
	}
}

func valueOf(q *parameter) gds.Tensor    { return q.value }
func gradientOf(q *parameter) gds.Tensor { return q.grad }

// eachRead calls do for every input matrix that a layer reads: scale is what the matrix is
// multiplied by, and mean the means of its columns.
func (n *network) eachRead(do func(l *inputLayer, r read, scale float32, mean gds.Tensor)) {
	for _, l := range n.inputLayers {
		for _, r := range l.reads {
			if l.bias != nil { // else the input is not centred
				do(l, r, r.by*n.scales[r.matrix], n.columns[r.matrix].mean)
			}
		}
	}
}

// standardize turns the parameters for features as they are stored into those that give the same for standardized ones:
// a layer y = sum over k of scale_k W_k x_k + b becomes one of the columns D_k (x_k - mean_k), where D_k are their
// factors: b grows by scale_k W_k mean_k, and W_k is divided by D_k. Only steps are made with standardized features:
// the parameters of a model, whether in use or saved, are for stored ones.
func (n *network) standardize() {
	n.eachRead(func(l *inputLayer, r read, scale float32, mean gds.Tensor) {
		if !l.bias.fixed {
			n.addMean(l, r, scale, mean)
		}
	})
	n.scaleBlocks(valueOf, func(c columns) gds.Tensor { return c.inverse })
}

// restore undoes standardize. A bias that is fixed is zero for standardized features.
func (n *network) restore() {
	n.scaleBlocks(valueOf, func(c columns) gds.Tensor { return c.factor })
	for _, l := range n.inputLayers {
		if l.bias != nil && l.bias.fixed {
			n.stream.Fill(l.bias.value, 0)
		}
	}
	n.eachRead(func(l *inputLayer, r read, scale float32, mean gds.Tensor) {
		n.addMean(l, r, -scale, mean)
	})
}

// addMean adds to a bias by times what the layer makes of the mean of a matrix that it reads.
func (n *network) addMean(l *inputLayer, r read, by float32, mean gds.Tensor) {
	if l.diagonal == nil {
		n.stream.Gemm(false, true, by, mean, n.block(l.weight.value, r.at, r.matrix), 1, l.bias.value)
	} else {
		n.addProduct(l, by, mean, l.weight.value, l.bias.value)
	}
}

// standardizeGradient turns the gradient of the input weights from that for stored features into that for standardized
// features.
func (n *network) standardizeGradient() {
	n.eachRead(func(l *inputLayer, r read, scale float32, mean gds.Tensor) {
		if l.diagonal == nil {
			n.stream.Gemm(true, false, -scale, l.bias.grad, mean, 1, n.block(l.weight.grad, r.at, r.matrix))
		} else {
			n.addProduct(l, -scale, mean, l.bias.grad, l.weight.grad)
		}
	})
	n.scaleBlocks(gradientOf, func(c columns) gds.Tensor { return c.factor })
}

// addProduct adds by times u times v, by element, to a vector of a diagonal layer.
func (n *network) addProduct(l *inputLayer, by float32, u, v, to gds.Tensor) {
	product := l.diagonal.out.Columns(0, u.Cols)
	n.stream.Mul(product, u, v)
	n.stream.Axpy(by, product, to)
}

// block is the part of a matrix of the shape of weights, from column at on, that is for one input matrix.
func (n *network) block(weights gds.Tensor, at, matrix int) gds.Tensor {
	return weights.Columns(at, at+n.spec.Width(matrix))
}
