// Package gather copies rows of a matrix in host memory, wherever they are, to where they lie one
// after another. It is how loaders assemble batches, and what a prediction of that measures.
package gather

import (
	"runtime"
	"sync"

	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Bounds of what a thread copies at a time, normally its share of a batch: less would cost more to
// hand out than to copy, more would leave other threads without work at the end.
const (
	minBytes = 64 << 10
	maxBytes = 1 << 20
)

// Pool is threads that gather. A batch is begun while the last rows of the one before are still
// copied, so no thread sleeps between batches.
type Pool struct {
	count   int64
	threads *parallel.Pool
}

// NewPool starts the threads (0: GOMAXPROCS); Close ends them.
func NewPool(threads int) *Pool {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &Pool{count: int64(threads), threads: parallel.NewPool(threads)}
}

// Start starts to copy row rows[i] of src to row i of dst, both of rows of so many bytes without
// gaps. Memory and rows must stay until the WaitGroup tells that all is copied. Consecutive rows
// need no special case: the kernel prefetches the rows to come in any order.
func (p *Pool) Start(dst, src []byte, rowBytes int, rows []uint32) *sync.WaitGroup {
	size := int64(rowBytes)
	bytes := int64(len(rows)) * size
	grain := min(max(bytes/p.count, minBytes), maxBytes) / size
	return p.threads.For(int64(len(rows)), grain, func(lo, hi int64) {
		kernel.GatherRows(dst[lo*size:], rowBytes, src, rowBytes, rowBytes, rows[lo:hi], bytes >= kernel.StreamBytes)
	})
}

// Close waits until all is copied, and ends the threads.
func (p *Pool) Close() { p.threads.Close() }
