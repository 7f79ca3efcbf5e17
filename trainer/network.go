package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
)

// network is a model on a device: parameters, scratch memory for one batch, and
// the stream that computes it.
type network struct {
	spec        Spec
	batchRows   int
	model       model
	params      parameters
	size        float64 // see kind
	inputLayers []inputLayer
	scales      []float32  // that the input matrices are multiplied by
	columns     []columns  // of each input matrix, for training: see group.measureScales
	momentBlock gds.Buffer // for eachRow: pinned, for rows of a matrix
	meter       *meter
	profile     *profile // nil: none
	stream      gds.Stream
	mem         memory
}

// columns is what training knows of the columns of an input matrix, [1,features] each.
type columns struct {
	mean            gds.Tensor
	factor, inverse gds.Tensor // powers of two that columns are multiplied by, and one by them
	scaled          bool       // some factor is not one
}

// maxBatchRows is far beyond what is useful, and small enough that the bytes of any model fit
// an int64.
const maxBatchRows = 1 << 28

// DeviceBytes is the device memory that Fit (train) or Evaluate needs beside the batches, for
// batches of up to batchRows rows: parameters, activations, and the meters of loss and
// accuracy; for training also gradients, Adam's moments and the best parameters. It is
// rounded up to pages of gds.Align bytes for each allocation.
func (s Spec) DeviceBytes(batchRows int, train bool) (int64, error) {
	n, err := newNetwork(nil, s, batchRows, train)
	if err != nil {
		return 0, err
	}
	return n.mem.bytes, nil
}

// newNetwork allocates what a model needs for batches of up to batchRows rows;
// for training, gradients too. Parameters are zero. Without a device, memory is
// counted, and nothing can be computed.
func newNetwork(dev gds.Device, spec Spec, batchRows int, train bool) (*network, error) {
	spec, declared, err := spec.normalized()
	if err != nil {
		return nil, err
	}
	if batchRows < 1 || batchRows > maxBatchRows {
		return nil, fmt.Errorf("%w: batches of at most %d rows: must be 1 to %d", ErrOptions, batchRows, maxBatchRows)
	}
	n := &network{spec: spec, batchRows: batchRows, model: declared.model, params: declared.parameters, mem: memory{dev: dev},
		size: declared.size, inputLayers: declared.inputLayers, scales: slices.Repeat([]float32{1}, len(spec.Matrices))}
	allocate := func() error {
		if err := n.params.allocate(&n.mem, train); err != nil {
			return err
		}
		for _, a := range declared.activations {
			if a.out, err = n.mem.matrix("activations", batchRows, a.cols, gds.Float32); err != nil {
				return err
			}
			if !train {
				continue
			}
			if a.grad, err = n.mem.matrix("gradients", batchRows, a.cols, gds.Float32); err != nil {
				return err
			}
		}
		if n.meter, err = newMeter(&n.mem); err != nil {
			return err
		}
		if train {
			if n.momentBlock, err = n.mem.pinned("moments", gds.Bytes(momentRows, spec.Features, gds.Float32)); err != nil {
				return err
			}
			n.columns = make([]columns, len(spec.Matrices))
			for i := range n.columns {
				three, err := n.mem.matrix("means", 3, spec.Features, gds.Float32)
				if err != nil {
					return err
				}
				n.columns[i] = columns{mean: three.Slice(0, 1), factor: three.Slice(1, 2), inverse: three.Slice(2, 3)}
			}
		}
		if dev != nil {
			n.stream, err = dev.NewStream()
		}
		return err
	}
	if err := allocate(); err != nil {
		return nil, errors.Join(err, n.mem.free())
	}
	return n, nil
}

// close waits for all work and frees all memory.
func (n *network) close() error {
	return errors.Join(n.stream.Close(), n.mem.free())
}

// checkBatch returns an error unless the batch has the shape that the network was made for.
func (n *network) checkBatch(b *loader.Batch) error {
	if b.Rows > n.batchRows {
		return fmt.Errorf("%d rows, but memory for %d", b.Rows, n.batchRows)
	}
	if len(b.X) != len(n.spec.Matrices) {
		return fmt.Errorf("%d matrices, but %s was made for %d", len(b.X), n.spec.Model, len(n.spec.Matrices))
	}
	for i, x := range b.X {
		if x.Cols != n.spec.Features || x.Rows != b.Rows || x.DType != gds.Float32 {
			return fmt.Errorf("%s is %v, but [%d,%d]float32 was expected", n.spec.Matrices[i], x, b.Rows, n.spec.Features)
		}
	}
	return nil
}

// operands are the matrices of a batch, with the scales that the model multiplies them by.
func (n *network) operands(b *loader.Batch) []operand {
	x := make([]operand, len(b.X))
	for i := range x {
		x[i] = operand{b.X[i], n.scales[i]}
	}
	return x
}

// momentRows is how many rows eachRow brings to the host at once.
const momentRows = 64

// eachRow calls do for the rows of matrix i of a batch.
func (n *network) eachRow(ctx context.Context, b *loader.Batch, i int, do func(row []float32)) error {
	x := b.X[i]
	rows := dtype.Float32s(n.momentBlock.Bytes())
	for lo := 0; lo < x.Rows; lo += momentRows {
		part := x.Slice(lo, min(lo+momentRows, x.Rows))
		n.stream.Copy(gds.NewTensor(n.momentBlock, part.Rows, part.Cols, gds.Float32), part)
		if err := n.stream.Synchronize(ctx); err != nil {
			return err
		}
		for r := range part.Rows {
			do(rows[r*x.Cols : (r+1)*x.Cols])
		}
	}
	return nil
}

// eachInput calls do for the columns [lo, hi) of the weights of each layer that reads an
// input matrix, which are for matrix i.
func (n *network) eachInput(do func(r inputLayer, i, lo, hi int)) {
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
	n.eachInput(func(r inputLayer, i, lo, hi int) {
		c, weights := n.columns[i], r.weight.value.Columns(lo, hi)
		n.stream.Gemm(false, true, n.scales[i], c.mean, weights, 1, r.bias.value)
		if c.scaled {
			n.stream.MulRow(weights, c.inverse)
		}
	})
}

// restore undoes standardize.
func (n *network) restore() {
	n.eachInput(func(r inputLayer, i, lo, hi int) {
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
	n.eachInput(func(r inputLayer, i, lo, hi int) {
		c, grad := n.columns[i], r.weight.grad.Columns(lo, hi)
		n.stream.Gemm(true, false, -n.scales[i], r.bias.grad, c.mean, 1, grad)
		if c.scaled {
			n.stream.MulRow(grad, c.factor)
		}
	})
}

// gradient enqueues the loss of a batch, summed over its rows and added to the
// meter, and the gradient of the mean loss over the batch's rows on all ranks.
func (n *network) gradient(b *loader.Batch, dropoutSeed uint64) {
	if b.Rows == 0 {
		n.stream.Fill(n.params.grad, 0)
		return
	}
	p := &pass{Stream: n.stream, rows: b.Rows, train: true, seed: dropoutSeed}
	x := n.operands(b)
	logits := n.model.forward(p, x)
	n.stream.SoftmaxCrossEntropy(n.meter.loss, logits.grad.Slice(0, b.Rows), logits.out.Slice(0, b.Rows), b.Labels, 1/float32(b.GlobalRows))
	n.profile.lap(n.stream, "forward")
	n.model.backward(p, x)
	n.standardizeGradient()
	n.profile.lap(n.stream, "backward")
}

// step enqueues one step of Adam. Biases do not decay: a model that shrinks towards them
// predicts how frequent the classes are.
func (n *network) step(o gds.AdamOptions) {
	n.standardize()
	p := &n.params
	for _, q := range p.list {
		o := o
		if !q.decays {
			o.WeightDecay = 0
		}
		lo, hi := q.first, q.first+q.rows*q.cols
		n.stream.Adam(p.value.Columns(lo, hi), p.grad.Columns(lo, hi), p.m.Columns(lo, hi), p.v.Columns(lo, hi), o)
	}
	n.restore()
	n.profile.lap(n.stream, "optimizer")
}

// evaluateBatch enqueues the evaluation of a batch: it adds to the meter the number of labelled
// rows, the number of correctly classified ones, and the sum of their losses.
func (n *network) evaluateBatch(b *loader.Batch) {
	if b.Rows == 0 {
		return
	}
	logits := n.model.forward(&pass{Stream: n.stream, rows: b.Rows}, n.operands(b))
	n.stream.CountCorrect(n.meter.count, logits.out.Slice(0, b.Rows), b.Labels)
	n.stream.SoftmaxCrossEntropy(n.meter.loss, gds.Tensor{}, logits.out.Slice(0, b.Rows), b.Labels, 0)
}
