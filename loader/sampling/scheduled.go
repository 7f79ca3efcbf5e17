package sampling

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Schedule says who prepares which batch of an epoch when. Batches and their order are the same by all
// schedules: those of the set's plan.
type Schedule struct {
	// Rules are those of what is left of an epoch from batch first on, which they number from 0. They must
	// say which batches the device prepares (ByGPU).
	Rules func(epoch, first int) schedule.Rules
	// LateGather: rows are gathered when a batch moves, not by the worker that has sampled it.
	LateGather bool
	Pace       Pace
	// Trace, unless it is nil, gets each stage of each batch of an epoch when that has ended, numbered as
	// Rules do. It is called by one goroutine at a time.
	Trace func(schedule.Span)
}

// Pace is how long stages take at least, on a machine that is emulated: what they do is done at once, and
// then they wait. 0: they take as long as they take.
type Pace struct {
	Sample  time.Duration // a batch by a worker of the processor, sampled and gathered
	Gather  time.Duration // the part of Sample that is gathering
	Move    time.Duration // without gathering, if that is late
	Prepare time.Duration
	Train   time.Duration
}

// Buffers is how many batches are in memory of a loader at a time with such buffers: those that the
// processor has begun, those on the device, one that moves, and one that is trained. On a device with
// memory of its own, gpuBuffer + 2 of them take memory there.
func Buffers(cpuBuffer, gpuBuffer int) int { return cpuBuffer + gpuBuffer + 2 }

// SetSchedule makes the loader prepare the batches of the set by a schedule; nil: by the pipeline of
// epochs, each stage as fast as it can. The loader must have been opened for so many batches (Buffers).
// The device prepares its batches as PrepareOnDevice says.
func (s *Set) SetSchedule(o *Schedule) error {
	if c := s.l.o.Cache; o != nil && c != nil && !c.Fixed() {
		return fmt.Errorf("%w: cache %s changes from batch to batch: batches that are prepared side by side need one that does not (degree, presampled, gns, ducati)", ErrOptions, c.Stats().Policy)
	}
	s.schedule = o
	return nil
}

// PreparesOnDevice tells that the device was told how to prepare batches (PrepareOnDevice).
func (s *Set) PreparesOnDevice() bool { return s.onDevice != nil }

// task is a stage of a batch on its way.
type task struct {
	schedule.Step
	job    *job
	worker int
	start  time.Duration // since the epoch began
	end    time.Duration
	gather time.Duration // a part of it
	begun  gds.Event     // of a training: when the device was told to begin, and is done
	done   gds.Event
}

// execution is an epoch that runs by a schedule: one goroutine, that of the loop over batches, asks the
// course which stages begin, hands them to the stages of a pipeline, and is told when they end.
type execution struct {
	s        *Set
	o        *Schedule
	epoch    int
	first    int
	stream   gds.Stream // of the loader
	consumer gds.Stream
	yield    func(*batchBuffer) bool

	course                               *schedule.Course
	jobs                                 map[int]*job // by number of batch, from its first stage to its training
	worker                               *pipeline.Worker
	toSample, toMove, toPrepare, toTrain *pipeline.Queue[*task]
	ended                                *pipeline.Queue[*task]
	began                                time.Time
	now                                  time.Duration // since began, when what ended last did
}

// lateness is by how much a stage may end after its pace without being counted as longer: about what
// waiting takes too long. What follows then begins when it should have.
const lateness = 2 * time.Millisecond

// execute runs what is left of an epoch, with a sampler for each worker.
func (s *Set) execute(p *pipeline.Pipeline, rules schedule.Rules, samplers []Sampler, x *execution) error {
	x.s, x.o, x.course, x.jobs = s, s.schedule, schedule.New(rules), make(map[int]*job)
	defer func() {
		p.Close() // no stage has a job now
		for _, j := range x.jobs {
			s.l.spare = append(s.l.spare, j)
		}
	}()
	workers := len(samplers)
	queue := func(length int) *pipeline.Queue[*task] { return pipeline.NewQueue[*task](p, length) }
	x.toSample, x.toMove, x.toPrepare, x.toTrain = queue(workers), queue(1), queue(1), queue(1)
	x.ended = queue(workers + 3) // nobody waits to tell what has ended
	sampled := x.toSample.Then(pipeline.Stage[*task]{
		Name: "sample", Workers: workers, Queue: workers,
		Work: func(w *pipeline.Worker, t *task) error { return x.sample(w, t, samplers[w.Index()]) },
	})
	x.serve(p, "sampled", sampled, func(*pipeline.Worker, *task) error { return nil })
	x.serve(p, "move", x.toMove, x.move)
	x.serve(p, "prepare", x.toPrepare, x.prepare)
	x.serve(p, "train", x.toTrain, x.train)
	x.worker = p.Worker("schedule")
	loop := x.ended.All()
	x.began = time.Now()
	if x.course.Finished() || !x.begin() { // nothing may be left of an epoch that goes on
		return nil
	}
	for t, err := range loop {
		if err != nil {
			return err
		}
		x.now = max(x.now, t.end)
		if late := time.Since(x.began); late-x.now > lateness {
			x.now = late
		}
		x.course.Done(t.Step)
		if x.o.Trace != nil {
			x.o.Trace(schedule.Span{Stage: t.Stage, Batch: t.Batch, Worker: t.worker, Start: t.start, End: t.end, Gather: t.gather})
		}
		if x.course.Finished() || !x.begin() {
			return nil
		}
	}
	return nil
}

// serve adds a stage of one goroutine that works on tasks and tells that they have ended.
func (x *execution) serve(p *pipeline.Pipeline, name string, tasks *pipeline.Queue[*task], work func(*pipeline.Worker, *task) error) {
	p.Go(name, func(w *pipeline.Worker) {
		for {
			t, err, ok := tasks.Receive(w)
			if !ok {
				return
			}
			if err == nil {
				err = work(w, t)
			}
			if err != nil {
				x.ended.Fail(w, err)
				return
			}
			if !x.ended.Send(w, t) {
				return
			}
		}
	})
}

// begin begins all stages that can begin now. It reports whether the loop over batches goes on.
func (x *execution) begin() bool {
	for {
		step, ok := x.course.Next()
		if !ok {
			return true
		}
		t := &task{Step: step, start: x.now}
		to := x.toMove
		switch step.Stage {
		case schedule.Sample, schedule.Prepare:
			t.job = x.s.l.takeScheduled()
			for b := range x.s.plan.EpochFrom(x.epoch, x.first+step.Batch) {
				t.job.begin(&x.s.epochs, b, x.epoch)
				break
			}
			x.jobs[step.Batch] = t.job
			if to = x.toSample; step.Stage == schedule.Prepare {
				to = x.toPrepare
			}
		case schedule.Move:
			t.job = x.jobs[step.Batch]
		case schedule.Train:
			t.job, to = x.jobs[step.Batch], x.toTrain
			delete(x.jobs, step.Batch)
			t.begun = x.consumer.Record()
			more := x.yield(t.job.buffer)
			t.done = x.consumer.Record()
			x.s.l.spare = append(x.s.l.spare, t.job)
			if !more {
				return false
			}
		}
		if !to.Send(x.worker, t) {
			return true // the pipeline has ended, as the loop is told
		}
	}
}

// sample samples a batch and, unless that is late, gathers it.
func (x *execution) sample(w *pipeline.Worker, t *task, sampler Sampler) error {
	t.worker = w.Index()
	err := x.s.sample(w.Context(), sampler, t.job)
	length := x.o.Pace.Sample
	if err == nil && x.o.LateGather {
		length -= x.o.Pace.Gather
	} else if err == nil {
		err = x.gather(w, t)
	}
	if err != nil {
		return err
	}
	return x.pace(w, t, length)
}

// gather gathers the rows of a batch that was sampled.
func (x *execution) gather(w *pipeline.Worker, t *task) error {
	start := time.Now()
	err := x.s.gather(w, t.job)
	t.gather = max(x.o.Pace.Gather, time.Since(start))
	return err
}

// move moves a batch to the device.
func (x *execution) move(w *pipeline.Worker, t *task) error {
	length := x.o.Pace.Move
	if x.o.LateGather {
		if err := x.gather(w, t); err != nil {
			return err
		}
		length += x.o.Pace.Gather
	}
	if x.s.l.lends {
		if err := x.s.l.takeDevice(w, t.job); err != nil {
			return err
		}
	}
	before := x.stream.Record()
	t.job.transfer(x.stream)
	if err := w.Wait(t.job.buffer.ready); err != nil {
		return err
	}
	if length == 0 && !x.o.LateGather {
		return x.measure(t, before, t.job.buffer.ready)
	}
	return x.pace(w, t, length)
}

// prepare has the device prepare a batch.
func (x *execution) prepare(w *pipeline.Worker, t *task) error {
	r, j := x.s.onDevice, t.job
	if err := r.sample(w, j); err != nil {
		return err
	}
	start := time.Now()
	if err := r.gather(w, j, x.stream); err != nil {
		return err
	}
	if err := r.finish(w, j); err != nil {
		return err
	}
	t.gather = time.Since(start)
	if c, found := x.s.l.o.Cache, j.buffer.batch.Traffic; c != nil {
		x.s.l.lookup.Lock()
		c.CountFound(found.Rows, found.CachedRows)
		x.s.l.lookup.Unlock()
	}
	return x.pace(w, t, x.o.Pace.Prepare)
}

// train waits until the batch is trained.
func (x *execution) train(w *pipeline.Worker, t *task) error {
	if err := w.Wait(t.done); err != nil {
		return err
	}
	if x.o.Pace.Train == 0 {
		return x.measure(t, t.begun, t.done)
	}
	return x.pace(w, t, x.o.Pace.Train)
}

// pace waits until a stage has taken as long as it should, and says when it ended.
func (x *execution) pace(w *pipeline.Worker, t *task, length time.Duration) error {
	target := t.start + length
	if length > 0 {
		if err := w.Wait(pipeline.Until(x.began.Add(target))); err != nil {
			return err
		}
	}
	if t.end = time.Since(x.began); length > 0 && t.end-target < lateness {
		t.end = max(target, t.start)
	}
	return nil
}

// measure says how long the device took for a stage, by its events.
func (x *execution) measure(t *task, from, to gds.Event) error {
	length, err := to.Elapsed(from)
	t.end = time.Since(x.began)
	t.start = max(t.start, t.end-length)
	return err
}

// takeScheduled is a job that no batch has.
func (l *Loader) takeScheduled() *job {
	n := len(l.spare)
	if n == 0 {
		return &job{}
	}
	j := l.spare[n-1]
	l.spare = l.spare[:n-1]
	return j
}

// setAside takes free buffers out of use, but for so many, until the end of an epoch. Those that stay are the ones that
// have memory, so that epochs do not use now these and now those; the memory of the others is freed.
func (l *Loader) setAside(but int) []*batchBuffer {
	var free []*batchBuffer
	for range len(l.free) { // the others are held
		free = append(free, <-l.free)
	}
	slices.SortStableFunc(free, func(a, b *batchBuffer) int { return cmp.Compare(b.memoryBytes(), a.memoryBytes()) })
	stay := max(0, len(free)-(len(l.buffers)-but))
	for _, b := range free[:stay] {
		l.free <- b
	}
	for _, b := range free[stay:] {
		_ = b.release() // which nobody uses: there is no other error
	}
	return free[stay:]
}
