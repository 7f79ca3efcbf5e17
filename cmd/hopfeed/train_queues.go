package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// queueOptions are those of the schedule multi-queue.
type queueOptions struct{ queue, gradients, syncEvery int }

func (o *queueOptions) declareFlags(f *pflag.FlagSet) {
	f.IntVar(&o.queue, "queue", 0, fmt.Sprintf("batches that wait for each device on the host, and on the device, by the schedule %s (default by measurement)", scheduler.MultiQueue))
	f.IntVar(&o.gradients, "gradients", 0, fmt.Sprintf("batches whose gradients wait on each device, by the schedule %s; 1: gradients are never stale (default by measurement)", scheduler.MultiQueue))
	f.IntVar(&o.syncEvery, "sync-every", 0, fmt.Sprintf("batches from one synchronisation of devices to the next, by the schedule %s; 1: gradients are never stale (default by measurement)", scheduler.MultiQueue))
}

// maxSyncEvery is more batches than epochs have.
const maxSyncEvery = 1 << 30

func (o *trainOptions) checkQueues() error {
	switch {
	case o.queue < 0 || o.queue > scheduler.MostQueue:
		return usagef("--queue %d: want a number from 1 to %d", o.queue, scheduler.MostQueue)
	case o.gradients < 0 || o.gradients > scheduler.MostQueue:
		return usagef("--gradients %d: want a number from 1 to %d", o.gradients, scheduler.MostQueue)
	case o.syncEvery < 0 || o.syncEvery > maxSyncEvery:
		return usagef("--sync-every %d: want a number from 1 to %d", o.syncEvery, maxSyncEvery)
	case o.schedule != scheduler.MultiQueue && o.queue+o.gradients+o.syncEvery > 0:
		return usagef("--queue, --gradients and --sync-every are of --schedule %s", scheduler.MultiQueue)
	case o.schedule == scheduler.MultiQueue && o.sampling["buffers"] > 0:
		return usagef("--buffers: by --schedule %s batches wait in queues (say how many by --queue)", scheduler.MultiQueue)
	}
	return nil
}

// queuedInput is a graph on several devices, which train on it by queues. The first has the whole graph, and
// evaluates alone.
type queuedInput struct {
	*graphInput
	all     []gds.Device
	loaders []*session.Sampled // of each device; the first is the graphInput's
	queues  *scheduler.Queues
}

// openQueued opens a graph on all devices of the machine.
func (a *app) openQueued(ctx context.Context, graph *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition, held int64) (_ *queuedInput, err error) {
	in := &queuedInput{}
	kind := a.machine(ctx).Devices
	if kind.Count > 1 { // else openGraph sees to the memory of the host, which may be the device
		if in.all, err = kind.Open(kind.Count); err != nil {
			return nil, err
		}
	}
	if in.graphInput, err = a.openGraphInput(ctx, graph, o, spec, part, held, in.all); err != nil {
		return nil, errors.Join(err, devices.Close(in.all))
	}
	if in.all == nil {
		in.all = []gds.Device{in.device}
	}
	if in.sampled == nil {
		return nil, errors.Join(usagef("--schedule %s: every batch is all nodes, so there is none to prepare (give --batch, or another --sampler)", scheduler.MultiQueue), in.Close())
	}
	in.loaders = []*session.Sampled{in.sampled}
	for rank := 1; rank < len(in.all); rank++ {
		more, err := a.openLoader(ctx, graph, o, in.graphInput, part, in.all[rank], rank, len(in.all))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("device %d: %w", rank, err), in.Close())
		}
		in.loaders = append(in.loaders, more)
	}
	return in, nil
}

// queueWorkers is how many workers of the processor sample for each device.
func (a *app) queueWorkers(o *trainOptions, devices int) int {
	if o.sampling["workers"] > 0 || a.emulate.Workers > 0 {
		return a.samplingWorkers(&o.samplingOptions)
	}
	return max(1, a.threads/devices)
}

// planQueues chooses the queues of a training, and says so.
func (in *queuedInput) planQueues(ctx context.Context, a *app, graph *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition, before *trainer.State) error {
	sets, err := in.trainSets(part, a.seed)
	if err != nil {
		return err
	}
	qo := scheduler.QueueOptions{
		Graph:   multiqueue.Graph{Nodes: graph.Manifest.Nodes, Edges: graph.Manifest.Edges, Devices: len(in.all)},
		Devices: in.all, Sets: sets, Rows: in.shareRows(), Spec: spec, Options: o.Options, Workers: a.queueWorkers(o, len(in.all)), Stages: a.emulate.Stages,
		Queue: o.queue, Period: o.syncEvery, Gradients: o.gradients,
		BatchBytes: func() (most int64) {
			for _, s := range in.loaders {
				most = max(most, s.Loader.Stats().BatchBytes)
			}
			return most
		},
	}
	if !in.device.Info().Unified && a.budget.By != "" {
		qo.HostBatches = func() int {
			left := int64(a.budget.Bytes-machine.ProgramBytes) - in.memory().HostBytes
			return int(min(max(0, left/int64(len(in.all))/max(1, gds.Room(qo.BatchBytes()))), scheduler.MostQueue))
		}
	}
	qo.Options.Seed = a.seed
	if before != nil && before.Options.Queues != nil { // the same steps as those of the run that goes on
		q := before.Options.Queues
		qo.Period, qo.Gradients = q.Period, q.Lag+1
	}
	if in.queues, err = scheduler.NewQueues(ctx, qo); err != nil {
		return in.explain(err)
	}
	o.Options.Queues = in.queues.Training()
	w := &in.where
	w.batches = queuedBatches(min(in.queues.Report.Queue, sets[0].Batches()))
	if w.bytes.pinned, err = w.needs.spec.PinnedBytes(w.needs.modelRows(w.bytes.nodes), len(in.all), in.queues.Gradients(), true); err != nil {
		return err
	}
	r := &in.queues.Report
	a.note("schedule %s on %s: %s", scheduler.MultiQueue, count(int64(r.Devices), "device"), r.Reason)
	a.note("  training on an epoch should take %.3g s, without stale gradients %.3g s", r.Predicted, r.PredictedBy)
	a.note("  %s", reproducible(r))
	return nil
}

// reproducible says what of a training by queues can be had again.
func reproducible(r *scheduler.QueueReport) string {
	if r.Lag == 0 {
		return "no gradient is stale: the model is that of synchronous training on as many devices"
	}
	return fmt.Sprintf("gradients are %.2g updates stale on average, %d at most; steps are made at planned points, so the same model comes again for the same seed, %s, --gradients %d and --sync-every %d; what is measured instead may be other numbers the next time",
		r.Staleness.Mean, r.Staleness.Largest, count(int64(r.Devices), "device"), r.Gradients, r.Period)
}

func (in *queuedInput) trainSets(p session.Partition, seed uint64) (sets []*sampling.Set, err error) {
	for rank, s := range in.loaders {
		plan := in.plan(seed)
		if len(in.all) > 1 {
			plan.Rank, plan.World = rank, len(in.all)
		}
		set, err := s.Loader.Set(p.Train.List, s.Method, plan)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

func (in *queuedInput) rowSets(ctx context.Context, p session.Partition, seed uint64, test bool) (d rowSets, err error) {
	sets, err := in.trainSets(p, seed)
	if err == nil {
		err = in.queues.Apply(sets)
	}
	if err != nil {
		return d, err
	}
	for _, set := range sets {
		d.train = append(d.train, sampledSet{set})
	}
	if in.sets.valid == nil { // once for all runs
		if in.sets.valid, err = in.validation(ctx, p.Valid); err == nil && test {
			in.sets.test, err = in.inOrder(p.Test)
		}
		if err != nil {
			return d, err
		}
	}
	d.valid, d.test = in.sets.valid, in.sets.test
	return d, nil
}

func (in *queuedInput) inOrder(rows loader.Rows) ([]rowSet, error) {
	sets, err := in.graphInput.inOrder(rows)
	return in.onFirst(sets), err
}

func (in *queuedInput) validation(ctx context.Context, rows loader.Rows) ([]rowSet, error) {
	sets, err := in.graphInput.validation(ctx, rows)
	return in.onFirst(sets), err
}

// onFirst gives rows of the first device to it, and none to the others.
func (in *queuedInput) onFirst(sets []rowSet) []rowSet {
	for range in.all[1:] {
		sets = append(sets, idleSet{sets[0]})
	}
	return sets
}

// idleSet has no row of the batches that the first device evaluates.
type idleSet struct{ rowSet }

func (s idleSet) RowNumbers(int, int) []uint32 { return nil }

func (s idleSet) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for b, err := range s.rowSet.EpochFrom(ctx, stream, n, first) {
			if err != nil {
				yield(nil, err)
				return
			}
			x := gds.Tensor{Cols: b.X[0].Cols, Stride: b.X[0].Cols, DType: gds.Float32}
			labels := b.Labels
			if labels.Rows == b.Rows && labels.DType != gds.Int32 {
				labels.Rows = 0
			} else {
				labels.Cols = 0
			}
			if !yield(&loader.Batch{Index: b.Index, GlobalRows: b.GlobalRows, X: []gds.Tensor{x}, Labels: labels}, nil) {
				return
			}
		}
	}
}

func (in *queuedInput) devices() []gds.Device { return in.all }

func (in *queuedInput) batches() checkpoint.Batches {
	b := in.graphInput.batches()
	b.Devices = len(in.all)
	return b
}

func (in *queuedInput) predictedSeconds() float64 {
	if in.queues == nil {
		return 0
	}
	return in.queues.Report.Predicted
}

func (in *queuedInput) PeakBytes() (most int64) {
	for _, d := range in.all {
		most = max(most, d.Usage().Peak)
	}
	return most
}

func (in *queuedInput) describe(r *trained) {
	in.graphInput.describe(r)
	r.Devices, r.Queues = len(in.all), &in.queues.Report
	seconds := in.predictedSeconds()
	r.PredictedEpochSeconds = &seconds
}

// Close closes all, the devices too.
func (in *queuedInput) Close() error {
	var errs []error
	for _, s := range in.loaders[min(1, len(in.loaders)):] {
		errs = append(errs, s.Close())
	}
	errs = append(errs, in.graphInput.Close())
	if in.lent {
		errs = append(errs, devices.Close(in.all))
	}
	return errors.Join(errs...)
}

// openLoader opens what samples batches for one of several devices.
func (a *app) openLoader(ctx context.Context, graph *format.Dir, o *trainOptions, in *graphInput, part session.Partition, device gds.Device, rank, world int) (*session.Sampled, error) {
	options, err := a.sampledOptions(ctx, o, in, part)
	if err != nil {
		return nil, err
	}
	options.Device, options.Workers = device, a.queueWorkers(o, world)
	if world > 1 {
		options.Plan.Rank, options.Plan.World = rank, world
	}
	options.Buffers = sampling.QueueBuffers(scheduler.MostQueue) // no more have memory than a plan uses
	return session.OpenSampled(ctx, graph, options)
}

// writeQueues prints what came of queues.
func writeQueues(w io.Writer, r *scheduler.QueueReport, trainSeconds float64) {
	fmt.Fprintf(w, "schedule\t%s: %s\n", scheduler.MultiQueue, units.Printable(r.Reason))
	fmt.Fprintf(w, "\ttraining on an epoch %.4g s predicted (%.4g s without stale gradients), %.4g s measured\n", r.Predicted, r.PredictedBy, trainSeconds)
	fmt.Fprintf(w, "\t%s\n", reproducible(r))
}
