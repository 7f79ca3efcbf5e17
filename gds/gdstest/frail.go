package gdstest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
)

// Frail is a device that fails once, for tests of what uses devices. A step is a call
// that allocates or opens a stream, or a point in a stream that is recorded or waited
// for; the work before such a point fails, as far as anybody can tell.
type Frail struct {
	gds.Device
	left atomic.Int64 // steps, the one that fails included
}

var errFrail = errors.New("the device is on fire")

// FailAt makes the n-th step from now on fail; none if n < 1.
func (f *Frail) FailAt(n int) { f.left.Store(int64(n)) }

// Failed tells whether that step has been reached.
func (f *Frail) Failed() bool { return f.left.Load() <= 0 }

// Is tells whether an error is what failed.
func (f *Frail) Is(err error) bool {
	return err != nil && (errors.Is(err, errFrail) || strings.Contains(err.Error(), "host memory of 13 bytes"))
}

func (f *Frail) fails() bool { return f.left.Add(-1) == 0 }

// Alloc is a step.
func (f *Frail) Alloc(bytes int64) (gds.Buffer, error) {
	if f.fails() {
		return nil, errFrail
	}
	return f.Device.Alloc(bytes)
}

// AllocPinned is a step.
func (f *Frail) AllocPinned(bytes int64) (gds.Buffer, error) {
	if f.fails() {
		return nil, errFrail
	}
	return f.Device.AllocPinned(bytes)
}

// NewStream is a step.
func (f *Frail) NewStream() (gds.Stream, error) {
	if f.fails() {
		return nil, errFrail
	}
	s, err := f.Device.NewStream()
	return frailStream{s, f}, err
}

type frailStream struct {
	gds.Stream
	of *Frail
}

// Record is a step, which poisons the stream.
func (s frailStream) Record() gds.Event {
	if s.of.fails() {
		s.Stream.CopyIn(gds.Tensor{}, make([]byte, 13))
	}
	return s.Stream.Record()
}

// Synchronize is a step too.
func (s frailStream) Synchronize(ctx context.Context) error { return s.Record().Wait(ctx) }
