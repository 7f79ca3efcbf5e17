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
