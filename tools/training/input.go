// Package training opens what a model is trained on or applied to, a hop store or a graph, and plans the memory that
// takes. Options say what is trained; a Store or a Graph is the opened Input, whose Sets are the rows of a run.
//
// What an allocation takes is declared as terms of package need in the package that makes it. need.Terms.Sum adds them
// up, for stores (placement.Needs.Memory) and for graphs (graphPlan.memory here), whose topology, features, samplers
// and caches session declares (Source.Terms, SamplerTerms), with a model or without. An Input is used by one goroutine
// at a time; its memory is valid until Close.
package training

import (
	"context"
	"errors"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// Input is an open store or graph.
type Input interface {
	// Sets are the rows of a run with this seed; test: the test rows too.
	Sets(ctx context.Context, seed uint64, test bool) (Sets, error)
	// InOrder is rows in their order, to be evaluated: a set for each device.
	InOrder(rows loader.Rows) ([]RowSet, error)
	Devices() []gds.Device
	ShareRows() int // most rows of a batch that one device gets
	Batches() checkpoint.Batches
	Report() Report
	Explain(err error) error // adds to the error of a training what the input knows of it
	PeakBytes() int64        // of memory of the fullest device
	Close() error
}

// RowSet is the rows of a run that one device gets.
type RowSet interface {
	trainer.Epocher
	RowNumbers(epoch, batch int) []uint32
}

// Sets are the rows of a run: of each kind, a set for each device. Test may be nil.
type Sets struct{ Train, Valid, Test []RowSet }

// TestRows is how many rows are tested on.
func (d Sets) TestRows() int64 {
	if d.Test == nil {
		return 0
	}
	return d.Test[0].Rows()
}

// Ranks pairs each device of the input with its sets.
func (d Sets) Ranks(in Input) []trainer.Rank {
	ranks := make([]trainer.Rank, len(in.Devices()))
	for i, device := range in.Devices() {
		data := trainer.Data{Train: d.Train[i], Valid: d.Valid[i], BatchRows: in.ShareRows()}
		if d.Test != nil {
			data.Test = d.Test[i]
		}
		ranks[i] = trainer.Rank{Device: device, Data: data}
	}
	return ranks
}

// Report describes an input in results.
type Report struct {
	Placement             string                 `json:"placement"`
	Shuffle               string                 `json:"shuffle"`
	Reasons               []string               `json:"reasons"`
	Device                string                 `json:"device"`      // the name of the first
	DeviceKind            string                 `json:"device_kind"` // host, emulated or cuda
	Devices               int                    `json:"devices"`
	Sharded               bool                   `json:"sharded"`
	PredictedRemoteRows   float64                `json:"predicted_remote_rows"`
	RemoteBytes           int64                  `json:"remote_bytes"` // that moved between devices, in all epochs
	PredictedEpochSeconds *float64               `json:"predicted_epoch_seconds"`
	Memory                *need.Memory           `json:"memory_plan,omitempty"`
	Schedule              *scheduler.Report      `json:"schedule,omitempty"` // of the batches of a graph
	Queues                *scheduler.QueueReport `json:"multi_queue,omitempty"`
	Load                  loader.Stats           `json:"load"`
}

func (r *Report) setDevice(first gds.Device) {
	info := first.Info()
	r.Device, r.DeviceKind = info.Name, info.Kind
}

// Open opens the input of a training. Before are the batches of a training that goes on, or zero.
func Open(ctx context.Context, dir *format.Dir, o Options, before checkpoint.Batches) (Input, error) {
	if dir.Manifest.Kind == format.KindGraph {
		if o.Schedule.IsOff(o.Machine.Devices.Info) {
			o.Schedule.Name = ""
		}
		return openGraph(ctx, dir, o)
	}
	if before.Rows > 0 { // the same batches, whatever would be chosen now
		o.Shuffle, o.ChunkRows = before.Shuffle, 0
		if before.Shuffle == placement.CR {
			o.ChunkRows = before.ChunkRows
		}
	}
	s, err := session.Open(ctx, dir, o.Session(dir.Layout()))
	if err != nil {
		return nil, err
	}
	if used := s.Plan.Devices; o.BatchPerDevice > 0 && used != o.Machine.Devices.Count {
		return nil, errors.Join(session.Refuse("--batch-per-device %d: %d of %d devices are used (give --batch)",
			o.BatchPerDevice, used, o.Machine.Devices.Count), s.Close())
	}
	return Store{s, o.Part}, nil
}

// openGraph opens a graph.
func openGraph(ctx context.Context, dir *format.Dir, o Options) (Input, error) {
	g, err := OpenGraph(ctx, dir, o)
	if err != nil {
		return nil, err // and no nil pointer in the Input
	}
	return g, nil
}

// Session is the options of a session of a store.
func (o *Options) Session(layout format.Layout) session.Options {
	so := session.Options{
		Machine: o.Machine, Matrices: o.Spec.Matrices, Rows: []loader.Rows{o.Part.Train, o.Part.Valid,
			o.Part.Test}, Train: true,
		BatchRows: o.BatchRows, Placement: o.Placement, Shuffle: o.Shuffle, ChunkRows: o.ChunkRows,
		Model: o.Spec, Held: o.Held,
	}
	if o.NoTest {
		so.Rows = so.Rows[:2]
	}
	// The median epoch has half of the validation rows if every second epoch is validated, none if fewer are.
	validRows, every := session.CountRows(layout, o.Part.Valid), o.Options.EvalEvery
	if every == 0 {
		every = trainer.DefaultEvalEvery(session.CountRows(layout, o.Part.Train), validRows, o.Options.Epochs)
	}
	if every <= 2 {
		so.ValidRows = validRows / int64(every)
	}
	return so
}

// Store is a hop store that is open, and what is trained on.
type Store struct {
	*session.Session
	Part session.Partition
}

// Devices are the devices of the session.
func (s Store) Devices() []gds.Device { return s.Session.Devices }

// Explain has nothing to add.
func (s Store) Explain(err error) error { return err }

// Batches says how rows are shuffled and shared.
func (s Store) Batches() checkpoint.Batches {
	p := &s.Plan
	return checkpoint.Batches{Rows: s.BatchRows, Shuffle: p.Shuffle, ChunkRows: s.ChunkRows, Placement: p.Placement,
		Devices: p.Devices}
}

// Sets are the rows of a run.
func (s Store) Sets(_ context.Context, seed uint64, test bool) (d Sets, err error) {
	if d.Train, err = s.ordered(s.Part.Train, chunk.Shuffled, seed); err != nil {
		return d, err
	}
	if d.Valid, err = s.InOrder(s.Part.Valid); err != nil || !test {
		return d, err
	}
	d.Test, err = s.InOrder(s.Part.Test)
	return d, err
}

// InOrder is rows in their order.
func (s Store) InOrder(rows loader.Rows) ([]RowSet, error) {
	return s.ordered(rows, chunk.Sequential, 0)
}

func (s Store) ordered(rows loader.Rows, order chunk.Order, seed uint64) (all []RowSet, err error) {
	sets, err := s.Session.Sets(rows, order, seed)
	for _, set := range sets {
		all = append(all, set)
	}
	return all, err
}

// Report says where the store is read from.
func (s Store) Report() Report {
	p := &s.Plan
	r := Report{
		Placement: p.Placement, Shuffle: p.Shuffle, Reasons: p.Reasons, Devices: p.Devices, Sharded: p.Sharded,
		PredictedRemoteRows: p.RemoteRows, Load: s.Loaders[0].Stats(),
		Memory: p.Memory(),
	}
	r.setDevice(s.Devices()[0])
	if p.ComputeSeconds > 0 {
		r.PredictedEpochSeconds = &p.EpochSeconds
	}
	for _, l := range s.Loaders {
		r.RemoteBytes += l.Stats().RemoteBytes
	}
	return r
}
