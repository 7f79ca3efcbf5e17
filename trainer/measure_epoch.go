package trainer

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/hopfeed/hopfeed/loader"
)

// EpochCosts is what batches and validation took, with all that loads them.
type EpochCosts struct {
	BatchSeconds float64        // of training, from batch to batch
	Batches      int            // that were trained on
	Traffic      loader.Traffic // of these
	ValidSeconds float64        // 0: there are no validation rows; infinite: more than mostValidation
}

// Batches are timed after the first warmBatches: fewBatches and more, for measuredTime or measuredEpochs epochs, but no
// more than mostBatches, and none after mostBatchesTime.
const (
	warmBatches     = 2
	fewBatches      = 10
	mostBatches     = 200
	mostBatchesTime = 10 * time.Second
	mostValidation  = 30 * time.Second
)

// MeasureEpoch trains a model on the first batches of its epochs, as fast as they are loaded, and validates it once.
// The devices' Usage shows its memory. It drops the trained parameters.
func MeasureEpoch(ctx context.Context, ranks []Rank, spec Spec) (r EpochCosts, err error) {
	f, err := Start(ctx, ranks, spec, Options{Epochs: math.MaxInt32, EvalEvery: math.MaxInt32, LearningRate: 1e-3})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	begun := time.Now()
	warm, last := begun, begun
	err = f.TrainUntil(ctx, func() bool {
		last = time.Now()
		if r.Batches++; r.Batches <= warmBatches {
			warm = last
			return false
		}
		timed := r.Batches - warmBatches
		enough := last.Sub(warm) >= measuredTime || len(f.state.History) >= measuredEpochs
		return timed >= mostBatches || timed >= fewBatches && enough || last.Sub(begun) >= mostBatchesTime
	}, nil)
	if !errors.Is(err, ErrPaused) {
		return r, err
	}
	r.BatchSeconds = last.Sub(warm).Seconds() / float64(r.Batches-warmBatches)
	for _, e := range append(f.state.History, f.state.Epoch) {
		r.Traffic.Add(e.Traffic)
	}
	if !hasRows(f.valid[0]) {
		return r, nil
	}
	within, cancel := context.WithTimeout(ctx, mostValidation)
	defer cancel()
	start := time.Now()
	_, err = f.evaluate(within, f.valid)
	r.ValidSeconds = time.Since(start).Seconds()
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		r.ValidSeconds, err = math.Inf(1), nil
	}
	return r, err
}
