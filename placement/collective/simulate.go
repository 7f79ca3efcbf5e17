package collective

import "time"

// Run is an epoch as it was simulated.
type Run struct {
	Total                      time.Duration
	CPUBusy, LinkBusy, GPUBusy time.Duration
	CPUBatches, GPUBatches     int // prepared by each
	Spans                      []Span
}

// Busy is the share of the run that processor, link and GPU were busy.
func (r Run) Busy() (cpu, link, gpu float64) {
	total := float64(r.Total)
	return float64(r.CPUBusy) / total, float64(r.LinkBusy) / total, float64(r.GPUBusy) / total
}

// Span is a stage of a batch, by what it keeps busy.
type Span struct {
	On         string // "processor", "link" or "GPU"; preparing on the GPU takes the link too
	Stage      string // "sample", "move", "prepare" or "train"
	Batch      int    // its number in the epoch
	Start, End time.Duration
}

// stashed is a batch in a buffer.
type stashed struct {
	batch int
	ready time.Duration
}

// simulation is the clocks of an epoch: until when each of the three is busy.
type simulation struct {
	d              Durations
	plan           Plan
	cpu, link, gpu time.Duration
	next           int       // number of the next batch
	batches        int       // of the epoch
	waiting        []stashed // prepared by the processor, in order; ready in the future if under way
	onGPU          []stashed
	run            Run
}

// Simulate plays an epoch of so many batches, all stages of which take as long as d says.
func Simulate(d Durations, p Plan, batches int) Run {
	s := simulation{d: d, plan: p, batches: batches}
	decide := Scheduler{Plan: p}
	for {
		s.sampleUntil(s.gpu)
		switch decide.Next(s.state()) {
		case Move:
			s.move(s.gpu)
			s.gpu = max(s.gpu, s.onGPU[0].ready)
		case Prepare:
			start := max(s.gpu, s.link)
			s.span("GPU", "prepare", s.next, start, d.GPUBatch)
			s.gpu, s.link = start+d.GPUBatch, start+d.GPUBatch
			s.run.LinkBusy += d.GPUBatch
			s.run.GPUBatches++
			s.onGPU = append(s.onGPU, stashed{s.next, s.gpu})
			s.next++
		case Train:
			b := s.onGPU[0]
			s.onGPU = s.onGPU[1:]
			start := max(s.gpu, b.ready)
			s.span("GPU", "train", b.batch, start, d.Model)
			s.gpu = start + d.Model
			s.moveUntil(start, s.gpu)
		case Wait:
			s.gpu = s.waiting[0].ready
		case Finished:
			s.run.Total = s.gpu
			return s.run
		}
	}
}

// sampleUntil lets the processor begin all batches that it begins up to a time.
func (s *simulation) sampleUntil(now time.Duration) {
	for s.cpu <= now && s.run.CPUBatches < s.plan.CPUBatches && len(s.waiting) < s.plan.CPUBuffer {
		s.span("processor", "sample", s.next, s.cpu, s.d.CPUBatch)
		s.cpu += s.d.CPUBatch
		s.waiting = append(s.waiting, stashed{s.next, s.cpu})
		s.next++
		s.run.CPUBatches++
	}
	if len(s.waiting) >= s.plan.CPUBuffer {
		s.cpu = max(s.cpu, now) // it waits for room
	}
}

func (s *simulation) state() State {
	now := State{GPU: len(s.onGPU), Left: s.batches - s.plan.CPUBatches - s.run.GPUBatches}
	for _, b := range s.waiting {
		if b.ready <= s.gpu {
			now.CPU++
		}
	}
	now.Coming = s.plan.CPUBatches - s.run.CPUBatches + len(s.waiting) - now.CPU
	return now
}

// moveUntil moves what the processor has prepared, in the time of a training, one after another.
func (s *simulation) moveUntil(start, end time.Duration) {
	for {
		if len(s.waiting) == 0 || max(s.waiting[0].ready, s.link, start) >= end {
			return
		}
		s.move(start)
	}
}

// move moves the first batch of the processor, not before a time. It has its place in the buffer until then.
func (s *simulation) move(earliest time.Duration) {
	b := s.waiting[0]
	start := max(s.link, earliest, b.ready)
	s.sampleUntil(start)
	s.waiting = s.waiting[1:]
	s.span("link", "move", b.batch, start, s.d.DMA)
	s.link = start + s.d.DMA
	s.onGPU = append(s.onGPU, stashed{b.batch, s.link})
	s.sampleUntil(start)
}

func (s *simulation) span(on, stage string, batch int, start, length time.Duration) {
	switch on {
	case "processor":
		s.run.CPUBusy += length
	case "link":
		s.run.LinkBusy += length
	case "GPU":
		s.run.GPUBusy += length
	}
	s.run.Spans = append(s.run.Spans, Span{on, stage, batch, start, start + length})
}
