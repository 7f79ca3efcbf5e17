package collective

import (
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Run is an epoch as it was simulated.
type Run struct {
	Total                      time.Duration
	CPUBusy, LinkBusy, GPUBusy time.Duration // the processor's is the mean of its workers
	CPUBatches, GPUBatches     int           // prepared by each
	// MostWaiting is the most batches at a time that the processor has prepared and that have not moved.
	MostWaiting, waiting int
}

// Busy is the share of the run that processor, link and GPU were busy.
func (r Run) Busy() (cpu, link, gpu float64) {
	total := float64(max(1, r.Total)) // an epoch may be shorter than what a clock shows
	return float64(r.CPUBusy) / total, float64(r.LinkBusy) / total, float64(r.GPUBusy) / total
}

// Add adds a stage of a batch that workers share.
func (r *Run) Add(s schedule.Span, workers int) {
	length := s.End - s.Start
	switch s.Stage {
	case schedule.Sample:
		r.CPUBatches++
		r.waiting++
		r.MostWaiting = max(r.MostWaiting, r.waiting)
		r.CPUBusy += length / time.Duration(workers)
	case schedule.Move:
		r.waiting--
		r.LinkBusy += length
	case schedule.Prepare:
		r.GPUBatches++
		r.LinkBusy += length
		r.GPUBusy += length
	case schedule.Train:
		r.GPUBusy += length
	}
	r.Total = max(r.Total, s.End)
}

// Simulate plays an epoch whose stages take the durations d. trace, unless it is nil, gets each stage when that has
// ended.
func Simulate(d Durations, p Plan, batches int, trace func(schedule.Span)) Run {
	return simulate(d, p, p.Rules(d, batches), trace)
}

func simulate(d Durations, p Plan, rules schedule.Rules, trace func(schedule.Span)) (run Run) {
	lengths := [...]time.Duration{
		schedule.Sample: d.CPUBatch, schedule.Move: d.DMA, schedule.Prepare: d.GPUBatch, schedule.Train: d.Model,
	}
	if p.LateGather {
		lengths[schedule.Sample], lengths[schedule.Move] = d.CPUBatch-d.Gather, d.DMA+d.Gather
	}
	lengths[schedule.Sample] = d.Beside(lengths[schedule.Sample], rules.Workers)
	simulation := schedule.Simulation{
		Rules: []schedule.Rules{rules}, Length: func(_ int, s schedule.Step) time.Duration { return lengths[s.Stage] },
		Trace: func(_ int, s schedule.Span) {
			if run.Add(s, rules.Workers); trace != nil {
				trace(s)
			}
		},
	}
	simulation.Run()
	return run
}

// Scheduler is Dual-Buffer Scheduling (Algorithms 1 to 4): both buffers fill; when one is full, the other
// is waited for; when both are, all batches of the GPU buffer are trained, while the batches of the CPU buffer
// move to its end. The zero value with a Plan is ready to use.
//
// What the algorithms leave open, or do worse: who prepares how many batches is part of the plan; a buffer
// that nothing comes to counts as full; while the CPU buffer is waited for, a batch is trained and then
// another one prepared ("engineering optimization" of §4.2.3); and a batch may move as soon as it is ready
// during a training, not only if it is when the training begins.
type Scheduler struct {
	Plan     Plan
	flushing bool
}

// Next is what the GPU does next.
func (s *Scheduler) Next(now schedule.State) schedule.Action {
	if now.GPU == 0 {
		s.flushing = false
	}
	cpuFull := now.CPU >= s.Plan.CPUBuffer || now.Coming == 0
	gpuFull := now.GPU >= s.Plan.GPUBuffer || now.Left == 0
	if !s.flushing && !gpuFull {
		return schedule.PrepareNext
	}
	s.flushing = now.GPU > 0 && (s.flushing || cpuFull || now.Left == 0)
	switch {
	case now.GPU > 0:
		return schedule.TrainNext
	case now.CPU > 0:
		return schedule.MoveNext
	}
	return schedule.Await
}
