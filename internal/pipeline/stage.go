package pipeline

import (
	"errors"
	"iter"
	"sync/atomic"
	"time"
)

// Stage is one step of a pipeline. It runs beside the other stages.
type Stage[T any] struct {
	Name string
	// Work works on an item. What it spends in the waits of its Worker is not counted as work. nil:
	// items only pass.
	Work func(*Worker, T) error
	// Workers is how many items are worked on at a time, each by one goroutine; 0: 1. Items leave
	// in the order in which they came, whichever worker is first.
	Workers int
	// AsTheyCome lets the items of several workers leave as they are finished instead.
	AsTheyCome bool
	// Queue is how many finished items may wait for the next stage.
	Queue int
}

// Feed is the stage before all others: it makes the items.
func Feed[T any](p *Pipeline, name string, items iter.Seq[T]) *Queue[T] {
	out := NewQueue[T](p, 0)
	p.Go(name, func(w *Worker) {
		defer out.Close()
		start := time.Now()
		for item := range items {
			w.spent.Work += time.Since(start)
			if !out.Send(w, item) {
				return
			}
			start = time.Now()
		}
	})
	return out
}

// Then adds a stage that takes the items of q, and returns the queue of what it has finished. An
// error of Work takes the place of its item.
func (q *Queue[T]) Then(s Stage[T]) *Queue[T] {
	workers := q.p.addStage(s.Name, max(s.Workers, 1))
	if len(workers) > 1 && !s.AsTheyCome {
		return s.runInOrder(q, workers)
	}
	return s.run(q, workers)
}

// run passes items on as they are finished, and what ends them after the last.
func (s *Stage[T]) run(in *Queue[T], workers []*Worker) *Queue[T] {
	out := NewQueue[T](in.p, s.Queue)
	ended := make(chan error, 1) // by the error of an earlier stage
	var left atomic.Int32
	left.Store(int32(len(workers)))
	in.p.start(workers, func(w *Worker) {
		for {
			e, ok := in.receive(w)
			if !ok {
				break
			}
			if e.err != nil {
				select {
				case ended <- e.err:
				default: // there is an earlier one
				}
				break
			}
			if e.err = s.process(w, e.item); !send(w, out.entries, e) || e.err != nil {
				break
			}
		}
		if left.Add(-1) > 0 {
			return
		}
		if len(ended) > 0 {
			out.Fail(w, <-ended)
		}
		out.Close()
	})
	return out
}

// errEnd follows the last item where there is no other error.
var errEnd = errors.New("no more items")

// runInOrder passes items on in the order in which they came. As many as there are places have been
// taken and not yet passed on; item k, when finished, waits in place k % len(places) for its turn.
func (s *Stage[T]) runInOrder(in *Queue[T], workers []*Worker) *Queue[T] {
	out := NewQueue[T](in.p, 0)
	places := make([]chan entry[T], len(workers)+s.Queue)
	room := make(chan struct{}, len(places)) // one for each place that no item is on its way to
	for i := range places {
		places[i] = make(chan entry[T], 1)
		room <- struct{}{}
	}
	// next holds the number of the next item: who takes the number receives the item. It is closed
	// after the last.
	next := make(chan int, 1)
	next <- 0
	in.p.start(workers, func(w *Worker) {
		for {
			if _, err := Take(w, room); err != nil {
				return
			}
			start := time.Now()
			k, more := <-next
			w.spent.Idle += time.Since(start)
			if !more {
				return
			}
			e, ok := in.receive(w)
			if !ok {
				e.err = errEnd
			}
			if e.err != nil {
				close(next)
			} else {
				next <- k + 1
				e.err = s.process(w, e.item)
			}
			places[k%len(places)] <- e
			if e.err != nil {
				return
			}
		}
	})
	in.p.running.Go(func() {
		defer out.Close()
		uncounted := &Worker{ctx: in.p.ctx}
		for k := 0; ; k++ {
			e, err := Take(uncounted, places[k%len(places)])
			if err != nil || e.err == errEnd || !send(uncounted, out.entries, e) || e.err != nil {
				return
			}
			room <- struct{}{}
		}
	})
	return out
}

func (s *Stage[T]) process(w *Worker, item T) error {
	if s.Work == nil {
		return nil
	}
	start, before := time.Now(), w.spent.Waiting+w.spent.Blocked
	err := s.Work(w, item)
	w.spent.Work += time.Since(start) - (w.spent.Waiting + w.spent.Blocked - before)
	return err
}
