package schedule

import (
	"slices"
	"time"
)

// Simulation is an epoch on one device or several that is played in numbers.
type Simulation struct {
	Rules []Rules // of each device
	// Length is how long a stage of a batch takes.
	Length func(device int, s Step) time.Duration
	// Trained, unless it is nil, is called when a device has computed a batch, and may go on with the next only at the
	// time that it gives to free: now or later, in this call or one for another device.
	Trained func(device, batch int, now time.Duration, free func(device int, at time.Duration))
	// Trace, unless it is nil, gets each stage when it has ended.
	Trace func(device int, s Span)
}

type stageNow struct {
	device int
	step   Step
	span   Span
	freed  bool // nothing is to be waited for after the stage
}

// Run returns when the last device is free.
func (s *Simulation) Run() (now time.Duration) {
	courses := make([]*Course, len(s.Rules))
	idle := make([][]int, len(s.Rules)) // workers
	for d, r := range s.Rules {
		courses[d] = New(r)
		for w := max(r.Workers, 1) - 1; w >= 0; w-- {
			idle[d] = append(idle[d], w)
		}
	}
	var running []stageNow // on each device at most Moving on the link, one on the device, and one for each worker
	begin := func(d int) {
		for step, ok := courses[d].Next(); ok; step, ok = courses[d].Next() {
			span := Span{Stage: step.Stage, Batch: step.Batch, Start: now, End: now + s.Length(d, step)}
			if n := len(idle[d]); step.Stage == Sample {
				span.Worker, idle[d] = idle[d][n-1], idle[d][:n-1]
			}
			running = append(running, stageNow{d, step, span, step.Stage != Train || s.Trained == nil})
		}
	}
	free := func(d int, at time.Duration) {
		running = append(running, stageNow{d, Step{Stage: Train}, Span{End: at}, true})
	}
	for {
		for d := range courses {
			begin(d)
		}
		if len(running) == 0 {
			break
		}
		now = running[0].span.End
		for _, r := range running {
			now = min(now, r.span.End)
		}
		// All that ends now has ended before anything begins.
		for i := 0; i < len(running); {
			r := running[i]
			if r.span.End > now {
				i++
				continue
			}
			running = slices.Delete(running, i, i+1)
			if s.Trace != nil && (r.step.Stage != Train || r.freed == (s.Trained == nil)) {
				s.Trace(r.device, r.span)
			}
			if r.step.Stage == Train && !r.freed {
				s.Trained(r.device, r.step.Batch, now, free)
				continue
			}
			courses[r.device].Done(r.step)
			if r.step.Stage == Sample {
				idle[r.device] = append(idle[r.device], r.span.Worker)
			}
		}
	}
	for _, c := range courses {
		if !c.Finished() {
			panic("schedule: no stage can begin, and the epoch has not ended")
		}
	}
	return now
}
