//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/hopfeed/hopfeed/gds"
)

// stream is a stream of the driver, with what its operations need.
type stream struct {
	device *Device
	stream cu.Stream
	fault  *fault // what kernels found wrong; guarded by mu
	call   call
	work   workspace
	blas   blas
	group  group

	// Of whoever uses the stream:
	err    error // the first
	closed bool

	mu    sync.Mutex
	ended bool
	final outcome // of the fault, once the stream is closed
}

// NewStream makes a stream.
func (d *Device) NewStream() (gds.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.errorf("%w", gds.ErrClosed)
	}
	s := &stream{device: d}
	err := d.do(func() (err error) {
		s.stream, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	if err == nil {
		if s.fault, err = d.faults.take(d); err != nil {
			err = errors.Join(err, d.do(s.stream.Destroy))
		}
	}
	if err != nil {
		return nil, d.errorf("opening a stream: %w", err)
	}
	s.call.stream = s
	d.streams++
	return s, nil
}

// fail poisons the stream by an operation that cannot be enqueued.
func (s *stream) fail(name string, tensors []gds.Tensor, err error) {
	views := make([]string, len(tensors))
	for i, t := range tensors {
		views[i] = t.String()
	}
	s.err = s.device.errorf("%s(%s): %w", name, strings.Join(views, ", "), err)
}

// poisoned tells whether operations are to be skipped.
func (s *stream) poisoned() bool {
	if s.err == nil && !s.closed {
		s.err = s.found(^uint64(0))
	}
	return s.closed || s.err != nil
}

func (s *stream) closedError() error { return s.device.errorf("stream %w", gds.ErrClosed) }

func (s *stream) Synchronize(ctx context.Context) error { return s.Record().Wait(ctx) }

func (s *stream) WaitEvent(of gds.Event) {
	if s.closed {
		return
	}
	e, ok := of.(*event)
	if !ok {
		s.fail("WaitEvent", nil, errors.New("the event is of another kind of device"))
		return
	}
	if !s.outsideGroup("WaitEvent") {
		return
	}
	if e.recorded && !e.stream.hasEnded() {
		if err := check(C.hopfeed_wait_event(handle(s.device.context), handle(s.stream),
			handle(e.event))); err != nil && s.err == nil {
			s.fail("WaitEvent", nil, err)
		}
	}
	if s.poisoned() {
		return
	}
	// What is wrong already is known at once, and the rest is taken over when the event is reached.
	if s.err = e.errorSoFar(); s.err == nil && e.stream != s {
		e.stream.bequeath(s, e.before)
	}
}

func (s *stream) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Close waits for the work, and releases the stream.
func (s *stream) Close() error {
	if s.closed {
		return s.closedError()
	}
	d := s.device
	if s.group.open {
		_ = s.EndGroup() // a group that nobody ended: its operations are dropped
	}
	err := d.do(s.stream.Synchronize)
	s.poisoned()
	s.closed = true
	if err != nil && s.err == nil {
		s.err = d.errorf("closing a stream: %w", err)
	}
	s.mu.Lock()
	s.ended, s.final = true, s.fault.read()
	s.mu.Unlock()
	err = d.do(func() error { return errors.Join(s.group.free(d), s.blas.close(d), s.work.free(), s.stream.Destroy()) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.give(s.fault)
	d.streams--
	err = errors.Join(err, d.releaseUnused())
	if s.err == nil && err != nil {
		s.err = d.errorf("closing a stream: %w", err)
	}
	return s.err
}

// workspace is memory for what an operation keeps between its kernels. It grows as needed; what has
// been outgrown is freed when the stream is closed, as work may still use it.
type workspace struct {
	start    cu.DevicePtr
	bytes    int64
	outgrown []cu.DevicePtr
}

func (w *workspace) free() error {
	var errs []error
	for _, p := range append(w.outgrown, w.start) {
		if p != 0 {
			errs = append(errs, cu.MemFree(p))
		}
	}
	return errors.Join(errs...)
}

// call is an operation that is being enqueued: the arguments of its kernel so far.
type call struct {
	stream *stream
	args   [32]uint64
	count  int
	err    error // the first
}

// enqueue runs body, which enqueues an operation, unless the stream is poisoned or closed.
func (s *stream) enqueue(name string, tensors []gds.Tensor, body func(c *call)) {
	if s.poisoned() || s.group.open && s.group.err != nil {
		return
	}
	c := &s.call
	c.count, c.err = 0, nil
	body(c)
	switch {
	case c.err == nil:
	case s.group.open: // nothing of it will run
		s.group.err = fmt.Errorf("%s: %w", name, c.err)
	default:
		s.fail(name, tensors, c.err)
	}
}

var (
	errShape = errors.New("shapes disagree")
	errTypes = errors.New("element types differ")
)

// require makes the call fail with an error unless ok.
func (c *call) require(ok bool, err error) {
	if !ok && c.err == nil {
		c.err = err
	}
}

// sameShape requires one shape of all.
func (c *call) sameShape(tensors ...gds.Tensor) {
	for _, t := range tensors[1:] {
		c.require(t.Rows == tensors[0].Rows && t.Cols == tensors[0].Cols, errShape)
	}
}

// isVector tells whether t is [1,n]; without elements it may be the zero Tensor.
func isVector(t gds.Tensor, n int) bool { return t.Cols == n && (t.Rows == 1 || n == 0) }

// number passes an integer or an address.
func (c *call) number(v uint64) {
	if c.count == len(c.args) {
		panic("cuda: too many arguments of a kernel")
	}
	c.args[c.count] = v
	c.count++
}

// real passes a float.
func (c *call) real(v float32) { c.number(uint64(*(*uint32)(unsafe.Pointer(&v)))) }

// truth passes a condition.
func (c *call) truth(v bool) {
	if v {
		c.number(1)
	} else {
		c.number(0)
	}
}

// size passes rows and columns.
func (c *call) size(rows, cols int) {
	c.number(uint64(rows))
	c.number(uint64(cols))
}

// address is where t starts, or 0 if it has no elements.
func (c *call) address(t gds.Tensor) uint64 {
	b, start, err := memory(t)
	c.require(err == nil, err)
	if b != nil && (b.pinned || b.device != c.stream.device) {
		c.require(false, fmt.Errorf("tensor %v is pinned memory, or of another device: only Copy reaches it", t))
	}
	return start
}

// mapped is address of memory that may be pinned, if the device reads that by itself.
func (c *call) mapped(t gds.Tensor) uint64 {
	b, start, err := memory(t)
	if b == nil || !b.pinned || !c.stream.device.mapsPinned {
		return c.address(t)
	}
	c.require(err == nil, err)
	return start
}

// memory is where t starts, and the buffer that it is in; without elements, nil.
func memory(t gds.Tensor) (*buffer, uint64, error) {
	if err := t.Check(); err != nil || t.Rows == 0 || t.Cols == 0 {
		return nil, 0, err
	}
	b, err := cudaBuffer(t.Buf)
	if err != nil {
		return nil, 0, err
	}
	start, err := b.address()
	return b, start + uint64(t.Offset), err
}

// typed is the address of t, whose elements must be of a type.
func (c *call) typed(t gds.Tensor, want gds.DType) uint64 {
	address := c.address(t)
	if t.Rows != 0 && t.Cols != 0 && t.DType != want {
		c.require(false, fmt.Errorf("tensor %v: want %v", t, want))
	}
	return address
}

// vector passes a vector of floats.
func (c *call) vector(t gds.Tensor) { c.number(c.typed(t, gds.Float32)) }

// matrix passes a matrix of floats and its stride.
func (c *call) matrix(t gds.Tensor) {
	c.number(c.typed(t, gds.Float32))
	c.number(uint64(t.Stride))
}

// elements passes matrices of one shape, and the shape: as one long row if all of them are dense. It
// returns the number of elements.
func (c *call) elements(tensors ...gds.Tensor) int {
	c.sameShape(tensors...)
	dense := true
	for _, t := range tensors {
		dense = dense && t.Dense()
	}
	rows, cols := tensors[0].Rows, tensors[0].Cols
	for _, t := range tensors {
		if dense {
			c.number(c.typed(t, gds.Float32))
			c.number(uint64(rows * cols))
		} else {
			c.matrix(t)
		}
	}
	if dense {
		c.size(1, rows*cols)
	} else {
		c.size(rows, cols)
	}
	return rows * cols
}

// blockThreads is how many threads most kernels run in a block, and rowsPerBlock how many rows are
// a warp's each.
const (
	blockThreads = 256
	rowsPerBlock = blockThreads / 32
)

// each launches a kernel for n elements, which its threads share.
func (c *call) each(k *kernel, n int) {
	c.launch(k, C.hopfeed_shape{grid_x: c.blocks(n, blockThreads), grid_y: 1, block_x: blockThreads, block_y: 1})
}

// eachRow launches a kernel that has a warp for each row.
func (c *call) eachRow(k *kernel, rows int) {
	c.launch(k, C.hopfeed_shape{grid_x: c.blocks(rows, rowsPerBlock), grid_y: 1, block_x: blockThreads, block_y: 1})
}

// blocks is how many blocks share so much work: enough to fill the device several times.
func (c *call) blocks(n, perBlock int) C.uint {
	return C.uint(min((n+perBlock-1)/perBlock, 32*c.stream.device.processors))
}

// launch launches a kernel with the arguments passed so far, and forgets them. Without blocks it
// does nothing.
func (c *call) launch(k *kernel, shape C.hopfeed_shape) {
	if c.err == nil && shape.grid_x > 0 && shape.grid_y > 0 {
		d := c.stream.device
		err := check(C.hopfeed_launch(handle(d.context), d.functions[k.number], handle(c.stream.stream), shape,
			(*C.uint64_t)(&c.args[0]), C.int(c.count)))
		if err != nil {
			c.err = fmt.Errorf("kernel %s: %w", k.name, err)
		}
	}
	c.count = 0
}

// scratch is the stream's own memory of so many bytes.
func (c *call) scratch(bytes int) uint64 {
	w := &c.stream.work
	if c.err == nil && int64(bytes) > w.bytes {
		var start cu.DevicePtr
		more := max(int64(bytes), 2*w.bytes, 1<<16)
		err := c.stream.device.do(func() (err error) {
			if start, err = cu.MemAlloc(more); errors.Is(err, cu.OutOfMemory) {
				err = errFull(more)
			}
			return err
		})
		if err != nil {
			c.err = fmt.Errorf("%d bytes of work space: %w", more, err)
			return 0
		}
		if w.start != 0 {
			w.outgrown = append(w.outgrown, w.start)
		}
		w.start, w.bytes = start, more
	}
	return uint64(w.start)
}
