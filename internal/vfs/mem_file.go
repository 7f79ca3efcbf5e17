package vfs

import (
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"syscall"
)

// memFile is a node open for reads.
type memFile struct {
	disk   *Mem
	node   *memNode
	path   string
	direct bool
	closed atomic.Bool
}

func (f *memFile) Path() string { return f.path }

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.disk.faults.count("read", f.path); err != nil {
		return 0, err
	}
	n, err := f.readAt(p, off)
	return f.disk.faults.spoil(p, n, err)
}

func (f *memFile) readAt(p []byte, off int64) (int, error) {
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	switch {
	case f.closed.Load():
		return 0, pathError("read", f.path, fs.ErrClosed)
	case off < 0:
		return 0, pathError("read", f.path, fs.ErrInvalid)
	case f.direct && !aligned(p, off, PageBytes):
		return 0, pathError("read", f.path, errUnaligned)
	}
	n := 0
	if off < int64(len(f.node.data)) {
		n = copy(p, f.node.data[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.disk.faults.count("stat", f.path); err != nil {
		return 0, err
	}
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	if f.closed.Load() {
		return 0, pathError("stat", f.path, fs.ErrClosed)
	}
	return int64(len(f.node.data)), nil
}

func (f *memFile) Map() (Mapping, error) {
	if err := f.disk.faults.count("map", f.path); err != nil {
		return nil, err
	}
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	if f.closed.Load() {
		return nil, pathError("map", f.path, fs.ErrClosed)
	}
	return &memMapping{slices.Clone(f.node.data)}, nil
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.path, fs.ErrClosed)
	}
	return nil
}

type memMapping struct{ bytes []byte }

func (m *memMapping) Bytes() []byte { return m.bytes }

func (m *memMapping) Close() error { return nil }

// memPending is a node being written under its temporary name.
type memPending struct {
	disk   *Mem
	node   *memNode
	path   string
	direct bool  // written past a page cache, and so aligned
	offset int64 // of the next Write
	done   bool
}

func (f *memPending) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.offset)
	f.offset += int64(n)
	return n, err
}

func (f *memPending) WriteAt(p []byte, off int64) (int, error) {
	m, node := f.disk, f.node
	if err := m.faults.count("write", f.path+TempSuffix); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case f.done:
		return 0, pathError("write", f.path+TempSuffix, fs.ErrClosed)
	case off < 0:
		return 0, pathError("write", f.path+TempSuffix, fs.ErrInvalid)
	case f.direct && !aligned(p, off, PageBytes):
		return 0, pathError("write", f.path+TempSuffix, errUnaligned)
	case len(p) == 0:
		return 0, nil
	}
	have := int64(len(node.data))
	end := min(off+int64(len(p)), have+m.free())
	if end > have {
		f.resize(end)
	}
	n := 0
	if off < end {
		n = copy(node.data[off:end], p)
	}
	if n < len(p) {
		return n, pathError("write", f.path+TempSuffix, syscall.ENOSPC)
	}
	return n, nil
}

// resize makes the file shorter, or longer by zeros.
func (f *memPending) resize(bytes int64) {
	have := int64(len(f.node.data))
	if bytes > have {
		f.node.data = slices.Grow(f.node.data, int(bytes-have))
	}
	f.node.data = f.node.data[:bytes]
	clear(f.node.data[min(have, bytes):])
	if !f.node.gone {
		f.disk.used += bytes - have
	}
}

func (f *memPending) Commit() error {
	m := f.disk
	if err := m.faults.count("commit", f.path); err != nil {
		_ = f.Abort()
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.done {
		return pathError("commit", f.path, fs.ErrClosed)
	}
	f.done, f.node.synced = true, true
	if err := m.rename(f.path+TempSuffix, f.path); err != nil {
		_ = m.remove(f.path + TempSuffix)
		return pathError("commit", f.path, err)
	}
	return nil
}

func (f *memPending) Abort() error {
	m := f.disk
	if err := m.faults.failAbort(f.path + TempSuffix); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.done {
		return nil
	}
	f.done = true
	if err := m.remove(f.path + TempSuffix); err != nil {
		return pathError("remove", f.path+TempSuffix, err)
	}
	return nil
}

func (f *memPending) Truncate(size int64) error {
	m := f.disk
	if err := m.faults.count("truncate", f.path+TempSuffix); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch more := size - int64(len(f.node.data)); {
	case f.done:
		return pathError("truncate", f.path+TempSuffix, fs.ErrClosed)
	case size < 0:
		return pathError("truncate", f.path+TempSuffix, fs.ErrInvalid)
	case more > m.free():
		return pathError("truncate", f.path+TempSuffix, syscall.ENOSPC)
	}
	f.resize(size)
	return nil
}
