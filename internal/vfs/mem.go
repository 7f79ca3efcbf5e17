package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a disk in memory for tests: it can be full, and CrashClone gives what a crash would leave of it. Relative
// paths start at its root, which is all that a new one holds. It is a Directer and a DirectCreator, and its files are
// Mappers.
type Mem struct {
	*memDisk
	faults *faults // of operations through this Mem, others may share its disk
}

type memDisk struct {
	mu             sync.RWMutex // over all nodes too
	root           *memNode
	capacity, used int64 // bytes of file content
	noExchange     bool
	noDirect       bool
}

// memNode is a file or a directory.
type memNode struct {
	attributes map[string]string

	// A directory: its entries now, and when it was last synced.
	entries, durable map[string]*memNode

	// A file. Synced content never changes again, so clones share it.
	data   []byte
	synced bool
	locked bool
	gone   bool // has no name any more, and takes no space
}

func newDir() *memNode {
	return &memNode{entries: map[string]*memNode{}, durable: map[string]*memNode{}}
}

func (n *memNode) isDir() bool { return n.entries != nil }

func (n *memNode) syncDir() { n.durable = maps.Clone(n.entries) }

// NewMem makes an empty disk of 1 PiB.
func NewMem() *Mem { return &Mem{memDisk: &memDisk{root: newDir(), capacity: 1 << 50}} }

// SetCapacity sets how many bytes all files together can have. A write beyond that ends with ENOSPC. Directories take
// no space.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// RefuseExchange makes it a file system that cannot exchange names, as some on networks cannot.
func (m *Mem) RefuseExchange() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noExchange = true
}

// RefuseDirect makes it a file system on which all writes go through the page cache.
func (m *Mem) RefuseDirect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noDirect = true
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// memSplit cuts a path into the names from the root down.
func memSplit(path string) []string {
	return strings.FieldsFunc(filepath.Clean("/"+path), func(r rune) bool { return r == '/' })
}

func (m *Mem) find(path string) (*memNode, error) {
	n := m.root
	for _, name := range memSplit(path) {
		if !n.isDir() {
			return nil, syscall.ENOTDIR
		}
		if n = n.entries[name]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

// findParent finds the directory that has, or could have, path as an entry.
func (m *Mem) findParent(path string) (dir *memNode, name string, err error) {
	names := memSplit(path)
	if len(names) == 0 {
		return nil, "", syscall.EBUSY // the root has no name to change
	}
	dir, err = m.findDir(filepath.Join(names[:len(names)-1]...))
	return dir, names[len(names)-1], err
}

// unlink takes a name out of a directory, and gives back its space.
func (m *Mem) unlink(dir *memNode, name string) {
	if n := dir.entries[name]; !n.isDir() {
		m.used -= int64(len(n.data))
		n.gone = true
	}
	delete(dir.entries, name)
}

// change does what changes the disk, and adds the path to its error.
func (m *Mem) change(op, path string, do func() error) error {
	if err := m.faults.count(op, path); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := do(); err != nil {
		return pathError(op, path, err)
	}
	return nil
}

// look does what reads the node at path, and adds the path to its error.
func look[T any](m *Mem, op, path string, do func(n *memNode) (T, error)) (result T, err error) {
	if err := m.faults.count(op, path); err != nil {
		return result, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(path)
	if err == nil {
		result, err = do(n)
	}
	if err != nil {
		return result, pathError(op, path, err)
	}
	return result, nil
}

// findDir finds a directory.
func (m *Mem) findDir(path string) (*memNode, error) {
	n, err := m.find(path)
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	return n, err
}

func (m *Mem) Open(path string) (File, error) {
	f, err := m.open(path)
	if err != nil {
		return nil, err // not a File that is nil
	}
	return f, nil
}

func (m *Mem) open(path string) (*memFile, error) {
	return look(m, "open", path, func(n *memNode) (*memFile, error) {
		if n.isDir() {
			return nil, syscall.EISDIR
		}
		return &memFile{disk: m, node: n, path: path}, nil
	})
}

func (m *Mem) OpenDirect(path string) (File, int, error) {
	f, err := m.open(path)
	if err != nil {
		return nil, 0, err
	}
	f.direct = true
	return f, PageBytes, nil
}

func (m *Mem) Create(path string) (PendingFile, error) {
	if err := m.faults.count("create", path); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.create(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// CreateDirect takes files of any size, so that tests with small ones come this way.
func (m *Mem) CreateDirect(path string, bytes int64) (DirectPending, int, error) {
	if err := m.faults.count("create", path); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noDirect {
		return nil, 0, noDirect(path, errors.ErrUnsupported)
	}
	f, err := m.create(path)
	if err != nil {
		return nil, 0, err
	}
	if bytes > m.free() {
		return nil, 0, errors.Join(pathError("allocate", path+TempSuffix, syscall.ENOSPC), m.remove(path+TempSuffix))
	}
	f.direct = true
	f.resize(bytes)
	return f, PageBytes, nil
}

func (m *Mem) create(path string) (*memPending, error) {
	temp := path + TempSuffix
	if n, _ := m.find(temp); n != nil {
		if err := m.remove(temp); err != nil {
			return nil, pathError("remove", temp, err)
		}
	}
	n, err := m.makeFile(temp)
	if err != nil {
		return nil, pathError("open", temp, err)
	}
	return &memPending{disk: m, node: n, path: path}, nil
}

func (m *Mem) makeFile(path string) (*memNode, error) {
	dir, name, err := m.findParent(path)
	if err != nil {
		return nil, err
	}
	n := &memNode{}
	dir.entries[name] = n
	return n, nil
}

func (m *Mem) MkdirAll(path string) error {
	return m.change("mkdir", path, func() error {
		dir := m.root
		for _, name := range memSplit(path) {
			next := dir.entries[name]
			if next == nil {
				next = newDir()
				dir.entries[name] = next
			}
			if !next.isDir() {
				return syscall.ENOTDIR
			}
			dir.syncDir()
			dir = next
		}
		return nil
	})
}

// Mkdir makes a directory as other programs do: a crash may take it, as nobody has synced its parent.
func (m *Mem) Mkdir(path string) error {
	return m.change("mkdir", path, func() error {
		dir, name, err := m.findParent(path)
		if err == nil && dir.entries[name] != nil {
			err = syscall.EEXIST
		}
		if err == nil {
			dir.entries[name] = newDir()
		}
		return err
	})
}

func (m *Mem) ReadDir(path string) ([]fs.DirEntry, error) {
	return look(m, "open", path, func(dir *memNode) (list []fs.DirEntry, err error) {
		if !dir.isDir() {
			return nil, syscall.ENOTDIR
		}
		for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
			list = append(list, fs.FileInfoToDirEntry(info(name, dir.entries[name])))
		}
		return list, nil
	})
}

func (m *Mem) Stat(path string) (fs.FileInfo, error) {
	return look(m, "stat", path, func(n *memNode) (fs.FileInfo, error) { return info(filepath.Base(path), n), nil })
}

func (m *Mem) Attribute(path, name string) (string, error) {
	return look(m, "getxattr", path, func(n *memNode) (string, error) { return n.attributes[name], nil })
}

func (m *Mem) SetAttribute(path, name, value string) error {
	return m.change("setxattr", path, func() error {
		n, err := m.find(path)
		if err != nil {
			return err
		}
		if n.attributes == nil {
			n.attributes = map[string]string{}
		}
		n.attributes[name] = value
		return nil
	})
}

// Resolve knows no links, as there are none.
func (m *Mem) Resolve(path string) (string, error) {
	return filepath.Clean("/" + path), m.faults.count("resolve", path)
}

func (m *Mem) Remove(path string) error {
	return m.change("remove", path, func() error { return m.remove(path) })
}

func (m *Mem) remove(path string) error {
	dir, name, err := m.findParent(path)
	if err != nil {
		return err
	}
	n := dir.entries[name]
	if n == nil {
		return syscall.ENOENT
	}
	if len(n.entries) > 0 {
		return syscall.ENOTEMPTY
	}
	m.unlink(dir, name)
	return nil
}

func (m *Mem) RemoveAll(path string) error {
	return m.change("remove", path, func() error {
		dir, name, err := m.findParent(path)
		if err == syscall.ENOENT || err == nil && dir.entries[name] == nil {
			return nil
		}
		if err == nil {
			m.removeTree(dir, name)
		}
		return err
	})
}

// removeTree removes names one by one, as it happens on a disk, so that after a crash any of them may be there again.
func (m *Mem) removeTree(dir *memNode, name string) {
	n := dir.entries[name]
	for child := range n.entries {
		m.removeTree(n, child)
	}
	m.unlink(dir, name)
}

func (m *Mem) Rename(oldPath, newPath string) error {
	if err := sameParent(oldPath, newPath); err != nil {
		return err
	}
	return m.change("rename", oldPath, func() error {
		if err := m.rename(oldPath, newPath); err != nil {
			return fmt.Errorf("to %s: %w", newPath, err)
		}
		return nil
	})
}

func (m *Mem) rename(oldPath, newPath string) error {
	dir, oldName, err := m.findParent(oldPath)
	if err != nil {
		return err
	}
	_, newName, err := m.findParent(newPath)
	if err != nil {
		return err
	}
	moved, replaced := dir.entries[oldName], dir.entries[newName]
	switch {
	case moved == nil:
		return syscall.ENOENT
	case moved == replaced:
		return nil
	case replaced != nil && replaced.isDir():
		return syscall.EEXIST
	case replaced != nil && moved.isDir():
		return syscall.ENOTDIR
	}
	if replaced != nil {
		m.unlink(dir, newName)
	}
	delete(dir.entries, oldName)
	dir.entries[newName] = moved
	dir.syncDir()
	return nil
}

func (m *Mem) Exchange(onePath, otherPath string) error {
	if err := sameParent(onePath, otherPath); err != nil {
		return err
	}
	return m.change("exchange", onePath, func() error {
		if err := m.exchange(onePath, otherPath); err != nil {
			return fmt.Errorf("with %s: %w", otherPath, err)
		}
		return nil
	})
}

func (m *Mem) exchange(onePath, otherPath string) error {
	if m.noExchange {
		return errors.ErrUnsupported
	}
	dir, one, err := m.findParent(onePath)
	if err != nil {
		return err
	}
	_, other, err := m.findParent(otherPath)
	if err != nil {
		return err
	}
	if dir.entries[one] == nil || dir.entries[other] == nil {
		return syscall.ENOENT
	}
	dir.entries[one], dir.entries[other] = dir.entries[other], dir.entries[one]
	dir.syncDir()
	return nil
}

func (m *Mem) Sync(path string) error {
	return m.change("sync", path, func() error {
		dir, err := m.findDir(path)
		if err == nil {
			dir.syncDir()
		}
		return err
	})
}

func (m *Mem) Lock(path string) (lock io.Closer, err error) {
	err = m.change("lock", path, func() error {
		n, err := m.find(path)
		switch {
		case err == syscall.ENOENT:
			n, err = m.makeFile(path)
		case err == nil && n.isDir():
			err = syscall.EISDIR
		case err == nil && n.locked:
			err = ErrLocked
		}
		if err != nil {
			return err
		}
		switch lockState(string(n.data)) {
		case NoLock:
			return errNotLock
		case Unmarked:
			dir, name, _ := m.findParent(path)
			more := int64(len(LockText) - len(n.data))
			if more > m.free() {
				m.unlink(dir, name)
				return syscall.ENOSPC
			}
			m.used += more
			n.data, n.synced = []byte(LockText), true
			dir.syncDir()
		}
		n.locked = true
		lock = &memLock{disk: m, node: n, path: path}
		return nil
	})
	return lock, err
}

func (m *Mem) Locked(path string) (bool, error) {
	locked, err := look(m, "lock", path, func(n *memNode) (bool, error) { return n.locked, nil })
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return locked, err
}

type memLock struct {
	disk   *Mem
	node   *memNode
	path   string
	closed bool
}

func (l *memLock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.closed {
		return pathError("close", l.path, fs.ErrClosed)
	}
	l.closed, l.node.locked = true, false
	return nil
}

func (m *Mem) FreeBytes(path string) (int64, error) {
	return look(m, "statfs", path, func(*memNode) (int64, error) { return m.free(), nil })
}

func (m *Mem) free() int64 { return max(0, m.capacity-m.used) }

// memInfo is the fs.FileInfo of a node. Nothing has a time.
type memInfo struct {
	name  string
	bytes int64
	mode  fs.FileMode
}

func info(name string, n *memNode) memInfo {
	if n.isDir() {
		return memInfo{name: name, mode: fs.ModeDir | 0o777}
	}
	return memInfo{name: name, bytes: int64(len(n.data)), mode: 0o666}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.bytes }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return nil }
