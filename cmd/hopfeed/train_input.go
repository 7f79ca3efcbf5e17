package main

import (
	"context"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// trainingInput is where the batches of a training come from: a store, or a graph.
type trainingInput interface {
	// rowSets makes the sets of one run, with those to test on or without.
	rowSets(ctx context.Context, p session.Partition, seed uint64, test bool) (rowSets, error)
	// inOrder is rows in their order, to be evaluated.
	inOrder(rows loader.Rows) ([]rowSet, error)
	devices() []gds.Device
	shareRows() int // most rows of a batch that one device gets
	batches() checkpoint.Batches
	predictedSeconds() float64 // of an epoch; 0: unknown
	note(a *app)               // prints where the input is
	describe(r *trained)       // sets what a result says of the input
	PeakBytes() int64          // of memory of the fullest device
	Close() error
}

// rowSet is the rows of one run that one device gets.
type rowSet interface {
	trainer.Epocher
	RowNumbers(epoch, batch int) []uint32
	Remote() (read, remote int64)
}

// rowSets are the rows of one run: of each kind, a set for each device; test may be nil.
type rowSets struct{ train, valid, test []rowSet }

func (d rowSets) testRows() int64 {
	if d.test == nil {
		return 0
	}
	return d.test[0].Rows()
}

// ranks pairs each device of the input with its sets.
func (d rowSets) ranks(in trainingInput) []trainer.Rank {
	ranks := make([]trainer.Rank, len(in.devices()))
	for i, device := range in.devices() {
		data := trainer.Data{Train: d.train[i], Valid: d.valid[i], BatchRows: in.shareRows()}
		if d.test != nil {
			data.Test = d.test[i]
		}
		ranks[i] = trainer.Rank{Device: device, Data: data}
	}
	return ranks
}

// openInput opens the input of a training. Before are the batches of a training that goes on, or zero.
func (a *app) openInput(ctx context.Context, dir *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition, before checkpoint.Batches) (trainingInput, error) {
	held, err := o.heldBytes(&dir.Manifest, spec)
	if err != nil {
		return nil, err
	}
	if dir.Manifest.Kind == format.KindGraph {
		if o.schedule == scheduler.MultiQueue {
			in, err := a.openQueued(ctx, dir, o, spec, part, held)
			if err != nil {
				return nil, err
			}
			return in, nil
		}
		if o.schedule == scheduler.Auto && a.machine(ctx).Devices.Info.Unified { // there is nothing to choose: see planSchedule
			plain := *o
			plain.schedule, o = "", &plain
		}
		in, err := a.openGraphInput(ctx, dir, o, spec, part, held, nil)
		if err != nil {
			return nil, err
		}
		return in, nil
	}
	so := o.sessionOptions(dir.Layout(), spec, part)
	so.Machine, so.HeldBytes = a.machine(ctx), held
	if before.Rows > 0 { // the same batches, whatever would be chosen now
		so.Shuffle, so.ChunkRows = before.Shuffle, 0
		if before.Shuffle == placement.CR {
			so.ChunkRows = before.ChunkRows
		}
	}
	s, err := session.Open(ctx, dir, so)
	if err != nil {
		return nil, err
	}
	return storeInput{s}, nil
}

// storeInput is a session of a store.
type storeInput struct{ *session.Session }

func (in storeInput) devices() []gds.Device { return in.Devices }
func (in storeInput) shareRows() int        { return in.ShareRows() }
func (in storeInput) note(a *app)           { a.notePlacement(in.Session) }

func (in storeInput) batches() checkpoint.Batches {
	p := &in.Plan
	return checkpoint.Batches{Rows: in.BatchRows, Shuffle: p.Shuffle, ChunkRows: in.ChunkRows, Placement: p.Placement, Devices: p.Devices}
}

func (in storeInput) predictedSeconds() float64 {
	if in.Plan.ComputeSeconds > 0 {
		return in.Plan.EpochSeconds
	}
	return 0
}

func (in storeInput) rowSets(ctx context.Context, p session.Partition, seed uint64, test bool) (d rowSets, err error) {
	if d.train, err = in.ordered(p.Train, chunk.Shuffled, seed); err != nil {
		return d, err
	}
	if d.valid, err = in.inOrder(p.Valid); err != nil || !test {
		return d, err
	}
	d.test, err = in.inOrder(p.Test)
	return d, err
}

func (in storeInput) inOrder(rows loader.Rows) ([]rowSet, error) {
	return in.ordered(rows, chunk.Sequential, 0)
}

func (in storeInput) ordered(rows loader.Rows, order chunk.Order, seed uint64) (all []rowSet, err error) {
	sets, err := in.Sets(rows, order, seed)
	for _, set := range sets {
		all = append(all, set)
	}
	return all, err
}

func (in storeInput) describe(r *trained) {
	plan := &in.Plan
	r.Placement, r.Shuffle, r.Reasons = plan.Placement, plan.Shuffle, plan.Reasons
	r.Devices, r.Sharded, r.PredictedRemoteRows = plan.Devices, plan.Sharded, plan.RemoteRows
	r.Load = in.Loaders[0].Stats()
	if seconds := in.predictedSeconds(); seconds > 0 {
		r.PredictedEpochSeconds = &seconds
	}
	for _, l := range in.Loaders {
		r.RemoteBytes += l.Stats().RemoteBytes
	}
}
