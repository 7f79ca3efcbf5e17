package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// Each round repeats the step for at least measuredRound. There are minMeasuredRounds at least and maxMeasuredRounds at
// most; between the two, rounds end after measuredTime, or once they have computed the rows of measuredEpochs epochs:
// measuring a small training takes no longer than the training. The median counts, not the fastest: other programs also
// run while a model is trained.
const (
	measuredRound     = 10 * time.Millisecond
	measuredTime      = 300 * time.Millisecond
	minMeasuredRounds = 3
	maxMeasuredRounds = 9
	measuredEpochs    = 4
)

// StepSeconds trains a model for less than a second, again and again on the first batch of sets, one for each device,
// with shares of up to shareRows rows (preprop-gnn section 5, after PaGraph). It returns the time of a training step
// (forward, backward, optimizer) and of evaluation, for each row of a device's share, with all devices at work; the
// memory of a step counts in the devices' Usage. The trained parameters are dropped, and all memory is freed.
func (s Spec) StepSeconds(ctx context.Context, devices []gds.Device, sets []*loader.Set, shareRows int) (train,
	evaluate float64, err error) {
	ranks := make([]Rank, len(devices))
	for i, device := range devices {
		ranks[i] = Rank{Device: device, Data: Data{Train: sets[i], BatchRows: shareRows}}
	}
	return measureSteps(ctx, ranks, s)
}

func measureSteps(ctx context.Context, ranks []Rank, spec Spec) (train, evaluate float64, err error) {
	f, err := Start(ctx, ranks, spec, Options{Epochs: 1, LearningRate: 1e-3})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	f.resetLoss()
	err = f.firstBatch(ctx, f.train, func(shares []*loader.Batch) (err error) {
		rows := float64(max(shares[0].GlobalRows, 1)) / float64(len(ranks))
		steps := 0
		train, err = f.secondsPerRow(ctx, shares, rows, func(n *network, b *loader.Batch) {
			n.trainBatch(b, uint64(steps), f.stepOptions(steps+1, 0))
		}, func(*loader.Batch) error { steps++; return nil })
		if err == nil {
			evaluate, err = f.secondsPerRow(ctx, shares, rows, (*network).evaluateBatch, nil)
		}
		return err
	})
	return train, evaluate, err
}

// secondsPerRow measures the time that share takes for each row of one rank's share.
func (g *group) secondsPerRow(ctx context.Context, shares []*loader.Batch, rows float64,
	share func(n *network, b *loader.Batch), whole func(b *loader.Batch) error) (float64, error) {
	repeat := func(times int) error {
		sets := make([]Epocher, len(shares))
		for rank, b := range shares {
			sets[rank] = repeated{b, times}
		}
		if _, err := g.eachBatch(ctx, sets, 0, 0, share, whole); err != nil {
			return err
		}
		return g.synchronize(ctx)
	}
	// not timed: touches memory for the first time, while the loaders fill their buffers
	if err := repeat(1); err != nil {
		return 0, err
	}
	var rounds []float64
	begun, steps := time.Now(), 0
	most := measuredEpochs * int(g.ranks[0].trainRows) / max(shares[0].GlobalRows, 1)
	for len(rounds) < minMeasuredRounds || len(rounds) < maxMeasuredRounds && steps < most &&
		time.Since(begun) < measuredTime {
		start, count := time.Now(), 0
		for times := 1; time.Since(start) < measuredRound; times *= 2 {
			if err := repeat(times); err != nil {
				return 0, err
			}
			count += times
		}
		steps += count
		rounds = append(rounds, time.Since(start).Seconds()/(float64(count)*rows))
	}
	return median(rounds), nil
}

// repeated is an epoch of the same batch again and again.
type repeated struct {
	batch *loader.Batch
	times int
}

func (r repeated) Rows() int64 { return int64(r.times) * int64(r.batch.GlobalRows) }

func (r repeated) EpochFrom(context.Context, gds.Stream, int, int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for i := 0; i < r.times && yield(r.batch, nil); i++ {
		}
	}
}

// Parameters is the number of parameters of a model.
func (s Spec) Parameters() (int64, error) {
	_, declared, err := s.normalized()
	if err != nil {
		return 0, err
	}
	return int64(declared.params.count), nil
}

// EpochCosts are the times of batches and validation, loading included.
type EpochCosts struct {
	BatchSeconds float64        // of training, from batch to batch
	Batches      int            // that were trained on
	Traffic      loader.Traffic // of these
	ValidSeconds float64        // of a validation; 0: there are no validation rows; infinite: not known
	ValidPart    float64        // of the validation rows, by which ValidSeconds are estimated: what mostValidation allows
}

// WithValidation adds to the seconds in which an epoch is trained what validations after each so many epochs add to the
// median epoch, and says so.
func (r EpochCosts) WithValidation(train float64, every int) (seconds float64, about string) {
	about = fmt.Sprintf("training on an epoch should take %.3g s", train)
	valid, measured := r.ValidSeconds, ""
	if r.ValidPart < 1 {
		measured = fmt.Sprintf(" (by %.2g %% of its rows)", 100*r.ValidPart)
	}
	switch {
	case math.IsNaN(valid):
		return train, about + "; validation, on the first device, is not counted"
	case math.IsInf(valid, 1):
		return train, about + "; validation is not counted: it takes more than 30 s, and how much is not known"
	case valid == 0:
		return train, about
	case every > 2:
		return train, about + fmt.Sprintf(", validation after each %d epochs %.3g s%s", every, valid, measured)
	}
	return train + valid/float64(every), about + fmt.Sprintf(", validation %.3g s%s", valid, measured)
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
	_, err = f.evaluate(within, "validation rows", f.valid)
	r.ValidSeconds, r.ValidPart = time.Since(start).Seconds(), 1
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		r.ValidPart, err = float64(f.evaluated)/float64(f.valid[0].Rows()), nil
		r.ValidSeconds /= r.ValidPart
	}
	return r, err
}

// profile measures the time of each step of training (preprop-gnn Figure 5). To do so it waits
// for the device after each step, which makes training slower. A nil profile does nothing.
type profile struct {
	since   time.Time
	seconds map[string]float64
}

// lap waits for a device, and adds the time since the previous lap to a step. An error stays
// with the stream, and is returned to whoever waits for it next.
func (p *profile) lap(stream gds.Stream, step string) {
	if p == nil {
		return
	}
	_ = stream.Synchronize(context.Background())
	now := time.Now()
	p.seconds[step] += now.Sub(p.since).Seconds()
	p.since = now
}
