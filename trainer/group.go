package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/loader"
)

// Rank is one of the devices that train a model together. Its sets yield its share
// of each batch, which may be no rows; those of all ranks have the same batches.
type Rank struct {
	Device gds.Device
	Data
}

// group is a model on several devices (data parallelism): each rank computes the
// gradient of its share of a batch, these are added in the order of ranks, and each
// rank makes the same step of Adam with the sum, so that parameters stay the same on
// all, bit for bit.
//
// One goroutine drives all ranks. What it enqueues on one device runs beside what it
// enqueues on the others, and no rank ever waits for another, only this goroutine for
// one after another: so whatever fails ends all of them, and nothing can hang.
type group struct {
	ranks []*network
	// Of several ranks: pinned memory for the gradient of each, and for the sum.
	partial []gds.Buffer
	sum     gds.Buffer
}

// newGroup makes a network for batches of up to batchRows rows on each device.
func newGroup(devices []gds.Device, spec Spec, batchRows int, train bool) (*group, error) {
	g := &group{}
	if err := g.allocate(devices, spec, batchRows, train); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *group) allocate(devices []gds.Device, spec Spec, batchRows int, train bool) error {
	if len(devices) == 0 {
		return fmt.Errorf("%w: no device", ErrOptions)
	}
	for _, device := range devices {
		n, err := newNetwork(device, spec, batchRows, train)
		if err != nil {
			return err
		}
		g.ranks = append(g.ranks, n)
	}
	if len(devices) == 1 || !train {
		return nil
	}
	bytes := gds.Bytes(1, g.ranks[0].params.count, gds.Float32)
	for _, device := range devices {
		b, err := device.AllocPinned(bytes)
		if err != nil {
			return err
		}
		g.partial = append(g.partial, b)
	}
	var err error
	g.sum, err = devices[0].AllocPinned(bytes)
	return err
}

// close waits for all work and frees all memory.
func (g *group) close() error {
	var errs []error
	for _, n := range g.ranks {
		errs = append(errs, n.close())
	}
	for _, b := range g.partial {
		errs = append(errs, b.Free())
	}
	if g.sum != nil {
		errs = append(errs, g.sum.Free())
	}
	return errors.Join(errs...)
}

// rankError adds the number of the rank's device to an error, if there are several devices.
func (g *group) rankError(rank int, err error) error {
	if err == nil || len(g.ranks) == 1 {
		return err
	}
	return fmt.Errorf("device %d: %w", rank, err)
}

// checkSets returns an error unless there is a set for each rank, all with as many rows.
func (g *group) checkSets(name string, sets []Epocher) error {
	if len(sets) != len(g.ranks) {
		return fmt.Errorf("%s rows for %d of %d devices", name, len(sets), len(g.ranks))
	}
	rows := func(e Epocher) int64 {
		if e == nil {
			return 0
		}
		return e.Rows()
	}
	for rank, set := range sets {
		if rows(set) != rows(sets[0]) {
			return g.rankError(rank, fmt.Errorf("%d %s rows, but device 0 has %d", rows(set), name, rows(sets[0])))
		}
	}
	return nil
}

// loadParameters sets the parameters of all ranks, and waits for it.
func (g *group) loadParameters(values []float32) error {
	for rank, n := range g.ranks {
		if err := n.params.load(n.mem.dev, n.stream, values); err != nil {
			return g.rankError(rank, err)
		}
	}
	return nil
}

// setScales sets the numbers that input matrices are multiplied by.
func (g *group) setScales(scales []float32) {
	for _, n := range g.ranks {
		copy(n.scales, scales)
	}
}

// peakBytes is the largest peak memory of the devices, in bytes.
func (g *group) peakBytes() (bytes int64) {
	for _, n := range g.ranks {
		bytes = max(bytes, n.mem.dev.Usage().Peak)
	}
	return bytes
}

// eachBatch calls share for each rank's share of every batch of epoch n, and after each batch
// whole, unless that is nil; both enqueue work. It stays at most two batches ahead of the
// devices, which is enough that no device waits for this loop. It returns how long it waited
// for batches.
func (g *group) eachBatch(ctx context.Context, sets []Epocher, n int, share func(rank int, b *loader.Batch) error, whole func() error) (waited time.Duration, err error) {
	next := make([]func() (*loader.Batch, error, bool), len(g.ranks))
	for rank, network := range g.ranks {
		pull, stop := iter.Pull2(sets[rank].Epoch(ctx, network.stream, n))
		defer stop()
		next[rank] = pull
	}
	before := make([]gds.Event, len(g.ranks))
	for at := 0; ; at++ {
		ended := 0
		for rank := range g.ranks {
			asked := time.Now()
			b, err, more := next[rank]()
			waited += time.Since(asked)
			if err == nil {
				err = context.Cause(ctx)
			}
			if err == nil && more {
				if err = share(rank, b); err != nil {
					err = fmt.Errorf("batch %d: %w", b.Index, err)
				}
			}
			if err != nil {
				return waited, g.rankError(rank, err)
			}
			if !more {
				ended++
			}
		}
		if ended > 0 {
			if ended < len(g.ranks) {
				err = fmt.Errorf("after %d batches there are more for some devices only", at)
			}
			return waited, err
		}
		if whole != nil {
			if err := whole(); err != nil {
				return waited, err
			}
		}
		for rank, network := range g.ranks {
			done := network.stream.Record()
			if before[rank] != nil {
				if err := before[rank].Wait(ctx); err != nil {
					return waited, g.rankError(rank, err)
				}
			}
			before[rank] = done
		}
	}
}

// reduceGrain is how many numbers one thread adds at a time.
const reduceGrain = 1 << 14

// reduce makes the gradient of every rank the sum of all: gradients meet in pinned memory,
// and the processor adds them.
func (g *group) reduce(ctx context.Context) error {
	if len(g.ranks) == 1 {
		return nil
	}
	copied := make([]gds.Event, len(g.ranks))
	partial := make([][]float32, len(g.ranks))
	for rank, n := range g.ranks {
		n.stream.Copy(gds.NewTensor(g.partial[rank], 1, n.params.count, gds.Float32), n.params.grad)
		copied[rank] = n.stream.Record()
		partial[rank] = dtype.Float32s(g.partial[rank].Bytes())
	}
	// When these events have happened, so has every copy of the sum before, which came
	// earlier in the same streams.
	for rank, event := range copied {
		if err := event.Wait(ctx); err != nil {
			return g.rankError(rank, err)
		}
	}
	sum := dtype.Float32s(g.sum.Bytes())
	err := parallel.For(ctx, 0, int64(len(sum)), reduceGrain, func(lo, hi int64) error {
		to := sum[lo:hi]
		copy(to, partial[0][lo:hi])
		for _, from := range partial[1:] {
			for i, value := range from[lo:hi] {
				to[i] += value
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range g.ranks {
		n.stream.Copy(n.params.grad, gds.NewTensor(g.sum, 1, n.params.count, gds.Float32))
		n.profile.lap(n.stream, "reduce")
	}
	return nil
}

// adamStep makes one step of Adam, the same on all ranks, with the sum of their gradients.
func (g *group) adamStep(ctx context.Context, o gds.AdamOptions) error {
	if err := g.reduce(ctx); err != nil {
		return err
	}
	for _, n := range g.ranks {
		n.step(o)
	}
	return nil
}

// synchronize waits for all enqueued work.
func (g *group) synchronize(ctx context.Context) error {
	for rank, n := range g.ranks {
		if err := n.stream.Synchronize(ctx); err != nil {
			return g.rankError(rank, err)
		}
	}
	return nil
}

// resetMeters sets the meters of loss and accuracy to zero.
func (g *group) resetMeters() {
	for _, n := range g.ranks {
		n.meter.reset(n.stream)
	}
}

// readMeters waits for all work, and adds up the meters of all ranks.
func (g *group) readMeters(ctx context.Context) (loss float64, accuracy Accuracy, err error) {
	for rank, n := range g.ranks {
		sum, a, err := n.meter.read(ctx, n.stream)
		if err != nil {
			return 0, Accuracy{}, g.rankError(rank, err)
		}
		loss += sum
		accuracy.Correct += a.Correct
		accuracy.Rows += a.Rows
	}
	return loss, accuracy, nil
}

// evaluate computes the sum of the losses and the accuracy over the labelled rows of a set.
func (g *group) evaluate(ctx context.Context, sets []Epocher) (loss float64, accuracy Accuracy, err error) {
	g.resetMeters()
	_, err = g.eachBatch(ctx, sets, 0, func(rank int, b *loader.Batch) error {
		n := g.ranks[rank]
		if err := n.checkBatch(b); err != nil {
			return err
		}
		n.evaluateBatch(b)
		return nil
	}, nil)
	if err == nil {
		loss, accuracy, err = g.readMeters(ctx)
	}
	return loss, accuracy, err
}
