// Package multiqueue decides how several devices train a model by queues of batches and of gradients:
// MQ-GNN's multi-queue pipeline with RaCoM (IEEE Access 2025, §IV). Nothing here computes or waits: Size and
// Period are formulas, and Simulate plays an epoch with given durations.
//
// Each device's batches are sampled into its queue on the host, moved into its queue on the device, and computed, which
// gives gradients; gradients wait in queues until all devices have theirs of the same batch, and are added up; and each
// device makes a step with the sum. (The paper's stages "load graph" and "load model" come before the first batch.)
package multiqueue

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Margin is the part of the peak memory that is left free beside (§IV-A: 5 to 10 %).
const Margin = 0.1

// LeastQueue is the smallest queue that mq-gnn Eq. 24 gives, if there is memory for it.
const LeastQueue = 2

// Capacity is C of mq-gnn Eq. 25: how many batches a queue on a device has room for, on a device of deviceBytes where
// training without the queue takes peakBytes at most. It is 0 if not one fits.
func Capacity(deviceBytes, peakBytes, batchBytes int64) int {
	free := float64(deviceBytes) - float64(peakBytes)*(1+Margin)
	if batchBytes < 1 || free < 0 {
		return 0
	}
	return int(min(free/float64(batchBytes), math.MaxInt32))
}

// Size is Q of mq-gnn Eq. 24: how many batches each queue has room for. Prepare is the longest time in which a batch
// was sampled and moved, compute the mean time in which one was trained on, and capacity what Capacity gives.
func Size(prepare, compute time.Duration, capacity int) (int, error) {
	if prepare < 0 || compute <= 0 {
		return 0, fmt.Errorf("batches are prepared in %v and trained on in %v: want 0 or more, and above 0", prepare,
			compute)
	}
	if capacity < 1 {
		return 0, fmt.Errorf("no batch fits on the device beside what training takes")
	}
	q := int(min(math.Ceil(float64(prepare)/float64(compute)), math.MaxInt32))
	return min(capacity, max(LeastQueue, q)), nil
}

// Graph is what mq-gnn Eq. 23 looks at.
type Graph struct {
	Nodes, Edges int64
	Devices      int
}

// scale is the right side of mq-gnn Eq. 23 before it is rounded, for k = 1.
func (g Graph) scale() float64 {
	return math.Sqrt(float64(max(1, g.Nodes)) / (float64(max(1, g.Devices)) * float64(max(1, g.Edges))))
}

// Period is P_ms of mq-gnn Eq. 23, the number of batches from one synchronisation to the next, with the k
// that Appendix A sets to 1: ceil(k * sqrt(|V| / (|G| |E|))). For k = 1 it is 1 for every graph that has at
// least as many edges as nodes, so that nothing would be asynchronous: see FitK. It is 1 or more.
func (g Graph) Period(k float64) int {
	return int(max(1, min(math.Ceil(k*g.scale()*(1-1e-12)), math.MaxInt32)))
}

// Costs are what synchronisation and staleness cost, as they were measured: the terms of C(P) of Appendix
// A, for one batch.
type Costs struct {
	Synchronize float64 // seconds that one synchronisation takes: beta |V| / |G|
	Stale       float64 // seconds by which each batch is worth less for each batch of the period: alpha |E|
}

// mostBatches is how many times as many batches staleness is taken to need at most.
const mostBatches = 10

// FitCosts are the costs that two trainings on the same batches show: the first synchronizes after each batch, the
// second after period batches. Seconds are of one batch, and progress is by how much the loss fell, on average over
// the batches. If the second is no slower in learning or no faster in time, the cost is 0.
func FitCosts(seconds [2]float64, progress [2]float64, period int) (Costs, error) {
	if period < 2 || !(seconds[0] > 0 && seconds[1] > 0) {
		return Costs{}, fmt.Errorf("batches of %v s and periods of 1 and %d: want times above 0 and a period of 2 "+
			"or more", seconds, period)
	}
	var c Costs
	// A batch bears 1/P of a synchronisation.
	c.Synchronize = max(0, (seconds[0]-seconds[1])/(1-1/float64(period)))
	if progress[0] > progress[1] && progress[0] > 0 { // to get as far, it takes as many more batches
		more := progress[0]/max(progress[1], progress[0]/mostBatches) - 1
		c.Stale = seconds[1] * more / float64(period-1)
	}
	return c, nil
}

// K is k = sqrt(beta / alpha) of Appendix A for these costs: Period(K) is where synchronisation and
// staleness together cost least. Infinite if staleness costs nothing; 0 if synchronisation does.
func (g Graph) K(c Costs) float64 {
	if c.Synchronize <= 0 {
		return 0
	}
	return math.Sqrt(c.Synchronize/c.Stale) / g.scale()
}

// Plan is how devices train by queues.
type Plan struct {
	Queue     int `json:"queue"`          // batches on host and device, for each device
	Gradients int `json:"gradient_queue"` // batches whose gradients each device may hold
	Period    int `json:"period"`         // batches from one synchronisation to the next
	// OnArrival: steps are made as gradients arrive, not at planned points.
	OnArrival bool `json:"on_arrival"`
}

// Synchronous is a plan by which no gradient is stale, and nothing waits.
var Synchronous = Plan{Queue: 1, Gradients: 1, Period: 1}

// Lag is how many gradients wait at most, when a device begins a batch: it has computed them, and has not
// made the steps.
func (p Plan) Lag() int { return min(p.Gradients, p.Period) - 1 }

// MostGradients is the longest queue of gradients that WithGradients chooses. Longer ones gain little where
// stragglers are others from batch to batch.
const MostGradients = 8

// WithGradients is the plan with the shortest queue of gradients, up to MostGradients, whose epoch costs at most 2 %
// more than the cheapest: its seconds, and what staleness costs. MQ-GNN does not bound the queue but by the period.
func (p Plan) WithGradients(batches int, c Costs, simulate func(Plan) (seconds float64, stale Staleness)) Plan {
	var costs []float64
	for p.Gradients = 1; p.Gradients <= min(MostGradients, p.Period); p.Gradients++ {
		seconds, stale := simulate(p)
		// Stale is for each batch of a period, in which gradients without a bound are half as stale.
		costs = append(costs, seconds+float64(batches)*c.Stale*2*stale.Mean)
	}
	least := slices.Min(costs)
	p.Gradients = 1 + slices.IndexFunc(costs, func(s float64) bool { return s <= 1.02*least })
	return p
}

// Staleness is how many steps are missing in the parameters that gradients are computed with.
type Staleness struct {
	Mean           float64 `json:"mean_updates"`
	Largest        int     `json:"largest_updates"`
	sum, gradients int
}

// Add counts a gradient.
func (s *Staleness) Add(missing int) {
	s.sum, s.gradients, s.Largest = s.sum+missing, s.gradients+1, max(s.Largest, missing)
	s.Mean = float64(s.sum) / float64(s.gradients)
}

// Machine is what an epoch runs on.
type Machine struct {
	Devices int
	Workers int // of the processor that sample for one device
	// Length is how long a stage of a batch takes: sampled into the queue on the host, moved into that on the device,
	// or trained, which gives its gradient.
	Length func(device int, s schedule.Step) time.Duration
	Share  func(batch int) time.Duration // adding up the gradients of all devices
	Update time.Duration                 // a step of each device
}

// Simulate plays an epoch of batches, each shared by all devices, by a plan, and returns how long it takes, and
// how stale gradients are, which depends on the machine if the plan is OnArrival alone. All numbers of machine and plan
// are 1 or more.
func Simulate(m Machine, p Plan, batches int) (time.Duration, Staleness) {
	rules := schedule.Pipelined(batches, m.Workers, 2*p.Queue, p.Queue)
	rules.Moving = 1
	u := &updates{Plan: p, Machine: m, batches: batches, devices: make([]deviceUpdates, m.Devices)}
	simulation := schedule.Simulation{Length: m.Length, Trained: u.computed}
	for range m.Devices {
		simulation.Rules = append(simulation.Rules, rules)
	}
	took := simulation.Run()
	return took, u.stale
}

// updates are the steps of an epoch, which all devices make with the sum of their gradients.
type updates struct {
	Plan
	Machine
	batches int
	devices []deviceUpdates
	shared  []time.Duration // when gradients were added up, of the batches that all devices have computed
	stale   Staleness
}

type deviceUpdates struct {
	computed, made int           // gradients, and steps
	waits          bool          // for the gradients of other devices
	since          time.Duration // when the last gradient was computed
}

// computed says that a device has computed a gradient. The devices that have made all steps that are due go on.
func (u *updates) computed(device, batch int, now time.Duration, free func(device int, at time.Duration)) {
	d := &u.devices[device]
	u.stale.Add(d.computed - d.made)
	d.computed, d.waits, d.since = batch+1, true, now
	last := !slices.ContainsFunc(u.devices, func(d deviceUpdates) bool { return d.computed <= batch })
	if last {
		ready := now
		if batch > 0 {
			ready = max(ready, u.shared[batch-1])
		}
		u.shared = append(u.shared, ready+u.Share(batch))
	}
	for i := range u.devices {
		d := &u.devices[i]
		due := max(d.computed/u.Period*u.Period, d.computed-u.Lag())
		if d.computed == u.batches || u.OnArrival && last && i == device {
			due = d.computed
		}
		if !d.waits || len(u.shared) < due {
			continue
		}
		for d.made < due || u.OnArrival && d.made < len(u.shared) && u.shared[d.made] <= d.since {
			d.since = max(d.since, u.shared[d.made]) + u.Update
			d.made++
		}
		d.waits = false
		free(i, d.since)
	}
}
