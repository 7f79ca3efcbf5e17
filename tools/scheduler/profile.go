// Package scheduler prepares the batches of a training on samples by a schedule: it measures the stages
// of some batches, chooses among the schedules of placement/collective, and says what came of it.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/trainer"
)

// Operation is a row of the table of what does a phase of the work on a batch (MorphGL's technical report, Table III:
// phase x hardware x operator). A new kind of device is a row for each phase that it can do.
type Operation struct {
	Name     string `json:"name"` // of its duration: T_CBT
	Phase    string `json:"phase"`
	Hardware string `json:"hardware"` // what it keeps busy
	Operator string `json:"operator"` // the code that does it
	Device   string `json:"-"`        // the kind of device that it is for (gds/devices); "": any

	// length is how long a stage of a batch was at the operation; false if the stage is another.
	length func(schedule.Span) (time.Duration, bool)
}

// Phases of a batch.
const (
	Batching     = "batching"
	Transferring = "transferring"
	Training     = "training"
)

// Table is the operations that there are.
type Table []Operation

// Operations are this program's. What a device does by itself takes the link too (unified virtual addressing).
var Operations = append(Table{
	{"T_CBT", Batching, "CPU", "sampling.Method, features.Source", "", whole(schedule.Sample)},
	{"T_DMA", Transferring, "link", "gds.Stream.Copy", "", whole(schedule.Move)},
	{"T_Model", Training, "CPU", "trainer.Fitting", "host", whole(schedule.Train)},
}, append(OnDevice("cuda", "GPU"), OnDevice("emulated", "GPU")...)...)

// OnDevice are the rows of a kind of device that samples by gds.Ops, and what its hardware is called.
func OnDevice(kind, hardware string) Table {
	return Table{
		{"T_GBT", Batching, hardware + "+link", "gds.Stream.SampleEdges", kind,
			func(s schedule.Span) (time.Duration, bool) {
				return s.End - s.Start - min(s.Gather, s.End-s.Start), s.Stage == schedule.Prepare
			}},
		{"T_UVA", Transferring, hardware + "+link", "gds.Stream.GatherCached", kind,
			func(s schedule.Span) (time.Duration, bool) {
				return min(s.Gather, s.End-s.Start), s.Stage == schedule.Prepare
			}},
		{"T_Model", Training, hardware, "trainer.Fitting", kind, whole(schedule.Train)},
	}
}

func whole(stage schedule.Stage) func(schedule.Span) (time.Duration, bool) {
	return func(s schedule.Span) (time.Duration, bool) { return s.End - s.Start, s.Stage == stage }
}

// For are the rows for a kind of device. prepares tells that the device can do all phases of a batch.
func (t Table) For(kind string) (rows Table, prepares bool) {
	has := map[string]bool{}
	for _, o := range t {
		if o.Device == "" || o.Device == kind {
			rows = append(rows, o)
			has[o.Phase] = has[o.Phase] || o.Device == kind
		}
	}
	return rows, has[Batching] && has[Transferring] && has[Training]
}

// Measured is how long an operation took for a batch.
type Measured struct {
	Operation
	Batches int     `json:"batches"`
	Mean    float64 `json:"mean_seconds"`
	Std     float64 `json:"std_seconds"` // of the sample
}

// Profile holds measured durations of the stages of batches (MorphGL §4.2.1).
type Profile struct {
	Measured  []Measured
	Durations collective.Durations // means; GPUBatch is 0 where the device prepares nothing
}

// Measure is the profile of stages that workers will do.
func (t Table) Measure(spans []schedule.Span, workers int) (p Profile) {
	for _, o := range t {
		m := Measured{Operation: o}
		var sum, squares float64
		for _, s := range spans {
			if length, of := o.length(s); of {
				m.Batches++
				sum += length.Seconds()
				squares += length.Seconds() * length.Seconds()
			}
		}
		if m.Batches == 0 {
			continue
		}
		n := float64(m.Batches)
		m.Mean = sum / n
		m.Std = math.Sqrt(max(0, squares-n*m.Mean*m.Mean) / max(1, n-1))
		p.Measured = append(p.Measured, m)
	}
	p.Durations = meanDurations(spans, collective.Durations{Workers: workers}, collective.Plan{Serial: true})
	return p
}

// ProfileOptions say what is profiled.
type ProfileOptions struct {
	Set     *sampling.Set
	Rank    trainer.Rank // what trains; its Train is set here
	Spec    trainer.Spec
	Options trainer.Options // of the training
	Kind    string          // of the device
	Batches int             // for each route
	Workers int             // of the processor, that the durations are for
	Contend bool            // measure the contention of workers too, if there are several
}

// Run trains a model on some batches, one stage after another, and measures these; then it drops the model. On a device
// that can prepare batches itself, if the set is told how, each second batch is the device's. The first batch of each
// route is not counted. Where an epoch has fewer batches, several are trained on.
func (o ProfileOptions) Run(ctx context.Context) (Profile, error) {
	rows, prepares := Operations.For(o.Kind)
	prepares = prepares && o.Set.PreparesOnDevice()
	var spans []schedule.Span
	batches, before := o.Set.Batches(), 0
	if batches == 0 {
		return Profile{}, fmt.Errorf("%w: an epoch has no batches", sampling.ErrOptions)
	}
	most := (o.Batches + 1) * 2
	if !prepares {
		most = o.Batches + 2
	}
	err := o.train(ctx, most, &sampling.Schedule{
		Rules: func(epoch, first int) schedule.Rules {
			before = epoch * batches
			return collective.Alternating(batches, first,
				func(batch int) bool { return prepares && (before+batch)%2 == 1 })
		},
		Trace: func(s schedule.Span) {
			if before+s.Batch > 1 {
				spans = append(spans, s)
			}
		},
	})
	p := rows.Measure(spans, o.Workers)
	if err == nil && o.Contend {
		p.Durations.Contention, err = o.contention(ctx, p.Durations)
	}
	return p, err
}

// train trains a model on batches by a schedule.
func (o ProfileOptions) train(ctx context.Context, batches int, by *sampling.Schedule) error {
	started, trace := false, by.Trace
	by.Trace = func(s schedule.Span) {
		if started {
			trace(s)
		}
	}
	o.Set.SetSchedule(by)
	o.Rank.Train, o.Rank.Valid, o.Rank.Test = o.Set, nil, nil
	o.Options.Epochs = (batches + o.Set.Batches() - 1) / o.Set.Batches()
	o.Options.EvalEvery, o.Options.Patience = 1, 0
	f, err := trainer.Start(ctx, []trainer.Rank{o.Rank}, o.Spec, o.Options)
	if err != nil {
		return err
	}
	started = true
	err = f.TrainUntil(ctx, func() bool { batches--; return batches <= 0 }, nil)
	if errors.Is(err, trainer.ErrPaused) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// contentionPlan lets each worker sample several batches without waiting for others, and keeps one batch on
// the device.
func contentionPlan(workers int) collective.Plan {
	const least = 8 // batches that are measured
	each := max(2, 1+(least+workers-1)/workers)
	return collective.Plan{CPUBuffer: each * workers, GPUBuffer: 1, OnDemand: true, LateGather: true}
}

// contention measures how much longer workers sample beside each other than alone. The first batch of each is not
// counted. An epoch of too few batches for all workers measures fewer.
func (o ProfileOptions) contention(ctx context.Context, alone collective.Durations) (share float64, err error) {
	batches, workers := o.Set.Batches(), o.Workers
	plan := contentionPlan(workers)
	for workers > 1 && plan.CPUBuffer > batches {
		workers--
		plan = contentionPlan(workers)
	}
	if workers < 2 || alone.CPUBatch == alone.Gather {
		return 0, nil
	}
	sum, n, measured := 0.0, 0, plan.CPUBuffer
	plan.CPUBatches = batches
	err = o.train(ctx, measured, &sampling.Schedule{
		Rules: func(_, first int) schedule.Rules {
			return plan.Given(collective.Durations{Workers: workers}, batches, first)
		},
		Trace: func(s schedule.Span) {
			if s.Stage == schedule.Sample && s.Batch >= workers && s.Batch < measured {
				sum, n = sum+(s.End-s.Start).Seconds(), n+1
			}
		},
	})
	beside := sum / float64(max(1, n)) / (alone.CPUBatch - alone.Gather).Seconds()
	return max(0, beside-1) / float64(workers-1), err
}
