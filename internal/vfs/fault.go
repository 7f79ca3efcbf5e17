package vfs

import (
	"io"
	"sync"
)

// Fault is a disk in memory whose operations can be made to fail, for tests that fail operation 1, 2, 3 and so on until
// a run succeeds.
//
// Operations are numbered from 1, over everything that touches the disk: each method of FS; ReadAt, Size and Map of
// files; Write, WriteAt, Truncate and Commit of pending files. Close and Abort do not count.
type Fault struct {
	*Mem
	*faults
}

// faults say which operations fail, counted over all files of a Fault. nil: none does.
type faults struct {
	mu                sync.Mutex
	operations, reads int64
	failAt            int64 // 0: none
	forGood           bool
	err               error
	shorten, flip     int64 // reads, 0: none
	flipBit           int64
}

// NewFault is a disk through which operations may fail. What it does is seen through m, where none fails.
func NewFault(m *Mem) *Fault {
	f := new(faults)
	return &Fault{&Mem{m.memDisk, f}, f}
}

// Operations counts the operations so far, failed ones included.
func (f *faults) Operations() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.operations
}

// Reads counts the ReadAts so far that were not made to fail.
func (f *faults) Reads() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// FailAt makes operation n fail with err (syscall.EIO, syscall.ENOSPC), without effect; a pending file whose Commit
// fails is aborted. It replaces earlier calls of FailAt and FailFrom.
func (f *faults) FailAt(n int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAt, f.forGood, f.err = n, false, err
}

// FailFrom makes operation n and all later ones fail, so that nothing changes on the disk any more, Abort included.
// With Mem.CrashClone afterwards, power fails at n.
func (f *faults) FailFrom(n int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAt, f.forGood, f.err = n, true, err
}

// ShortenRead makes the n-th ReadAt find the end of the file after half of its bytes.
func (f *faults) ShortenRead(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shorten = n
}

// FlipBit makes the n-th ReadAt give one bit wrong, without an error. The bit is taken modulo those read.
func (f *faults) FlipBit(n, bit int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flip, f.flipBit = n, bit
}

// count counts an operation, and tells whether it fails.
func (f *faults) count(op, path string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.operations++
	if f.operations == f.failAt || f.dead() {
		return pathError(op, path, f.err)
	}
	return nil
}

func (f *faults) dead() bool { return f.forGood && f.failAt > 0 && f.operations >= f.failAt }

// failAbort is the error of an Abort on a disk on which nothing changes any more.
func (f *faults) failAbort(path string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead() {
		return pathError("remove", path, f.err)
	}
	return nil
}

// spoil counts a ReadAt that has read n bytes of p, and makes it give what the disk would if it is one to go wrong.
func (f *faults) spoil(p []byte, n int, err error) (int, error) {
	if f == nil {
		return n, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.reads == f.shorten && n > 0 {
		n, err = n/2, io.EOF
	}
	if f.reads == f.flip && n > 0 {
		bit := f.flipBit % (8 * int64(n))
		p[bit/8] ^= 1 << (bit % 8)
	}
	return n, err
}
