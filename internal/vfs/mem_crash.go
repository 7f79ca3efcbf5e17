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
	m.mu.RLock()
	defer m.mu.RUnlock()
	clone := &Mem{memDisk: &memDisk{capacity: m.capacity, noExchange: m.noExchange, noDirect: m.noDirect}}
	clone.root = clone.survivor(m.root, "", keep)
	return clone
}

func (m *Mem) survivor(n *memNode, path string, keep func(string, int) bool) *memNode {
	if !n.isDir() {
		left := &memNode{data: n.data, synced: true, attributes: maps.Clone(n.attributes)}
		if !n.synced {
			left.data = keptPages(n.data, path, keep)
		}
		m.used += int64(len(left.data))
		return left
	}
	left := newDir()
	left.attributes = maps.Clone(n.attributes)
	seen := maps.Clone(n.durable)
	maps.Copy(seen, n.entries)
	for name := range seen {
		at := path + "/" + name
		child := n.durable[name]
		if now := n.entries[name]; now != child && keep(at, 0) {
			child = now
		}
		if child != nil {
			left.entries[name] = m.survivor(child, at, keep)
		}
	}
	left.syncDir()
	return left
}

// keptPages is the file up to its last kept page, with zeros in place of lost pages.
func keptPages(data []byte, path string, keep func(string, int) bool) []byte {
	const page = 4096
	var left []byte
	for lo := 0; lo < len(data); lo += page {
		if keep(path, 1+lo/page) {
			left = append(left, make([]byte, lo-len(left))...)
			left = append(left, data[lo:min(lo+page, len(data))]...)
		}
	}
	return left
}
