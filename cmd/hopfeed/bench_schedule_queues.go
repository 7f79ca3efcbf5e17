package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// synchronousRow is the name of trainings that multi-queue is compared with: the same devices and batches,
// with queues of one batch, and no stale gradient.
const synchronousRow = "synchronous"

// queueResult is an epoch of several devices, with queues or synchronous.
type queueResult struct {
	Schedule string `json:"schedule"`
	Devices  int    `json:"devices"`
	multiqueue.Plan
	Staleness        multiqueue.Staleness `json:"staleness"`
	EpochSeconds     float64              `json:"epoch_seconds"` // of training: the median
	PredictedSeconds float64              `json:"predicted_epoch_seconds"`
	RowsPerSecond    float64              `json:"rows_per_second"`
	TimesSynchronous float64              `json:"times_synchronous"` // rows_per_second, as a multiple
	EpochsSeconds    []float64            `json:"measured_epochs_seconds"`
}

type queueResults []queueResult

func (l queueResults) text(w io.Writer) {
	fmt.Fprintln(w, strings.Join([]string{"devices", "schedule", "epoch", "predicted", "rows/s", "times synchronous", "queue, gradients, period", "staleness: mean, largest"}, "\t"))
	for _, r := range l {
		fmt.Fprintf(w, "%d\t%s\t%.3g s\t%.3g s (%+.1f %%)\t%.0f\t%.2f\t%d, %d, %d\t%.2g, %d\n", r.Devices, r.Schedule, r.EpochSeconds, r.PredictedSeconds,
			100*(r.PredictedSeconds/r.EpochSeconds-1), r.RowsPerSecond, r.TimesSynchronous, r.Queue, r.Gradients, r.Period, r.Staleness.Mean, r.Staleness.Largest)
	}
}

// print prints a line for each result if they are to be JSON; else they are the result.
func (l queueResults) print(a *app) (result, error) {
	if !a.json {
		return l, nil
	}
	for _, r := range l {
		if err := json.NewEncoder(a.stdout).Encode(r); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// benchQueues compares trainings by queues with synchronous ones on one device, two, and so on.
func (a *app) benchQueues(ctx context.Context, graph *format.Dir, o *benchScheduleOptions, spec trainer.Spec, part session.Partition) (results queueResults, err error) {
	most := max(1, a.emulate.GPUs)
	defer func() { a.emulate.GPUs = min(a.emulate.GPUs, most) }()
	o.Schedule.Name = scheduler.MultiQueue
	for n := 1; n <= most; n++ {
		if a.emulate.GPUs > 0 {
			a.emulate.GPUs = n
		}
		found, err := a.benchDevices(ctx, graph, o, spec, part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", count(int64(n), "device"), err)
		}
		results = append(results, found...)
	}
	return results, nil
}

// benchDevices compares on all devices that there are.
func (a *app) benchDevices(ctx context.Context, graph *format.Dir, o *benchScheduleOptions, spec trainer.Spec, part session.Partition) (results queueResults, err error) {
	in, err := a.openTrainingGraph(ctx, graph, &o.trainOptions, spec, part)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := a.chooseSchedule(ctx, in, &o.trainOptions, nil); err != nil {
		return nil, err
	}
	chosen := in.Queues
	plans := []*scheduler.Queues{chosen.Synchronous(), chosen}
	for i, name := range []string{synchronousRow, scheduler.MultiQueue} {
		r := plans[i].Report
		results = append(results, queueResult{Schedule: name, Devices: r.Devices, Plan: r.Plan, Staleness: r.Staleness, PredictedSeconds: r.Predicted})
	}
	for range o.rounds {
		for i, q := range plans {
			in.Queues = q
			seconds, err := a.trainQueuedEpoch(ctx, in, o, spec)
			if err != nil {
				return nil, in.Explain(err)
			}
			results[i].EpochsSeconds = append(results[i].EpochsSeconds, seconds)
		}
	}
	for i := range results {
		r := &results[i]
		sorted := slices.Sorted(slices.Values(r.EpochsSeconds))
		r.EpochSeconds = sorted[len(sorted)/2]
		r.RowsPerSecond = float64(len(part.Train.List)) / r.EpochSeconds
		r.TimesSynchronous = results[0].EpochSeconds / r.EpochSeconds
	}
	return results, nil
}

// trainQueuedEpoch trains a model on an epoch, and drops it. It returns the seconds of the epoch.
func (a *app) trainQueuedEpoch(ctx context.Context, in *training.Graph, o *benchScheduleOptions, spec trainer.Spec) (seconds float64, err error) {
	sets, err := in.TrainSets(a.seed)
	if err != nil {
		return 0, err
	}
	options := o.Options
	options.Epochs, options.EvalEvery, options.Patience, options.Queues = 1, 1, 0, in.Queues.Training()
	var ranks []trainer.Rank
	for i, device := range in.Devices() {
		ranks = append(ranks, trainer.Rank{Device: device, Data: trainer.Data{Train: sets[i], BatchRows: in.ShareRows()}})
	}
	f, err := trainer.Start(ctx, ranks, spec, options)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	f.Time(in.Queues.Times())
	err = f.Train(ctx, func(e trainer.Epoch, _ func() (*trainer.Result, error)) { seconds = e.TrainSeconds })
	return seconds, err
}
