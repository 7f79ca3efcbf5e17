package pipeline

import (
	"context"
	"iter"
	"time"
)

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
