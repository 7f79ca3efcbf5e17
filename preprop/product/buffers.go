package product

import (
	"sync"

	"github.com/hopfeed/hopfeed/internal/offheap"
)

// Goroutines of a loop share buffers and batches instead of taking them from a sync.Pool,
// which keeps its contents through two garbage collections: a job is many loops, one after
// another, and each would add its buffers to a heap that may double.

// Buffers is a fixed number of buffers of one size, off the Go heap.
type Buffers struct {
	buf  *offheap.Buffer
	free chan []byte
}

// NewBuffers makes n buffers. A goroutine that gets one while none is free waits.
func NewBuffers(n int, bytes int64) (*Buffers, error) {
	const align = 8
	n = max(n, 1)
	stride := (bytes + align - 1) / align * align
	buf, err := offheap.Alloc(int64(n) * stride)
	if err != nil {
		return nil, err
	}
	b := &Buffers{buf, make(chan []byte, n)}
	for i := range int64(n) {
		b.Put(buf.Bytes()[i*stride:][:bytes])
	}
	return b, nil
}

func (b *Buffers) Get() []byte       { return <-b.free }
func (b *Buffers) Put(buffer []byte) { b.free <- buffer }

func (b *Buffers) Free() error { return b.buf.Free() }

// Batches is a pool of batches that no goroutine uses at the moment; make adds to it.
type Batches struct {
	mu   sync.Mutex
	free []*Batch
	Make func() *Batch
}

func (b *Batches) Get() *Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.free); n > 0 {
		one := b.free[n-1]
		b.free = b.free[:n-1]
		return one
	}
	return b.Make()
}

func (b *Batches) Put(one *Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, one)
}
