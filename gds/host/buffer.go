package host

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/units"
)

func (d *Device) Alloc(bytes int64) (gds.Buffer, error)       { return d.alloc(bytes, false) }
func (d *Device) AllocPinned(bytes int64) (gds.Buffer, error) { return d.alloc(bytes, true) }

func (d *Device) alloc(bytes int64, pinned bool) (gds.Buffer, error) {
	if bytes < 0 || bytes > 1<<62 {
		return nil, fmt.Errorf("host device: cannot allocate %d bytes", bytes)
	}
	b := newBuffer(d, bytes)
	b.pinned = pinned
	if err := d.reserve(b); err != nil {
		return nil, err
	}
	memory, err := offheap.Alloc(b.reserved())
	if err != nil {
		d.release(b)
		return nil, fmt.Errorf("host device: %w: the machine has no %v more (%w)", gds.ErrOutOfMemory,
			units.Bytes(b.reserved()), err)
	}
	b.memory, b.bytes = memory, memory.Bytes()
	if pinned {
		b.pin()
	}
	return b, nil
}

// Adopt makes memory, which others may hold too, a buffer that nothing on the device writes to. It does not count as
// memory of the device. Its Free frees the memory.
func (d *Device) Adopt(memory *offheap.Buffer) gds.Buffer {
	b := newBuffer(d, int64(len(memory.Bytes())))
	b.adopted, b.memory, b.bytes = true, memory, memory.Bytes()
	return b
}

// pin locks the memory where the system lets it.
func (b *buffer) pin() {
	err := b.device.lock(b.memory)
	b.device.mu.Lock()
	defer b.device.mu.Unlock()
	u := &b.device.usage
	if b.locked = err == nil; b.locked {
		u.PinnedLocked += b.reserved()
	} else {
		u.NotLocked = fmt.Sprintf("%v could not be locked: %v (see ulimit -l)", units.Bytes(b.reserved()), err)
	}
}

// reserve accounts for an allocation, or refuses it.
func (d *Device) reserve(b *buffer) error {
	bytes, pinned := b.reserved(), b.pinned
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("host device: %w", gds.ErrClosed)
	}
	u := &d.usage
	if pinned {
		u.PinnedInUse += bytes
		u.PinnedPeak = max(u.PinnedPeak, u.PinnedInUse)
	} else {
		capacity := d.options.MemoryBytes
		if capacity > 0 && bytes > capacity-u.InUse {
			return fmt.Errorf("host device: %w: asked for %v (%d bytes), %v of %v left", gds.ErrOutOfMemory,
				units.Bytes(bytes), bytes, units.Bytes(max(0, capacity-u.InUse)), units.Bytes(capacity))
		}
		u.InUse += bytes
		u.Peak = max(u.Peak, u.InUse)
	}
	d.buffers[b] = here()
	return nil
}

func (d *Device) release(b *buffer) {
	bytes := b.reserved()
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.pinned {
		d.usage.PinnedInUse -= bytes
	} else {
		d.usage.InUse -= bytes
	}
	if b.locked {
		d.usage.PinnedLocked -= bytes
	}
	delete(d.buffers, b)
}

// buffer is device memory or pinned memory; on this device they differ in
// accounting and locking alone, and in who may touch them where it is Discrete.
type buffer struct {
	device *Device
	length int64
	pinned bool
	locked bool
	// adopted tells memory that the device did not allocate.
	adopted bool

	mu     sync.Mutex
	memory *offheap.Buffer
	bytes  []byte // whole pages: direct reads write beyond length
	users  int    // operations and reads that run
	unused sync.Cond
	freed  origin
}

func newBuffer(d *Device, length int64) *buffer {
	b := &buffer{device: d, length: length}
	b.unused.L = &b.mu
	return b
}

func (b *buffer) reserved() int64 { return (b.length + page - 1) / page * page }

func (b *buffer) Len() int64 { return b.length }

func (b *buffer) Pinned() bool { return b.pinned }

// owner is the device whose own memory this is; of pinned memory, nil.
func (b *buffer) owner() *Device {
	if b.pinned {
		return nil
	}
	return b.device
}

func (b *buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil || b.device.options.Discrete && !b.pinned {
		return nil
	}
	return b.bytes[:b.length:b.length]
}

// use is the memory up to the end of its last page, which is not freed before leave.
func (b *buffer) use() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil {
		return nil, fmt.Errorf("buffer of %d bytes has been freed: %w", b.length, gds.ErrClosed)
	}
	b.users++
	return b.bytes, nil
}

func (b *buffer) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		b.unused.Broadcast()
	}
}

// Free waits for the operations that use the memory now. An operation that begins later fails.
func (b *buffer) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.users > 0 {
		b.unused.Wait()
	}
	if b.memory == nil {
		return fmt.Errorf("host device: buffer of %d bytes freed twice: %w%s", b.length, gds.ErrClosed,
			b.freed.text("first freed"))
	}
	err := b.memory.Free()
	if b.memory, b.bytes, b.freed = nil, nil, here(); !b.adopted {
		b.device.release(b)
	}
	return err
}

// origins is where buffers come from, as far as that is known.
func origins(buffers map[*buffer]origin) string {
	var texts []string
	for b, o := range buffers {
		texts = append(texts, o.text(fmt.Sprintf("%d bytes allocated", b.length)))
	}
	slices.Sort(texts)
	return strings.Join(texts, "")
}

// hostBuffer is the buffer behind the interface, if it is of a host device.
func hostBuffer(b gds.Buffer) (*buffer, error) {
	if h, ok := b.(*buffer); ok {
		return h, nil
	}
	return nil, errors.New("the buffer is of another kind of device")
}

// origin is where in the program something was done: errors of buffers that leak, or are freed twice, say where they
// were allocated, or freed first.
type origin struct{ callers []uintptr }

// here is the place in the program that called the device.
func here() origin {
	callers := make([]uintptr, 8)
	return origin{callers[:runtime.Callers(2, callers)]}
}

// text is the innermost calls outside of this package's own code.
func (o origin) text(what string) string {
	var calls []string
	for frames := runtime.CallersFrames(o.callers); len(calls) < 4; {
		f, more := frames.Next()
		if !strings.HasSuffix(path.Dir(f.File), "gds/host") || strings.HasSuffix(f.File, "_test.go") {
			calls = append(calls, fmt.Sprintf("%s:%d", path.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return fmt.Sprintf("; %s at %s", what, strings.Join(calls, ", from "))
}
