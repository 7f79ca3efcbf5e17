// Package collective decides which batches of an epoch the processor prepares and which the GPU, and in which order the
// GPU prepares, receives and trains them: MorphGL's collective batching (PVLDB 2026, §4.2), and the schedules that it
// is compared with. A batch takes one of two routes. On route 0 the processor samples and gathers it, DMA moves it to
// the GPU beside whatever the GPU does, and the GPU trains on it. On route 1 the GPU samples and gathers it itself from
// memory of the host (UVA), which takes the GPU and the link at once.
//
// Nothing here computes or waits: Scheduler is the decisions of an executor, Simulate plays them with
// given durations, and dispatch finds the plan whose simulation is shortest.
package collective

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Durations are how long a stage takes for one batch, on average.
type Durations struct {
	CPUBatch time.Duration // sampling and gathering by a worker of the processor (T_CBT, if there is one)
	Workers  int           // of the processor, each of which prepares batches; 0: 1
	Gather   time.Duration // the part of CPUBatch that is gathering
	DMA      time.Duration // moving that to the GPU (T_DMA)
	GPUBatch time.Duration // sampling and gathering by the GPU through UVA (T_GBT and T_UVA together)
	Model    time.Duration // training (T_Model)
	// Contention of workers: beside n-1 others, one takes 1 + Contention*(n-1) times as long.
	Contention float64
}

// Beside is the time of work that takes t alone, for a worker beside others (workers in all).
func (d Durations) Beside(t time.Duration, workers int) time.Duration {
	return t + time.Duration(d.Contention*float64(max(workers, 1)-1)*float64(t))
}

// cpu is the time from one batch of the processor to the next (T_CBT), in seconds.
func (d Durations) cpu() float64 {
	return d.Beside(d.CPUBatch, d.Workers).Seconds() / float64(max(d.Workers, 1))
}

// Check returns an error unless all durations are positive.
func (d Durations) Check() error {
	switch {
	case min(d.CPUBatch, d.DMA, d.GPUBatch, d.Model) <= 0:
		return fmt.Errorf("durations of stages are %v, %v, %v and %v: want each above zero", d.CPUBatch, d.DMA,
			d.GPUBatch, d.Model)
	case d.Workers < 0 || d.Gather < 0 || d.Gather > d.CPUBatch || !(d.Contention >= 0):
		return fmt.Errorf("%d workers with a contention of %v, which gather for %v of %v: want 0 or more, and no longer",
			d.Workers, d.Contention, d.Gather, d.CPUBatch)
	}
	return nil
}

// Ratio is how many batches the GPU prepares for each one of the processor, by the relaxed model of
// MorphGL Eq. 6 (technical report; the print in PVLDB lost a comma): with unlimited buffers and batches that
// can be divided, an epoch of n batches takes
//
//	C'(x) = n/(1+x) * (x*U + max{D, (1+x)*M, C - x*U}),
//
// C, D, U and M being the times of CPUBatch, DMA, GPUBatch and Model. x is the number of batches of route 1 for each
// of route 0 (Figure 6). While the GPU prepares them, in x*U, the processor does as much of its
// batch; the rest of it, C - x*U, the DMA of one batch and the training of 1+x run at once.
// C' is monotone between the points where two of the three terms are equal, so the least of them all,
// with 0 and infinity, is the minimum. If several are the least, the smallest x is returned.
func (d Durations) Ratio() float64 {
	c, m, u, t := d.cpu(), d.Model.Seconds(), d.GPUBatch.Seconds(), d.DMA.Seconds()
	best := 0.0
	for _, x := range []float64{(c - t) / u, (c - m) / (u + m), t/m - 1, math.Inf(1)} {
		if x > 0 && d.relaxed(x) < d.relaxed(best) {
			best = x
		}
	}
	return best
}

// relaxed is C'(x)/n, in seconds.
func (d Durations) relaxed(x float64) float64 {
	c, m, u, t := d.cpu(), d.Model.Seconds(), d.GPUBatch.Seconds(), d.DMA.Seconds()
	if math.IsInf(x, 1) {
		return u + m
	}
	return (x*u + max(t, (1+x)*m, c-x*u)) / (1 + x)
}

// dispatch finds a plan for an epoch within the room for batches on the GPU and in memory of the host. It begins with
// the ratio x of the relaxed model: the processor prepares a share of 1/(1+x), with buffers as 1 to x. Then it
// simulates plans in which one of the three numbers is another, first by much and at last by one, and goes on from the
// best, until none is better; it keeps a history so as to simulate none twice (§4.2.2, Finetuning, which changes the
// CPU buffer alone, by one). It tries both extremes too: all batches by the processor, and all by the GPU.
func dispatch(in Inputs) (found Choice) {
	d, batches, cpuBuffer, gpuBuffer := in.Durations, in.Batches, in.CPUBuffer, in.GPUBuffer
	ratio := d.Ratio()
	tried := make(map[Plan]bool)
	try := func(p Plan) {
		p.CPUBuffer, p.GPUBuffer = min(max(p.CPUBuffer, 1), cpuBuffer), min(max(p.GPUBuffer, 1), gpuBuffer)
		p.CPUBatches = min(max(p.CPUBatches, 0), batches)
		if tried[p] {
			return
		}
		tried[p] = true
		found.Rounds++
		if run := Simulate(d, p, batches, nil); found.Predicted.Total == 0 || run.Total < found.Predicted.Total {
			found.Plan, found.Predicted = p, run
		}
	}
	share := 1 / (1 + ratio)
	try(Plan{CPUBuffer: int(min(float64(cpuBuffer), float64(gpuBuffer)/ratio)), GPUBuffer: gpuBuffer,
		CPUBatches: int(math.Round(share * float64(batches)))})
	try(Plan{CPUBuffer: cpuBuffer, GPUBuffer: gpuBuffer, CPUBatches: batches})
	try(Plan{CPUBuffer: cpuBuffer, GPUBuffer: gpuBuffer})
	for step := 1 << bits.Len(uint(max(batches, cpuBuffer, gpuBuffer)/4)); step > 0; step /= 2 {
		for before := (Plan{}); before != found.Plan; {
			before = found.Plan
			for _, by := range []int{-step, step} {
				for _, change := range []func(*Plan){
					func(p *Plan) { p.CPUBatches += by }, func(p *Plan) { p.CPUBuffer += by },
					func(p *Plan) { p.GPUBuffer += by }} {
					p := before
					change(&p)
					try(p)
				}
			}
		}
	}
	found.Reason = fmt.Sprintf("x = %.2f batches by the GPU for each of the processor by the model without buffers; "+
		"of %d plans that were simulated, the shortest has %d of %d batches by the processor", ratio, found.Rounds,
		found.Plan.CPUBatches, batches)
	return found
}
