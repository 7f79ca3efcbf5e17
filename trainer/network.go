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
	spec      Spec
	batchRows int
	model     model
	params    parameters
	scaled    bool
	scales    []float32  // that the input matrices are multiplied by
	sums      gds.Tensor // for squares
	block     gds.Tensor // for squares: rows of a matrix, one after another
	meter     *meter
	profile   *profile // nil: none
	stream    gds.Stream
	mem       memory
}

// maxBatchRows is beyond use, and small enough that the bytes of any model are a
// number.
const maxBatchRows = 1 << 28

// DeviceBytes is the device memory that Fit (train) or Evaluate takes for a model
// and batches of up to batchRows rows, beside the batches themselves: parameters,
// with gradients, Adam's moments and the best values for training; activations,
// with gradients for training; the meters of loss and accuracy. It counts in
// pages of gds.Align bytes.
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
	spec, declared, err := spec.settled()
	if err != nil {
		return nil, err
	}
	if batchRows < 1 || batchRows > maxBatchRows {
		return nil, fmt.Errorf("%w: batches of at most %d rows: must be 1 to %d", ErrOptions, batchRows, maxBatchRows)
	}
	n := &network{spec: spec, batchRows: batchRows, model: declared.model, params: declared.parameters, mem: memory{dev: dev},
		scaled: declared.scaled, scales: slices.Repeat([]float32{1}, len(spec.Matrices))}
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
		if train && n.scaled {
			if n.sums, err = n.mem.matrix("sums", 1, len(spec.Matrices), gds.Float32); err != nil {
				return err
			}
			if n.block, err = n.mem.matrix("sums", 1, min(batchRows, squaredRows)*spec.Features, gds.Float32); err != nil {
				return err
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

// check compares a batch with what the network was made for.
func (n *network) check(b *loader.Batch) error {
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

// operands are the matrices of a batch in the units of the model.
func (n *network) operands(b *loader.Batch) []operand {
	x := make([]operand, len(b.X))
	for i := range x {
		x[i] = operand{b.X[i], n.scales[i]}
	}
	return x
}

// squaredRows is how many rows squares sums up at once.
const squaredRows = 64

// squares is the sum of the squares of the elements of each matrix of a batch.
func (n *network) squares(ctx context.Context, b *loader.Batch) ([]float32, error) {
	for i, x := range b.X {
		// The sum of squares is a product of a row with a column, block by block
		// since it is summed in float32.
		for lo := 0; lo < x.Rows; lo += squaredRows {
			part := x.Slice(lo, min(lo+squaredRows, x.Rows))
			block := gds.NewTensor(n.block.Buf, part.Rows, part.Cols, gds.Float32)
			block.Offset = n.block.Offset
			n.stream.Copy(block, part)
			block.Rows, block.Cols, block.Stride = 1, part.Rows*part.Cols, part.Rows*part.Cols
			n.stream.Gemm(false, true, 1, block, block, 1, n.sums.Columns(i, i+1))
		}
	}
	squares := make([]float32, len(n.spec.Matrices))
	n.stream.CopyOut(dtype.BytesOf(squares), n.sums)
	return squares, n.stream.Synchronize(ctx)
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
	n.profile.lap(n.stream, "backward")
}

// step enqueues one step of Adam.
func (n *network) step(o gds.AdamOptions) {
	n.stream.Adam(n.params.value, n.params.grad, n.params.m, n.params.v, o)
	n.profile.lap(n.stream, "optimizer")
}

// count enqueues the counting of the rows of a batch that are labelled, and of those
// that are classified correctly.
func (n *network) count(b *loader.Batch) {
	if b.Rows == 0 {
		return
	}
	logits := n.model.forward(&pass{Stream: n.stream, rows: b.Rows}, n.operands(b))
	n.stream.CountCorrect(n.meter.count, logits.out.Slice(0, b.Rows), b.Labels)
}
