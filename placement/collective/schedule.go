package collective

import "github.com/hopfeed/hopfeed/internal/schedule"

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
	case now.Coming > 0:
		return schedule.Await
	}
	return schedule.Finish
}
