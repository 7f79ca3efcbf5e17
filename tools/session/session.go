// Package session opens what a training needs: it decides where the input lives, and opens devices and loaders for
// that. Whoever computes says which matrices and rows of a store it reads, in batches of how many rows, and, if it
// computes on the devices of the session, what its model needs (Model). A program that computes elsewhere, as in
// PyTorch, has no Model; its plans have no times of computing and no memory of a model.
//
//	s, err := session.Open(ctx, store, session.Options{...})
//	sets, err := s.Sets(rows, chunk.Shuffled, seed)  // a set for each device
//	for batch, err := range sets[0].Epoch(ctx, stream, 0) {...}
//
// A Session may be used by several goroutines, and its loaders as package loader says. All memory is valid until Close.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
)

// ErrOptions is returned when options cannot be met by the store. Options that contradict each other
// are placement.ErrContradiction; options that memory does not allow are machine.ErrDoesNotFit.
var ErrOptions = errors.New("unusable options")

// refusal is ErrOptions in words of its own.
type refusal string

func (r refusal) Error() string        { return string(r) }
func (r refusal) Is(target error) bool { return target == ErrOptions }

// Refuse is an ErrOptions whose text is shown to the user.
func Refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// Options say what is read of a store, and for what.
type Options struct {
	Machine  Machine           // without devices: ThisMachine
	Matrices []format.MatrixID // that a batch holds, in this order
	Rows     []loader.Rows     // that sets are made of: regions of the store, or lists of its rows
	Train    bool              // on the first of Rows, in a new order each epoch; else all are read in order
	// ValidRows is how many rows are read in order after an epoch of training, for its predicted time.
	ValidRows int64
	BatchRows int  // over all devices
	Once      bool // each row is read once
	// Buffers is how many batches a device has, held ones included (0: placement.Buffers). Owned, AsStored, NoLabels,
	// RowNumbers and NodeIDs are as in loader.Options.
	Buffers                                        int
	Owned, AsStored, NoLabels, RowNumbers, NodeIDs bool
	// MostBuffers is how many there may be after calls of Loader.Grow, as far as the budget allows; 0: Buffers.
	MostBuffers int

	// Placement and Shuffle are wishes, of package placement ("": placement.Auto). ChunkRows are
	// reshuffled together if chunks are; 0: a chunk of the store.
	Placement, Shuffle string
	ChunkRows          int

	Model Model      // that computes on the devices; nil: none does
	Held  need.Terms // memory that the caller takes beside
}

// Model describes the model that computes on a session's batches.
type Model interface {
	// DeviceBytes is the memory that it takes on a device, to train or to be evaluated on batches
	// of up to batchRows rows.
	DeviceBytes(batchRows int, train bool) (int64, error)
	// HostBytes is the memory that it takes on the host, for all devices.
	HostBytes(devices int) (int64, error)
	// StepSeconds measures, in about a second, the time that a step of training and one of evaluation take, divided by
	// the rows of a device's share. There is a set for each device, and a share has up to shareRows rows. The memory
	// that the steps take on a device counts in its gds.Usage.
	StepSeconds(ctx context.Context, devices []gds.Device, sets []*loader.Set, shareRows int) (train, evaluate float64,
		err error)
}

// Session is a store that is open for training or evaluation.
type Session struct {
	Plan      Plan
	Devices   []gds.Device
	Loaders   loader.Ranks // one for each device
	BatchRows int          // over all devices
	ChunkRows int          // that are reshuffled together: 1 if rows are
	// MostBuffers is how many batches a device may have, of BufferBytes each, on host and device together.
	MostBuffers int
	BufferBytes units.Bytes
}

// Open chooses a placement, and opens devices and loaders for it. To predict the time of an epoch
// of training, it measures for about a second, unless the input is so small that this would take
// longer than some epochs. The store must stay open until Close.
func Open(ctx context.Context, store *format.Dir, o Options) (_ *Session, err error) {
	s := &Session{}
	o.Machine = o.Machine.orThis(ctx)
	if s.Plan, err = makePlan(ctx, store, o, minMeasuredInput); err != nil {
		return nil, err
	}
	s.BatchRows, s.ChunkRows = s.Plan.Needs.BatchRows, 1
	if s.Plan.Shuffle != placement.RR {
		s.ChunkRows = s.Plan.Needs.ChunkRows
	}
	if s.Devices, err = o.Machine.Devices.Open(s.Plan.Devices); err != nil {
		return nil, err
	}
	lo := o.loaderOptions(store.Layout(), store)
	lo.Threads, lo.Placement, lo.Sharded = o.Machine.Threads, loader.Placement(s.Plan.Placement), s.Plan.Sharded
	lo.Mapped, lo.ChunksOnDevice = s.Plan.Mapped, s.Plan.Needs.ChunksOnDevice(s.Plan.Facts)
	if lo.MostBuffers, s.BufferBytes, err = o.mostBuffers(store, s.Plan); err != nil {
		return nil, errors.Join(err, devices.Close(s.Devices))
	}
	s.MostBuffers = lo.MostBuffers
	if s.Loaders, err = loader.OpenRanks(ctx, lo, s.Devices); err != nil {
		return nil, errors.Join(err, devices.Close(s.Devices))
	}
	return s, nil
}

// mostBuffers is how many batch buffers what the plan leaves of the budget is enough for, and the size of one.
func (o Options) mostBuffers(store *format.Dir, p Plan) (int, units.Bytes, error) {
	lo := o.loaderOptions(store.Layout(), store)
	need, err := loader.Need(store.Layout(), lo, 1)
	if err != nil {
		return 0, 0, err
	}
	most := max(o.MostBuffers, lo.Buffers)
	if budget := p.Facts.Budget; budget.By != "" {
		left := budget.Bytes - p.HostBytes
		if p.Facts.Device.Unified {
			left -= p.DeviceBytes
		}
		most = min(most, lo.Buffers+int(max(left, 0)/units.Bytes(need.Buffer)))
	}
	return most, units.Bytes(need.Buffer), nil
}

// Close releases loaders and devices. While an epoch runs or batches are held it is
// loader.ErrInUse, and closes nothing.
func (s *Session) Close() error {
	err := s.Loaders.Close()
	if errors.Is(err, loader.ErrInUse) {
		return err
	}
	return errors.Join(err, devices.Close(s.Devices))
}

// Sets makes a set of rows for each device. A set yields the device's share of every batch, shuffled
// as the plan says, or in order. The rows must be among Options.Rows.
func (s *Session) Sets(rows loader.Rows, order chunk.Order, seed uint64) ([]*loader.Set, error) {
	return s.Loaders.Sets(rows, chunk.Plan{BatchRows: s.BatchRows, ChunkRows: s.ChunkRows, Order: order, Seed: seed})
}

// ShareRows is the most rows of a batch that one device gets.
func (s *Session) ShareRows() int { return shareRows(s.BatchRows, len(s.Devices)) }

func shareRows(batchRows, devices int) int { return (batchRows-1)/devices + 1 }

// PeakBytes is the peak memory of the fullest device.
func (s *Session) PeakBytes() int64 { return PeakBytes(s.Devices) }

// PeakBytes is the peak memory of the fullest of some devices.
func PeakBytes(opened []gds.Device) (bytes int64) {
	for _, d := range opened {
		bytes = max(bytes, d.Usage().Peak)
	}
	return bytes
}

// loaderOptions are the options of loaders that do not depend on the plan. Without a store (nil), they are for
// computing what is needed.
func (o Options) loaderOptions(layout format.Layout, store *format.Dir) loader.Options {
	lo := loader.Options{
		Store: store, Matrices: o.Matrices, Buffers: cmp.Or(o.Buffers, placement.Buffers),
		Owned: o.Owned, AsStored: o.AsStored, NoLabels: o.NoLabels, RowNumbers: o.RowNumbers, NodeIDs: o.NodeIDs,
		BatchRows: int(min(int64(o.BatchRows), max(o.readRows(layout), 1))),
	}
	if !o.scattered() {
		for _, rows := range o.Rows {
			lo.Regions = append(lo.Regions, rows.Region)
		}
	}
	return lo
}

// scattered tells whether rows are given by lists. Then all regions are read.
func (o Options) scattered() bool {
	return slices.ContainsFunc(o.Rows, func(r loader.Rows) bool { return r.List != nil })
}

func (o Options) readRows(layout format.Layout) (rows int64) {
	for _, region := range layout.Regions {
		if o.scattered() || slices.ContainsFunc(o.Rows, func(r loader.Rows) bool { return r.Region == region.Name }) {
			rows += region.Rows
		}
	}
	return rows
}
