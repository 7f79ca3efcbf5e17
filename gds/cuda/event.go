//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"gorgonia.org/cu"

	"github.com/hopfeed/hopfeed/gds"
)

// event is a point in a stream.
type event struct {
	stream   *stream
	before   uint64 // number of the first operation after it
	err      error  // of the stream, as far as it was known when the event was recorded
	recorded bool   // else it was reached from the start
	event    cu.Event
	reached  atomic.Bool
}

func (s *stream) Record() gds.Event {
	e := &event{stream: s, before: operations.Add(1)}
	if s.closed {
		e.err = s.closedError()
		return e
	}
	s.poisoned()
	if e.err = s.err; !s.outsideGroup("Record") {
		e.err = s.group.err
		return e
	}
	made, err := s.device.takeEvent()
	if err == nil {
		err = check(C.hopfeed_record(handle(s.device.context), handle(s.stream), handle(made)))
	}
	if err != nil {
		if e.err == nil {
			e.err = s.device.errorf("recording an event: %w", err)
			s.err = e.err
		}
		return e
	}
	e.event, e.recorded = made, true
	runtime.AddCleanup(e, s.device.giveEvent, made)
	return e
}

// takeEvent is an event that nobody uses.
func (d *Device) takeEvent() (cu.Event, error) {
	return take(d, &d.events, func() (cu.Event, error) {
		e, err := cu.MakeEvent(cu.BlockingSyncEvent)
		if err == nil {
			give(d, &d.made, e)
		}
		return e, err
	})
}

func (d *Device) giveEvent(e cu.Event) { give(d, &d.events, e) }

// errorSoFar is the error of the stream up to the event, as far as it is known; all of it once the
// event has been reached.
func (e *event) errorSoFar() error {
	if e.err != nil {
		return e.err
	}
	return e.stream.found(e.before)
}

// isReached asks the device, unless it is known. The error is the device's: it is lost.
func (e *event) isReached() (bool, error) {
	if !e.recorded || e.reached.Load() {
		return true, nil
	}
	e.stream.mu.Lock()
	defer e.stream.mu.Unlock()
	if !e.stream.ended {
		r := C.hopfeed_query(handle(e.stream.device.context), handle(e.event))
		runtime.KeepAlive(e)
		if failure(r) == notReady { // not as an error, which would be allocated
			return false, nil
		}
		if err := check(r); err != nil {
			return false, e.stream.device.errorf("waiting for an event: %w", err)
		}
	}
	e.reached.Store(true)
	return true, nil
}

// asking is how long Wait asks whether an event is reached before it blocks a thread, which takes as long to wake.
const asking = 30 * time.Microsecond

func (e *event) Wait(ctx context.Context) error {
	for began := time.Now(); ; {
		reached, err := e.isReached()
		if err != nil {
			return err
		}
		if reached {
			return e.errorSoFar()
		}
		if time.Since(began) > asking {
			break
		}
	}
	d := e.stream.device
	if !d.startWait() { // all work is done
		return e.errorSoFar()
	}
	done := make(chan error, 1)
	go func() {
		defer d.waits.Done()
		done <- e.block()
	}()
	select {
	case err := <-done:
		if err != nil {
			return d.errorf("waiting for an event: %w", err)
		}
		e.reached.Store(true)
		return e.errorSoFar()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// block blocks its thread until the device has reached the event, or is lost.
func (e *event) block() error {
	err := check(C.hopfeed_wait(handle(e.stream.device.context), handle(e.event)))
	runtime.KeepAlive(e)
	return err
}

// startWait keeps events until d.waits.Done is called, unless they are gone already.
func (d *Device) startWait() bool {
	d.idle.Lock()
	defer d.idle.Unlock()
	if d.gone {
		return false
	}
	d.waits.Add(1)
	return true
}

func (e *event) Elapsed(since gds.Event) (time.Duration, error) {
	d := e.stream.device
	from, ok := since.(*event)
	if !ok || from.stream.device != d {
		return 0, d.errorf("Elapsed: the event is of another device")
	}
	d.mu.Lock()
	released := d.released
	d.mu.Unlock()
	if released { // and the events with it
		return 0, d.errorf("Elapsed: %w", gds.ErrClosed)
	}
	for _, p := range []*event{from, e} {
		if reached, err := p.isReached(); err != nil || !reached || !p.recorded {
			return 0, errors.Join(d.errorf("Elapsed: an event has not been reached"), err)
		}
	}
	var milliseconds float64
	err := d.do(func() (err error) {
		milliseconds, err = from.event.Elapsed(e.event)
		return err
	})
	if err != nil {
		return 0, d.errorf("Elapsed: %w", err)
	}
	return time.Duration(milliseconds * float64(time.Millisecond)), nil
}
