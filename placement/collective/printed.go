package collective

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Printed is Dual-Buffer Scheduling as MorphGL prints it (PVLDB 2026, Algorithms 1 to 4), with the "engineering
// optimization" of §4.2.3. Scheduler differs: here one batch moves at most beside a training of the flushing phase, if
// it was ready when the training began, and none beside one of the blocking phase. The print leaves open what is done
// with the rest of an epoch when a route has no more batches: its buffer counts as full.
type Printed struct {
	Plan     Plan
	flushing bool
	// Records of the blocking phase, in batches: for which the CPU buffer was waited for while the GPU buffer was full,
	// and the other way round; and the overlaps, which are flushing phases.
	CPUBlocked, GPUBlocked, Overlaps int
}

// Next is what the GPU does next.
func (s *Printed) Next(now schedule.State) schedule.Action {
	if now.GPU == 0 {
		s.flushing = false
	}
	cpuFull := now.CPU >= s.Plan.Cbs || now.Coming == 0
	gpuFull := now.GPU >= s.Plan.GPUBuffer || now.Left == 0
	switch {
	case s.flushing || gpuFull && (cpuFull || now.Left == 0): // Algorithm 4
		if now.GPU > 0 {
			if !s.flushing && cpuFull {
				s.flushing = true
				s.Overlaps++
			}
			return schedule.TrainBesideOne
		}
		if now.CPU > 0 {
			return schedule.MoveNext
		}
		return schedule.Await
	case !gpuFull: // Algorithm 2, and Algorithm 3 where the CPU buffer is full
		if cpuFull && now.Coming > 0 {
			s.GPUBlocked++
		}
		return schedule.PrepareNext
	}
	s.CPUBlocked++
	return schedule.TrainAlone // and prepare another
}

// dispatchAsPrinted is the Dispatcher as printed (§4.2.2): cbs = floor(gbs/x), with x of Equation 6 first. If the
// records of the simulated epoch say that the processor (the GPU) blocks the other more, cbs is less (more) by one, and
// x = gbs/cbs. It ends when the difference is less than a batch of the GPU for each overlap, or when a plan comes
// again: then the shorter of the two between which the feedback goes back and forth is taken. With a training that
// takes longer than batching and moving, it is the pipeline of the processor; with cbs = 0, that of the GPU.
func dispatchAsPrinted(in Inputs) (found Choice) {
	d, gbs := in.Durations, in.GPUBuffer
	x := d.Ratio()
	end := func(why string) Choice {
		found.Reason = fmt.Sprintf("x = %.2f by Equation 6; after %d rounds of feedback, %s", d.Ratio(), found.Rounds, why)
		return found
	}
	only := func(p Plan, why string) Choice {
		found.Plan, found.Predicted = p, Simulate(d, p, in.Batches, nil)
		return end(why)
	}
	byCPU, byGPU := pipelined(in), Plan{CPUBuffer: 1, GPUBuffer: 1}
	if m := d.Model.Seconds(); m >= d.cpu() && m >= d.DMA.Seconds() || x == 0 {
		return only(byCPU, "all batches by the processor")
	}
	workers := max(d.Workers, 1)
	largest := min(max(1, in.CPUBuffer-workers), in.Batches)
	cbs := int(min(float64(largest), float64(gbs)/x))
	tried := map[int]Run{}
	for {
		switch before, again := tried[cbs]; {
		case cbs < 1:
			return only(byGPU, "all batches by the GPU")
		case cbs > largest:
			return end("the CPU buffer is as large as memory or epoch allow")
		case again && before.Total >= found.Predicted.Total:
			return end("the feedback goes back")
		case again:
			found.Plan.Cbs, found.Plan.CPUBuffer = cbs, min(cbs+workers, in.CPUBuffer)
			found.Plan.CPUBatches, found.Predicted = before.CPUBatches, before
			return end("the feedback goes back")
		}
		p := Plan{CPUBuffer: min(cbs+workers, in.CPUBuffer), GPUBuffer: gbs, Cbs: cbs,
			CPUBatches: int(math.Round(float64(in.Batches) / (1 + x)))}
		rules := p.Rules(d, in.Batches)
		records := rules.Decide.(*Printed)
		run := simulate(d, p, rules, nil)
		found.Plan, found.Predicted, tried[cbs] = p, run, run
		found.Rounds++
		switch gap := records.GPUBlocked - records.CPUBlocked; {
		case max(gap, -gap) < max(1, records.Overlaps):
			return end(fmt.Sprintf("the routes wait for each other by less than a batch: buffers %d and %d", cbs, gbs))
		case gap > 0:
			cbs++
		default:
			cbs--
		}
		x = float64(gbs) / float64(cbs)
	}
}
