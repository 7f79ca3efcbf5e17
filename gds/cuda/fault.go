//go:build cuda && cgo && linux

package cuda

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"
)

// operations numbers the operations that may find values wrong, and events, of all streams.
var operations atomic.Uint64

// fault is Fault of kernels/common.h: the first thing that a kernel found wrong on a stream. It lies in pinned memory.
type fault struct {
	operation      uint64
	what, reserved uint32 // what is set last
	row            uint64
	value, limit   int64
	column         uint64
	_              [16]byte // a cache line each
}

func (f *fault) address() uint64 { return uint64(uintptr(unsafe.Pointer(f))) }

// read is a copy of the fault, or the zero fault while there is none.
func (f *fault) read() fault {
	if atomic.LoadUint32(&f.what) == 0 {
		return fault{}
	}
	return *f
}

// The kinds of faults, as kernels/common.h numbers them, with the operations that have them.
const (
	indexOutOfRange = 1 + iota
	labelOutOfRange
	labelNotBinary
	offsetsDescend // and, in the bits from 8 on, which of edgeOps
	noSuchSource
	targetOutOfRange
	noSuchNode
	otherCounts
)

// err is the error of a fault of an operation before a number, or nil.
func (o fault) err(d *Device, before uint64) error {
	if o.what == 0 || o.operation >= before {
		return nil
	}
	switch o.what & 0xff {
	case indexOutOfRange:
		return d.errorf("Gather: index[%d] is row %d of a matrix of %d", o.row, o.value, o.limit)
	case targetOutOfRange:
		return d.errorf("Scatter: index[%d] is row %d of a matrix of %d", o.row, o.value, o.limit)
	case labelOutOfRange:
		return d.errorf("SoftmaxCrossEntropy: row %d has label %d, of %d classes", o.row, o.value, o.limit)
	case labelNotBinary:
		return d.errorf("SigmoidCrossEntropy: row %d has label %d, not 0 or 1, at place %d", o.row, o.value, o.column)
	case offsetsDescend:
		return d.errorf("%s: offset %d is %d, and the next, or the number of edges, %d", edgeOps[o.what>>8], o.row,
			o.value, o.limit)
	case noSuchSource:
		return d.errorf("%s: edge %d comes from source %d, of %d", edgeOps[o.what>>8], o.row, o.value, o.limit)
	case noSuchNode:
		return d.errorf("CountSampled or SampleEdges: nodes[%d] is node %d of a graph of %d", o.row, o.value, o.limit)
	case otherCounts:
		return d.errorf("SampleEdges: offsets differ from what CountSampled set for these nodes (edge %d)", o.row)
	}
	return d.errorf("a kernel reports fault %d", o.what)
}

// found is the error that kernels have found so far in operations before a number.
func (s *stream) found(before uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.final
	if !s.ended {
		o = s.fault.read()
	}
	return o.err(s.device, before)
}

// bequeath enqueues on another stream, which waits for this one, that it takes over a fault of
// operations before a number.
func (s *stream) bequeath(to *stream, before uint64) {
	// Not under the lock: the other stream may wait for this one at the same time.
	if s.hasEnded() { // and nothing was found
		return
	}
	c := &to.call
	c.err = nil
	c.launch("inherit", shape{1, 1, 1, 1}, to.fault.address(), s.fault.address(), before, operations.Add(1))
	if c.err != nil {
		to.err = to.device.errorf("WaitEvent: %w", c.err)
	}
}

// faultPool is pinned memory for the faults of a device's streams. It is used again, but kept as
// long as the device, since a stream may look at the fault of one that has been closed. What it
// finds there is of later operations, which are not those it looks for.
type faultPool struct {
	slabs []unsafe.Pointer
	idle  []*fault
}

const slabFaults = page / int(unsafe.Sizeof(fault{}))

// take is a fault without an error. d.mu is held.
func (p *faultPool) take(d *Device) (*fault, error) {
	if len(p.idle) == 0 {
		slab, err := d.hostAlloc(page)
		if err != nil {
			return nil, err
		}
		p.slabs = append(p.slabs, slab)
		for i := range slabFaults {
			p.idle = append(p.idle, (*fault)(unsafe.Add(slab, i*int(unsafe.Sizeof(fault{})))))
		}
	}
	f := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	*f = fault{}
	return f, nil
}

func (p *faultPool) give(f *fault) { p.idle = append(p.idle, f) }

func (p *faultPool) free() error {
	var errs []error
	for _, slab := range p.slabs {
		errs = append(errs, cu.MemFreeHost(slab))
	}
	return errors.Join(errs...)
}
