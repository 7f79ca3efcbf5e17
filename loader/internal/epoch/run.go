package epoch

import (
	"iter"
	"sync"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Stage is the work of a stage on a batch, which the rules number from 0. J is the job of the batch, a pointer.
type Stage[J any] struct {
	Name string
	Work func(w *pipeline.Worker, t *Task[J]) error
}

// Task is a batch in its current stage.
type Task[J any] struct {
	schedule.Step
	Job    J             // which Sample or Prepare makes
	Gather time.Duration // the part of the stage in which rows were gathered
	Begun  gds.Event     // when the device began the stage; nil: that is not measured

	entered bool  // the stage has begun
	err     error // of an earlier stage, in place of the batch
	span    schedule.Span
	least   pipeline.Event // nil: the stage ends when its work is done
	done    gds.Event      // when the device has trained
	last    bool           // the loop wants no more; when the device has trained, the epoch ends
}

// Run is an epoch. A stage that is not used may be left out.
type Run[J any] struct {
	Rules schedule.Rules
	// Sample has Rules.Workers goroutines, and Prepare and Move one each. What Move has begun ends with Arrive: it is
	// part of the same stage of the schedule, but Move may go on with the next batch meanwhile, if the rules allow it.
	Sample, Prepare, Move, Arrive Stage[J]
	// Train passes the batch to the loop, in the goroutine of that, and reports whether it wants more.
	Train func(j J) bool
	// Consumer is the stream of the loop. nil: a training ends when the loop asks for the next batch, else when the
	// device has done what was enqueued on the stream until then.
	Consumer gds.Stream
	// Least, unless it is nil, is called when a stage begins. The stage does not end before the event.
	Least func(schedule.Stage) pipeline.Event
	// Trace, unless it is nil, gets each stage of each batch when it has ended: one goroutine at a time.
	Trace func(schedule.Span)

	to                [4]*pipeline.Queue[*Task[J]] // by stage; to Train by way of the loop
	toArrive, trained *pipeline.Queue[*Task[J]]    // of batches whose rest goes on
	began             time.Time

	mu     sync.Mutex
	course *schedule.Course
	tasks  map[int]*Task[J] // by batch, from its first stage to its training
}

// Do runs the epoch in a pipeline, which the caller closes. It returns when the epoch has ended, or the loop does not
// want more and the device has trained its last batch. An error takes the place of its batch: the loop gets all batches
// before it.
func (x *Run[J]) Do(p *pipeline.Pipeline) error {
	workers := max(x.Rules.Workers, 1)
	x.tasks, x.began, x.course = make(map[int]*Task[J]), time.Now(), schedule.New(x.Rules)
	queue := func(length int) *pipeline.Queue[*Task[J]] { return pipeline.NewQueue[*Task[J]](p, length) }
	x.to = [...]*pipeline.Queue[*Task[J]]{schedule.Sample: queue(workers), schedule.Prepare: queue(1),
		schedule.Move: queue(2), schedule.Train: queue(1)}
	x.toArrive, x.trained = queue(2), queue(1)
	var moved *pipeline.Queue[*Task[J]]
	if x.Arrive.Work != nil {
		moved = x.toArrive
	}
	x.serve(x.to[schedule.Sample], x.Sample, workers, nil)
	x.serve(x.to[schedule.Prepare], x.Prepare, 1, nil)
	x.serve(x.to[schedule.Move], x.Move, 1, moved)
	x.serve(x.toArrive, x.Arrive, 1, nil)
	if x.Consumer != nil {
		x.serve(x.trained, Stage[J]{"train", func(w *pipeline.Worker, t *Task[J]) error {
			if err := w.Wait(t.done); err != nil {
				return err
			}
			return x.Measure(t, t.Begun, t.done)
		}}, 1, nil)
	}
	x.mu.Lock()
	x.advance()
	x.mu.Unlock()
	for t, err := range x.to[schedule.Train].All() {
		if err != nil {
			return err
		}
		if t.err != nil {
			return t.err
		}
		if !x.step(t) && x.Consumer == nil {
			return nil
		}
	}
	return nil
}

// step passes a batch to the loop.
func (x *Run[J]) step(t *Task[J]) (more bool) {
	if x.Consumer == nil {
		t.span.Start = time.Since(x.began)
		more = x.Train(t.Job)
		t.span.End = time.Since(x.began)
		x.ended(t)
		return more
	}
	x.enter(t, 0)
	t.Begun = x.Consumer.Record()
	more = x.Train(t.Job)
	t.done, t.last = x.Consumer.Record(), !more
	x.trained.Put(t)
	return more
}

// Measure says that the stage of a task took as long as it was from one event to another, which have happened.
func (x *Run[J]) Measure(t *Task[J], from, to gds.Event) error {
	length, err := to.Elapsed(from)
	t.span.End = time.Since(x.began)
	t.span.Start = max(t.span.Start, t.span.End-length)
	return err
}

// serve adds a stage, unless it has no work. Its tasks go on to a queue; nil: their stage has ended.
func (x *Run[J]) serve(from *pipeline.Queue[*Task[J]], s Stage[J], workers int, to *pipeline.Queue[*Task[J]]) {
	if s.Work == nil {
		return
	}
	var failed error // of a stage of one goroutine, which works in order: it does nothing after an error
	from.Serve(s.Name, workers, func(w *pipeline.Worker, t *Task[J]) {
		if failed != nil {
			t.err = failed
		}
		if t.err == nil {
			x.enter(t, w.Index())
			t.err = s.Work(w, t)
		}
		if workers == 1 {
			failed = t.err
		}
		if to != nil {
			to.Put(t)
			return
		}
		x.leave(w, t)
		x.ended(t)
	})
}

// enter begins a stage, unless it has begun.
func (x *Run[J]) enter(t *Task[J], worker int) {
	if t.entered {
		return
	}
	t.entered = true
	if t.span.Start, t.span.Worker = time.Since(x.began), worker; x.Least != nil {
		t.least = x.Least(t.Stage)
	}
}

// leave ends a stage.
func (x *Run[J]) leave(w *pipeline.Worker, t *Task[J]) {
	if t.err == nil && t.least != nil {
		t.err = w.Wait(t.least)
		t.span.End = time.Since(x.began)
	}
	if t.span.End == 0 {
		t.span.End = time.Since(x.began)
	}
}

// ended says that a stage of a batch has ended. Whoever ends a stage begins those that can begin now: a goroutine of
// its own for that would have to be waited for.
func (x *Run[J]) ended(t *Task[J]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.err != nil && t.Stage == schedule.Train {
		x.to[schedule.Train].Put(t)
		return
	}
	if t.err == nil && x.Trace != nil {
		t.span.Stage, t.span.Batch, t.span.Gather = t.Stage, t.Batch, t.Gather
		x.Trace(t.span)
	}
	if t.last {
		x.to[schedule.Train].Close()
		return
	}
	x.course.Done(t.Step)
	x.advance()
}

// advance begins all stages that can begin.
func (x *Run[J]) advance() {
	for step, ok := x.course.Next(); ok; step, ok = x.course.Next() {
		x.begin(step)
	}
	if x.course.Finished() {
		x.to[schedule.Train].Close()
	}
}

// begin hands a batch to a stage.
func (x *Run[J]) begin(step schedule.Step) {
	t := x.tasks[step.Batch]
	if t == nil {
		t = &Task[J]{}
		x.tasks[step.Batch] = t
	}
	t.Step, t.span, t.Gather, t.Begun = step, schedule.Span{}, 0, nil
	t.entered, t.least = false, nil
	if step.Stage == schedule.Train {
		delete(x.tasks, step.Batch)
	}
	x.to[step.Stage].Put(t)
}

// Sequence yields what run passes on, and then its error, if there is one and the loop was not left.
func Sequence[T any](run func(yield func(T) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := false
		err := run(func(t T) bool {
			left = !yield(t, nil)
			return !left
		})
		if err != nil && !left {
			var none T
			yield(none, err)
		}
	}
}
