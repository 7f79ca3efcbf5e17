package trainer

import "github.com/hopfeed/hopfeed/gds"

// InputScale is how a model takes an input matrix: columns are centred and brought to one unit while
// the model is trained, and the matrix is multiplied by Scale in any case.
type InputScale struct {
	Scale  float32
	Mean   []float32 // of each column
	Factor []float32 // that it is multiplied by: a power of two
}

// columns is what training knows of the columns of an input matrix, [1,features] each.
type columns struct {
	mean            gds.Tensor
	factor, inverse gds.Tensor // powers of two that columns are multiplied by, and one by them
	scaled          bool       // some factor is not one
}

// allocateColumns gets memory for the columns, and for measuring them.
func (n *network) allocateColumns() (err error) {
	if n.momentBlock, err = n.mem.pinned("moments", gds.Bytes(momentRows, n.spec.Features, gds.Float32)); err != nil {
		return err
	}
	n.columns = make([]columns, len(n.spec.Matrices))
	for i := range n.columns {
		three, err := n.mem.matrix("means", 3, n.spec.Features, gds.Float32)
		if err != nil {
			return err
		}
		n.columns[i] = columns{mean: three.Slice(0, 1), factor: three.Slice(1, 2), inverse: three.Slice(2, 3)}
	}
	return nil
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

// eachInput calls do for the columns [lo, hi) of the weights of each layer that reads an
// input matrix, which are for matrix i.
func (n *network) eachInput(do func(r *inputLayer, i, lo, hi int)) {
	for _, r := range n.inputLayers {
		at := 0
		for k, i := range r.from {
			do(r, i, at, at+r.inputs[k])
			at += r.inputs[k]
		}
	}
}

// standardize turns the parameters for features as they are stored into those that give the
// same for standardized ones: a layer y = sum over k of scale_k W_k x_k + b becomes one of
// the columns D_k (x_k - mean_k), where D_k are their factors: b grows by scale_k W_k mean_k,
// and W_k is divided by D_k. Only steps are made with standardized features: the parameters
// of a model, whether in use or saved, are for stored ones.
func (n *network) standardize() {
	n.eachInput(func(r *inputLayer, i, lo, hi int) {
		c, weights := n.columns[i], r.weight.value.Columns(lo, hi)
		n.stream.Gemm(false, true, n.scales[i], c.mean, weights, 1, r.bias.value)
		if c.scaled {
			n.stream.MulRow(weights, c.inverse)
		}
	})
}

// restore undoes standardize.
func (n *network) restore() {
	n.eachInput(func(r *inputLayer, i, lo, hi int) {
		c, weights := n.columns[i], r.weight.value.Columns(lo, hi)
		if c.scaled {
			n.stream.MulRow(weights, c.factor)
		}
		n.stream.Gemm(false, true, -n.scales[i], c.mean, weights, 1, r.bias.value)
	})
}

// standardizeGradient makes the gradient of the weights for features as they are stored that
// of those for standardized ones.
func (n *network) standardizeGradient() {
	n.eachInput(func(r *inputLayer, i, lo, hi int) {
		c, grad := n.columns[i], r.weight.grad.Columns(lo, hi)
		n.stream.Gemm(true, false, -n.scales[i], r.bias.grad, c.mean, 1, grad)
		if c.scaled {
			n.stream.MulRow(grad, c.factor)
		}
	})
}
