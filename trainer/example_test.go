package trainer_test

import (
	"context"
	"fmt"
	"iter"
	"log"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/trainer"
)

// points are labelled rows of two features in the memory of a device. Rows of a store come from a loader.Set instead.
type points struct{ x, labels gds.Tensor }

func (p points) Rows() int64 { return int64(p.x.Rows) }

const batchRows = 32

// EpochFrom yields the rows in order.
func (p points) EpochFrom(_ context.Context, _ gds.Stream, _, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for i := first; i*batchRows < p.x.Rows; i++ {
			lo, hi := i*batchRows, min((i+1)*batchRows, p.x.Rows)
			b := &loader.Batch{Index: i, Rows: hi - lo, GlobalRows: hi - lo, X: []gds.Tensor{p.x.Slice(lo, hi)},
				Labels: p.labels.Columns(lo, hi)}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// newPoints generates rows around three points, one for each class. The device shares its memory with the host.
func newPoints(device gds.Device, seed uint64, rows int) (points, error) {
	x, err := device.Alloc(gds.Bytes(rows, 2, gds.Float32))
	if err != nil {
		return points{}, err
	}
	labels, err := device.Alloc(gds.Bytes(1, rows, gds.Int32))
	if err != nil {
		return points{}, err
	}
	features, classes := dtype.Float32s(x.Bytes()), dtype.Int32s(labels.Bytes())
	for i := range rows {
		class := i % 3
		classes[i] = int32(class)
		features[2*i] = float32(4*(class%2)) + float32(rng.Normal(seed, uint64(2*i)))
		features[2*i+1] = float32(4*(class/2)) + float32(rng.Normal(seed, uint64(2*i+1)))
	}
	return points{gds.NewTensor(x, rows, 2, gds.Float32), gds.NewTensor(labels, 1, rows, gds.Int32)}, nil
}

// Train a linear model on generated rows.
func Example() {
	device, err := host.New(host.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var sets [3]points
	for i, rows := range []int{300, 100, 100} {
		if sets[i], err = newPoints(device, uint64(i), rows); err != nil {
			log.Fatal(err)
		}
	}
	ranks := []trainer.Rank{{Device: device, Data: trainer.Data{Train: sets[0], Valid: sets[1], Test: sets[2],
		BatchRows: batchRows}}}
	spec := trainer.Spec{Model: "sgc", Matrices: []trainer.MatrixID{{Operator: "sym", Hop: 2}}, Features: 2, Classes: 3}
	result, err := trainer.Fit(context.Background(), ranks, spec,
		trainer.Options{Epochs: 20, LearningRate: 0.1, Patience: 5}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d parameters, test %s %.2f\n", len(result.Parameters), result.Metric, *result.TestMetric)
	// Output: 9 parameters, test accuracy 0.93
}
