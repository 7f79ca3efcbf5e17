package trainer

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/loader"
)

// StepCosts is the time that steps take for each row of a device's share, with all devices at work:
// of a training step (forward, backward, optimizer), and of evaluation.
type StepCosts struct{ TrainSeconds, ValidSeconds float64 }

// Each round repeats the step for at least measuredRound. After measuredTime, rounds end once
// there are minMeasuredRounds; maxMeasuredRounds are enough in any case. The median counts,
// not the fastest: other programs also run while a model is trained.
const (
	measuredRound     = 10 * time.Millisecond
	measuredTime      = 300 * time.Millisecond
	minMeasuredRounds = 3
	maxMeasuredRounds = 9
)

// MeasureSteps trains a model for less than a second, again and again on the first batch of
// the ranks' training rows, to measure the time and the device memory of a step
// (preprop-gnn section 5, after PaGraph); the memory counts in the devices' Usage. The trained
// parameters are dropped, and all memory is freed before it returns.
func MeasureSteps(ctx context.Context, ranks []Rank, spec Spec) (r StepCosts, err error) {
	f, err := newFitting(ctx, ranks, spec, Options{Epochs: 1, LearningRate: 1e-3})
	if err != nil {
		return r, err
	}
	defer func() {
		if closeErr := f.close(); err == nil {
			err = closeErr
		}
	}()
	f.resetMeters()
	err = f.firstBatch(ctx, f.train, func(shares []*loader.Batch) (err error) {
		steps := 0
		r.TrainSeconds, err = f.secondsPerRow(ctx, shares, func() error {
			steps++
			for rank, n := range f.ranks {
				n.gradient(shares[rank], uint64(steps))
			}
			return f.adamStep(ctx, f.adamOptions(steps))
		})
		if err != nil {
			return err
		}
		r.ValidSeconds, err = f.secondsPerRow(ctx, shares, func() error {
			for rank, n := range f.ranks {
				n.evaluateBatch(shares[rank])
			}
			return nil
		})
		return err
	})
	return r, err
}

// secondsPerRow measures the time that the work of step, which enqueues it on all ranks, takes
// for each row of one rank's share.
func (g *group) secondsPerRow(ctx context.Context, shares []*loader.Batch, step func() error) (float64, error) {
	if err := step(); err != nil { // not timed: touches memory for the first time, while the loaders fill their buffers
		return 0, err
	}
	rows := float64(max(shares[0].GlobalRows, 1)) / float64(len(g.ranks))
	var rounds []float64
	begun := time.Now()
	for len(rounds) < minMeasuredRounds || len(rounds) < maxMeasuredRounds && time.Since(begun) < measuredTime {
		if err := g.synchronize(ctx); err != nil {
			return 0, err
		}
		start, count := time.Now(), 0
		for done := 1; time.Since(start) < measuredRound; done *= 2 {
			for range done {
				if err := step(); err != nil {
					return 0, err
				}
			}
			count += done
			if err := g.synchronize(ctx); err != nil {
				return 0, err
			}
		}
		rounds = append(rounds, time.Since(start).Seconds()/(float64(count)*rows))
	}
	return median(rounds), nil
}

// Parameters is the number of parameters of a model.
func (s Spec) Parameters() (int64, error) {
	_, declared, err := s.normalized()
	if err != nil {
		return 0, err
	}
	return int64(declared.parameters.count), nil
}
