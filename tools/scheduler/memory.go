package scheduler

import (
	"fmt"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/collective"
)

// Held is how many workers sample, and how many batches take memory at a time.
type Held struct {
	Workers  int
	Samples  int // batches that are sampled, or wait for a buffer
	Pinned   int // batches with pinned memory, of a device with memory of its own
	OnDevice int // batches with device memory
}

// LeastHeld counts the batches that a schedule (Auto: sequential, and the measurement of contention) holds with the
// smallest buffers.
func LeastHeld(name string, workers int, unified bool) Held {
	p, batches := collective.Plan{CPUBuffer: 1, GPUBuffer: 1, Serial: true}, 1
	if s, err := collective.Find(name); err == nil {
		p = s.Least
	} else if name == Auto && workers > 1 {
		p = contentionPlan(workers)
		batches = p.CPUBuffer
	}
	p.CPUBatches = batches
	in := collective.Inputs{Batches: batches, Durations: collective.Durations{Workers: workers}}
	return heldBy(p, in, 1, unified)
}

// heldBy counts the batches that a plan holds. At most waiting of them are prepared and wait to move.
func heldBy(p collective.Plan, in collective.Inputs, waiting int, unified bool) Held {
	workers := p.Workers(in.Durations)
	buffers := min(sampling.Buffers(p.CPUBuffer, p.GPUBuffer), max(in.Batches, sampling.Buffers(1, 1)))
	h := Held{Workers: workers, Samples: buffers + workers, OnDevice: min(p.GPUBuffer+2, buffers),
		Pinned: sampling.PinnedBuffers(p.Rules(in.Durations, in.Batches), waiting)}
	switch {
	case p.InOrder():
		h.OnDevice = 1
	case unified:
		h.OnDevice = buffers
	}
	if p.Serial {
		h.Samples = 1
	}
	return h
}

// Room is the memory that workers and batches may take, and what each of them takes, in bytes. These are the measured
// constants of a3gnn's Equations 3 and 5, as they are for threads: the graph, its cache, the model and the runtime,
// which the paper multiplies by the workers of mode 1, are there once and count in no plan.
type Room struct {
	Host, Device int64 // what is left for workers and batches
	Worker       int64 // of the host: the tables of a worker's sampler
	Sample       int64 // of the host: a batch that is sampled
	Pinned       int64 // of the host: the gathered rows of a batch
	Batch        int64 // of the device
	Unified      bool  // the device has no memory of its own
}

// fits is machine.ErrDoesNotFit unless there is room for a plan.
func (r Room) fits(p collective.Plan, in collective.Inputs, waiting int) error {
	h := heldBy(p, in, waiting, r.Unified)
	host := int64(h.Workers)*r.Worker + int64(h.Samples)*r.Sample + int64(h.Pinned)*r.Pinned
	device := int64(h.OnDevice) * r.Batch
	for _, m := range []struct {
		name       string
		take, left int64
	}{{"device memory", device, r.Device}, {"host memory", host, r.Host}} {
		if m.take > m.left {
			return fmt.Errorf("%w: %s and %s at a time on the device take %s of %s, and %s are left", machine.ErrDoesNotFit,
				units.Count(int64(h.Workers), "worker"), units.Count(int64(h.OnDevice), "batch"), units.Bytes(m.take),
				m.name, units.Bytes(m.left))
		}
	}
	return nil
}
