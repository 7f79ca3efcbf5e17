package collective

// Action is what the GPU does next.
type Action int

const (
	Prepare Action = iota // sample and gather a batch, for the end of the GPU buffer
	// Train on the first batch of the GPU buffer. Meanwhile, batches of the processor begin to move to its
	// end, one after another, as they are ready.
	Train
	Wait // for a batch of the processor
	Move // the first batch of the CPU buffer, and wait for it
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
// is waited for; when both are, all batches of the GPU buffer are trained, while those of the CPU buffer
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
func (s *Scheduler) Next(now State) Action {
	if now.GPU == 0 {
		s.flushing = false
	}
	cpuFull := now.CPU >= s.Plan.CPUBuffer || now.Coming == 0
	gpuFull := now.GPU >= s.Plan.GPUBuffer || now.Left == 0
	if !s.flushing && !gpuFull {
		return Prepare
	}
	s.flushing = now.GPU > 0 && (s.flushing || cpuFull || now.Left == 0)
	switch {
	case now.GPU > 0:
		return Train
	case now.CPU > 0:
		return Move
	case now.Coming > 0:
		return Wait
	}
	return Finished
}
