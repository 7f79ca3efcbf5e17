package main

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// survey is what a placement is chosen by.
type survey struct {
	facts    placement.Facts
	needs    placement.Needs
	model    units.Bytes // of needs.Work, as counted
	measured bool        // rates, computing and needs.Work were
}

// worthMeasuring is the input from which on it takes less time to find what an epoch
// takes than to train for a few.
const worthMeasuring = units.Bytes(1 << 20)

// loaderOptions say what is loaded for spec; all but where from.
func (o sessionOptions) loaderOptions(device gds.Device, store *format.Dir, spec trainer.Spec, threads int) (lo loader.Options, rows int64) {
	for _, r := range store.Layout().Regions {
		if o.regions == nil || slices.Contains(o.regions, r.Name) {
			rows += r.Rows
		}
	}
	return loader.Options{
		Device: device, Store: store, Matrices: spec.Matrices, Regions: o.regions, Buffers: placement.Buffers,
		BatchRows: int(min(int64(o.batch), max(rows, 1))), Threads: threads,
	}, rows
}

// count counts what has to be placed of a store for spec.
func (s *survey) count(lo loader.Options, rows int64, spec trainer.Spec, o sessionOptions) error {
	need, err := loader.Need(lo)
	if err != nil {
		return err
	}
	model, err := spec.DeviceBytes(lo.BatchRows, o.train)
	if err != nil {
		return err
	}
	layout := lo.Store.Layout()
	rowBytes := int64(len(spec.Matrices)) * int64(layout.Features*layout.DType.Size())
	s.model = units.Bytes(model)
	s.needs = placement.Needs{
		Input:         units.Bytes(rows * rowBytes),
		Work:          units.Bytes(need.Batches + model),
		Chunks:        units.Bytes(need.Chunks),
		ScatteredRows: o.scattered,
		CutChunks:     o.chunkRows%layout.ChunkRows != 0,
		TrainRows:     o.trainRows,
		ValidRows:     o.validRows,
		RowBytes:      rowBytes,
		Convert:       layout.DType != dtype.Float32,
		BatchRows:     lo.BatchRows,
		ChunkRows:     o.planChunkRows(layout.ChunkRows),
	}
	return nil
}

// here surveys this machine.
func (a *app) here(device gds.Device) placement.Facts {
	info := device.Info()
	free := units.Bytes(math.MaxInt64) // of a device without a limit of its own
	if info.MemoryBytes > 0 {
		free = units.Bytes(info.MemoryBytes - device.Usage().InUse)
	}
	budget, by := a.budget()
	return placement.Facts{Device: info, Devices: max(a.emulate.GPUs, 1), DeviceFree: free, Budget: budget, BudgetBy: by}
}

// measure finds the rates of this machine, and trains on a few batches from storage
// to find what computing takes and how much device memory; nothing where there is
// not even memory for that.
func (s *survey) measure(ctx context.Context, a *app, lo loader.Options, spec trainer.Spec) (err error) {
	if s.needs.Work+s.needs.Chunks > min(s.facts.DeviceFree, s.facts.Budget) {
		return nil
	}
	regions := lo.Store.Layout().Regions
	at := slices.IndexFunc(regions, func(r format.Region) bool {
		return r.Rows > 0 && (lo.Regions == nil || slices.Contains(lo.Regions, r.Name))
	})
	if at < 0 {
		return nil
	}
	// A device of its own, whose peak is the rehearsal's.
	if lo.Device, err = a.openDevice(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lo.Device.Close()) }()
	lo.Placement, lo.Regions = loader.Storage, []string{regions[at].Name}
	l, err := loader.Open(ctx, lo)
	if err != nil {
		return err
	}
	rows, err := l.Set(loader.Rows{Region: regions[at].Name}, chunk.Plan{BatchRows: lo.BatchRows})
	var r trainer.Rehearsal
	if err == nil {
		r, err = trainer.Rehearse(ctx, lo.Device, spec, rows, lo.BatchRows)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	peak := units.Bytes(r.PeakDeviceBytes)
	if lo.Device.Info().Unified {
		peak -= s.needs.Chunks
	}
	s.needs.Work = max(s.needs.Work, peak)
	s.needs.Compute = placement.Compute{TrainSeconds: r.TrainSeconds, ValidSeconds: r.ValidSeconds}
	s.measured = true
	s.facts.Rates, err = placement.Measure(ctx, lo.Device, placement.Sample{
		Store: lo.Store, Matrices: spec.Matrices, Region: regions[at], Rows: int64(s.needs.Input) / max(s.needs.RowBytes, 1),
		BatchRows: lo.BatchRows, ChunkRows: s.needs.ChunkRows, Threads: lo.Threads,
	})
	return err
}

// openDevice opens the device that this machine computes on, or the first of those
// that it emulates.
func (a *app) openDevice() (gds.Device, error) {
	if a.emulate.GPUs > 0 {
		return host.New(a.emulate.Device(0, a.threads))
	}
	budget, _ := a.budget()
	return host.New(host.Options{MemoryBytes: int64(budget), Threads: a.threads})
}
