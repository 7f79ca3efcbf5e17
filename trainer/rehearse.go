package trainer

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/loader"
)

// Rehearsal is what a few steps of training took.
type Rehearsal struct {
	// Seconds that a device computes on a row, while the others compute on theirs: in
	// training, by forward and backward pass and step, and in evaluation.
	TrainSeconds, ValidSeconds float64
	PeakDeviceBytes            int64 // of the fullest device, whatever else it held included
}

// Rounds of at least rehearsalRound each are timed: most of them, or, when they have
// taken rehearsalTime, the fewest. Their median counts: what else runs will go on while
// training does.
const (
	rehearsalRound  = 10 * time.Millisecond
	rehearsalTime   = 300 * time.Millisecond
	fewestRehearsed = 3
	mostRehearsed   = 9
)

// Rehearse trains a model on the first batch of the ranks' training rows, again and
// again for a moment, to find how long computing takes and how much device memory
// (preprop-gnn section 5, after PaGraph). What it has learnt is thrown away, and all
// memory that it took is free again when it returns.
func Rehearse(ctx context.Context, ranks []Rank, spec Spec) (r Rehearsal, err error) {
	f, err := newFitting(ctx, ranks, spec, Options{Epochs: 1, LearningRate: 1e-3})
	if err != nil {
		return r, err
	}
	defer func() {
		if closeErr := f.close(); err == nil {
			err = closeErr
		}
	}()
	f.reset()
	err = f.firstBatch(ctx, f.train, func(shares []*loader.Batch) (err error) {
		steps := 0
		r.TrainSeconds, err = f.timed(ctx, shares, func() error {
			steps++
			for rank, n := range f.ranks {
				n.gradient(shares[rank], uint64(steps))
			}
			return f.step(ctx, f.adam(steps))
		})
		if err != nil {
			return err
		}
		r.ValidSeconds, err = f.timed(ctx, shares, func() error {
			for rank, n := range f.ranks {
				n.count(shares[rank])
			}
			return nil
		})
		return err
	})
	r.PeakDeviceBytes = f.peak()
	return r, err
}

// timed is the seconds by row, of one rank, of work that step enqueues on all.
func (g *group) timed(ctx context.Context, shares []*loader.Batch, step func() error) (float64, error) {
	if err := step(); err != nil { // once untimed: memory is touched, and the loaders come to rest
		return 0, err
	}
	rows := float64(max(shares[0].GlobalRows, 1)) / float64(len(g.ranks))
	var rounds []float64
	begun := time.Now()
	for len(rounds) < fewestRehearsed || len(rounds) < mostRehearsed && time.Since(begun) < rehearsalTime {
		if err := g.synchronize(ctx); err != nil {
			return 0, err
		}
		start, count := time.Now(), 0
		for done := 1; time.Since(start) < rehearsalRound; done *= 2 {
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
	_, declared, err := s.settled()
	if err != nil {
		return 0, err
	}
	return int64(declared.parameters.count), nil
}
