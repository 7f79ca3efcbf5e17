// Package pipeline is the executor of everything that prepares batches: stages that run beside one another, and bounded
// queues between them. A stage is one goroutine (Go), or several workers that take items from a queue (Serve). A loop
// takes the items of the last queue (All):
//
//	p := pipeline.New(ctx)
//	defer p.Close()
//	blocks := pipeline.NewQueue[*block](p, 2)
//	p.Go("read", func(w *pipeline.Worker) { defer blocks.Close(); ... blocks.Send(w, b) ... })
//	for b, err := range blocks.All() { ... }
//
// Errors travel in the queues, at their place in the order: what comes before an error is still received, and nothing
// after it. No goroutine is left when Close returns. parallel.Ordered is for several workers whose results leave in
// order.
package pipeline

import (
	"context"
	"iter"
	"sync"
	"time"
)

// Pipeline is a group of stages that end together.
type Pipeline struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	stages [][]*Worker
}

// New makes a pipeline without stages. When ctx ends, so do all stages.
func New(ctx context.Context) *Pipeline {
	p := &Pipeline{}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// Close ends all stages and waits for their goroutines, wherever they are.
func (p *Pipeline) Close() {
	p.cancel()
	p.running.Wait()
}

// Durations say where the time of a stage went; with several workers, of all together.
type Durations struct {
	Work    time.Duration
	Waiting time.Duration // for what happens outside: a disk, a device, other threads
	Blocked time.Duration // for room, which later stages make
	Idle    time.Duration // for items of earlier stages
}

func (d *Durations) add(other Durations) {
	d.Work += other.Work
	d.Waiting += other.Waiting
	d.Blocked += other.Blocked
	d.Idle += other.Idle
}

// Times are the durations of a stage.
type Times struct {
	Name string
	Durations
}

// Times lists the durations of all stages and loops in the order in which they were added. They are valid after Close.
func (p *Pipeline) Times() []Times {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := make([]Times, len(p.stages))
	for i, workers := range p.stages {
		times[i].Name = workers[0].name
		for _, w := range workers {
			times[i].add(w.spent)
		}
	}
	return times
}

// Go adds a stage that is one goroutine, which works as it likes. It must return when a queue or its
// Worker reports the end.
func (p *Pipeline) Go(name string, run func(*Worker)) { p.start(p.addStage(name, 1), run) }

// Worker adds a stage that is the caller's own goroutine, such as a loop that also sends.
func (p *Pipeline) Worker(name string) *Worker { return p.addStage(name, 1)[0] }

func (p *Pipeline) start(workers []*Worker, run func(*Worker)) {
	for _, w := range workers {
		p.running.Go(func() { run(w) })
	}
}

func (p *Pipeline) addStage(name string, count int) []*Worker {
	workers := make([]*Worker, count)
	for i := range workers {
		workers[i] = &Worker{ctx: p.ctx, name: name, index: i}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stages = append(p.stages, workers)
	return workers
}

// Worker is one goroutine of a stage. Its methods count where its time goes, and are for that goroutine alone.
type Worker struct {
	ctx   context.Context
	name  string
	index int
	spent Durations
}

// Context ends with the pipeline.
func (w *Worker) Context() context.Context { return w.ctx }

// Index is the number of the worker in its stage, from 0 on, and so of the memory that it works with.
func (w *Worker) Index() int { return w.index }

// Event is something to wait for. Wait returns when it has happened, or when ctx ends, with the cause of that.
type Event interface {
	Wait(ctx context.Context) error
}

// Wait waits for something outside of the pipeline.
func (w *Worker) Wait(e Event) error { return w.wait(e, &w.spent.Waiting) }

// WaitForRoom waits for something that later stages, or the loop, have to do.
func (w *Worker) WaitForRoom(e Event) error { return w.wait(e, &w.spent.Blocked) }

func (w *Worker) wait(e Event, spent *time.Duration) error {
	start := time.Now()
	err := e.Wait(w.ctx)
	*spent += time.Since(start)
	return err
}

// Until is a point in time, as an Event.
type Until time.Time

func (u Until) Wait(ctx context.Context) error {
	timer := time.NewTimer(time.Until(time.Time(u)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Take takes from a channel what later stages, or the loop, give back: free memory, say. At the
// end of the pipeline the error is its cause.
func Take[T any](w *Worker, free <-chan T) (t T, err error) {
	select {
	case t = <-free:
		return t, nil
	default:
	}
	start := time.Now()
	select {
	case t = <-free:
	case <-w.ctx.Done():
		err = context.Cause(w.ctx)
	}
	w.spent.Blocked += time.Since(start)
	return t, err
}

// Queue holds the items that wait between two stages, and the error of the stages before if they fail.
// Several workers may send to a queue, and several receive from it.
type Queue[T any] struct {
	p       *Pipeline
	entries chan entry[T]
}

// entry is an item, or the error that follows the last item.
type entry[T any] struct {
	item T
	err  error
}

// NewQueue makes a queue in which length items can wait.
func NewQueue[T any](p *Pipeline, length int) *Queue[T] {
	return &Queue[T]{p: p, entries: make(chan entry[T], length)}
}

// Send adds an item, when there is room. It reports false if the pipeline has ended.
func (q *Queue[T]) Send(w *Worker, item T) bool { return send(w, q.entries, entry[T]{item: item}) }

// Len is how many items wait.
func (q *Queue[T]) Len() int { return len(q.entries) }

// Put is Send where there is room for certain.
func (q *Queue[T]) Put(item T) { q.entries <- entry[T]{item: item} }

// Serve adds a stage of several workers, which take the items as they come; work passes them on. What work spends in
// the waits of its Worker is not counted as work.
func (q *Queue[T]) Serve(name string, workers int, work func(*Worker, T)) {
	q.p.start(q.p.addStage(name, workers), func(w *Worker) {
		for e, ok := q.receive(w); ok; e, ok = q.receive(w) {
			start, before := time.Now(), w.spent.Waiting+w.spent.Blocked
			work(w, e.item)
			w.spent.Work += time.Since(start) - (w.spent.Waiting + w.spent.Blocked - before)
		}
	})
}

// Fail adds an error, after which nothing is received.
func (q *Queue[T]) Fail(w *Worker, err error) bool { return send(w, q.entries, entry[T]{err: err}) }

// Close tells that nothing more will be sent.
func (q *Queue[T]) Close() { close(q.entries) }

// Receive takes the next item, or the error that follows the last. It reports false if there is
// nothing more, or the pipeline has ended.
func (q *Queue[T]) Receive(w *Worker) (item T, err error, ok bool) {
	e, ok := q.receive(w)
	return e.item, e.err, ok
}

func (q *Queue[T]) receive(w *Worker) (e entry[T], ok bool) {
	start := time.Now()
	select {
	case e, ok = <-q.entries:
	case <-w.ctx.Done():
	}
	w.spent.Idle += time.Since(start)
	return e, ok
}

func send[T any](w *Worker, to chan<- T, value T) (sent bool) {
	start := time.Now()
	select {
	case to <- value:
		sent = true
	case <-w.ctx.Done():
	}
	w.spent.Blocked += time.Since(start)
	return sent
}

// All yields the items of a queue, then its error, if any, once. When the pipeline ends before, the error is its cause.
// The body of the loop is the last of Times, named "loop": it works in its body, and is idle in between.
func (q *Queue[T]) All() iter.Seq2[T, error] {
	w := q.p.addStage("loop", 1)[0]
	return func(yield func(T, error) bool) {
		for {
			e, ok := q.receive(w)
			if w.ctx.Err() != nil {
				e, ok = entry[T]{err: context.Cause(w.ctx)}, true
			}
			if !ok {
				return
			}
			if e.err != nil {
				yield(*new(T), e.err)
				return
			}
			start := time.Now()
			more := yield(e.item, nil)
			w.spent.Work += time.Since(start)
			if !more {
				return
			}
		}
	}
}
