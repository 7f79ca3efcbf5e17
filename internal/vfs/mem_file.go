package vfs

import (
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// memFile is a node open for reads, being written under its temporary name, or locked.
type memFile struct {
	disk   *Mem
	node   *memNode
	path   string
	direct bool  // reads and writes are of whole pages
	offset int64 // of the next Write
	locks  bool
	closed bool // or committed or aborted
}

func (f *memFile) do(op string, act func() error) error {
	return f.disk.do(op, f.path, func() error {
		if f.closed {
			return fs.ErrClosed
		}
		return act()
	})
}

func (f *memFile) Path() string { return f.path }

func (f *memFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do("read", func() error {
		if off < 0 || f.direct && !aligned(p, off) {
			return errUnaligned
		}
		if off < int64(len(f.node.data)) {
			n = copy(p, f.node.data[off:])
		}
		n = f.disk.faults.spoil(p[:n])
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (f *memFile) Size() (bytes int64, err error) {
	err = f.do("stat", func() error {
		bytes = int64(len(f.node.data))
		return nil
	})
	return bytes, err
}

func (f *memFile) Map() (bytes []byte, unmap func() error, err error) {
	err = f.do("map", func() error {
		bytes = slices.Clone(f.node.data)
		return nil
	})
	return bytes, func() error { return nil }, err
}

func (f *memFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return pathError("close", f.path, fs.ErrClosed)
	}
	f.closed = true
	f.node.locked = f.node.locked && !f.locks
	return nil
}

func (f *memFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.offset)
	f.offset += int64(n)
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.do("write", func() error {
		if off < 0 || f.direct && !aligned(p, off) {
			return errUnaligned
		}
		if len(p) == 0 {
			return nil
		}
		have, end := int64(len(f.node.data)), off+int64(len(p))
		if end > have {
			end = min(end, have+f.disk.free())
			f.node.resize(end)
		}
		if off < end {
			n = copy(f.node.data[off:end], p)
		}
		if n < len(p) {
			return syscall.ENOSPC
		}
		return nil
	})
	return n, err
}

// resize makes the file shorter, or longer by zeros.
func (n *memNode) resize(bytes int64) {
	n.data = append(n.data, make([]byte, max(0, bytes-int64(len(n.data))))...)[:bytes]
}

func (f *memFile) Truncate(size int64) error {
	return f.do("truncate", func() error {
		switch {
		case size < 0:
			return fs.ErrInvalid
		case size-int64(len(f.node.data)) > f.disk.free():
			return syscall.ENOSPC
		}
		f.node.resize(size)
		return nil
	})
}

func (f *memFile) Commit() error {
	err := f.do("commit", func() error {
		f.node.synced = true
		at, err := f.disk.find(f.path)
		if err == nil {
			err = at.rename(strings.TrimSuffix(at.name, TempSuffix))
		}
		f.closed = err == nil
		return err
	})
	if err != nil {
		_ = f.Abort()
	}
	return err
}

func (f *memFile) Abort() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return nil
	}
	err := f.disk.faults.dead()
	if err == nil {
		f.closed = true
		var at place
		if at, err = f.disk.find(f.path); err == nil {
			err = at.remove()
		}
	}
	if err != nil {
		return pathError("remove", f.path, err)
	}
	return nil
}

// CrashClone is the disk as a machine that lost power now would find it: each directory as it was last synced, and in
// files only what was synced. Nothing is locked. What happens to m afterwards does not show in the clone.
func (m *Mem) CrashClone() *Mem {
	return m.crash(func(string, int) bool { return false })
}

// Clone is another disk with the same content, all of it synced.
func (m *Mem) Clone() *Mem {
	return m.crash(func(string, int) bool { return true })
}

// CrashCloneKeeping is CrashClone for a disk that has also written some unsynced changes: of each change
// to a directory and each 4096 bytes of a file, the seed says whether it is there.
func (m *Mem) CrashCloneKeeping(seed uint64) *Mem {
	return m.crash(func(path string, i int) bool {
		return rng.Hash(rng.Derive(seed, path), uint64(i))&1 == 1
	})
}

// crash clones the disk. keep tells whether unsynced piece i at path survives.
func (m *Mem) crash(keep func(path string, i int) bool) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{memDisk: &memDisk{root: m.root.survivor("", keep), capacity: m.capacity, NoExchange: m.NoExchange,
		NoDirect: m.NoDirect}}
}

func (n *memNode) survivor(path string, keep func(string, int) bool) *memNode {
	left := &memNode{attributes: maps.Clone(n.attributes), data: n.data, synced: true}
	if !n.isDir() {
		if !n.synced {
			left.data = keptPages(n.data, path, keep)
		}
		return left
	}
	left.entries = map[string]*memNode{}
	names := maps.Clone(n.durable)
	maps.Copy(names, n.entries)
	for name := range names {
		child, at := n.durable[name], path+"/"+name
		if now := n.entries[name]; now != child && keep(at, 0) {
			child = now
		}
		if child != nil {
			left.entries[name] = child.survivor(at, keep)
		}
	}
	left.syncDir()
	return left
}

// keptPages is the file up to its last kept page, with zeros in place of lost pages.
func keptPages(data []byte, path string, keep func(string, int) bool) []byte {
	var left []byte
	for lo := 0; lo < len(data); lo += PageBytes {
		if keep(path, 1+lo/PageBytes) {
			left = append(left, make([]byte, lo-len(left))...)
			left = append(left, data[lo:min(lo+PageBytes, len(data))]...)
		}
	}
	return left
}

// Disks remembers what disks held. Most operations change nothing that lasts, and what goes on from a disk that another
// one went on from does the same: tests of operations that fail need not try it again.
type Disks map[uint64]bool

// Add tells whether no disk had these names, contents and attributes before it. way is how it will be gone on from: the
// same disk may be gone on from in several.
func (d Disks) Add(m *Mem, way int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := m.root.sum() + uint64(way)
	before := d[sum]
	d[sum] = true
	return !before
}

var sumSeed = maphash.MakeSeed()

func (n *memNode) sum() (sum uint64) {
	if !n.isDir() {
		return maphash.Bytes(sumSeed, n.data)
	}
	type entry struct {
		name, attributes string
		isDir            bool
		sum              uint64
	}
	for name, child := range n.entries {
		sum += maphash.Comparable(sumSeed, entry{name, fmt.Sprint(child.attributes), child.isDir(), child.sum()})
	}
	return sum
}
