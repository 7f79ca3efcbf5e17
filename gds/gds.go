// Package gds is the device that training computes on: its memory, its streams of asynchronous work, pinned host memory
// beside it, and reads from files straight into it. Package gds/host implements it on the processor, gds/cuda (tag
// cuda) on NVIDIA GPUs; gds/gdstest is the suite that every implementation passes.
//
// The model is CUDA's. Memory is allocated from a Device. Work is enqueued on a Stream and runs later, in order within
// the stream and concurrently with other streams and the caller; an Event marks a point in a stream that other streams
// or the caller wait for. Buffers of enqueued work must stay allocated until an event recorded after it has happened.
// Until then the host must not write pinned memory that the work reads, nor touch pinned memory that it writes.
//
// Devices never touch the Go heap: host memory in a copy is a pinned Buffer.
// Upload and Download copy Go's slices through one.
//
// A Device may be used by many goroutines; a Stream, by one at a time.
package gds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ErrOutOfMemory is returned when an allocation exceeds what the device has
// left; the text says how much was asked for and how much there is.
var ErrOutOfMemory = errors.New("out of device memory")

// ErrClosed is returned when a device, stream or buffer is used after Close.
var ErrClosed = errors.New("used after close")

// DType is the element type of a Tensor.
type DType = dtype.DType

const (
	Float32  = dtype.Float32
	Float16  = dtype.Float16
	BFloat16 = dtype.BFloat16
	Int32    = dtype.Int32
	Uint32   = dtype.Uint32
	Int64    = dtype.Int64
	Int8     = dtype.Int8
	Uint8    = dtype.Uint8
)

// Align is the alignment in bytes of buffers, and of places in files and buffers that ReadInto reads from and to.
const Align = 4096

// Info says what a device is.
type Info struct {
	Name string // "host", "NVIDIA H200"
	Kind string // "host", "emulated", "cuda"
	// Unified: the device's memory is host memory. Buffer.Bytes is then not nil, and the host can
	// write into buffers instead of copying to them.
	Unified     bool
	MemoryBytes int64 // capacity that Alloc can hand out; 0: no limit of its own
	// MapsPinned: operations read pinned host memory by themselves, where their contracts
	// allow it (zero-copy access, by unified virtual addressing).
	MapsPinned bool
	// Products says what multiplies matrices: "cuBLAS 12.4", or "kernels of this program" with
	// the reason where a library was looked for.
	Products string
	// Storage says how files are read into device memory, and why not by a better path; "" for memory of the host.
	Storage string
	// DirectStorage: files can be read from the disk into device memory, past the host.
	DirectStorage bool
	// EdgeWork: operations along edges take device memory beside their tensors: EdgeWorkBytes.
	EdgeWork bool
}

// EdgeWorkBytes is the device memory that an operation along edges with heads (0: without attention) takes
// where Info has EdgeWork: edges in the order of their sources, twice, their destinations, where those of each source
// begin, counts, and for each head and edge its attention and the derivative.
func EdgeWorkBytes(sources, edges, heads int64) int64 {
	const counts = 256 * 256
	return 4 * (1 + sources + 1 + 3*edges + counts + edges/1024 + 1 + 2*edges*heads)
}

// Usage is a device's memory accounting, in bytes as the device rounds them up.
type Usage struct {
	InUse int64 `json:"in_use"` // device memory
	Peak  int64 `json:"peak"`

	PinnedInUse  int64 `json:"pinned_in_use"` // host memory from AllocPinned
	PinnedPeak   int64 `json:"pinned_peak"`
	PinnedLocked int64 `json:"pinned_locked"` // of PinnedInUse, locked in memory
	// NotLocked is why an allocation could not be locked. Such
	// memory works, but copies from it may wait for pages.
	NotLocked string `json:"not_locked,omitempty"`
}

// Device is one place to compute.
type Device interface {
	Info() Info
	Usage() Usage
	// Alloc returns zeroed device memory whose start is aligned to Align bytes. Zero bytes are allowed.
	Alloc(bytes int64) (Buffer, error)
	// AllocPinned returns zeroed host memory, aligned to Align bytes. Copies between
	// it and devices of this kind are asynchronous, at full speed. Zero bytes are allowed.
	AllocPinned(bytes int64) (Buffer, error)
	NewStream() (Stream, error)
	// OpenFile opens a file for reads into memory of this device (or pinned
	// host memory), by the best path there is; the Receipt says which.
	OpenFile(fs vfs.FS, path string) (File, error)
	// Close releases the device. Streams still open and buffers still allocated
	// are reported in the error, by number and bytes, and not touched.
	Close() error
}

// Buffer is a range of device or pinned host memory.
type Buffer interface {
	Len() int64
	// Pinned tells host memory (from AllocPinned) from device memory.
	Pinned() bool
	// Bytes is the memory itself where the host can touch it (pinned memory and
	// unified devices), else nil. Valid until Free.
	Bytes() []byte
	// Free returns the memory. Work that uses it must have happened. Freeing twice is ErrClosed.
	Free() error
}

// Event is a point in a stream.
type Event interface {
	// Wait returns when the point is reached, with the first error of the stream up to there, or when ctx ends, with
	// its cause. For a point reached already, ctx does not matter.
	Wait(ctx context.Context) error
	// Elapsed is the time from another event's point to this one, as the device
	// measured it. Both must have been reached, and be of one device.
	Elapsed(since Event) (time.Duration, error)
}

// Stream is a queue of work on one device, run in order. The first operation that fails (shapes that disagree, memory
// freed) poisons the stream: what follows is skipped, and Event.Wait and Synchronize return that error, which names the
// operation and its tensors. A device that checks the values of indices and labels as it computes may have run
// operations that were enqueued after it.
//
// To enqueue is to return at once as long as fewer than QueueLength operations
// of the stream wait to run; from there on a call may wait until one has run.
type Stream interface {
	Ops
	// Record marks the present end of the stream.
	Record() Event
	// WaitEvent makes later work of this stream wait for e, which may be of any stream of this device or another of its
	// kind; the caller goes on at once. The error that e comes with poisons this stream too. A poisoned stream still
	// waits.
	WaitEvent(e Event)
	// Synchronize waits until all work enqueued so far is done.
	Synchronize(ctx context.Context) error
	// Close waits for the work and releases the stream. It returns the error that the stream is poisoned by. Work
	// enqueued after Close is dropped, and events recorded after it are reached, with ErrClosed.
	Close() error
}

// Grouper is a Stream that submits many operations together at less cost than one by one, as a CUDA graph.
type Grouper interface {
	Stream
	// BeginGroup begins a group: operations that are enqueued from here on are submitted together by
	// EndGroup, and run in order, with the same results. Inside, nothing but operations of the stream is
	// allowed: no events, no waits, no Close. After an error, there is no group.
	BeginGroup() error
	// EndGroup submits the group. An error, of an operation too, does not poison the stream: nothing of the
	// group runs, and its operations may be enqueued again, one by one.
	EndGroup() error
}

// QueueLength is how many operations every stream has room for.
const QueueLength = 500

// Receipt says by which path a file is read, and why not by a better one. It
// changes when a path turns out not to work after all.
type Receipt struct {
	// Path is "gds": straight from the disk into memory of the device, past the host (GPUDirect Storage); "gds-compat":
	// by the same library, through memory of the host; "direct": past the page cache; "buffered": through it.
	Path   string
	Reason string // "" for the best path that this device has
}

// File is a file open for reads into device memory, safe for concurrent use.
type File interface {
	// ReadInto fills buf[bufOffset : bufOffset+length] from the file's bytes at offset, and returns when they are
	// there. bufOffset and offset must be multiples of Align. Direct paths may overwrite buf up to the next multiple of
	// Align after the range, with what follows in the file. A file that ends early is io.ErrUnexpectedEOF.
	ReadInto(buf Buffer, bufOffset, length, offset int64) error
	Receipt() Receipt
	Close() error
}

// Tensor is a view of a buffer as a row-major matrix [Rows, Cols] whose rows are Stride elements apart. A vector is a
// matrix of one row. The zero Tensor has no elements.
type Tensor struct {
	Buf    Buffer
	Offset int64 // of the first element, in bytes
	Rows   int
	Cols   int
	Stride int // elements from one row to the next, >= Cols
	DType  DType
}

// NewTensor views the start of buf as a dense matrix.
func NewTensor(buf Buffer, rows, cols int, t DType) Tensor {
	return Tensor{Buf: buf, Rows: rows, Cols: cols, Stride: cols, DType: t}
}

// Bytes is the memory that a dense matrix takes.
func Bytes(rows, cols int, t DType) int64 { return int64(rows) * int64(cols) * int64(t.Size()) }

// Slice is the view of rows [lo, hi).
func (t Tensor) Slice(lo, hi int) Tensor {
	t.Offset += int64(lo) * int64(t.Stride) * int64(t.DType.Size())
	t.Rows = hi - lo
	return t
}

// Columns is the view of columns [lo, hi).
func (t Tensor) Columns(lo, hi int) Tensor {
	t.Offset += int64(lo) * int64(t.DType.Size())
	t.Cols = hi - lo
	return t
}

// Dense tells whether the rows touch.
func (t Tensor) Dense() bool { return t.Stride == t.Cols || t.Rows <= 1 }

// Check reports a view that does not lie inside its buffer.
func (t Tensor) Check() error {
	if t.Rows < 0 || t.Cols < 0 {
		return fmt.Errorf("tensor %v is malformed", t)
	}
	if t.Rows == 0 || t.Cols == 0 {
		return nil
	}
	if t.Buf == nil || t.Stride < t.Cols || t.Offset < 0 || t.DType.Size() == 0 || t.Offset%int64(t.DType.Size()) != 0 {
		return fmt.Errorf("tensor %v is malformed", t)
	}
	elements := (t.Buf.Len() - t.Offset) / int64(t.DType.Size())
	if int64(t.Cols) > elements || int64(t.Rows-1) > (elements-int64(t.Cols))/int64(t.Stride) {
		return fmt.Errorf("tensor %v does not lie inside its buffer of %d bytes", t, t.Buf.Len())
	}
	return nil
}

// Pinned tells whether t views pinned host memory.
func (t Tensor) Pinned() bool { return t.Buf != nil && t.Buf.Pinned() }

func (t Tensor) String() string {
	return fmt.Sprintf("[%d,%d]%s(stride %d, offset %d)", t.Rows, t.Cols, t.DType, t.Stride, t.Offset)
}
