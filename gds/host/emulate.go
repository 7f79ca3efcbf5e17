package host

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Emulation describes cards that the machine does not have. As text, and as a flag: "gpu=1,mem=2GiB,link=12GiB/s",
// and, for schedules, "workers=12,cpu=54ms,gather=9ms,dma=14ms,sampling=8.8ms,compute=11.6ms,straggle=0.5".
type Emulation struct {
	GPUs   int         // 0: none are emulated
	Memory units.Bytes // of each
	Link   units.Rate  // of each to host memory, each way; 0: as fast as memory is
	Stages
}

// Stages are the least times of the stages of a sampled batch, where a schedule prepares batches: a stage that is done
// sooner waits. 0: as long as it takes. Workers is how many processors prepare a batch each; 0: not said.
type Stages struct {
	Workers  int
	CPU      time.Duration // a batch by one worker: sampled and gathered
	Gather   time.Duration // the part of CPU that is gathering
	DMA      time.Duration // a batch from host memory to the card, beside what Link takes
	Sampling time.Duration // a batch that the card samples and gathers
	Compute  time.Duration // a batch that the card trains on
	// Straggle: a batch takes up to this part of Compute longer, another part for each batch and card.
	Straggle float64
}

// Share is the stages of one of parts equal parts of a batch.
func (s Stages) Share(parts int) Stages {
	for _, length := range s.durations() {
		*length /= time.Duration(parts)
	}
	return s
}

// Paced tells that some stage takes a time of its own.
func (s Stages) Paced() bool {
	s.Workers, s.Straggle = 0, 0
	return s != Stages{}
}

// durations are the settings of Stages that are times.
func (s *Stages) durations() map[string]*time.Duration {
	return map[string]*time.Duration{"cpu": &s.CPU, "gather": &s.Gather, "dma": &s.DMA, "sampling": &s.Sampling,
		"compute": &s.Compute}
}

// Settings are at most these, which are more than machines have or a batch takes.
const (
	maxWorkers  = 4096
	maxGPUs     = 64
	maxStage    = time.Hour
	maxStraggle = 100
)

// Set reads the text: gpu is 1 and link has no limit where they are not given.
func (e *Emulation) Set(text string) error {
	out := Emulation{GPUs: 1}
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch name {
		case "gpu":
			out.GPUs, err = strconv.Atoi(value)
			if err != nil || out.GPUs < 1 || out.GPUs > maxGPUs {
				err = fmt.Errorf("%q is no number of devices (want 1 to %d)", value, maxGPUs)
			}
		case "mem":
			err = out.Memory.Set(value)
		case "link":
			err = out.Link.Set(value)
		case "workers":
			out.Workers, err = strconv.Atoi(value)
			if err != nil || out.Workers < 1 || out.Workers > maxWorkers {
				err = fmt.Errorf("%q is no number of workers (want 1 to %d)", value, maxWorkers)
			}
		case "straggle":
			out.Straggle, err = strconv.ParseFloat(value, 64)
			if err != nil || !(out.Straggle >= 0 && out.Straggle <= maxStraggle) {
				err = fmt.Errorf("%q is no part of a time (want 0 to %d)", value, maxStraggle)
			}
		default:
			length, known := out.durations()[name]
			if !known {
				err = fmt.Errorf("unknown setting (want gpu, mem, link, workers, cpu, gather, dma, sampling, " +
					"compute and straggle)")
			} else if *length, err = time.ParseDuration(value); err != nil || *length < 0 || *length > maxStage {
				err = fmt.Errorf("%q is not the time of a stage (want a duration such as 12ms)", value)
			}
		}
		if err != nil {
			return fmt.Errorf("%q: %w", field, err)
		}
	}
	if out.Memory == 0 {
		return fmt.Errorf("%q says nothing of memory (write gpu=1,mem=2GiB,link=12GiB/s)", text)
	}
	if out.Gather > out.CPU {
		return fmt.Errorf("%q: gather=%v is part of cpu=%v, the time of a worker for a batch, and cannot be longer", text,
			out.Gather, out.CPU)
	}
	*e = out
	return nil
}

func (e *Emulation) String() string {
	if e.GPUs == 0 {
		return ""
	}
	text := fmt.Sprintf("gpu=%d,mem=%dB", e.GPUs, int64(e.Memory))
	if e.Link > 0 {
		text += fmt.Sprintf(",link=%dB/s", int64(e.Link))
	}
	if e.Workers > 0 {
		text += fmt.Sprintf(",workers=%d", e.Workers)
	}
	lengths := e.durations()
	for _, name := range []string{"cpu", "gather", "dma", "sampling", "compute"} {
		if *lengths[name] > 0 {
			text += fmt.Sprintf(",%s=%v", name, *lengths[name])
		}
	}
	if e.Straggle > 0 {
		text += fmt.Sprintf(",straggle=%v", e.Straggle)
	}
	return text
}

// Type makes Emulation a flag value.
func (e *Emulation) Type() string { return "devices" }

// Device has the options that open emulated device i, which computes on these threads.
func (e *Emulation) Device(i, threads int) Options {
	return Options{
		Name:        fmt.Sprintf("emulated gpu %d", i),
		MemoryBytes: int64(e.Memory), LinkBytesPerSecond: int64(e.Link), Discrete: true, Threads: threads,
	}
}

// link is one way between host memory and a device's own. All streams share it:
// it carries one transfer after another, at a fixed rate.
type link struct {
	bytesPerSecond int64 // 0: no limit

	mu   sync.Mutex
	over time.Time // when all that was sent so far has arrived
}

// lateness is how long a link may stand idle without losing the time: about what sleeping takes too long.
const lateness = time.Millisecond

// send returns when bytes that are sent now have arrived; the zero Time if at once.
func (l *link) send(bytes int) time.Time {
	if l.bytesPerSecond == 0 {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if earliest := time.Now().Add(-lateness); l.over.Before(earliest) {
		l.over = earliest
	}
	l.over = l.over.Add(time.Duration(float64(bytes) / float64(l.bytesPerSecond) * float64(time.Second)))
	return l.over
}

// sendTo sends bytes from one buffer to another over the links that lie between, of
// one device or of two at once, and returns when they have arrived.
func (b *buffer) sendTo(to *buffer, bytes int) (arrival time.Time) {
	from, into := b.owner(), to.owner()
	if from == into {
		return arrival
	}
	if from != nil {
		arrival = from.out.send(bytes)
	}
	if into != nil {
		if in := into.in.send(bytes); in.After(arrival) {
			arrival = in
		}
	}
	return arrival
}

// waitFor returns at the time of an arrival, or once the device is to stop.
func (d *Device) waitFor(arrival time.Time) {
	if wait := time.Until(arrival); wait > 0 {
		select {
		case <-time.After(wait):
		case <-d.options.Stop:
		}
	}
}
