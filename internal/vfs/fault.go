package vfs

import (
	"io"
	"io/fs"
	"sync"
)

// Fault is an FS whose operations can be made to fail, for tests that fail operation 1, 2, 3 and so on until a run
// succeeds. It has the capabilities of the FS that it wraps (Directer and DirectCreator always, with ErrNoDirect where
// that has none).
//
// Operations are numbered from 1, over everything that touches the disk: each method of FS; ReadAt, Size and Map of
// files; Write, WriteAt, Truncate and Commit of pending files. Close and Abort do not count.
type Fault struct {
	fsys FS

	mu                sync.Mutex
	operations, reads int64
	failAt            int64 // 0: none
	forGood           bool
	err               error
	shorten, flip     int64 // reads, 0: none
	flipBit           int64
}

// NewFault wraps a file system, at first without any fault.
func NewFault(fsys FS) *Fault { return &Fault{fsys: fsys} }

// Operations counts the operations so far, failed ones included.
func (f *Fault) Operations() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.operations
}

// Reads counts the ReadAts so far, failed ones included.
func (f *Fault) Reads() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// FailAt makes operation n fail with err (syscall.EIO, syscall.ENOSPC), without effect; a pending file whose Commit
// fails is aborted. It replaces earlier calls of FailAt and FailFrom.
func (f *Fault) FailAt(n int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAt, f.forGood, f.err = n, false, err
}

// FailFrom makes operation n and all later ones fail, so that nothing changes on the disk any more, Abort included.
// With Mem.CrashClone afterwards, power fails at n.
func (f *Fault) FailFrom(n int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAt, f.forGood, f.err = n, true, err
}

// ShortenRead makes the n-th ReadAt find the end of the file after half of its bytes.
func (f *Fault) ShortenRead(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shorten = n
}

// FlipBit makes the n-th ReadAt give one bit wrong, without an error. The bit is taken modulo those read.
func (f *Fault) FlipBit(n, bit int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flip, f.flipBit = n, bit
}

// count counts an operation, and tells whether it fails.
func (f *Fault) count(op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.operations++
	if f.operations == f.failAt || f.dead() {
		return pathError(op, path, f.err)
	}
	return nil
}

func (f *Fault) dead() bool { return f.forGood && f.failAt > 0 && f.operations >= f.failAt }

func (f *Fault) Open(path string) (File, error) {
	if err := f.count("open", path); err != nil {
		return nil, err
	}
	file, err := f.fsys.Open(path)
	if err != nil {
		return nil, err
	}
	return f.wrap(file), nil
}

func (f *Fault) OpenDirect(path string) (File, int, error) {
	if err := f.count("open", path); err != nil {
		return nil, 0, err
	}
	direct, ok := f.fsys.(Directer)
	if !ok {
		return nil, 0, pathError("open", path, ErrNoDirect)
	}
	file, align, err := direct.OpenDirect(path)
	if err != nil {
		return nil, 0, err
	}
	return f.wrap(file), align, nil
}

func (f *Fault) Create(path string) (PendingFile, error) {
	if err := f.count("create", path); err != nil {
		return nil, err
	}
	p, err := f.fsys.Create(path)
	if err != nil {
		return nil, err
	}
	return &faultPending{faultCommit{p, f, path}, p}, nil
}

func (f *Fault) CreateDirect(path string, bytes int64) (DirectPending, int, error) {
	direct, ok := f.fsys.(DirectCreator)
	if !ok {
		return nil, 0, pathError("create", path, ErrNoDirect)
	}
	if err := f.count("create", path); err != nil {
		return nil, 0, err
	}
	p, align, err := direct.CreateDirect(path, bytes)
	if err != nil {
		return nil, 0, err
	}
	return &faultDirect{faultCommit{p, f, path}, p}, align, nil
}

// try counts an operation and, unless it fails, does it.
func try[T any](f *Fault, op, path string, do func(path string) (T, error)) (result T, err error) {
	if err := f.count(op, path); err != nil {
		return result, err
	}
	return do(path)
}

func (f *Fault) try(op, path string, do func(path string) error) error {
	_, err := try(f, op, path, func(path string) (struct{}, error) { return struct{}{}, do(path) })
	return err
}

func (f *Fault) MkdirAll(path string) error  { return f.try("mkdir", path, f.fsys.MkdirAll) }
func (f *Fault) Remove(path string) error    { return f.try("remove", path, f.fsys.Remove) }
func (f *Fault) RemoveAll(path string) error { return f.try("remove", path, f.fsys.RemoveAll) }
func (f *Fault) Sync(path string) error      { return f.try("sync", path, f.fsys.Sync) }
func (f *Fault) ReadDir(path string) ([]fs.DirEntry, error) {
	return try(f, "readdir", path, f.fsys.ReadDir)
}
func (f *Fault) Stat(path string) (fs.FileInfo, error) { return try(f, "stat", path, f.fsys.Stat) }
func (f *Fault) Resolve(path string) (string, error)   { return try(f, "stat", path, f.fsys.Resolve) }
func (f *Fault) Lock(path string) (io.Closer, error)   { return try(f, "lock", path, f.fsys.Lock) }
func (f *Fault) Locked(path string) (bool, error)      { return try(f, "lock", path, f.fsys.Locked) }
func (f *Fault) FreeBytes(path string) (int64, error) {
	return try(f, "statfs", path, f.fsys.FreeBytes)
}

func (f *Fault) Rename(oldPath, newPath string) error {
	return f.try("rename", oldPath, func(string) error { return f.fsys.Rename(oldPath, newPath) })
}

func (f *Fault) Exchange(onePath, otherPath string) error {
	return f.try("exchange", onePath, func(string) error { return f.fsys.Exchange(onePath, otherPath) })
}

func (f *Fault) Attribute(path, name string) (string, error) {
	return try(f, "getxattr", path, func(string) (string, error) { return f.fsys.Attribute(path, name) })
}

func (f *Fault) SetAttribute(path, name, value string) error {
	return f.try("setxattr", path, func(string) error { return f.fsys.SetAttribute(path, name, value) })
}

func (f *Fault) wrap(file File) File {
	wrapped := &faultFile{file, f}
	if m, ok := file.(Mapper); ok {
		return &faultMapper{wrapped, m}
	}
	return wrapped
}

type faultFile struct {
	File
	disk *Fault
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	err := f.disk.count("read", f.Path())
	f.disk.mu.Lock()
	f.disk.reads++
	shorten, flip, bit := f.disk.reads == f.disk.shorten, f.disk.reads == f.disk.flip, f.disk.flipBit
	f.disk.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(p, off)
	if shorten && n > 0 {
		n, err = n/2, io.EOF
	}
	if flip && n > 0 {
		bit %= 8 * int64(n)
		p[bit/8] ^= 1 << (bit % 8)
	}
	return n, err
}

func (f *faultFile) Size() (int64, error) {
	return try(f.disk, "stat", f.Path(), func(string) (int64, error) { return f.File.Size() })
}

type faultMapper struct {
	*faultFile
	mapper Mapper
}

func (f *faultMapper) Map() (Mapping, error) {
	return try(f.disk, "map", f.Path(), func(string) (Mapping, error) { return f.mapper.Map() })
}

type faultPending struct {
	faultCommit
	pending PendingFile
}

func (f *faultPending) Write(p []byte) (int, error) {
	return try(f.disk, "write", f.path+TempSuffix, func(string) (int, error) { return f.pending.Write(p) })
}

func (f *faultPending) WriteAt(p []byte, off int64) (int, error) {
	return try(f.disk, "write", f.path+TempSuffix, func(string) (int, error) { return f.pending.WriteAt(p, off) })
}

type faultDirect struct {
	faultCommit
	pending DirectPending
}

func (f *faultDirect) WriteAt(p []byte, off int64) (int, error) {
	return try(f.disk, "write", f.path+TempSuffix, func(string) (int, error) { return f.pending.WriteAt(p, off) })
}

func (f *faultDirect) Truncate(size int64) error {
	return f.disk.try("truncate", f.path+TempSuffix, func(string) error { return f.pending.Truncate(size) })
}

// faultCommit is the end of a pending file of either kind.
type faultCommit struct {
	end interface {
		Commit() error
		Abort() error
	}
	disk *Fault
	path string
}

func (f *faultCommit) Commit() error {
	if err := f.disk.count("commit", f.path); err != nil {
		_ = f.Abort()
		return err
	}
	return f.end.Commit()
}

func (f *faultCommit) Abort() error {
	f.disk.mu.Lock()
	dead, err := f.disk.dead(), f.disk.err
	f.disk.mu.Unlock()
	if dead {
		return pathError("remove", f.path+TempSuffix, err)
	}
	return f.end.Abort()
}
