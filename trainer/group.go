package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/loader"
)

// Rank is one of the devices that train a model together. Its sets yield its share of each batch, perhaps no rows; the
// sets of all ranks have the same batches.
type Rank struct {
	Device gds.Device
	Data
}

// group is a model on several devices (data parallelism). All ranks run the same program, each on
// its share of the batches, and come together at the program's meetings: see run.
type group struct {
	ranks     []*network
	exchange  exchange          // of several ranks
	progress  progress.Reporter // of evaluations; nil: nobody is told
	evaluated int64             // rows of all ranks, in the last evaluation
}

// newGroup makes a network for batches of up to batchRows rows on each device.
func newGroup(devices []gds.Device, spec Spec, batchRows int, t task) (g *group, err error) {
	if len(devices) == 0 {
		return nil, fmt.Errorf("%w: no device", ErrOptions)
	}
	g = &group{}
	for rank, device := range devices {
		n, err := newNetwork(device, spec, batchRows, t)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		n.rank, n.ranks = rank, len(devices)
		g.ranks = append(g.ranks, n)
	}
	if len(devices) > 1 && t.train {
		if err := g.exchange.allocate(g.ranks, 1); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
	return g, nil
}

// close waits for all work and frees all memory.
func (g *group) close() error {
	var err error
	for _, n := range g.ranks {
		err = errors.Join(err, n.close())
	}
	return errors.Join(err, g.exchange.mem.Free())
}

// rankError adds the number of the rank's device to an error, if there are several devices.
func (g *group) rankError(rank int, err error) error {
	if err == nil || len(g.ranks) == 1 {
		return err
	}
	return fmt.Errorf("device %d: %w", rank, err)
}

// eachRank calls do for all ranks, up to the first error.
func (g *group) eachRank(do func(n *network) error) error {
	for rank, n := range g.ranks {
		if err := do(n); err != nil {
			return g.rankError(rank, err)
		}
	}
	return nil
}

// synchronize waits for all enqueued work.
func (g *group) synchronize(ctx context.Context) error {
	return g.eachRank(func(n *network) error { return n.stream.Synchronize(ctx) })
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

// peakBytes is the largest peak memory of the devices, in bytes.
func (g *group) peakBytes() (bytes int64) {
	for _, n := range g.ranks {
		bytes = max(bytes, n.mem.Device.Usage().Peak)
	}
	return bytes
}

// run runs a program on all ranks. Each rank enqueues its work up to the next meeting (network.meet), in the order of
// ranks; then the meeting is held, and each goes on. So a program, or a layer in it, reads as if its rank were alone: a
// meeting is a call in the middle of it.
//
// The programs are coroutines of one goroutine. The devices work side by side, but no rank waits for another: a failure
// of one ends all of them, and nothing can hang.
func (g *group) run(program func(n *network) error) error {
	next := make([]func() (gds.Tensor, bool), len(g.ranks))
	errs := make([]error, len(g.ranks))
	for rank, n := range g.ranks {
		pull, stop := iter.Pull(func(meet func(gds.Tensor) bool) {
			n.pass.meet = meet
			errs[rank] = program(n)
		})
		defer stop() // after an error, meet returns false
		next[rank] = pull
	}
	vectors := make([]gds.Tensor, len(g.ranks))
	for {
		met := 0
		for rank := range g.ranks {
			vector, more := next[rank]()
			if errs[rank] != nil {
				return g.rankError(rank, errs[rank])
			}
			if more {
				met++
			}
			vectors[rank] = vector
		}
		switch {
		case met == 0:
			return nil
		case met < len(g.ranks):
			return errors.New("the devices have different numbers of batches")
		case len(g.ranks) > 1 && vectors[0] != nothing:
			if err := g.exchange.sum(g, vectors); err != nil {
				return err
			}
		}
	}
}

// beginEpoch begins an epoch of each rank from batch first on, and waits for the first batch of all of them: loaders
// begin to prepare batches when they are asked for the first, and those of ranks are to do so side by side.
func (g *group) beginEpoch(ctx context.Context, sets []Epocher, epoch, first int) (
	batches []iter.Seq2[*loader.Batch, error], stop func()) {
	batches, stops := make([]iter.Seq2[*loader.Batch, error], len(g.ranks)), make([]func(), len(g.ranks))
	var begun sync.WaitGroup
	for rank, n := range g.ranks {
		next, stopRank := iter.Pull2(sets[rank].EpochFrom(ctx, n.stream, epoch, first))
		var b *loader.Batch
		var err error
		var more bool
		begun.Go(func() { b, err, more = next() })
		stops[rank] = stopRank
		batches[rank] = func(yield func(*loader.Batch, error) bool) {
			for more && yield(b, err) {
				b, err, more = next()
			}
		}
	}
	begun.Wait()
	return batches, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// nothing is the vector of meetings where nothing is added up.
var nothing gds.Tensor

// eachBatch calls share, which enqueues work, for each rank's share of every batch of an epoch from batch first on, and
// whole when all ranks have enqueued theirs. It stays at most two batches ahead of the devices, which is enough that no
// device waits for this loop. It returns how long it waited for batches.
//
// If ctx ends, a batch cannot be had, or whole returns an error, it stops between two batches: all ranks have enqueued
// the one before, and none anything of the next.
func (g *group) eachBatch(ctx context.Context, sets []Epocher, epoch, first int,
	share func(n *network, b *loader.Batch), whole func(b *loader.Batch) error) (waited time.Duration, err error) {
	asked := time.Now()
	batches, stop := g.beginEpoch(ctx, sets, epoch, first)
	defer stop()
	waited = time.Since(asked)
	err = g.run(func(n *network) error {
		var before gds.Event
		asked := time.Now()
		for b, err := range batches[n.rank] {
			waited += time.Since(asked)
			if err == nil {
				err = context.Cause(ctx)
			}
			if err == nil {
				err = n.admit(ctx, b)
			}
			if err != nil {
				return err
			}
			if !n.pass.meet(nothing) { // all have their share, or none begins
				return nil
			}
			share(n, b)
			if !n.pass.meet(nothing) { // all are at work, before this goroutine waits for one
				return nil
			}
			if n.rank == 0 && whole != nil {
				if err := whole(b); err != nil {
					return err
				}
			}
			done := n.stream.Record()
			if before != nil {
				if err := before.Wait(ctx); err != nil {
					return err
				}
			}
			before = done
			asked = time.Now()
		}
		waited += time.Since(asked)
		return nil
	})
	return waited, err
}
