package vfs

import (
	"maps"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// CrashClone is the disk as a machine that lost power now would find it: each directory as it was last synced, and in
// files only what was synced. Nothing is locked. What happens to m afterwards does not show in the clone.
func (m *Mem) CrashClone() *Mem {
	return m.crash(func(string, int) bool { return false })
}

// Clone is another disk with the same content, all of it synced.
func (m *Mem) Clone() *Mem {
	return m.crash(func(string, int) bool { return true })
}

// CrashCloneKeeping is CrashClone for a disk that, as they may, has written some of what nobody synced: of each change
// to a directory and each 4096 bytes of a file, the seed says whether it is there.
func (m *Mem) CrashCloneKeeping(seed uint64) *Mem {
	return m.crash(func(path string, i int) bool {
		return rng.Hash(rng.Derive(seed, path), uint64(i))&1 == 1
	})
}

// crash clones the disk. keep tells whether piece i of what is not synced at path survives.
func (m *Mem) crash(keep func(path string, i int) bool) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{&memDisk{root: m.root.survivor("", keep), capacity: m.capacity, noExchange: m.noExchange,
		noDirect: m.noDirect}, new(faults)}
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
