package vfs

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Mem is a disk in memory for tests: it can be full, its operations can be made to fail, and CrashClone gives what a
// crash would leave of it. Relative paths start at its root, which is all that a new one holds. It is a Directer and a
// DirectCreator, and its files are Mappers.
type Mem struct {
	*memDisk
	faults faults // of operations through this Mem; others may share its disk
}

type memDisk struct {
	mu       sync.Mutex // over all nodes and faults
	root     *memNode
	capacity int64 // of all files together, in bytes

	NoExchange bool // it cannot exchange names, as some file systems on networks cannot
	NoDirect   bool // all writes go through the page cache
}

// memNode is a file or a directory.
type memNode struct {
	attributes map[string]string

	// A directory: its entries now, and when it was last synced.
	entries, durable map[string]*memNode

	// A file. Synced content never changes again, so clones share it.
	data           []byte
	synced, locked bool
}

func newDir() *memNode {
	return &memNode{entries: map[string]*memNode{}, durable: map[string]*memNode{}}
}

func (n *memNode) isDir() bool { return n.entries != nil }

func (n *memNode) syncDir() { n.durable = maps.Clone(n.entries) }

// bytes is the size of a file, or of all files in a directory.
func (n *memNode) bytes() int64 {
	total := int64(len(n.data))
	for _, child := range n.entries {
		total += child.bytes()
	}
	return total
}

// unlimited is the capacity of a disk that is never full.
const unlimited = 1 << 50

// NewMem makes an empty disk that is never full.
func NewMem() *Mem { return &Mem{memDisk: &memDisk{root: newDir(), capacity: unlimited}} }

// SetCapacity sets how many bytes all files together can have. A write beyond that ends with ENOSPC. Directories take
// no space.
func (m *Mem) SetCapacity(bytes int64) { m.capacity = bytes }

func (m *Mem) free() int64 {
	if m.capacity == unlimited {
		return unlimited
	}
	return max(0, m.capacity-m.root.bytes())
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// do counts an operation and does it, alone on the disk. Its error names the path.
func (m *Mem) do(op, path string, act func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.faults.count()
	if err == nil {
		err = act()
	}
	if err != nil {
		return pathError(op, path, err)
	}
	return nil
}

// place is where a path leads: a name in a directory, and the node of that name, or nil. The root is in no directory.
type place struct {
	dir  *memNode
	name string
	node *memNode
}

func (m *Mem) find(path string) (at place, err error) {
	at.node = m.root
	for name := range strings.FieldsFuncSeq(filepath.Clean("/"+path), func(r rune) bool { return r == '/' }) {
		switch {
		case at.node == nil:
			return at, syscall.ENOENT
		case !at.node.isDir():
			return at, syscall.ENOTDIR
		}
		at = place{at.node, name, at.node.entries[name]}
	}
	return at, nil
}

// at does an operation on a name, which need not be there.
func (m *Mem) at(op, path string, act func(at place) error) error {
	return m.do(op, path, func() error {
		at, err := m.find(path)
		if err != nil {
			return err
		}
		return act(at)
	})
}

// look does an operation that reads the entry at path.
func look[T any](m *Mem, op, path string, ask func(n *memNode) (T, error)) (answer T, err error) {
	err = m.at(op, path, func(at place) error {
		if at.node == nil {
			return syscall.ENOENT
		}
		answer, err = ask(at.node)
		return err
	})
	return answer, err
}

func (m *Mem) Open(path string) (File, error) { return m.open(path, false) }

func (m *Mem) OpenDirect(path string) (File, error) { return m.open(path, true) }

func (m *Mem) open(path string, direct bool) (File, error) {
	return look(m, "open", path, func(n *memNode) (File, error) {
		if n.isDir() {
			return nil, syscall.EISDIR
		}
		return &memFile{disk: m, node: n, path: path, direct: direct}, nil
	})
}

func (m *Mem) Create(path string) (PendingFile, error) { return m.create(path, 0, false) }

// CreateDirect takes files of any size, so that tests with small ones come this way.
func (m *Mem) CreateDirect(path string, bytes int64) (PendingFile, error) {
	return m.create(path, bytes, true)
}

func (m *Mem) create(path string, bytes int64, direct bool) (f PendingFile, err error) {
	temp := path + TempSuffix
	err = m.at("create", temp, func(at place) error {
		if direct && m.NoDirect {
			return fmt.Errorf("%w: %w", ErrNoDirect, errors.ErrUnsupported)
		}
		if err := at.remove(); err != nil && err != syscall.ENOENT {
			return err
		}
		if bytes > m.free() {
			return syscall.ENOSPC
		}
		n := &memNode{data: make([]byte, bytes)}
		at.dir.entries[at.name] = n
		f = &memFile{disk: m, node: n, path: temp, direct: direct}
		return nil
	})
	return f, err
}

func (m *Mem) MkdirAll(dir string) error {
	return m.do("mkdir", dir, func() error { return m.mkdirAll(path.Clean("/" + dir)) })
}

func (m *Mem) mkdirAll(dir string) error {
	if dir == "/" {
		return nil
	}
	if err := m.mkdirAll(path.Dir(dir)); err != nil {
		return err
	}
	at, err := m.find(dir)
	switch {
	case err != nil:
		return err
	case at.node == nil:
		at.dir.entries[at.name] = newDir()
	case !at.node.isDir():
		return syscall.ENOTDIR
	}
	at.dir.syncDir()
	return nil
}

func (m *Mem) ReadDir(path string) ([]fs.DirEntry, error) {
	return look(m, "open", path, func(dir *memNode) (list []fs.DirEntry, err error) {
		if !dir.isDir() {
			return nil, syscall.ENOTDIR
		}
		for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
			list = append(list, fs.FileInfoToDirEntry(dir.entries[name].info(name)))
		}
		return list, nil
	})
}

func (m *Mem) Stat(path string) (fs.FileInfo, error) {
	return look(m, "stat", path, func(n *memNode) (fs.FileInfo, error) { return n.info(filepath.Base(path)), nil })
}

// info has no time.
func (n *memNode) info(name string) fs.FileInfo {
	header := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o666, Size: int64(len(n.data))}
	if n.isDir() {
		header.Typeflag, header.Mode = tar.TypeDir, 0o777
	}
	return header.FileInfo()
}

func (m *Mem) Attribute(path, name string) (string, error) {
	return look(m, "getxattr", path, func(n *memNode) (string, error) { return n.attributes[name], nil })
}

func (m *Mem) SetAttribute(path, name, value string) error {
	_, err := look(m, "setxattr", path, func(n *memNode) (string, error) {
		n.attributes = maps.Collect(maps.All(n.attributes)) // not nil
		n.attributes[name] = value
		return value, nil
	})
	return err
}

// Resolve knows no links, as there are none.
func (m *Mem) Resolve(path string) (string, error) {
	return filepath.Clean("/" + path), m.do("resolve", path, func() error { return nil })
}

func (m *Mem) Remove(path string) error { return m.at("remove", path, place.remove) }

func (at place) remove() error {
	switch {
	case at.dir == nil:
		return syscall.EBUSY
	case at.node == nil:
		return syscall.ENOENT
	case len(at.node.entries) > 0:
		return syscall.ENOTEMPTY
	}
	delete(at.dir.entries, at.name)
	return nil
}

// RemoveAll removes a tree, name by name as it happens on a disk: after a crash any of them may be there again. Without
// a tree it does nothing.
func (m *Mem) RemoveAll(path string) error {
	err := m.at("remove", path, func(at place) error {
		if at.node != nil {
			at.node.empty()
		}
		return at.remove()
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (n *memNode) empty() {
	for _, child := range n.entries {
		child.empty()
	}
	clear(n.entries)
}

func (m *Mem) Rename(oldPath, newPath string) error {
	if err := sameParent(oldPath, newPath); err != nil {
		return err
	}
	return m.at("rename", oldPath, func(at place) error { return at.rename(filepath.Base(newPath)) })
}

func (at place) rename(name string) error {
	replaced := at.dir.entries[name]
	switch {
	case at.node == nil:
		return syscall.ENOENT
	case at.node == replaced:
		return nil
	case replaced != nil && replaced.isDir():
		return syscall.EEXIST
	case replaced != nil && at.node.isDir():
		return syscall.ENOTDIR
	}
	delete(at.dir.entries, at.name)
	at.dir.entries[name] = at.node
	at.dir.syncDir()
	return nil
}

func (m *Mem) Exchange(onePath, otherPath string) error {
	if err := sameParent(onePath, otherPath); err != nil {
		return err
	}
	return m.at("exchange", onePath, func(one place) error {
		name := filepath.Base(otherPath)
		other := one.dir.entries[name]
		switch {
		case m.NoExchange:
			return errors.ErrUnsupported
		case one.node == nil || other == nil:
			return syscall.ENOENT
		}
		one.dir.entries[one.name], one.dir.entries[name] = other, one.node
		one.dir.syncDir()
		return nil
	})
}

func (m *Mem) Sync(path string) error {
	_, err := look(m, "sync", path, func(dir *memNode) (any, error) {
		if !dir.isDir() {
			return nil, syscall.ENOTDIR
		}
		dir.syncDir()
		return nil, nil
	})
	return err
}

func (m *Mem) Lock(path string) (lock io.Closer, err error) {
	err = m.at("lock", path, func(at place) error {
		n := at.node
		switch {
		case n == nil:
			n = &memNode{}
		case n.isDir():
			return syscall.EISDIR
		case n.locked:
			return ErrLocked
		}
		switch lockState(string(n.data)) {
		case NoLock:
			return errNotLock
		case Unmarked:
			if int64(len(LockText)-len(n.data)) > m.free() {
				delete(at.dir.entries, at.name)
				return syscall.ENOSPC
			}
			n.data, n.synced = []byte(LockText), true
			at.dir.entries[at.name] = n
			at.dir.syncDir()
		}
		n.locked = true
		lock = &memFile{disk: m, node: n, path: path, locks: true}
		return nil
	})
	return lock, err
}

func (m *Mem) Locked(path string) (bool, error) {
	locked, err := look(m, "lock", path, func(n *memNode) (bool, error) { return n.locked, nil })
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return locked, err
}

func (m *Mem) FreeBytes(path string) (int64, error) {
	return look(m, "statfs", path, func(*memNode) (int64, error) { return m.free(), nil })
}

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
