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
	"math"
	"sync"

	"gorgonia.org/cu"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/ops"
)

// stream is a stream of the driver.
type stream struct {
	ops.Front
	device *Device
	stream cu.Stream
	fault  *fault // what kernels found wrong; guarded by mu
	call   call
	work   workspace
	blas   blas
	group  group

	// Only the user of the stream touches these:
	err    error // the first
	closed bool

	mu    sync.Mutex
	ended bool
	final fault // of the fault, once the stream is closed
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
	s.call.stream, s.Enqueue = s, s.enqueue
	d.streams++
	return s, nil
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
		s.err = s.device.errorf("WaitEvent: the event is of another kind of device")
		return
	}
	if !s.outsideGroup("WaitEvent") {
		return
	}
	if e.recorded && !e.stream.hasEnded() {
		if err := check(C.hopfeed_wait_event(handle(s.device.context), handle(s.stream),
			handle(e.event))); err != nil && s.err == nil {
			s.err = s.device.errorf("WaitEvent: %w", err)
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

// workspace is memory that an operation uses between its kernels. It grows as needed; outgrown memory, which
// work may still use, is freed when the stream is closed.
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

// call is an operation that is being enqueued, with the arguments of its kernel so far.
type call struct {
	ops.Call
	stream  *stream
	at      [ops.MaxTensors]uint64  // addresses of tensors; 0: without elements
	buffers [ops.MaxTensors]*buffer // nil: without elements
	args    [32]uint64
	count   int
	err     error // the first
}

// bodies enqueue the operations, whose arguments have been checked.
var bodies = map[*ops.Op]func(c *call){
	ops.Copy: (*call).copy, ops.Convert: (*call).convert, ops.Gather: (*call).gather, ops.Scatter: (*call).scatter,
	ops.Fill: (*call).fill,

	ops.Gemm: (*call).gemm, ops.Transpose: (*call).transpose, ops.SumRows: (*call).sumRows,
	ops.AddRow: byElement("add_row", 0, matrix(0), vector(1), size(0)),
	ops.MulRow: byElement("mul_row", 0, matrix(0), vector(1), size(0)),

	ops.Axpy:      func(c *call) { c.elementwise("axpy", 2, c.Alpha) },
	ops.ReLU:      func(c *call) { c.elementwise("relu", 2) },
	ops.ReLUGrad:  func(c *call) { c.elementwise("relu_grad", 3, c.Alpha) },
	ops.Mul:       func(c *call) { c.elementwise("mul", 3) },
	ops.ELU:       func(c *call) { c.elementwise("elu", 2) },
	ops.ELUGrad:   func(c *call) { c.elementwise("elu_grad", 3, c.Alpha) },
	ops.PReLU:     byElement("prelu", 0, matrix(0), matrix(1), vector(2), size(0)),
	ops.PReLUGrad: (*call).preluGrad, ops.Dropout: (*call).dropout, ops.ReLUDropout: (*call).reluDropout,

	ops.SumSquares: (*call).sumSquares, ops.NormalizeColumnsSums: (*call).normalizeColumnsSums,
	ops.NormalizeColumns: byElement("normalize_columns", 1, matrix(0), matrix(1), vector(2), vector(3), vector(4),
		vector(5), size(1), alpha{}),
	ops.NormalizeColumnsGrad: byElement("normalize_columns_grad", 2, matrix(0), matrix(1), matrix(2), vector(3),
		vector(4), vector(5), vector(6), size(2), beta{}, alpha{}),
	ops.NormalizeRows: (*call).normalizeRows, ops.NormalizeRowsGrad: (*call).normalizeRowsGrad,

	ops.Attention: (*call).attention, ops.AttentionGrad: (*call).attentionGrad,
	ops.SoftmaxRows:     byRow("softmax_rows", 1, matrix(0), matrix(1), size(1)),
	ops.SoftmaxRowsGrad: byRow("softmax_rows_grad", 2, matrix(0), matrix(1), matrix(2), size(2)),
	ops.WeighTokens:     byElement("weigh_tokens", 0, matrix(0), matrix(1), matrix(2), size(0), columns(1)),
	ops.WeighTokensGrad: (*call).weighTokensGrad,

	ops.SumEdges: (*call).sumEdges, ops.SumEdgesGrad: (*call).sumEdgesGrad,
	ops.AttendEdges: (*call).attendEdges, ops.AttendEdgesGrad: (*call).attendEdgesGrad,

	ops.Propagate: (*call).propagate, ops.Checksum: (*call).checksum,

	ops.CountSampled: (*call).countSampled, ops.SampleEdges: (*call).sampleEdges, ops.Relabel: (*call).relabel,
	ops.GatherCached: (*call).gatherCached,

	ops.SoftmaxCrossEntropy: (*call).softmaxCrossEntropy, ops.SigmoidCrossEntropy: (*call).sigmoidCrossEntropy,
	ops.SquaredError: (*call).squaredError, ops.AbsoluteError: (*call).absoluteError,
	ops.CountCorrect: byRow("count_correct", 1, vector(0), matrix(1), vector(2), size(1)),

	ops.Adam: (*call).adam, ops.ClipNorm: (*call).clipNorm,
}

// enqueue enqueues an operation, unless the stream is poisoned or closed.
func (s *stream) enqueue(o ops.Call) {
	if s.poisoned() || s.group.open && s.group.err != nil {
		return
	}
	c := &s.call
	c.Call, c.count = o, 0
	if c.err = c.Check(); c.err == nil {
		c.err = c.view()
	}
	if c.err == nil {
		bodies[o.Op](c)
	}
	switch {
	case c.err == nil:
	case s.group.open: // nothing of it will run
		s.group.err = c.Wrap(c.err)
	default:
		s.err = s.device.errorf("%w", c.Wrap(c.err))
	}
}

// view finds the addresses of the tensors. Their memory must be the device's, or other memory that the operation may
// reach.
func (c *call) view() error {
	for i := range c.Count() {
		t := &c.Tensors[i]
		c.at[i], c.buffers[i] = 0, nil
		if t.Rows == 0 || t.Cols == 0 {
			continue
		}
		b, err := cudaBuffer(t.Buf)
		if err != nil {
			return err
		}
		start, err := b.address()
		if err != nil {
			return err
		}
		d, allowed := c.stream.device, c.Memory(i)
		own := !b.pinned && b.device == d
		mapped := allowed == ops.MappedMemory && b.pinned && d.mapsPinned
		if !own && !mapped && allowed != ops.AnyMemory {
			return fmt.Errorf("tensor %v is memory that the operation does not read: pinned, or of another device", t)
		}
		c.at[i], c.buffers[i] = start+uint64(t.Offset), b
	}
	return nil
}

// Arguments of kernels, beside numbers.
type (
	vector  int      // the address of a tensor
	matrix  int      // the address of a tensor and its stride in elements
	size    int      // the rows and columns of a tensor
	columns int      // the columns of a tensor
	alpha   struct{} // the factors of the operation
	beta    struct{}
	inUnits struct{ tensor, unit int } // the same, in units of 1 << unit bytes
	faults  struct{}                   // the fault of the stream, and the number of an operation that may have one
)

// pass passes arguments to the kernel that is launched next.
//
// It does not call itself, by which the arguments of all calls would be allocated.
func (c *call) pass(args ...any) {
	for _, a := range args {
		switch a := a.(type) {
		case int:
			c.number(uint64(a))
		case uint32:
			c.number(uint64(a))
		case uint64:
			c.number(a)
		case float32:
			c.number(uint64(math.Float32bits(a)))
		case bool:
			if a {
				c.number(1)
			} else {
				c.number(0)
			}
		case vector:
			c.number(c.at[a])
		case size:
			c.number(uint64(c.Tensors[a].Rows))
			c.number(uint64(c.Tensors[a].Cols))
		case columns:
			c.number(uint64(c.Tensors[a].Cols))
		case alpha:
			c.number(uint64(math.Float32bits(c.Alpha)))
		case beta:
			c.number(uint64(math.Float32bits(c.Beta)))
		case matrix:
			c.number(c.at[a])
			c.number(uint64(c.Tensors[a].Stride))
		case inUnits:
			t := &c.Tensors[a.tensor]
			c.number(c.at[a.tensor])
			c.number(uint64(t.Stride*t.DType.Size()) >> a.unit)
		case faults:
			c.number(c.stream.fault.address())
			c.number(operations.Add(1))
		default:
			panic("cuda: an argument that kernels do not take")
		}
	}
}

func (c *call) number(v uint64) {
	c.args[c.count] = v
	c.count++
}

// threads is how many threads most kernels run in a block, and rowsPerBlock how many rows are a warp's each.
const (
	threads      = 256
	rowsPerBlock = threads / 32
)

// shape is how many blocks a kernel has, and threads a block.
type shape struct{ blocks, blocksY, threads, threadsY int }

// blocks are n blocks of threads.
func blocks(n int) shape { return shape{n, 1, threads, 1} }

// byElement is an operation that is one kernel, whose threads share the elements of tensor of.
func byElement(kernel string, of int, args ...any) func(c *call) {
	return func(c *call) { c.each(kernel, c.Tensors[of].Rows*c.Tensors[of].Cols, args...) }
}

// byRow is an operation that is one kernel, which has a warp for each row of tensor of.
func byRow(kernel string, of int, args ...any) func(c *call) {
	return func(c *call) { c.eachRow(kernel, c.Tensors[of].Rows, args...) }
}

// each launches a kernel for n elements, which its threads share.
func (c *call) each(kernel string, n int, args ...any) { c.share(kernel, n, threads, args...) }

// eachRow launches a kernel that has a warp for each row.
func (c *call) eachRow(kernel string, rows int, args ...any) {
	c.share(kernel, rows, rowsPerBlock, args...)
}

// share launches a kernel whose blocks share n pieces of work: enough of them to fill the device several times.
func (c *call) share(kernel string, n, perBlock int, args ...any) {
	c.launch(kernel, blocks(min((n+perBlock-1)/perBlock, 32*c.stream.device.processors)), args...)
}

// launch launches a kernel with the arguments passed so far and these, and forgets them. Without blocks, or after an
// error, it does nothing.
func (c *call) launch(kernel string, s shape, args ...any) {
	if c.err == nil && s.blocks > 0 && s.blocksY > 0 {
		c.pass(args...)
		d := c.stream.device
		grid := C.hopfeed_shape{grid_x: C.uint(s.blocks), grid_y: C.uint(s.blocksY), block_x: C.uint(s.threads),
			block_y: C.uint(s.threadsY)}
		function, ok := d.kernels[kernel]
		if !ok {
			panic("cuda: there is no kernel " + kernel)
		}
		err := check(C.hopfeed_launch(handle(d.context), function, handle(c.stream.stream), grid,
			(*C.uint64_t)(&c.args[0]), C.int(c.count)))
		if err != nil {
			c.err = fmt.Errorf("kernel %s: %w", kernel, err)
		}
	}
	c.count = 0
}

// scratch is memory of the stream's own.
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
