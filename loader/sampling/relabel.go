package sampling

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// relabeler gives the nodes of a batch local ids, 0 and up in the order in which they come. A table
// has base + local id for each node of this batch, and less than base for others: raising base
// forgets all nodes. (A hash table takes 2 to 6 times as long: docs/benchmarks.md.)
type relabeler struct {
	table   []uint32 // [n]
	base    uint32   // 1 or more
	known   int      // nodes with local ids
	touched uint32   // no value: it keeps the compiler from leaving loads out
	buf     *offheap.Buffer
}

func newRelabeler(nodes int64) (*relabeler, error) {
	buf, err := offheap.Alloc(4 * nodes)
	if err != nil {
		return nil, fmt.Errorf("local ids of %d nodes: %w", nodes, err)
	}
	return &relabeler{table: dtype.Uint32s(buf.Bytes()), base: 1, buf: buf}, nil
}

func (r *relabeler) close() error {
	if r == nil {
		return nil
	}
	return r.buf.Free()
}

// forget makes all nodes new.
func (r *relabeler) forget() {
	base := uint64(r.base) + uint64(r.known)
	if base+uint64(len(r.table)) > math.MaxUint32+1 {
		clear(r.table)
		base = 1
	}
	r.base, r.known = uint32(base), 0
}

// add writes the local id of each of the nodes to local, and returns known with the new nodes appended: known[i] is the
// node with local id i since forget. It looks at the places of the table first, so that they are in the caches, and
// then has no branches that depend on the nodes: so the processor does not wait for one place before it asks memory for
// the next.
func (r *relabeler) add(known, nodes, local []uint32) []uint32 {
	next := uint32(len(known))
	known = grow(known, len(nodes)+1)
	all, local := known[:cap(known)], local[:len(nodes)]
	table, base := r.table, r.base
	touched := uint32(0)
	for _, u := range nodes {
		touched += table[u]
	}
	r.touched = touched
	for i, u := range nodes {
		id := min(table[u]-base, next) // of a new node the difference is next or more, modulo 2^32
		table[u] = base + id
		all[next] = u
		local[i] = id
		if id == next {
			next++
		}
	}
	r.known = int(next)
	return all[:next]
}

// find is the local id of a node, and whether it has one.
func (r *relabeler) find(node uint32) (id uint32, ok bool) {
	id = r.table[node] - r.base
	return id, id < uint32(r.known)
}

// grow makes room for n more elements, without a change of length; sizes double, so that memory is
// allocated a few times and then no more.
func grow[T any](s []T, n int) []T {
	if need := len(s) + n; need > cap(s) {
		larger := make([]T, len(s), max(need, 2*cap(s)))
		copy(larger, s)
		return larger
	}
	return s
}

// resize makes a slice of n elements, whose values are anything.
func resize[T any](s []T, n int) []T { return grow(s[:0], n)[:n] }
