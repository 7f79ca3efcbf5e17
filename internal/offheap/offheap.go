// Package offheap allocates large buffers outside of the Go heap, where the garbage collector neither scans nor
// counts them, and where huge pages make random access cheaper.
package offheap

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
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

// codeBytes is about what the program's code and constants take of memory.
const codeBytes = 16 << 20

// minHeapBytes is the least that the Go heap is limited to: below, the collector would never rest.
const minHeapBytes = 16 << 20

// noticeable is the size of buffers from which on the limit of the heap follows them.
const noticeable = 1 << 20

var processLimit atomic.Int64 // 0: none

// LimitProcess limits the memory of the process: what code and buffers leave of it is the Go heap's limit
// (debug.SetMemoryLimit), now and whenever large buffers come and go. 0 is no limit.
func LimitProcess(bytes int64) {
	processLimit.Store(bytes)
	if bytes == 0 {
		debug.SetMemoryLimit(math.MaxInt64)
		return
	}
	limitHeap()
}

func limitHeap() {
	if limit := processLimit.Load(); limit > 0 {
		debug.SetMemoryLimit(max(limit-codeBytes-inUse.Load(), minHeapBytes))
	}
}

// Buffer is zeroed, page-aligned memory. Its bytes must not be touched after Free.
type Buffer struct {
	mu      sync.Mutex
	bytes   []byte
	counted int64        // of InUse
	unmap   func() error // nil: unix.Munmap
	freed   bool
}

// Alloc maps a buffer. Memory is taken from the machine page by page, as it is touched. Zero bytes are allowed.
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
	count(bytes)
	return &Buffer{bytes: b, counted: bytes}, nil
}

// count adds to InUse.
func count(bytes int64) {
	for now, most := inUse.Add(bytes), peak.Load(); now > most && !peak.CompareAndSwap(most, now); {
		most = peak.Load()
	}
	if bytes >= noticeable || bytes <= -noticeable {
		limitHeap()
	}
}

// Bytes is the memory, valid until Free.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Populate takes memory of a buffer from the machine now, so that who touches it first need not wait. Its content
// stays: others may use it meanwhile. It returns an error where the system cannot.
func Populate(bytes []byte) error { return populate(bytes) }

// Lock keeps the memory from being paged out until Free, and has all of it there at once. The system may refuse: see
// setrlimit(2), RLIMIT_MEMLOCK.
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
	count(-b.counted)
	if b.unmap != nil {
		return b.unmap()
	}
	return unix.Munmap(bytes)
}
