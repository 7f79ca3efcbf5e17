package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// Rehearsal is what a few steps of training took.
type Rehearsal struct {
	// Seconds that the device computes on a row: in training, by forward and
	// backward pass and step, and in evaluation.
	TrainSeconds, ValidSeconds float64
	PeakDeviceBytes            int64 // of the device, whatever else it held included
}

// rehearsalRounds of at least rehearsalTime each are timed. The fastest counts: others
// are slowed by what else runs.
const (
	rehearsalRounds = 4
	rehearsalTime   = 10 * time.Millisecond
)

// Rehearse trains a model on the first batch of a set, again and again for a
// moment, to find how long computing takes and how much device memory (preprop-gnn
// section 5, after PaGraph). What it has learnt is thrown away, and all memory that
// it took is free again when it returns.
func Rehearse(ctx context.Context, dev gds.Device, spec Spec, set Epocher, batchRows int) (r Rehearsal, err error) {
	if !present(set) {
		return r, errors.New("there are no rows to rehearse with")
	}
	n, err := newNetwork(dev, spec, batchRows, true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.params.load(ctx, n.stream, n.params.initial(0)); err != nil {
		return r, err
	}
	if err := n.measure(ctx, set); err != nil {
		return r, err
	}
	n.meter.reset(n.stream)
	for b, err := range set.Epoch(ctx, n.stream, 0) {
		if err == nil {
			err = n.check(b)
		}
		if err != nil {
			return r, fmt.Errorf("first batch: %w", err)
		}
		steps := 0
		if r.TrainSeconds, err = n.timed(ctx, b, func() {
			steps++
			n.gradient(b, uint64(steps))
			n.step(gds.AdamOptions{LearningRate: 1e-3, Beta1: beta1, Beta2: beta2, Epsilon: epsilon, Step: steps})
		}); err != nil {
			return r, err
		}
		if r.ValidSeconds, err = n.timed(ctx, b, func() { n.count(b) }); err != nil {
			return r, err
		}
		break
	}
	r.PeakDeviceBytes = dev.Usage().Peak
	return r, nil
}

// timed is the seconds by row of work that step enqueues for b.
func (n *network) timed(ctx context.Context, b *loader.Batch, step func()) (float64, error) {
	step() // once untimed: memory is touched, and the loader comes to rest
	fastest := math.Inf(1)
	for range rehearsalRounds {
		if err := n.stream.Synchronize(ctx); err != nil {
			return 0, err
		}
		start, count := time.Now(), 0
		for done := 1; time.Since(start) < rehearsalTime; done *= 2 {
			for range done {
				step()
			}
			count += done
			if err := n.stream.Synchronize(ctx); err != nil {
				return 0, err
			}
		}
		fastest = min(fastest, time.Since(start).Seconds()/float64(count*max(b.Rows, 1)))
	}
	return fastest, nil
}

// Parameters is the number of parameters of a model.
func (s Spec) Parameters() (int64, error) {
	_, declared, err := s.settled()
	if err != nil {
		return 0, err
	}
	return int64(declared.parameters.count), nil
}
