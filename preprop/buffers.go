package preprop

import (
	"sync"

	"github.com/hopfeed/hopfeed/internal/offheap"
)

// Goroutines of a loop share buffers and batches instead of taking them from a sync.Pool,
// which keeps its contents through two garbage collections: a job is many loops, one after
// another, and each would add its buffers to a heap that may double.

// buffers is a fixed number of buffers of one size, off the Go heap.
type buffers struct {
	buf  *offheap.Buffer
	free chan []byte
}

// newBuffers makes n buffers. A goroutine that gets one while none is free waits.
func newBuffers(n int, bytes int64) (*buffers, error) {
	const align = 8
	n = max(n, 1)
	stride := (bytes + align - 1) / align * align
	buf, err := offheap.Alloc(int64(n) * stride)
	if err != nil {
		return nil, err
	}
	b := &buffers{buf, make(chan []byte, n)}
	for i := range int64(n) {
		b.put(buf.Bytes()[i*stride:][:bytes])
	}
	return b, nil
}

func (b *buffers) get() []byte       { return <-b.free }
func (b *buffers) put(buffer []byte) { b.free <- buffer }

func (b *buffers) Free() error { return b.buf.Free() }

// batches is a pool of batches that no goroutine uses at the moment; make adds to it.
type batches struct {
	mu   sync.Mutex
	free []*batch
	make func() *batch
}

func (b *batches) get() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.free); n > 0 {
		one := b.free[n-1]
		b.free = b.free[:n-1]
		return one
	}
	return b.make()
}

func (b *batches) put(one *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, one)
}
