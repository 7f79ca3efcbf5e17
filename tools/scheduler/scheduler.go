package scheduler

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/collective"
)

// Auto is the name of whatever schedule is predicted to be the fastest.
const Auto = "auto"

// Names are the names of schedules, Auto first.
func Names() []string {
	names := []string{Auto}
	for _, s := range collective.Schedules {
		names = append(names, s.Name)
	}
	return names
}

// Scheduler plans the epochs of a training by one schedule, and measures them. Between two epochs it
// plans anew with the durations of the one before.
type Scheduler struct {
	Choice  collective.Choice
	Profile Profile

	schedule collective.Schedule
	in       collective.Inputs
	first    collective.Run // as predicted by the profile
	refined  int
	held     Held // the most of any plan so far
	unified  bool // the memory of the device is the host's

	// The epoch that runs:
	whole   bool // from its first batch on
	trained int
	run     collective.Run
	spans   []schedule.Span
	keep    func([]schedule.Span)
	epochs  []collective.Run // that have run from their first batch to the last
}

// New chooses the plan of a schedule, or with Auto of the best one that there is room for: see collective.Auto. The
// inputs' Durations are the profile's.
func New(name string, p Profile, in collective.Inputs, room Room) (s *Scheduler, err error) {
	in.Durations = p.Durations
	batches := in.Batches
	in.Fits = func(plan collective.Plan, workers, waiting int) error {
		with := collective.Inputs{Batches: batches, Durations: collective.Durations{Workers: workers}}
		return room.fits(plan, with, waiting)
	}
	prepares := in.Durations.GPUBatch > 0
	if !prepares {
		in.Durations.GPUBatch = time.Hour // which no schedule uses that does not need it
	}
	s = &Scheduler{Profile: p, unified: room.Unified}
	if name == Auto {
		s.Choice, s.in, err = collective.Auto(in, prepares)
		name = s.Choice.Name
	}
	if err != nil {
		return nil, err
	}
	if s.schedule, err = collective.Find(name); err != nil {
		return nil, err
	}
	if s.schedule.OnGPU && !prepares {
		return nil, fmt.Errorf("%w: by schedule %s the device prepares batches, and it cannot", sampling.ErrOptions, name)
	}
	if s.in.Batches == 0 {
		s.in = in
		if s.Choice, err = s.schedule.Choose(in); err != nil {
			return nil, err
		}
	}
	s.first = s.Choice.Predicted
	s.countHeld()
	return s, nil
}

// Held is the most that plans have held so far.
func (s *Scheduler) Held() Held { return s.held }

func (s *Scheduler) countHeld() {
	h := heldBy(s.Choice.Plan, s.in, s.Choice.Predicted.MostWaiting, s.unified)
	s.held = Held{max(s.held.Workers, h.Workers), max(s.held.Samples, h.Samples), max(s.held.Pinned, h.Pinned),
		max(s.held.OnDevice, h.OnDevice)}
}

// Keep makes f get the stages of each epoch that has run as a whole.
func (s *Scheduler) Keep(f func([]schedule.Span)) { s.keep = f }

// Schedule is for the set of a run.
func (s *Scheduler) Schedule() *sampling.Schedule {
	return &sampling.Schedule{Rules: s.begin, Trace: s.trace}
}

// begin plans what is left of an epoch. Results do not depend on it, so an epoch that goes on, here or in
// another process, may be planned in another way than it began.
func (s *Scheduler) begin(_, first int) schedule.Rules {
	if s.ended() {
		s.refine()
	}
	s.whole, s.trained, s.run, s.spans = first == 0, 0, collective.Run{}, s.spans[:0]
	return s.Choice.Plan.Given(s.in.Durations, s.in.Batches, first)
}

func (s *Scheduler) trace(span schedule.Span) {
	s.spans = append(s.spans, span)
	s.run.Add(span, s.Choice.Plan.Workers(s.in.Durations))
	if span.Stage == schedule.Train {
		s.trained++
	}
	if s.ended() {
		s.epochs = append(s.epochs, s.run)
		if s.keep != nil {
			s.keep(s.spans)
		}
	}
}

func (s *Scheduler) ended() bool { return s.whole && s.trained == s.in.Batches }

// refine plans anew by the durations of the last epoch's stages.
func (s *Scheduler) refine() {
	in := s.in
	in.Durations = meanDurations(s.spans, in.Durations, s.Choice.Plan)
	if c, err := s.schedule.Choose(in); err == nil {
		if s.in = in; c.Plan != s.Choice.Plan {
			s.refined++
		}
		c.Reason, c.Rounds = s.Choice.Reason, s.Choice.Rounds+c.Rounds
		s.Choice = c
		s.countHeld()
	}
}

// meanDurations are the mean durations of stages by a plan; a worker's stage counts as if no other worker ran beside
// it. A stage that did not run keeps its duration from before.
func meanDurations(spans []schedule.Span, before collective.Durations, p collective.Plan) collective.Durations {
	var sums, gather [4]time.Duration
	var counts [4]int
	for _, s := range spans {
		sums[s.Stage] += s.End - s.Start
		gather[s.Stage] += s.Gather
		counts[s.Stage]++
	}
	mean := func(stage schedule.Stage, of [4]time.Duration, before time.Duration) time.Duration {
		if counts[stage] == 0 {
			return before
		}
		return max(1, of[stage]/time.Duration(counts[stage]))
	}
	d := before
	alone := func(of [4]time.Duration, before time.Duration) time.Duration {
		beside := float64(d.Beside(1e6, p.Workers(d))) / 1e6
		return time.Duration(float64(mean(schedule.Sample, of, time.Duration(float64(before)*beside))) / beside)
	}
	d.CPUBatch, d.DMA = max(1, alone(sums, d.CPUBatch)), mean(schedule.Move, sums, d.DMA)
	d.GPUBatch, d.Model = mean(schedule.Prepare, sums, d.GPUBatch), mean(schedule.Train, sums, d.Model)
	if d.Gather = alone(gather, d.Gather); p.LateGather {
		d.Gather = mean(schedule.Move, gather, d.Gather)
		d.CPUBatch, d.DMA = d.CPUBatch+d.Gather, max(1, d.DMA-d.Gather)
	}
	d.Gather = min(d.Gather, d.CPUBatch)
	return d
}

// Median is the median of the epochs that ran as a whole, or the prediction if none did.
func (s *Scheduler) Median() collective.Run {
	if len(s.epochs) == 0 {
		return s.first
	}
	sorted := slices.Clone(s.epochs)
	slices.SortFunc(sorted, func(a, b collective.Run) int { return cmp.Compare(a.Total, b.Total) })
	return sorted[(len(sorted)-1)/2]
}

// Seconds lists the durations of the epochs that ran as a whole.
func (s *Scheduler) Seconds() (all []float64) {
	for _, e := range s.epochs {
		all = append(all, e.Total.Seconds())
	}
	return all
}

// Report says why a schedule was chosen, and how long its epochs took.
type Report struct {
	Name             string  `json:"name"`
	Reason           string  `json:"reason"`
	CPUBatches       int     `json:"cpu_batches"` // of an epoch
	GPUBatches       int     `json:"gpu_batches"`
	CPUBuffer        int     `json:"cpu_buffer"`
	GPUBuffer        int     `json:"gpu_buffer"`
	Workers          int     `json:"workers"`
	Rounds           int     `json:"dispatch_rounds"` // of simulation
	Refined          int     `json:"plans_refined"`   // changes of the plan between epochs
	PredictedSeconds float64 `json:"predicted_epoch_seconds"`
	// MeasuredSeconds is the median of whole epochs; null: there was none.
	MeasuredSeconds *float64   `json:"measured_epoch_seconds"`
	Epochs          int        `json:"measured_epochs"`
	CPUBusy         float64    `json:"cpu_busy"` // share of the median or predicted epoch
	LinkBusy        float64    `json:"link_busy"`
	GPUBusy         float64    `json:"gpu_busy"`
	Profile         []Measured `json:"profile"`
}

// Report tells the plan and the measurements so far.
func (s *Scheduler) Report() Report {
	c := s.Choice
	r := Report{
		Name: c.Name, Reason: c.Reason, CPUBatches: s.first.CPUBatches, GPUBatches: s.first.GPUBatches,
		CPUBuffer: c.Plan.CPUBuffer, GPUBuffer: c.Plan.GPUBuffer,
		Workers: c.Plan.Workers(s.in.Durations), Rounds: c.Rounds, Refined: s.refined,
		PredictedSeconds: s.first.Total.Seconds(), Epochs: len(s.epochs), Profile: s.Profile.Measured,
	}
	run := s.Median()
	if len(s.epochs) > 0 {
		seconds := run.Total.Seconds()
		r.MeasuredSeconds = &seconds
		r.CPUBatches, r.GPUBatches = run.CPUBatches, run.GPUBatches
	}
	r.CPUBusy, r.LinkBusy, r.GPUBusy = run.Busy()
	return r
}

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

// WriteText prints what came of a schedule, in columns that tabs separate.
func (r *Report) WriteText(w io.Writer) {
	measured := "no epoch ran as a whole"
	if r.MeasuredSeconds != nil {
		measured = fmt.Sprintf("%.4g s measured in %s", *r.MeasuredSeconds, units.Count(int64(r.Epochs), "epoch"))
	}
	if r.Refined > 0 { // so what is measured may be of another plan than the reason
		measured += fmt.Sprintf(" (the plan changed after %d of them, by the durations that were measured)", r.Refined)
	}
	fmt.Fprintf(w, "schedule\t%s: %s\n", r.Name, units.Printable(r.Reason))
	fmt.Fprintf(w, "\tan epoch %.4g s predicted, %s; %s by the processor, %d by the device; busy: processor %.0f "+
		"%%, link %.0f %%, device %.0f %%\n",
		r.PredictedSeconds, measured, units.Count(int64(r.CPUBatches),
			"batch"), r.GPUBatches, 100*r.CPUBusy, 100*r.LinkBusy, 100*r.GPUBusy)
}

// WriteText prints what came of queues, where training on an epoch took so long.
func (r *QueueReport) WriteText(w io.Writer, trainSeconds float64) {
	fmt.Fprintf(w, "schedule\t%s: %s\n", MultiQueue, units.Printable(r.Reason))
	fmt.Fprintf(w, "\ttraining on an epoch %.4g s predicted (%.4g s without stale gradients), %.4g s measured\n",
		r.Predicted, r.PredictedBy, trainSeconds)
	fmt.Fprintf(w, "\t%s\n", r.Reproducible())
}
