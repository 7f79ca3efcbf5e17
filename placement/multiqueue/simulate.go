package multiqueue

import (
	"fmt"
	"time"
)

// Stage is one of the seven.
type Stage int

const (
	Load    Stage = iota // the graph to the host; once
	Model                // the model to each device; once
	Sample               // a batch, into the queue on the host
	Move                 // it, into the queue on the device
	Compute              // its gradient, into the gradient queue
	Share                // the gradients of all devices, added up
	Update               // a step of each device
	stages
)

func (s Stage) String() string {
	return [...]string{"load", "model", "sample", "move", "compute", "share", "update"}[s]
}

// Times say how long a stage of a batch takes on a device; those of Load, Model and Share are asked for
// device 0, and of Load and Model for batch 0.
type Times func(s Stage, device, batch int) time.Duration

// Machine is what an epoch runs on.
type Machine struct {
	Devices int
	Workers int // of the processor that sample for one device
	Times   Times
}

// Run is an epoch as it was simulated.
type Run struct {
	Total     time.Duration
	Busy      [stages]time.Duration // of all devices and workers together
	Staleness Staleness
}

// ComputeBusy is the share of the run that devices compute, on average.
func (r Run) ComputeBusy(devices int) float64 {
	return float64(r.Busy[Compute]+r.Busy[Update]) / (float64(r.Total) * float64(devices))
}

// deviceRun is the part of a run on one device. Slices are by batch.
type deviceRun struct {
	workers                []time.Duration // when each is free
	sampled, moving, moved []time.Duration // when it was sampled, began to move, and had moved
	computing, computed    []time.Duration
	free                   time.Duration // when the device is

}

// Simulate plays an epoch of so many batches, of each of which every device has a share, by a plan.
func Simulate(m Machine, p Plan, batches int) (Run, error) {
	if err := p.Check(); err != nil {
		return Run{}, err
	}
	if m.Devices < 1 || m.Workers < 1 || batches < 1 || m.Times == nil {
		return Run{}, fmt.Errorf("%d devices, %d workers and %d batches: want 1 or more", m.Devices, m.Workers, batches)
	}
	run := Run{Staleness: p.Staleness(batches)}
	take := func(s Stage, device, batch int) time.Duration {
		t := max(0, m.Times(s, device, batch))
		run.Busy[s] += t
		return t
	}
	loaded := take(Load, 0, 0)
	devices := make([]deviceRun, m.Devices)
	for d := range devices {
		v := &devices[d]
		for _, times := range []*[]time.Duration{&v.sampled, &v.moving, &v.moved, &v.computing, &v.computed} {
			*times = make([]time.Duration, batches)
		}
		v.workers = make([]time.Duration, m.Workers)
		for w := range v.workers {
			v.workers[w] = loaded
		}
		v.free = loaded + take(Model, d, 0)
	}
	shared := make([]time.Duration, batches) // when the gradients of a batch are added up
	made := 0                                // updates
	update := func() {
		t, ready := made, time.Duration(0)
		if t > 0 {
			ready = shared[t-1]
		}
		for d := range devices {
			ready = max(ready, devices[d].computed[t])
		}
		shared[t] = ready + take(Share, 0, t)
		for d := range devices {
			devices[d].free = max(devices[d].free, shared[t]) + take(Update, d, t)
		}
		made++
	}
	for b := range batches {
		for d := range devices {
			v := &devices[d]
			v.prepare(b, p.Queue, func(s Stage) time.Duration { return take(s, d, b) })
			v.computing[b] = max(v.free, v.moved[b])
			v.computed[b] = v.computing[b] + take(Compute, d, b)
			v.free = v.computed[b]
		}
		if b-made == p.Lag() {
			update()
		}
		if (b+1)%p.Period == 0 || b+1 == batches {
			for made <= b {
				update()
			}
		}
	}
	for d := range devices {
		run.Total = max(run.Total, devices[d].free)
	}
	return run, nil
}

// prepare samples and moves a batch. A worker begins a batch when there is room in the queue on the host,
// and a batch begins to move when there is room in that on the device.
func (v *deviceRun) prepare(b, queue int, take func(Stage) time.Duration) {
	first := 0
	for w := range v.workers {
		if v.workers[w] < v.workers[first] {
			first = w
		}
	}
	begin := v.workers[first]
	if b >= queue {
		begin = max(begin, v.moving[b-queue])
	}
	v.workers[first] = begin + take(Sample)
	v.sampled[b] = v.workers[first]
	if b > 0 { // batches leave in their order
		v.sampled[b] = max(v.sampled[b], v.sampled[b-1])
		v.moving[b] = v.moved[b-1]
	}
	if b >= queue {
		v.moving[b] = max(v.moving[b], v.computing[b-queue])
	}
	v.moving[b] = max(v.moving[b], v.sampled[b])
	v.moved[b] = v.moving[b] + take(Move)
}
