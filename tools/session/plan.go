package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
)

// minMeasuredInput is the least input that Open measures for: of a smaller one, a few epochs take
// less time than measuring does.
const minMeasuredInput = units.Bytes(1 << 20)

// Plan is where the input lives and how it is shuffled, and what that was decided by.
type Plan struct {
	placement.Decision
	Facts placement.Facts
	Needs placement.Needs
}

// Memory is the memory of the plan.
func (p Plan) Memory() *need.Memory {
	m := p.Needs.Memory(p.Facts, p.Alternative)
	return &m
}

// MakePlan makes the plan of a session without opening it. Where it is to train, it measures the
// rates of this machine and the steps of the model, if there is one, for about a second.
func MakePlan(ctx context.Context, store *format.Dir, o Options) (Plan, error) {
	o.Machine = o.Machine.orThis(ctx)
	return makePlan(ctx, store, o, 0)
}

// makePlan is MakePlan, but measures nothing for an input of less than minMeasured.
func makePlan(ctx context.Context, store *format.Dir, o Options, minMeasured units.Bytes) (p Plan, err error) {
	p.Facts = o.Machine.Facts()
	if c, ok := store.FS().(interface {
		Cache() (dir string, limit, used units.Bytes)
	}); ok && vfs.IsURL(store.Path()) {
		p.Facts.CacheDir, p.Facts.Cache, _ = c.Cache()
	}
	if p.Needs, err = o.Needs(store.Layout(), store, p.Facts.Devices); err != nil {
		return p, err
	}
	if p.Decision, err = placement.Choose(p.Facts, p.Needs, o.wishes()); err != nil || !o.Train ||
		p.Needs.Input < minMeasured {
		return p, err
	}
	if err = p.measure(ctx, store, o); err != nil {
		return p, err
	}
	p.Decision, err = placement.Choose(p.Facts, p.Needs, o.wishes())
	p.explainBucket()
	return p, err
}

// explainBucket adds what is read from a bucket, from its cache, and how fast.
func (p *Plan) explainBucket() {
	bucket := p.Facts.Rates.Bucket
	if bucket == 0 {
		return
	}
	once := fmt.Sprintf("the store is in a bucket, which gives %v: the input, %v, is read from it in about %.0f s", bucket,
		p.Needs.Input, float64(p.Needs.Input)/float64(bucket))
	switch kept := p.Facts.Kept(p.Needs); {
	case p.Placement != placement.Storage:
		p.Reasons = append(p.Reasons, once+", once")
	case kept == 0:
		p.Reasons = append(p.Reasons, once+", in each epoch, as there is no cache")
	default:
		p.Reasons = append(p.Reasons, fmt.Sprintf("%s in the first epoch, and kept in %s, which may become %v; later epochs "+
			"read %.0f %% from there, at %v", once, p.Facts.CacheDir, p.Facts.Cache, 100*kept, p.Facts.Rates.Storage))
	}
}

// DescribedPlan makes a plan for a store of this layout on a described machine, without opening or
// measuring anything. compute is the time that the model takes there, if that is known.
func DescribedPlan(facts placement.Facts, layout format.Layout, compute placement.Compute, o Options) (p Plan,
	err error) {
	p.Facts = facts
	if p.Needs, err = o.Needs(layout, nil, facts.Devices); err != nil {
		return p, err
	}
	p.Needs.Compute = compute
	p.Decision, err = placement.Choose(p.Facts, p.Needs, o.wishes())
	p.explainBucket()
	return p, err
}

func (o Options) wishes() placement.Override {
	w := placement.Override{Placement: cmp.Or(o.Placement, placement.Auto)}
	if o.Train {
		w.Shuffle = cmp.Or(o.Shuffle, placement.Auto)
	}
	return w
}

// Needs are the bytes and rows that a session of a store needs on a number of devices. The store may be nil: then it is
// one of this layout, with one label a row.
func (o Options) Needs(layout format.Layout, store *format.Dir, devices int) (placement.Needs, error) {
	if len(o.Rows) == 0 {
		return placement.Needs{}, fmt.Errorf("%w: no rows are asked for", ErrOptions)
	}
	devices = max(1, devices)
	batch := o.loaderOptions(layout, store).BatchRows
	alone, loads, err := o.workBytes(layout, store, batch, 1)
	if err != nil {
		return placement.Needs{}, err
	}
	share, each, err := o.workBytes(layout, store, shareRows(batch, devices), devices)
	if err != nil {
		return placement.Needs{}, err
	}
	common := append(slices.Clone(o.Held), Program,
		need.Term{Name: "labels and columns of batches", Place: need.Pinned, Bytes: max(loads.Host, each.Host)})
	if store != nil { // as it is read, and as it is used
		common = append(common, need.OnHeap("index", 4*store.Manifest.IndexSize))
	}
	if o.scattered() { // the part of each row, and its number, here and in loaders
		common = append(common, need.OnHeap("numbers of rows", (1+3*4)*o.readRows(layout)))
	}
	if o.Model != nil {
		bytes, err := o.Model.HostBytes(devices)
		if err != nil {
			return placement.Needs{}, err
		}
		common = append(common, need.Term{Name: "model", Place: need.Pinned, Bytes: bytes})
	}
	trainRows := int64(0)
	if o.Train {
		trainRows = CountRows(layout, o.Rows[0])
	}
	input, shared := o.readRows(layout)*o.rowBytes(layout), int64(0)
	if store != nil {
		lo := o.loaderOptions(layout, store)
		shared = input - store.OwnBytes(lo.InputName(), input)
	}
	return placement.Needs{
		Input:         units.Bytes(input),
		Shared:        units.Bytes(shared),
		Work:          alone,
		ShareWork:     share,
		Chunks:        units.Bytes(loads.Chunks),
		Staging:       units.Bytes(int64(devices) * each.Staging),
		Common:        common,
		ScatteredRows: o.scattered(),
		Once:          o.Once,
		CutChunks:     o.ChunkRows%layout.ChunkRows != 0,
		TrainRows:     trainRows,
		ValidRows:     o.ValidRows,
		RowBytes:      o.rowBytes(layout),
		Convert:       layout.DType != dtype.Float32 && !o.AsStored,
		BatchRows:     batch,
		Buffers:       o.Buffers,
		ChunkRows:     cmp.Or(o.ChunkRows, layout.ChunkRows),
	}, nil
}

func (o Options) rowBytes(layout format.Layout) int64 {
	return int64(layout.Columns(o.Matrices) * layout.DType.Size())
}

// workBytes is the memory beside the input: work on the device (batches of up to batchRows rows,
// the model, and one row and one page of rounding), and of the loader.
func (o Options) workBytes(layout format.Layout, store *format.Dir, batchRows, devices int) (work units.Bytes,
	loads loader.Memory, err error) {
	lo := o.loaderOptions(layout, store)
	lo.BatchRows = batchRows
	if loads, err = loader.Need(layout, lo, devices); err != nil {
		return 0, loads, err
	}
	bytes := loads.Batches + o.rowBytes(layout) + gds.Align
	if o.Model != nil {
		model, err := o.Model.DeviceBytes(batchRows, o.Train)
		if err != nil {
			return 0, loads, err
		}
		bytes += model
	}
	return units.Bytes(bytes), loads, nil
}

// measure measures the rates of this machine, and steps of the model on a few batches from storage, on as many devices
// as will be used. It measures nothing if there is too little memory even for that.
func (p *Plan) measure(ctx context.Context, store *format.Dir, o Options) (err error) {
	layout, n := store.Layout(), p.Devices
	needs := p.Needs
	needs.ScatteredRows, needs.CutChunks = false, false // a few rows, in order
	needs.Work = needs.WorkOn(n)
	if _, err := placement.Choose(p.Facts, needs,
		placement.Override{Placement: placement.Storage, Shuffle: placement.CR}); err != nil {
		return nil
	}
	lo := o.loaderOptions(layout, store)
	at := slices.IndexFunc(layout.Regions, func(r format.Region) bool {
		return r.Rows > 0 && (lo.Regions == nil || slices.Contains(lo.Regions, r.Name))
	})
	if at < 0 {
		return nil
	}
	region := layout.Regions[at]
	// New devices, whose peak memory is the peak of measuring.
	opened, err := o.Machine.Devices.Open(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, devices.Close(opened)) }()
	if o.Model != nil {
		lo.Placement, lo.Regions, lo.Threads = loader.Storage, []string{region.Name}, o.Machine.Threads
		if err := p.measureModel(ctx, lo, o.Model, opened); errors.Is(err, gds.ErrOutOfMemory) {
			return nil
		} else if err != nil {
			return err
		}
	}
	p.Needs.OrderSeconds = orderSeconds(p.Needs, o.Machine.Threads)
	p.Facts.Rates, err = placement.Measure(ctx, opened[0], placement.Sample{
		Store: store, Matrices: o.Matrices, Region: region, Rows: o.readRows(layout),
		BatchRows: shareRows(lo.BatchRows, n), ChunkRows: p.Needs.ChunkRows, Threads: o.Machine.Threads,
		HostBytes: max(1, int64(p.Facts.Budget.Bytes)-p.Needs.Common.Sum(1, false).HostBytes),
	})
	return err
}

// measureModel measures the time and memory of steps on the first rows of a region, on all devices at once.
func (p *Plan) measureModel(ctx context.Context, lo loader.Options, model Model, opened []gds.Device) (err error) {
	loaders, err := loader.OpenRanks(ctx, lo, opened)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loaders.Close()) }()
	sets, err := loaders.Sets(loader.Rows{Region: lo.Regions[0]}, chunk.Plan{BatchRows: lo.BatchRows})
	if err != nil {
		return err
	}
	train, evaluate, err := model.StepSeconds(ctx, opened, sets, shareRows(lo.BatchRows, len(opened)))
	if err != nil {
		return err
	}
	p.Needs.Compute = placement.Compute{TrainSeconds: train, ValidSeconds: evaluate}
	peak := units.Bytes(PeakBytes(opened))
	if p.Facts.Device.Unified {
		peak -= p.Needs.Chunks
	}
	work := &p.Needs.Work
	if len(opened) > 1 {
		work = &p.Needs.ShareWork
	}
	*work = max(*work, peak)
	return nil
}

// orderSeconds is the time to compute one row number of the epoch's order, divided by the number
// of threads: a loader does it with one thread, and rates are of all threads together.
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
