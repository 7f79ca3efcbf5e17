package vfs

import (
	"math"
	"sync/atomic"
)

// Fault is a disk in memory whose operations can be made to fail, for tests that fail operation 1, 2, 3 and so on until
// a run succeeds.
//
// Operations are numbered from 1, over everything that touches the disk: each method of FS; ReadAt, Size and Map of
// files; Write, WriteAt, Truncate and Commit of pending files. Close and Abort do not count.
type Fault = Mem

// faults say which operations fail, counted over all files of a Fault.
type faults struct {
	operations, reads      atomic.Int64
	first, last            int64 // operations that fail; the disk's mutex is theirs too
	err                    error
	shorten, flip, flipBit atomic.Int64 // reads, 0: none
}

// NewFault is a disk through which operations may fail. What it does is seen through m, where none fails.
func NewFault(m *Mem) *Fault { return &Fault{memDisk: m.memDisk} }

// Operations counts the operations so far, failed ones included.
func (m *Mem) Operations() int64 { return m.faults.operations.Load() }

// Reads counts the ReadAts so far that were not made to fail.
func (m *Mem) Reads() int64 { return m.faults.reads.Load() }

// FailAt makes operation n fail with err (syscall.EIO, syscall.ENOSPC), without effect; a pending file whose Commit
// fails is aborted. It replaces earlier calls of FailAt and FailFrom.
func (m *Mem) FailAt(n int64, err error) { m.fail(n, n, err) }

// FailFrom makes operation n and all later ones fail, so that nothing changes on the disk any more, Abort included.
// With Mem.CrashClone afterwards, power fails at n.
func (m *Mem) FailFrom(n int64, err error) { m.fail(n, math.MaxInt64, err) }

func (m *Mem) fail(first, last int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.first, m.faults.last, m.faults.err = first, last, err
}

// ShortenRead makes the n-th ReadAt find the end of the file after half of its bytes.
func (m *Mem) ShortenRead(n int64) { m.faults.shorten.Store(n) }

// FlipBit makes the n-th ReadAt give one bit wrong, without an error. The bit is taken modulo those read.
func (m *Mem) FlipBit(n, bit int64) {
	m.faults.flip.Store(n)
	m.faults.flipBit.Store(bit)
}

// count counts an operation, and returns its error if it fails.
func (f *faults) count() error {
	if n := f.operations.Add(1); n == f.first {
		return f.err
	}
	return f.dead()
}

// dead is the error of everything on a disk that has failed for good.
func (f *faults) dead() error {
	if f.last > f.first && f.operations.Load() >= f.first {
		return f.err
	}
	return nil
}

// spoil counts a ReadAt that has read p, and makes it give what the disk would if it is one to go wrong: n bytes.
func (f *faults) spoil(p []byte) (n int) {
	read := f.reads.Add(1)
	n = len(p)
	if read == f.shorten.Load() {
		n /= 2
	}
	if read == f.flip.Load() && n > 0 {
		bit := f.flipBit.Load() % (8 * int64(n))
		p[bit/8] ^= 1 << (bit % 8)
	}
	return n
}
