package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
)

// network is a model on a device: parameters, scratch memory for one batch, and the stream that computes it.
type network struct {
	builder
	rank, ranks  int // the number of this one, and how many there are
	task         task
	spec         Spec
	batchRows    int
	trainRows    int64   // of an epoch of training
	labelledPart float32 // of these
	states       graphStates
	weightBlocks []block
	scales       []float32     // that the input matrices are multiplied by
	columns      []columns     // of each input matrix, for training: see group.measureInputs
	momentBlock  gds.Buffer    // for eachRow: pinned, for rows of a matrix
	pass         pass          // the last
	growing      []*activation // in the pass
	lossSum      gds.Tensor    // over the rows so far
	lossHost     gds.Buffer    // pinned, to read it: see readLoss
	weights      gds.Tensor    // of classes, or none
	meter        *meter        // nil: to predict only
	profile      *profile      // nil: none
	submission   *submission
	stream       gds.Stream
	mem          gds.Memory
}

// maxBatchRows is more than is useful, and small enough that the bytes of any model fit an int64.
const maxBatchRows = 1 << 28

// DeviceBytes is the device memory that Fit (train) or Evaluate needs in addition to the batches, for batches of up to
// batchRows rows: parameters, activations, the loss and the default metric; for training also gradients, the vectors of
// the default optimizer and the best parameters. Each allocation is rounded up to pages of gds.Align bytes.
func (s Spec) DeviceBytes(batchRows int, train bool) (int64, error) {
	n, err := s.counted(batchRows, train)
	if err != nil {
		return 0, err
	}
	return n.mem.Bytes, nil
}

// counted is a network without a device, whose memory is only counted.
func (s Spec) counted(batchRows int, train bool) (*network, error) {
	t, err := Options{}.task(s, train)
	if err != nil {
		return nil, err
	}
	return newNetwork(nil, s, batchRows, t)
}

// newNetwork allocates the memory of a model for batches of up to batchRows rows; for training, gradients too.
// Parameters are zero. Without a device, memory is only counted.
func newNetwork(dev gds.Device, spec Spec, batchRows int, t task) (*network, error) {
	spec, declared, err := spec.normalized()
	if err != nil {
		return nil, err
	}
	if batchRows < 1 || batchRows > maxBatchRows {
		return nil, fmt.Errorf("%w: batches of at most %d rows: must be 1 to %d", ErrOptions, batchRows, maxBatchRows)
	}
	n := &network{
		builder: *declared, task: t, spec: spec, batchRows: batchRows, mem: gds.Memory{Device: dev},
		weightBlocks: declared.findBlocks(), labelledPart: 1, scales: slices.Repeat([]float32{1}, len(spec.Matrices)),
	}
	if err := n.allocate(); err != nil {
		return nil, errors.Join(err, n.mem.Free())
	}
	n.pass.Stream, n.pass.scales = n.stream, n.scales
	n.pass.meet = func(gds.Tensor) bool { return true } // alone
	return n, nil
}

func (n *network) allocate() (err error) {
	n.params.allocate(&n.mem, n.task)
	for _, a := range n.activations {
		if !a.grows() {
			a.allocate(&n.mem, cmp.Or(a.rows, n.batchRows), n.task.train)
		}
	}
	n.lossSum = n.mem.Matrix("loss", 1, 1, gds.Float32)
	n.lossHost = n.mem.Pin("loss", gds.Bytes(1, lossSlots, gds.Float32))
	if n.task.weights != nil {
		n.weights = n.mem.Matrix("class weights", 1, n.spec.Classes, gds.Float32)
	}
	if n.task.metric.score != nil {
		if n.meter, err = newMeter(&n.mem, n.task.metric, n.spec, n.batchRows); err != nil {
			return err
		}
	}
	if n.task.train {
		n.allocateColumns()
	}
	if n.mem.Device == nil || n.mem.Err != nil {
		return n.mem.Err
	}
	if n.stream, err = n.mem.Device.NewStream(); err != nil {
		return err
	}
	n.submission = newSubmission(n.stream)
	if n.task.weights == nil {
		return nil
	}
	weights := make([]float32, len(n.task.weights))
	for i, w := range n.task.weights {
		weights[i] = float32(w)
	}
	return n.upload(n.weights, weights)
}

// close waits for all work and frees all memory.
func (n *network) close() error {
	err := errors.Join(n.stream.Close(), n.states.free(), n.mem.Free())
	for _, a := range n.activations {
		err = errors.Join(err, a.mem.Free())
	}
	return err
}

// admit returns an error unless the network can compute the batch. For a graph that comes in chunks, the first batch
// makes it compute all layers along edges.
func (n *network) admit(ctx context.Context, b *loader.Batch) error {
	if err := n.checkBatch(b); err != nil {
		return err
	}
	if err := n.reserve(b); err != nil || b.Whole == nil || b.Whole.Chunks == nil {
		return err
	}
	return n.computeChunks(ctx, b)
}

// checkBatch returns an error unless the batch has the shape that the network was made for.
func (n *network) checkBatch(b *loader.Batch) error {
	var err error
	switch {
	case b.Rows > n.batchRows:
		err = fmt.Errorf("%d rows, but memory for %d", b.Rows, n.batchRows)
	case b.Sparse != nil && n.messages == nil:
		err = fmt.Errorf("sparse rows, but %s reads dense ones", n.spec.Model)
	case len(b.X) != len(n.spec.Matrices):
		err = fmt.Errorf("%d matrices, but %s was made for %d", len(b.X), n.spec.Model, len(n.spec.Matrices))
	default:
		err = n.checkBlocks(b)
	}
	if err == nil && n.meter != nil {
		err = n.spec.checkLabels(b.Labels)
	}
	rows, inputs := inputRows(b), 0
	for i, x := range b.X {
		if err != nil {
			break
		}
		if n.parts > 0 { // of each type some
			rows = x.Rows
		}
		if width := n.spec.given(i); x.Cols != width || x.Rows != rows || x.DType != gds.Float32 {
			err = fmt.Errorf("%s is %v, but [%d,%d]float32 was expected", n.spec.Matrices[i], x, rows, width)
		}
		inputs += x.Rows
	}
	if err == nil && len(n.spec.Nodes) > 0 && len(b.Blocks) > 0 && b.InputIDs.Cols != inputs {
		err = fmt.Errorf("%d numbers of %d input nodes", b.InputIDs.Cols, inputs)
	}
	if err != nil {
		return fmt.Errorf("batch %d: %w", b.Index, err)
	}
	return nil
}

// forward enqueues the forward pass of a batch, and returns the logits. It may meet the other ranks.
func (n *network) forward(b *loader.Batch, train bool, dropoutSeed uint64) gds.Tensor {
	p := &n.pass
	p.begin(b, n.messages)
	p.trainRows, p.train, p.seed = n.trainRows, train, dropoutSeed
	layers := n.layers
	switch {
	case n.messages != nil && p.Whole != nil:
		n.messages.ofGraph(p)
		layers = layers[n.messages.after:]
	case n.idle():
		layers = nil
	}
	for _, l := range layers {
		l.forward(p)
	}
	return n.logits.value(p)
}

// idle tells that the last batch has no rows, and therefore no blocks, for a model that reads a graph.
func (n *network) idle() bool { return n.blocks > 0 && n.pass.Rows == 0 }

// backward enqueues the backward pass of the last batch. It may meet the other ranks.
func (n *network) backward() {
	n.stream.Fill(n.params.grad, 0)
	if !n.idle() {
		for _, l := range slices.Backward(n.layers) {
			l.backward(&n.pass)
		}
	}
	n.standardizeGradient()
}

// gradient enqueues the loss of a batch, summed over its rows and added to that of the batches
// before, and the rank's part of the gradient of the mean loss over the batch's labelled rows on all ranks.
func (n *network) gradient(b *loader.Batch, dropoutSeed uint64) {
	out := n.forward(b, true, dropoutSeed)
	n.addLoss(out, n.logits.gradient(&n.pass), b, 1/(float32(max(b.GlobalRows, 1))*n.labelledPart))
	n.profile.lap(n.stream, "forward")
	n.backward()
	n.profile.lap(n.stream, "backward")
}

// trainBatch enqueues a step of training with the rank's share of a batch: forward and backward
// pass, the sum of all ranks' gradients, and the same step of the optimizer on each rank, so that
// parameters stay the same on all, bit for bit.
func (n *network) trainBatch(b *loader.Batch, dropoutSeed uint64, o stepOptions) {
	n.profile.lap(n.stream, "load")
	if n.ranks > 1 || n.profile != nil || n.submission.grouper == nil { // a profile waits after each part
		n.trainStep(b, dropoutSeed, o)
		return
	}
	n.submission.run(n.stream, func() { n.trainStep(b, dropoutSeed, o) })
}

func (n *network) trainStep(b *loader.Batch, dropoutSeed uint64, o stepOptions) {
	n.gradient(b, dropoutSeed)
	if !n.pass.meet(n.params.grad) {
		return
	}
	if n.ranks > 1 {
		n.profile.lap(n.stream, "reduce")
	}
	n.step(o)
	n.profile.lap(n.stream, "optimizer")
}

// step enqueues a step of the optimizer. Biases do not decay: a model that shrinks towards them
// predicts how frequent the classes are.
func (n *network) step(o stepOptions) {
	if o.clip > 0 {
		for _, q := range n.params.list {
			if q.fixed { // its gradient has served standardizeGradient
				n.stream.Fill(q.grad, 0)
			}
		}
		n.stream.ClipNorm(n.params.grad, float32(o.clip))
	}
	n.standardize()
	for _, q := range n.params.list {
		if q.fixed {
			continue
		}
		o := o
		if !q.decays {
			o.weightDecay = 0
		}
		n.task.optimizer.step(n.stream, o, q.vector(n.params.value), q.vector(n.params.grad), q.moments)
	}
	n.restore()
}

// evaluateBatch enqueues the evaluation of a batch: it adds to the meter, and to the sum of losses.
func (n *network) evaluateBatch(b *loader.Batch) {
	out := n.forward(b, false, 0)
	n.meter.add(n.stream, out, b.Labels)
	n.addLoss(out, gds.Tensor{}, b, 0)
}

// addLoss enqueues the loss of a batch for which the model puts out out.
func (n *network) addLoss(out, grad gds.Tensor, b *loader.Batch, scale float32) {
	t := lossTensors{sum: n.lossSum, out: out, grad: grad, labels: b.Labels, weights: n.weights, rows: b.RowWeights}
	if n.rescaled != nil {
		t.units = n.rescaled.unit.value
	}
	n.task.loss.add(n.stream, t, scale)
}

// Places in lossHost: of the sums after the last watchedBatches batches, and of readLoss.
const (
	watchedBatches = 3
	lossSlots      = watchedBatches + 1
)

func (n *network) lossSlot(i int) gds.Tensor {
	return gds.NewTensor(n.lossHost, 1, lossSlots, gds.Float32).Columns(i, i+1)
}

// readLoss waits for all work, and returns the sum of losses on this rank.
func (n *network) readLoss(ctx context.Context) (float32, error) {
	n.stream.Copy(n.lossSlot(watchedBatches), n.lossSum)
	err := n.stream.Synchronize(ctx)
	return dtype.Float32s(n.lossHost.Bytes())[watchedBatches], err
}

// watchLoss enqueues a copy of the sum of losses up to a batch to the host.
func (n *network) watchLoss(batch int) { n.stream.Copy(n.lossSlot(batch%watchedBatches), n.lossSum) }

// lossIsFinite tells whether the sum up to a batch is a finite number, once the device is done with it
// and if watchLoss was called for less than watchedBatches since.
func (n *network) lossIsFinite(batch int) bool {
	return isFinite(dtype.Float32s(n.lossHost.Bytes())[batch%watchedBatches])
}

// isFinite tells numbers from NaN and infinities.
func isFinite[T float32 | float64](v T) bool { return v-v == 0 }
