package vfs

// Fault is a disk in memory whose operations can be made to fail, for tests that fail operation 1, 2, 3 and so on until
// a run succeeds.
//
// Operations are numbered from 1, over everything that touches the disk: each method of FS; ReadAt, Size and Map of
// files; Write, WriteAt, Truncate and Commit of pending files. Close and Abort do not count.
type Fault struct{ *Mem }

// faults say which operations fail, counted over all files of a Fault. The disk's mutex is theirs too.
type faults struct {
	operations, reads      int64
	failAt                 int64 // 0: none
	forGood                bool
	err                    error
	shorten, flip, flipBit int64 // reads, 0: none
}

// NewFault is a disk through which operations may fail. What it does is seen through m, where none fails.
func NewFault(m *Mem) *Fault { return &Fault{&Mem{m.memDisk, new(faults)}} }

// change gives access to the faults.
func (f *Fault) change(act func(f *faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	act(f.faults)
}

// Operations counts the operations so far, failed ones included.
func (f *Fault) Operations() (n int64) {
	f.change(func(f *faults) { n = f.operations })
	return n
}

// Reads counts the ReadAts so far that were not made to fail.
func (f *Fault) Reads() (n int64) {
	f.change(func(f *faults) { n = f.reads })
	return n
}

// FailAt makes operation n fail with err (syscall.EIO, syscall.ENOSPC), without effect; a pending file whose Commit
// fails is aborted. It replaces earlier calls of FailAt and FailFrom.
func (f *Fault) FailAt(n int64, err error) {
	f.change(func(f *faults) { f.failAt, f.forGood, f.err = n, false, err })
}

// FailFrom makes operation n and all later ones fail, so that nothing changes on the disk any more, Abort included.
// With Mem.CrashClone afterwards, power fails at n.
func (f *Fault) FailFrom(n int64, err error) {
	f.change(func(f *faults) { f.failAt, f.forGood, f.err = n, true, err })
}

// ShortenRead makes the n-th ReadAt find the end of the file after half of its bytes.
func (f *Fault) ShortenRead(n int64) { f.change(func(f *faults) { f.shorten = n }) }

// FlipBit makes the n-th ReadAt give one bit wrong, without an error. The bit is taken modulo those read.
func (f *Fault) FlipBit(n, bit int64) { f.change(func(f *faults) { f.flip, f.flipBit = n, bit }) }

// count counts an operation, and returns its error if it fails.
func (f *faults) count() error {
	f.operations++
	if f.operations == f.failAt {
		return f.err
	}
	return f.dead()
}

// dead is the error of everything on a disk that has failed for good.
func (f *faults) dead() error {
	if f.forGood && f.failAt > 0 && f.operations >= f.failAt {
		return f.err
	}
	return nil
}

// spoil counts a ReadAt that has read p, and makes it give what the disk would if it is one to go wrong: n bytes.
func (f *faults) spoil(p []byte) (n int) {
	f.reads++
	n = len(p)
	if f.reads == f.shorten {
		n /= 2
	}
	if f.reads == f.flip && n > 0 {
		bit := f.flipBit % (8 * int64(n))
		p[bit/8] ^= 1 << (bit % 8)
	}
	return n
}
