//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
)

// group is a CUDA graph that a stream submits operations by.
type group struct {
	open bool
	err  error       // of an operation of the open group, the first
	exec C.uintptr_t // of the last group, which the next changes; 0: none
}

var _ gds.Grouper = (*stream)(nil)

// BeginGroup makes the driver collect what is enqueued.
func (s *stream) BeginGroup() error {
	if s.closed {
		return s.closedError()
	}
	if s.group.open {
		return s.device.errorf("BeginGroup: a group is open")
	}
	if _, err := s.device.loadBLAS(); err == nil { // what it allocates is no part of a group
		if err := s.blas.open(s.device, handle(s.stream)); err != nil {
			return s.device.errorf("BeginGroup: %w", err)
		}
	}
	if err := check(C.hopfeed_begin_capture(handle(s.device.context), handle(s.stream))); err != nil {
		return s.device.errorf("BeginGroup: %w", err)
	}
	s.group.open, s.group.err = true, nil
	return nil
}

// EndGroup submits what the driver has collected.
func (s *stream) EndGroup() error {
	if !s.group.open {
		return s.device.errorf("EndGroup: no group is open")
	}
	s.group.open = false
	if s.group.err != nil {
		_ = check(C.hopfeed_drop_capture(handle(s.device.context), handle(s.stream))) // it may be invalid
		return s.device.errorf("EndGroup: %w", s.group.err)
	}
	if err := check(C.hopfeed_end_capture(handle(s.device.context), handle(s.stream), &s.group.exec)); err != nil {
		return s.device.errorf("EndGroup: %w", err)
	}
	return nil
}

// outsideGroup is false if a group is open, which then ends with an error.
func (s *stream) outsideGroup(name string) bool {
	if s.group.open && s.group.err == nil {
		s.group.err = fmt.Errorf("%s inside of a group", name)
	}
	return !s.group.open
}

// free frees the graph, when nothing of it runs.
func (g *group) free(d *Device) error {
	if g.exec == 0 {
		return nil
	}
	exec := g.exec
	g.exec = 0
	return check(C.hopfeed_destroy_exec(handle(d.context), exec))
}
