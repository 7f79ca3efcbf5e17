// Package gather copies rows of a matrix in host memory, wherever they are, to where they lie one
// after another. It is how loaders assemble batches, and what a prediction of that measures.
package gather

import (
	"sync"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Bounds of the bytes that a thread copies at a time, normally its share of a batch: less would cost more to
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
	staging sync.Pool // of *[stagingBytes]byte
}

// stagingBytes holds rows that are decoded while they are in a core's nearest cache but one.
const stagingBytes = 256 << 10

// NewPool starts the threads (0: parallel.Threads); Close ends them.
func NewPool(threads int) *Pool {
	if threads <= 0 {
		threads = parallel.Threads()
	}
	p := &Pool{count: int64(threads), threads: parallel.NewPool(threads)}
	p.staging.New = func() any { return new([stagingBytes]byte) }
	return p
}

// Start starts to copy row rows[i] of src to row i of dst; rows have rowBytes and no
// gaps. Memory and rows must stay until the WaitGroup tells that all is copied. Consecutive rows
// need no special case: the kernel prefetches the rows to come in any order.
func (p *Pool) Start(dst, src []byte, rowBytes int, rows []uint32) *sync.WaitGroup {
	size := int64(rowBytes)
	bytes := int64(len(rows)) * size
	return p.threads.For(int64(len(rows)), p.grain(bytes, size), func(lo, hi int64) {
		kernel.GatherRows(dst[lo*size:], rowBytes, src, rowBytes, rowBytes, rows[lo:hi], bytes >= kernel.StreamBytes)
	})
}

func (p *Pool) grain(bytes, rowBytes int64) int64 {
	return min(max(bytes/p.count, minBytes), maxBytes) / rowBytes
}

// StartDecode is Start from rows of a float type to rows of float32.
func (p *Pool) StartDecode(dst []float32, src []byte, stored dtype.DType, columns int, rows []uint32) *sync.WaitGroup {
	rowBytes := columns * stored.Size()
	if stored == dtype.Float32 {
		return p.Start(dtype.BytesOf(dst), src, rowBytes, rows)
	}
	size := int64(rowBytes)
	return p.threads.For(int64(len(rows)), p.grain(2*int64(len(rows))*size, size), func(lo, hi int64) {
		staging := p.staging.Get().(*[stagingBytes]byte)
		defer p.staging.Put(staging)
		room := int64(max(1, stagingBytes/rowBytes))
		for ; lo < hi; lo += room {
			n := min(room, hi-lo)
			gathered := staging[:min(n*size, stagingBytes)]
			out := dst[lo*int64(columns):][:n*int64(columns)]
			if size > stagingBytes { // one row, where it is
				dtype.Decode(out, src[int64(rows[lo])*size:][:size], stored)
				continue
			}
			kernel.GatherRows(gathered, rowBytes, src, rowBytes, rowBytes, rows[lo:lo+n], false)
			dtype.Decode(out, gathered, stored)
		}
	})
}

// Close waits until all is copied, and ends the threads.
func (p *Pool) Close() { p.threads.Close() }
