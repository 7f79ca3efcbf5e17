//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/units"
)

// page is the alignment of allocations; sizes are rounded up to it.
const page = gds.Align

// buffer is device memory or pinned memory, of whole pages.
type buffer struct {
	device *Device
	length int64
	pinned bool

	mu     sync.Mutex
	freed  bool
	start  uint64         // address on the device, a multiple of page; 0 without bytes
	whole  cu.DevicePtr   // the allocation, of device memory
	memory unsafe.Pointer // of pinned memory

	cuFile          sync.Once
	pinnedForCuFile bool
}

// Alloc allocates device memory.
func (d *Device) Alloc(bytes int64) (gds.Buffer, error) { return d.alloc(bytes, false) }

// AllocPinned allocates pinned host memory, which all devices reach.
func (d *Device) AllocPinned(bytes int64) (gds.Buffer, error) { return d.alloc(bytes, true) }

func (d *Device) alloc(bytes int64, pinned bool) (gds.Buffer, error) {
	if bytes < 0 || bytes > 1<<62 {
		return nil, d.errorf("cannot allocate %d bytes", bytes)
	}
	b := &buffer{device: d, length: bytes, pinned: pinned}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.errorf("%w", gds.ErrClosed)
	}
	if bytes > 0 {
		allocate := b.allocate
		if pinned {
			allocate = b.pin
		}
		if err := d.do(allocate); err != nil {
			return nil, d.errorf("allocating %v: %w", units.Bytes(b.reserved()), err)
		}
	}
	d.buffers++
	d.count(b, 1)
	return b, nil
}

// count adds a buffer to the memory in use, or with -1 takes it away. d.mu is held.
func (d *Device) count(b *buffer, by int64) {
	u := &d.usage
	if b.pinned {
		u.PinnedInUse += by * b.reserved()
		u.PinnedLocked = u.PinnedInUse
		u.PinnedPeak = max(u.PinnedPeak, u.PinnedInUse)
	} else {
		u.InUse += by * b.reserved()
		u.Peak = max(u.Peak, u.InUse)
	}
}

// allocate allocates zeroed device memory in the current context.
func (b *buffer) allocate() (err error) {
	n := b.reserved()
	if b.whole, err = cu.MemAlloc(n); err == nil && b.whole%page != 0 {
		// The driver aligns small allocations to less than a page.
		if err = cu.MemFree(b.whole); err == nil {
			b.whole, err = cu.MemAlloc(n + page)
		}
	}
	if errors.Is(err, cu.OutOfMemory) {
		return errFull(n)
	}
	if err != nil {
		return err
	}
	b.start = (uint64(b.whole) + page - 1) / page * page
	setup := b.device.setup
	if err = cu.MemsetD8Async(cu.DevicePtr(b.start), 0, n, setup); err == nil {
		err = setup.Synchronize()
	}
	if err != nil {
		err = errors.Join(err, cu.MemFree(b.whole))
	}
	return err
}

// errFull says that the device whose context is current has no more memory.
func errFull(bytes int64) error {
	free, total, _ := cu.MemInfo()
	return fmt.Errorf("%w: asked for %d bytes, %v of %v left", gds.ErrOutOfMemory, bytes, units.Bytes(free),
		units.Bytes(total))
}

// pin allocates zeroed pinned memory in the current context.
func (b *buffer) pin() (err error) {
	if b.memory, err = b.device.hostAlloc(b.reserved()); err != nil {
		return err
	}
	clear(unsafe.Slice((*byte)(b.memory), b.reserved()))
	b.start = uint64(uintptr(b.memory)) // devices reach it at the same address
	return nil
}

// hostAlloc allocates pinned memory, at most as much as the host has.
func (d *Device) hostAlloc(bytes int64) (p unsafe.Pointer, err error) {
	err = check(C.hopfeed_host_alloc(handle(d.context), C.size_t(bytes), &p))
	if err == error(outOfMemory) {
		return nil, fmt.Errorf("%w: the system cannot pin %v more of its memory", gds.ErrOutOfMemory, units.Bytes(bytes))
	}
	return p, err
}

func (b *buffer) reserved() int64 { return (b.length + page - 1) / page * page }

func (b *buffer) Len() int64 { return b.length }

func (b *buffer) Pinned() bool { return b.pinned }

func (b *buffer) Bytes() []byte {
	if _, err := b.address(); err != nil || !b.pinned {
		return nil
	}
	return unsafe.Slice((*byte)(b.memory), b.length)
}

// pages is pinned memory up to the end of its last page.
func (b *buffer) pages() []byte { return unsafe.Slice((*byte)(b.memory), b.reserved()) }

// address is where the buffer starts on the device.
func (b *buffer) address() (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return 0, fmt.Errorf("buffer of %d bytes has been freed: %w", b.length, gds.ErrClosed)
	}
	return b.start, nil
}

func (b *buffer) Free() error {
	d := b.device
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return d.errorf("buffer of %d bytes freed twice: %w", b.length, gds.ErrClosed)
	}
	b.freed = true
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if b.length > 0 {
		err = d.do(func() error {
			if b.pinned {
				return cu.MemFreeHost(b.memory)
			}
			return errors.Join(b.unpinForCuFile(), cu.MemFree(b.whole))
		})
	}
	d.buffers--
	d.count(b, -1)
	if err = errors.Join(d.once(err), d.releaseUnused()); err != nil {
		return d.errorf("freeing %v: %w", units.Bytes(b.reserved()), err)
	}
	return nil
}

// cudaBuffer is the buffer behind the interface, if it is of a cuda device.
func cudaBuffer(b gds.Buffer) (*buffer, error) {
	if c, ok := b.(*buffer); ok {
		return c, nil
	}
	return nil, errors.New("the buffer is of another kind of device")
}
