package collective

// Action is what the GPU does next.
type Action int

const (
	Prepare  Action = iota // sample and gather a batch, for the end of the GPU buffer
	Train                  // train on the first batch of the GPU buffer, while the next one moves, if Move
	WaitCPU                // wait for a batch of the processor
	MoveOnly               // move the first batch of the CPU buffer, and do nothing else meanwhile
	Finished
)

// State is what there is when the GPU has done what it was told.
type State struct {
	CPU    int // batches that the processor has prepared and that have not begun to move
	GPU    int // batches that the GPU has, or that are on their way to it
	Coming int // batches that the processor has begun, or will begin
	Left   int // batches that nobody has begun and that the GPU may
}

// Scheduler is Dual-Buffer Scheduling (Algorithms 1 to 4): both buffers fill; when one is full, the other
// is waited for; when both are, all batches of the GPU buffer are trained, and with each one batch of the
// CPU buffer moves to its end.
//
// What the algorithms leave open: towards the end of an epoch, a buffer that nothing comes to counts as
// full. While the CPU buffer is waited for, a batch is trained and another one prepared ("engineering
// optimization" of §4.2.3), so that the GPU never waits while there is something to train.
type Scheduler struct {
	Plan               Plan
	CPUWaits, GPUWaits int // how often the processor was made to wait by the GPU, and the GPU by the processor
	flushing           bool
}

// Next is what the GPU does next, and whether the first batch of the CPU buffer begins to move.
func (s *Scheduler) Next(now State) (a Action, move bool) {
	if now.GPU == 0 {
		s.flushing = false
	}
	cpuFull := now.CPU >= s.Plan.CPUBuffer || now.Coming == 0
	gpuFull := now.GPU >= s.Plan.GPUBuffer || now.Left == 0
	switch {
	case s.flushing:
	case !gpuFull:
		if cpuFull && now.Coming > 0 {
			s.CPUWaits++
		}
		return Prepare, false
	case cpuFull || now.Left == 0:
		s.flushing = now.GPU > 0
	case now.GPU > 0:
		s.GPUWaits++
		return Train, true
	}
	switch {
	case now.GPU > 0:
		return Train, true
	case now.CPU > 0:
		return MoveOnly, true
	case now.Coming > 0:
		s.GPUWaits++
		return WaitCPU, false
	}
	return Finished, false
}
