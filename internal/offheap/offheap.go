// Package offheap allocates large buffers outside of the Go heap, where the
// garbage collector neither scans nor counts them, and where huge pages make
// random access cheaper.
package offheap

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrFreed is returned when a buffer is freed a second time.
var ErrFreed = errors.New("off-heap buffer freed twice")

// hugePage is the size from which on huge pages are asked for.
const hugePage = 2 << 20

var inUse, peak atomic.Int64 // bytes

// InUse is the bytes of all buffers that have not been freed.
func InUse() int64 { return inUse.Load() }

// Peak is the most that InUse has been since ResetPeak.
func Peak() int64 { return peak.Load() }

// ResetPeak lets Peak begin at InUse.
func ResetPeak() { peak.Store(inUse.Load()) }

// Buffer is zeroed, page-aligned memory. Its bytes must not be touched after Free.
type Buffer struct {
	mu    sync.Mutex
	bytes []byte
	freed bool
}

// Alloc maps a buffer. Memory is taken from the machine page by page, as it is
// touched. Zero bytes are allowed.
func Alloc(bytes int64) (*Buffer, error) {
	if bytes < 0 || int64(int(bytes)) != bytes {
		return nil, fmt.Errorf("cannot allocate %d bytes", bytes)
	}
	if bytes == 0 {
		return &Buffer{}, nil
	}
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("cannot allocate %d bytes: %w", bytes, err)
	}
	if bytes >= hugePage {
		adviseHuge(b)
	}
	for now, most := inUse.Add(bytes), peak.Load(); now > most && !peak.CompareAndSwap(most, now); {
		most = peak.Load()
	}
	return &Buffer{bytes: b}, nil
}

// Bytes is the memory, valid until Free.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Lock keeps the memory from being paged out until Free, and has all of it there
// at once. The system may refuse: see setrlimit(2), RLIMIT_MEMLOCK.
func (b *Buffer) Lock() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return ErrFreed
	}
	if len(b.bytes) == 0 {
		return nil
	}
	return unix.Mlock(b.bytes)
}

// Free gives the memory back.
func (b *Buffer) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return ErrFreed
	}
	b.freed = true
	bytes := b.bytes
	b.bytes = nil
	if bytes == nil {
		return nil
	}
	inUse.Add(-int64(len(bytes)))
	return unix.Munmap(bytes)
}
