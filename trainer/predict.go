package trainer

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
)

// Predictions are the outputs of a model for some rows.
type Predictions struct {
	Rows    int
	Columns int       // of Values: classes, labels or targets
	Values  []float32 // [Rows, Columns]: see Outputs
	Classes []int32   // [Rows], of ClassOutputs: the most probable class, of equals the first; else nil
}

// Outputs says what the numbers that Predict returns for a row mean.
type Outputs string

const (
	ClassOutputs Outputs = "class probabilities" // one class a row: softmax; they add up to 1
	LabelOutputs Outputs = "label probabilities" // several labels a row: the logistic function of each
	ValueOutputs Outputs = "values"              // regression: as they are put out
)

// PredictBytes is the host memory that Predict takes for batches of up to batchRows rows.
func (s Spec) PredictBytes(batchRows int) int64 {
	perRow := int64(predictSlots)*(4*int64(s.Classes)+4) + 4*int64(s.Classes) + 4
	return perRow * int64(batchRows)
}

// Predict applies a trained model to several sets of rows, one after another, and calls use with the predictions of
// each batch, in order; they are valid until use returns. An error of use ends it.
//
// The sets yield consecutive rows of a store in order, with their row numbers (loader.Options.RowNumbers), and need no
// labels. The devices share each batch; a share has at most batchRows rows. While the devices compute a batch, use has
// the one before. The prediction for a row depends neither on other rows of its batch nor on the number of devices.
func Predict(ctx context.Context, devices []gds.Device, model *Trained, batchRows int, sets []NamedRows,
	use func(*Predictions) error) (err error) {
	g, err := openTrained(devices, model, batchRows, task{}) // neither a loss nor a metric: there may be no labels
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, g.close()) }()
	p := &predictor{group: g, outputs: model.Outputs(), use: use}
	if err := p.allocate(); err != nil {
		return err
	}
	return g.eachSet("prediction", sets, func(s NamedRows) error { return p.run(ctx, s.Rows) })
}

// predictSlots is how many batches have memory on the host: one that is computed, and one in use.
const predictSlots = 2

// predictor converts the outputs of a group.
type predictor struct {
	group   *group
	outputs Outputs
	use     func(*Predictions) error
	slots   [predictSlots][]copied // of each rank, with row numbers
	result  Predictions
	scratch []float64 // of one row
}

func (p *predictor) allocate() error {
	p.result.Columns = p.group.ranks[0].spec.Classes
	p.scratch = make([]float64, p.result.Columns)
	return p.group.eachRank(func(n *network) error {
		for i := range p.slots {
			p.slots[i] = append(p.slots[i], newCopied(&n.mem, "predictions", n.spec, n.batchRows,
				gds.Bytes(1, n.batchRows, gds.Uint32)))
		}
		return n.mem.Err
	})
}

// run predicts one set of rows.
func (p *predictor) run(ctx context.Context, sets []Epocher) error {
	var failed error // an error of whole, not of a device
	begun := 0       // batches
	// whole uses the batch before b, whose memory the batch after b takes.
	whole := func(b *loader.Batch) error {
		if begun > 0 {
			failed = p.finish(ctx, p.slots[(begun-1)%predictSlots])
		}
		begun++
		return failed
	}
	share := func(n *network, b *loader.Batch) {
		r := &p.slots[begun%predictSlots][n.rank]
		if r.rows = b.Rows; r.rows > 0 {
			r.copy(n.stream, n.forward(b, false, 0), b.RowNumbers)
		} else {
			r.done = n.stream.Record()
		}
	}
	_, err := p.group.eachBatch(ctx, sets, 0, 0, share, whole)
	if failed != nil {
		return failed
	}
	if err == nil && begun > 0 {
		err = p.finish(ctx, p.slots[(begun-1)%predictSlots])
	}
	return err
}

// finish waits for the shares of a batch, puts their rows in order, and has them used.
func (p *predictor) finish(ctx context.Context, shares []copied) error {
	r := &p.result
	r.Rows = 0
	first := uint32(math.MaxUint32)
	for rank := range shares {
		s := &shares[rank]
		if err := s.done.Wait(ctx); err != nil {
			return p.group.rankError(rank, err)
		}
		for _, row := range dtype.Uint32s(s.of.Bytes())[:s.rows] {
			first = min(first, row)
		}
		r.Rows += s.rows
	}
	r.Values = slices.Grow(r.Values[:0], r.Rows*r.Columns)[:r.Rows*r.Columns]
	if p.outputs == ClassOutputs {
		r.Classes = slices.Grow(r.Classes[:0], r.Rows)[:r.Rows]
	}
	for rank := range shares {
		s := &shares[rank]
		out := dtype.Float32s(s.out.Bytes())
		for i, row := range dtype.Uint32s(s.of.Bytes())[:s.rows] {
			at := int(row - first)
			if at >= r.Rows {
				return fmt.Errorf("rows %d and %d in a batch of %d: the rows of a batch must be consecutive", first,
					row, r.Rows)
			}
			values := r.Values[at*r.Columns : (at+1)*r.Columns]
			copy(values, out[i*r.Columns:])
			class, ok := p.outputs.convert(values, p.scratch)
			if !ok {
				return fmt.Errorf("row %d of the store: the model puts out %v, which is not finite: "+
					"its features are too large, or the training went wrong", row, out[i*r.Columns:(i+1)*r.Columns])
			}
			if r.Classes != nil {
				r.Classes[at] = class
			}
		}
	}
	return p.use(r)
}

// convert converts the outputs for a row, in float64, and finds the first largest element. ok is false if an element is
// not finite. scratch has as many elements as the row.
func (o Outputs) convert(row []float32, scratch []float64) (largest int32, ok bool) {
	for j, v := range row {
		if v-v != 0 {
			return 0, false
		}
		if v > row[largest] {
			largest = int32(j)
		}
	}
	switch o {
	case ClassOutputs:
		most, sum := float64(row[largest]), 0.0
		for j, v := range row {
			scratch[j] = math.Exp(float64(v) - most)
			sum += scratch[j]
		}
		for j := range row {
			row[j] = float32(scratch[j] / sum)
		}
	case LabelOutputs:
		for j, v := range row {
			row[j] = float32(1 / (1 + math.Exp(-float64(v))))
		}
	}
	return largest, true
}
