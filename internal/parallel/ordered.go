package parallel

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Ordered calls fill for 0 to n-1 from up to threads goroutines, and emit with what fill returned, one after another
// in order, as soon as it is there. buffer makes what fill works with; it belongs to one call of fill and the emit
// that follows, and there are at most threads+1. It returns when all calls have, with the first error in order, or
// the cause why ctx has ended.
func Ordered[B, T any](ctx context.Context, threads int, n int64, buffer func() B, fill func(k int64, b B) (T, error),
	emit func(T) error) error {
	threads = int(max(1, min(int64(threads), n)))
	buffers := make([]B, threads+1)
	for i := range buffers {
		buffers[i] = buffer()
	}
	return OrderedIn(ctx, threads, n, buffers, fill, emit)
}

// OrderedIn is Ordered with at least one buffer of the caller's.
func OrderedIn[B, T any](ctx context.Context, threads int, n int64, buffers []B, fill func(k int64, b B) (T, error),
	emit func(T) error) error {
	type filled struct {
		buffer B
		value  T
		err    error
	}
	free := make(chan B, len(buffers))
	for _, b := range buffers {
		free <- b
	}
	g, inner := errgroup.WithContext(ctx)
	queue := make(chan chan filled, cap(free))
	running := make(chan struct{}, threads)
	g.Go(func() error {
		defer close(queue)
		for k := range n {
			select {
			case <-inner.Done():
				return context.Cause(inner)
			case running <- struct{}{}:
			}
			select {
			case <-inner.Done():
				return context.Cause(inner)
			case b := <-free:
				place := make(chan filled, 1)
				queue <- place
				g.Go(func() error {
					value, err := fill(k, b)
					<-running
					place <- filled{b, value, err}
					return nil
				})
			}
		}
		return nil
	})
	g.Go(func() error {
		for place := range queue {
			f := <-place
			if f.err == nil {
				f.err = context.Cause(inner)
			}
			if f.err == nil {
				f.err = emit(f.value)
			}
			if f.err != nil {
				return f.err
			}
			free <- f.buffer
		}
		return nil
	})
	return g.Wait()
}
