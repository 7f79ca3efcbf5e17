package multiqueue

import (
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Stage is one that each batch goes through.
type Stage int

// The stages of a batch: see the comment of the package.
const (
	Sample  Stage = iota // into the queue on the host
	Move                 // into the queue on the device
	Compute              // its gradient, into the gradient queue
	Share                // the gradients of all devices, added up
	Update               // a step of each device
)

// Times say how long a stage of a batch takes on a device; device 0 is asked for Share.
type Times func(s Stage, device, batch int) time.Duration

// Machine is what an epoch runs on.
type Machine struct {
	Devices int
	Workers int // of the processor that sample for one device
	Times   Times
}

// Simulate plays an epoch of so many batches, each shared by all devices, by a plan, and returns how long it takes.
// All numbers of machine and plan are 1 or more.
func Simulate(m Machine, p Plan, batches int) time.Duration {
	times := func(s Stage, device, batch int) time.Duration { return max(0, m.Times(s, device, batch)) }
	rules := schedule.Pipelined(batches, m.Workers, 2*p.Queue, p.Queue)
	rules.Moving = 1
	u := &updates{Plan: p, times: times, batches: batches, devices: make([]deviceUpdates, m.Devices)}
	simulation := schedule.Simulation{
		Length: func(device int, s schedule.Step) time.Duration {
			return times([...]Stage{schedule.Sample: Sample, schedule.Move: Move, schedule.Train: Compute}[s.Stage],
				device, s.Batch)
		},
		Trained: u.computed,
	}
	for range m.Devices {
		simulation.Rules = append(simulation.Rules, rules)
	}
	return simulation.Run()
}

// updates are the steps of an epoch, which all devices make with the sum of their gradients.
type updates struct {
	Plan
	times   Times
	batches int
	devices []deviceUpdates
	shared  []time.Duration // when gradients were added up, of the batches that all devices have computed
}

// deviceUpdates are the steps of one device.
type deviceUpdates struct {
	computed, made int           // gradients, and steps
	waits          bool          // for the gradients of other devices
	since          time.Duration // when the last gradient was computed
}

// computed says that a device has computed a gradient. The devices that have made all steps that are due go on.
func (u *updates) computed(device, batch int, now time.Duration, free func(device int, at time.Duration)) {
	d := &u.devices[device]
	d.computed, d.waits, d.since = batch+1, true, now
	if !slices.ContainsFunc(u.devices, func(d deviceUpdates) bool { return d.computed <= batch }) {
		ready := now
		if batch > 0 {
			ready = max(ready, u.shared[batch-1])
		}
		u.shared = append(u.shared, ready+u.times(Share, 0, batch))
	}
	for i := range u.devices {
		d := &u.devices[i]
		due := max(d.computed/u.Period*u.Period, d.computed-u.Lag())
		if d.computed == u.batches {
			due = d.computed
		}
		if !d.waits || len(u.shared) < due {
			continue
		}
		for ; d.made < due; d.made++ {
			d.since = max(d.since, u.shared[d.made]) + u.times(Update, i, d.made)
		}
		d.waits = false
		free(i, d.since)
	}
}
