// Package paced emulates a machine with a slower processor, link and device: a Device is another device whose stages
// of sampled batches take a given time. A stage works at full speed and then waits.
package paced

import (
	"context"
	"sync"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Device takes at least the given times for the stages of batches that a schedule prepares.
type Device struct {
	gds.Device

	mu     sync.Mutex
	stages host.Stages
	now    time.Time // when the last stage was to end
}

// New paces a device. Closing the result closes the device.
func New(d gds.Device, stages host.Stages) *Device { return &Device{Device: d, stages: stages} }

// Pace changes how long stages take, from the next on.
func (d *Device) Pace(stages host.Stages) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stages = stages
}

// lateness is how much later than planned a stage may begin and still count as on time, about as much as a wait
// overruns: so small delays do not add up.
const lateness = 2 * time.Millisecond

// Begin begins a stage, and returns the event of its earliest end; nil: it takes as long as it takes. With lateGather
// rows are gathered when a batch moves, else when it is sampled.
func (d *Device) Begin(stage schedule.Stage, lateGather bool) pipeline.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stages.Paced() {
		return nil
	}
	gather := time.Duration(0)
	if lateGather {
		gather = d.stages.Gather
	}
	length := [...]time.Duration{
		schedule.Sample: d.stages.CPU - gather, schedule.Move: d.stages.DMA + gather,
		schedule.Prepare: d.stages.Sampling, schedule.Train: d.stages.Compute,
	}[stage]
	if length == 0 {
		return nil
	}
	begin := time.Now()
	if begin.Sub(d.now) < lateness {
		begin = d.now
	}
	return end{d, begin.Add(length)}
}

// Gather is the part of the time of sampling that gathering takes.
func (d *Device) Gather() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stages.Gather
}

// Gradients gives the least time that a device computes the gradient of a batch; nil: as long as it takes. All devices
// are alike. Stragglers differ from batch to batch.
func Gradients(devices []gds.Device) func(rank, epoch, batch int) time.Duration {
	d, ok := devices[0].(*Device)
	if !ok || d.stages.Compute == 0 {
		return nil
	}
	return func(rank, epoch, batch int) time.Duration {
		u := rng.Float64(rng.Hash(rng.Hash(uint64(rank), uint64(epoch)), uint64(batch)))
		return time.Duration(float64(d.stages.Compute) * (1 + d.stages.Straggle*u))
	}
}

// end is the earliest end of a stage.
type end struct {
	d  *Device
	at time.Time
}

func (e end) Wait(ctx context.Context) error {
	if err := pipeline.Until(e.at).Wait(ctx); err != nil {
		return err
	}
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if late := time.Now(); late.Sub(e.at) >= lateness {
		e.at = late
	}
	if e.at.After(e.d.now) {
		e.d.now = e.at
	}
	return nil
}
