package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/gds"
)

// stream runs its work on one goroutine. The queue grows without bound: were it
// bounded, a caller could wait for room in a stream that waits for an event
// which that caller has yet to let happen.
type stream struct {
	device *Device

	mu     sync.Mutex
	more   sync.Cond // queue or closed has changed
	queue  []func()
	closed bool

	stopped chan struct{}

	// Of the stream's goroutine alone:
	err     error     // the first
	scratch []float32 // for operations that need room, kept for the next
}

// NewStream starts a stream.
func (d *Device) NewStream() (gds.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("host device: %w", gds.ErrClosed)
	}
	d.streams++
	s := &stream{device: d, stopped: make(chan struct{})}
	s.more.L = &s.mu
	go s.loop()
	return s, nil
}

func (s *stream) loop() {
	defer close(s.stopped)
	var work []func()
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.more.Wait()
		}
		work, s.queue = s.queue, work[:0]
		s.mu.Unlock()
		if len(work) == 0 {
			return
		}
		for i, run := range work {
			run()
			work[i] = nil
		}
	}
}

// push appends work, unless the stream is closed.
func (s *stream) push(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.queue = append(s.queue, run)
	s.more.Signal()
	return true
}

// enqueue appends an operation on tensors, which an error will name.
func (s *stream) enqueue(name string, run func() error, tensors ...gds.Tensor) {
	s.push(func() {
		if s.err != nil {
			return
		}
		if err := run(); err != nil {
			views := make([]string, len(tensors))
			for i, t := range tensors {
				views[i] = t.String()
			}
			s.err = fmt.Errorf("host device: %s(%s): %w", name, strings.Join(views, ", "), err)
		}
	})
}

// event is a point in a stream; err is set before reached is closed.
type event struct {
	reached chan struct{}
	err     error
}

func (s *stream) Record() gds.Event {
	e := &event{reached: make(chan struct{})}
	if !s.push(func() { e.err = s.err; close(e.reached) }) {
		e.err = fmt.Errorf("host device: stream %w", gds.ErrClosed)
		close(e.reached)
	}
	return e
}

func (e *event) Wait(ctx context.Context) error {
	select {
	case <-e.reached:
		return e.err
	default:
	}
	select {
	case <-e.reached:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WaitEvent waits on a poisoned stream too: whoever then sees this stream's
// events may rely on the other's work being over.
func (s *stream) WaitEvent(of gds.Event) {
	s.push(func() {
		err := errors.New("host device: WaitEvent: the event is of another kind of device")
		if e, ok := of.(*event); ok {
			<-e.reached
			err = e.err
		}
		if s.err == nil {
			s.err = err
		}
	})
}

func (s *stream) Synchronize(ctx context.Context) error { return s.Record().Wait(ctx) }

func (s *stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("host device: stream %w", gds.ErrClosed)
	}
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	<-s.stopped
	s.device.mu.Lock()
	s.device.streams--
	s.device.mu.Unlock()
	return s.err
}
