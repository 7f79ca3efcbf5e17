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
	"runtime/cgo"
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
		e, err := cu.MakeEvent(cu.DefaultEvent)
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
		err := check(C.hopfeed_query(handle(e.stream.device.context), handle(e.event)))
		runtime.KeepAlive(e)
		if err == error(notReady) {
			return false, nil
		}
		if err != nil {
			return false, e.stream.device.errorf("waiting for an event: %w", err)
		}
	}
	e.reached.Store(true)
	return true, nil
}

// lookAgain is how often a wait asks a device whether it still works: functions of the host are not
// called if it does not.
const lookAgain = 50 * time.Millisecond

func (e *event) Wait(ctx context.Context) error {
	reached, err := e.isReached()
	if err != nil {
		return err
	}
	if reached {
		return e.errorSoFar()
	}
	called, err := e.notify()
	if err != nil {
		return e.stream.device.errorf("waiting for an event: %w", err)
	}
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-called:
			e.reached.Store(true)
			return e.errorSoFar()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
			if reached, err := e.isReached(); err != nil {
				return err
			} else if reached {
				return e.errorSoFar()
			}
		}
	}
}

// notification is a wait that is under way on the device.
type notification struct {
	event  *event // to keep it
	called chan struct{}
	side   cu.Stream // which waits
}

// notify gives a channel that is closed when the event is reached.
func (e *event) notify() (called chan struct{}, err error) {
	d := e.stream.device
	n := &notification{event: e, called: make(chan struct{})}
	if n.side, err = take(d, &d.sides, newSide); err != nil {
		return nil, err
	}
	h := cgo.NewHandle(n)
	err = check(C.hopfeed_when_reached(handle(d.context), handle(n.side), handle(e.event), C.uintptr_t(h)))
	if err != nil {
		h.Delete()
		return nil, err
	}
	return n.called, nil
}

// hopfeedReached runs on a thread of the driver, which may be waited for with any lock held but idle.
//
//export hopfeedReached
func hopfeedReached(h C.uintptr_t) {
	n := cgo.Handle(h).Value().(*notification)
	cgo.Handle(h).Delete()
	close(n.called)
	d := n.event.stream.device
	give(d, &d.sides, n.side)
}

// newSide is a stream without work.
func newSide() (cu.Stream, error) { return cu.MakeStream(cu.NonBlocking) }

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
