package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// worthMeasuring is the input from which on it takes less time to find what an epoch
// takes than to train for a few.
const worthMeasuring = units.Bytes(1 << 20)

// survey is what a placement is chosen by.
type survey struct {
	facts placement.Facts
	needs placement.Needs
	cores int // of a described machine
}

// loading is what to load for spec; device, store and placement are left out.
func (o sessionOptions) loading(layout format.Layout, spec trainer.Spec) loader.Options {
	return loader.Options{
		Matrices: spec.Matrices, Regions: o.regions, Buffers: placement.Buffers,
		BatchRows: int(min(int64(o.batch), max(o.rows(layout), 1))),
	}
}

// rows is how many there are in the regions that are read.
func (o sessionOptions) rows(layout format.Layout) (rows int64) {
	for _, r := range layout.Regions {
		if o.regions == nil || slices.Contains(o.regions, r.Name) {
			rows += r.Rows
		}
	}
	return rows
}

// needs counts what has to be placed of a store for spec, to train on so many devices.
func (o sessionOptions) needs(layout format.Layout, spec trainer.Spec, devices int) (placement.Needs, error) {
	batch := o.loading(layout, spec).BatchRows
	alone, need, err := o.work(layout, spec, batch)
	if err != nil {
		return placement.Needs{}, err
	}
	share, each, err := o.work(layout, spec, shareRows(batch, devices))
	if err != nil {
		return placement.Needs{}, err
	}
	rowBytes := int64(len(spec.Matrices)) * int64(layout.Features*layout.DType.Size())
	return placement.Needs{
		Input:         units.Bytes(o.rows(layout) * rowBytes),
		Work:          alone,
		ShareWork:     share,
		Chunks:        units.Bytes(need.Chunks),
		Staging:       units.Bytes(int64(devices) * each.Staging),
		ScatteredRows: o.scattered,
		CutChunks:     o.chunkRows%layout.ChunkRows != 0,
		TrainRows:     o.trainRows,
		ValidRows:     o.validRows,
		RowBytes:      rowBytes,
		Convert:       layout.DType != dtype.Float32,
		BatchRows:     batch,
		ChunkRows:     o.planChunkRows(layout.ChunkRows),
	}, nil
}

// work is what batches of up to so many rows and the model take on a device, with the
// rest of a row and of a page that a part of the input may end in, and what of the host
// loading them takes.
func (o sessionOptions) work(layout format.Layout, spec trainer.Spec, batchRows int) (work units.Bytes, need loader.Memory, err error) {
	lo := o.loading(layout, spec)
	lo.BatchRows = batchRows
	if need, err = loader.Need(layout, lo); err != nil {
		return 0, need, err
	}
	model, err := spec.DeviceBytes(batchRows, o.train)
	rest := int64(len(spec.Matrices)*layout.Features*layout.DType.Size()) + gds.Align
	return units.Bytes(need.Batches + model + rest), need, err
}

// allFacts are this machine's, for all of its devices.
func (a *app) allFacts() (placement.Facts, error) {
	device, err := a.openDevice()
	if err != nil {
		return placement.Facts{}, err
	}
	f := a.facts(device)
	f.Devices = max(1, a.emulate.GPUs)
	return f, device.Close()
}

// facts are this machine's, for one of its devices.
func (a *app) facts(device gds.Device) placement.Facts {
	info := device.Info()
	free := units.Bytes(math.MaxInt64) // of a device without a limit of its own
	if info.MemoryBytes > 0 {
		free = units.Bytes(info.MemoryBytes - device.Usage().InUse)
	}
	budget, by := a.budget()
	return placement.Facts{Device: info, Devices: 1, DeviceFree: free, Budget: budget, BudgetBy: by, Pinnable: machine.Lockable()}
}

// measure finds the rates of this machine, and trains on a few batches from storage,
// on as many devices as shall be used, to find what computing takes and how much device
// memory; nothing where there is not even memory for that.
func (s *survey) measure(ctx context.Context, a *app, store *format.Dir, spec trainer.Spec, o sessionOptions, devices int) (err error) {
	fromStorage := placement.Override{Placement: placement.Storage, Shuffle: placement.CR}
	needs := s.needs
	needs.ScatteredRows, needs.CutChunks = false, false // a few rows, in order
	needs.Work = needs.WorkOn(devices)
	if _, err := placement.Choose(s.facts, needs, fromStorage); err != nil {
		return nil
	}
	layout := store.Layout()
	at := slices.IndexFunc(layout.Regions, func(r format.Region) bool {
		return r.Rows > 0 && (o.regions == nil || slices.Contains(o.regions, r.Name))
	})
	if at < 0 {
		return nil
	}
	region := layout.Regions[at]
	// Devices of their own, whose peak is the rehearsal's.
	opened, err := a.openDevices(devices)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDevices(opened)) }()
	lo := o.loading(layout, spec)
	lo.Store, lo.Placement, lo.Regions, lo.Threads = store, loader.Storage, []string{region.Name}, a.threads
	r, err := rehearse(ctx, lo, spec, opened)
	if errors.Is(err, gds.ErrOutOfMemory) {
		return nil
	}
	if err != nil {
		return err
	}
	peak := units.Bytes(r.PeakDeviceBytes)
	if s.facts.Device.Unified {
		peak -= s.needs.Chunks
	}
	if devices > 1 {
		s.needs.ShareWork = max(s.needs.ShareWork, peak)
	} else {
		s.needs.Work = max(s.needs.Work, peak)
	}
	s.needs.Compute = placement.Compute{TrainSeconds: r.TrainSeconds, ValidSeconds: r.ValidSeconds}
	s.needs.OrderSeconds = orderSeconds(s.needs, a.threads)
	s.facts.Rates, err = placement.Measure(ctx, opened[0], placement.Sample{
		Store: store, Matrices: spec.Matrices, Region: region, Rows: o.rows(layout),
		BatchRows: shareRows(lo.BatchRows, devices), ChunkRows: s.needs.ChunkRows, Threads: a.threads,
	})
	return err
}

// rehearse computes on the first rows of a region for a moment, all devices at once.
func rehearse(ctx context.Context, o loader.Options, spec trainer.Spec, devices []gds.Device) (r trainer.Rehearsal, err error) {
	loaders, err := loader.OpenRanks(ctx, o, devices)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, loaders.Close()) }()
	sets, err := loaders.Sets(loader.Rows{Region: o.Regions[0]}, chunk.Plan{BatchRows: o.BatchRows})
	if err != nil {
		return r, err
	}
	ranks := make([]trainer.Rank, len(sets))
	for rank, rows := range sets {
		ranks[rank] = trainer.Rank{Device: devices[rank], Data: trainer.Data{Train: rows, BatchRows: shareRows(o.BatchRows, len(devices))}}
	}
	return trainer.Rehearse(ctx, ranks, spec)
}

// orderSeconds is how long finding the place of a row takes, by all threads: a loader
// has one for it.
func orderSeconds(n placement.Needs, threads int) float64 {
	const enough = 1 << 16 // rows
	numbers := make([]uint32, n.BatchRows)
	start, rows := time.Now(), 0
	for b := range (chunk.Plan{Rows: n.TrainRows, BatchRows: n.BatchRows, Order: chunk.Shuffled}).Epoch(0) {
		b.RowNumbers(numbers)
		if rows += b.Rows; rows >= enough {
			break
		}
	}
	return time.Since(start).Seconds() / float64(max(rows, 1)*threads)
}

// openDevice opens the device that this machine computes on, or the first of those
// that it emulates.
func (a *app) openDevice() (gds.Device, error) {
	devices, err := a.openDevices(1)
	if err != nil {
		return nil, err
	}
	return devices[0], nil
}

// openDevices opens the first n devices, which share the threads.
func (a *app) openDevices(n int) (devices []gds.Device, err error) {
	for i := range n {
		o := a.emulate.Device(i, max(1, a.threads/n))
		if a.emulate.GPUs == 0 {
			budget, _ := a.budget()
			o = host.Options{MemoryBytes: int64(budget), Threads: a.threads}
		}
		device, err := host.New(o)
		if err != nil {
			return nil, errors.Join(err, closeDevices(devices))
		}
		devices = append(devices, device)
	}
	return devices, nil
}

func closeDevices(devices []gds.Device) error {
	var errs []error
	for _, d := range devices {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}
