package loader

import (
	"context"
	"iter"
	"sync"
	"time"
)

// stage is one step of a pipeline. It works on one item at a time, in order, concurrently with the
// other stages.
type stage[T any] struct {
	name string
	// wait waits until the stage can work, for instance until a buffer is free. Its time is not
	// counted as work. Either function may be nil.
	wait func(context.Context, T) error
	work func(context.Context, T) error
	// queue is how many finished items may wait for the next stage.
	queue int
}

// durations is the time of one stage.
type durations struct {
	work    time.Duration
	blocked time.Duration // waiting for room, or for the next stage to take an item
	idle    time.Duration // waiting for the stage before
}

// entry is an item between stages, or the error that follows the last item.
type entry[T any] struct {
	item T
	err  error
}

// pipeline takes items through the stages, and yields them in order in the
// goroutine of the loop. When a stage fails, the items before the one that it
// failed on are still yielded, then the error, once. When ctx ends, its cause is
// yielded. No goroutine is left when the loop is over, however it ends.
//
// The first of times is that of items, then follow those of the stages, then
// that of the loop body; they are valid when the loop is over.
func pipeline[T any](ctx context.Context, items iter.Seq[T], stages []stage[T], times []durations) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		inner, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()

		first := make(chan entry[T])
		running.Go(func() { feed(inner, items, first, &times[0]) })
		last := first
		for i := range stages {
			in, out := last, make(chan entry[T], stages[i].queue)
			running.Go(func() { stages[i].run(inner, in, out, &times[i+1]) })
			last = out
		}

		spent := &times[len(stages)+1]
		for {
			e, ok := receive(ctx, last, spent)
			if ctx.Err() != nil {
				e, ok = entry[T]{err: context.Cause(ctx)}, true
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
			spent.work += time.Since(start)
			if !more {
				return
			}
		}
	}
}

// feed is the stage before the first.
func feed[T any](ctx context.Context, items iter.Seq[T], out chan<- entry[T], spent *durations) {
	defer close(out)
	start := time.Now()
	for item := range items {
		spent.work += time.Since(start)
		if !send(ctx, out, entry[T]{item: item}, spent) {
			return
		}
		start = time.Now()
	}
}

// run ends when in is closed, after an error, or with ctx. After an error the
// stages before it block, until the loop has got that far and ends them.
func (s *stage[T]) run(ctx context.Context, in <-chan entry[T], out chan<- entry[T], spent *durations) {
	defer close(out)
	for {
		e, ok := receive(ctx, in, spent)
		if !ok {
			return
		}
		if e.err == nil {
			e.err = s.process(ctx, e.item, spent)
		}
		if !send(ctx, out, e, spent) || e.err != nil {
			return
		}
	}
}

func (s *stage[T]) process(ctx context.Context, item T, spent *durations) error {
	start := time.Now()
	if s.wait != nil {
		err := s.wait(ctx, item)
		now := time.Now()
		spent.blocked += now.Sub(start)
		if err != nil {
			return err
		}
		start = now
	}
	if s.work == nil {
		return nil
	}
	err := s.work(ctx, item)
	spent.work += time.Since(start)
	return err
}

// receive reports false when there is nothing more, or ctx has ended.
func receive[T any](ctx context.Context, in <-chan entry[T], spent *durations) (e entry[T], ok bool) {
	start := time.Now()
	select {
	case e, ok = <-in:
	case <-ctx.Done():
	}
	spent.idle += time.Since(start)
	return e, ok
}

func send[T any](ctx context.Context, out chan<- entry[T], e entry[T], spent *durations) (sent bool) {
	start := time.Now()
	select {
	case out <- e:
		sent = true
	case <-ctx.Done():
	}
	spent.blocked += time.Since(start)
	return sent
}
