// Package gdstest tests devices: its own tests are what every device must do, and FailingDevice tests what uses one.
package gdstest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
)

// FailingDevice is a device that fails once, for tests of users of devices. A step is a call
// that allocates or opens a stream, or a point in a stream that is recorded or waited
// for; the work before such a point fails, as far as anybody can tell.
type FailingDevice struct {
	gds.Device
	left atomic.Int64 // steps, the one that fails included
}

var errInjected = errors.New("injected failure of the device")

// FailAt makes the n-th step from now on fail; none if n < 1.
func (f *FailingDevice) FailAt(n int) { f.left.Store(int64(n)) }

// Failed tells whether that step has been reached.
func (f *FailingDevice) Failed() bool { return f.left.Load() <= 0 }

// Is tells whether an error is the injected one.
func (f *FailingDevice) Is(err error) bool {
	return err != nil && (errors.Is(err, errInjected) || strings.Contains(err.Error(), ", [13,0]"))
}

func (f *FailingDevice) fails() bool { return f.left.Add(-1) == 0 }

// Alloc is a step.
func (f *FailingDevice) Alloc(bytes int64) (gds.Buffer, error) {
	if f.fails() {
		return nil, errInjected
	}
	return f.Device.Alloc(bytes)
}

// AllocPinned is a step.
func (f *FailingDevice) AllocPinned(bytes int64) (gds.Buffer, error) {
	if f.fails() {
		return nil, errInjected
	}
	return f.Device.AllocPinned(bytes)
}

// NewStream is a step.
func (f *FailingDevice) NewStream() (gds.Stream, error) {
	if f.fails() {
		return nil, errInjected
	}
	s, err := f.Device.NewStream()
	return failingStream{s, f}, err
}

type failingStream struct {
	gds.Stream
	of *FailingDevice
}

// Record is a step, which poisons the stream.
func (s failingStream) Record() gds.Event {
	if s.of.fails() {
		s.Stream.Copy(gds.Tensor{}, gds.Tensor{Rows: 13})
	}
	return s.Stream.Record()
}

// Synchronize is a step too.
func (s failingStream) Synchronize(ctx context.Context) error { return s.Record().Wait(ctx) }
