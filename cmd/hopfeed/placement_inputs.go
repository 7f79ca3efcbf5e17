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

// minMeasuredInput is the least input that is measured for: of a smaller one, a few epochs take
// less time than measuring does.
const minMeasuredInput = units.Bytes(1 << 20)

// placementInputs are what placement.Choose takes: facts about the machine, and what training
// needs.
type placementInputs struct {
	facts placement.Facts
	needs placement.Needs
	cores int // of a described machine
}

// loaderOptions are the options of a loader for spec, without device, store and placement.
func (o sessionOptions) loaderOptions(layout format.Layout, spec trainer.Spec) loader.Options {
	return loader.Options{
		Matrices: spec.Matrices, Regions: o.regions, Buffers: placement.Buffers,
		BatchRows: int(min(int64(o.batch), max(o.rows(layout), 1))),
	}
}

// rows is the number of rows in the regions that are read.
func (o sessionOptions) rows(layout format.Layout) (rows int64) {
	for _, r := range layout.Regions {
		if o.regions == nil || slices.Contains(o.regions, r.Name) {
			rows += r.Rows
		}
	}
	return rows
}

// indexBytes is what the index of a store takes in memory, as it is read and as it is used.
func indexBytes(store *format.Dir) units.Bytes { return units.Bytes(4 * store.Manifest.IndexSize) }

// needs computes the bytes and rows that training or evaluating spec on a number of devices
// needs.
func (o sessionOptions) needs(layout format.Layout, spec trainer.Spec, devices int) (placement.Needs, error) {
	batch := o.loaderOptions(layout, spec).BatchRows
	alone, need, err := o.workBytes(layout, spec, batch)
	if err != nil {
		return placement.Needs{}, err
	}
	share, each, err := o.workBytes(layout, spec, shareRows(batch, devices))
	if err != nil {
		return placement.Needs{}, err
	}
	parameters, err := spec.Parameters()
	if err != nil {
		return placement.Needs{}, err
	}
	rowBytes := int64(len(spec.Matrices)) * int64(layout.Features*layout.DType.Size())
	host := machine.ProgramBytes + units.Bytes(need.Host+o.held+int64(devices)*3*4*parameters)
	if o.scattered { // lists of row numbers, here and in loaders
		host += units.Bytes(3 * 4 * o.rows(layout))
	}
	return placement.Needs{
		Input:         units.Bytes(o.rows(layout) * rowBytes),
		Work:          alone,
		ShareWork:     share,
		Chunks:        units.Bytes(need.Chunks),
		Staging:       units.Bytes(int64(devices) * each.Staging),
		Host:          host,
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

// workBytes is the memory beside the input: work on the device (batches of up to batchRows rows,
// the model, and one row and one page of rounding), and need on the host.
func (o sessionOptions) workBytes(layout format.Layout, spec trainer.Spec, batchRows int) (work units.Bytes, need loader.Memory, err error) {
	lo := o.loaderOptions(layout, spec)
	lo.BatchRows = batchRows
	if need, err = loader.Need(layout, lo); err != nil {
		return 0, need, err
	}
	model, err := spec.DeviceBytes(batchRows, o.train)
	rest := int64(len(spec.Matrices)*layout.Features*layout.DType.Size()) + gds.Align
	return units.Bytes(need.Batches + model + rest), need, err
}

// machineFacts describe this machine with all of its devices.
func (a *app) machineFacts() (placement.Facts, error) {
	device, err := a.openDevice()
	if err != nil {
		return placement.Facts{}, err
	}
	f := a.deviceFacts(device)
	f.Devices = max(1, a.emulate.GPUs)
	return f, device.Close()
}

// deviceFacts describe this machine with one of its devices.
func (a *app) deviceFacts(device gds.Device) placement.Facts {
	info := device.Info()
	free := units.Bytes(math.MaxInt64) // of a device without a limit of its own
	if info.MemoryBytes > 0 {
		free = units.Bytes(info.MemoryBytes - device.Usage().InUse)
	}
	return placement.Facts{Device: info, Devices: 1, DeviceFree: free, Budget: a.budget, Pinnable: machine.Lockable()}
}

// measure measures the rates of this machine, and trains on a few batches from storage, on as
// many devices as will be used, to measure the time and memory of computing. It measures nothing
// if there is too little memory even for that.
func (s *placementInputs) measure(ctx context.Context, a *app, store *format.Dir, spec trainer.Spec, o sessionOptions, devices int) (err error) {
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
	// New devices, so that their peak memory is that of measuring.
	opened, err := a.openDevices(devices)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDevices(opened)) }()
	lo := o.loaderOptions(layout, spec)
	lo.Store, lo.Placement, lo.Regions, lo.Threads = store, loader.Storage, []string{region.Name}, a.threads
	r, err := measureTraining(ctx, lo, spec, opened)
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
		HostBytes: int64(max(1, s.facts.Budget.Bytes-s.needs.Host)),
	})
	return err
}

// measureTraining measures steps on the first rows of a region, on all devices at once.
func measureTraining(ctx context.Context, o loader.Options, spec trainer.Spec, devices []gds.Device) (r trainer.StepCosts, err error) {
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
	return trainer.MeasureSteps(ctx, ranks, spec)
}

// orderSeconds is the time to compute one row number of the epoch's order, divided by the number
// of threads: a loader does it with one thread, and rates are those of all.
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

// openDevice opens the device of this machine, or the first emulated one.
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
		o.Stop = a.stop
		if a.emulate.GPUs == 0 {
			o = host.Options{MemoryBytes: int64(max(1, a.budget.Bytes-machine.ProgramBytes)), Threads: a.threads}
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
