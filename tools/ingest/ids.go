package ingest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// numbering turns the ids of an input into nodes.
type numbering struct {
	ids   *idMap // nil: ids are the numbers of nodes
	nodes int64  // number of nodes so far
	fixed bool   // no nodes may be added
	first uint64 // the number of node 0 in the input: 0 or 1
	flag  bool   // the importer has a flag --ids
	from  string // the table that has all nodes; "": unknown
	of    string // whose nodes they are; "": those of the graph

	digits [32]byte
	id     []byte // with its prefix
}

// hint says what --ids map would do, if the importer has that flag and it is not set.
func (n *numbering) hint(does string) string {
	if n.ids != nil || !n.flag {
		return ""
	}
	return " (--ids map " + does + ")"
}

// ofCell returns the node of an id with a prefix, as node does.
func (n *numbering) ofCell(c *cell, prefix string) (uint32, error) {
	if n.ids == nil && c.cells != nil && c.i < len(c.cells.Ints) && !c.isNull() && c.cells.Ints[c.i] >= 0 {
		return n.number(uint64(c.cells.Ints[c.i]))
	}
	id, err := c.id(n.digits[:])
	if err != nil {
		return 0, err
	}
	if prefix != "" && len(id) > 0 {
		n.id = append(append(n.id[:0], prefix...), id...)
		id = n.id
	}
	return n.node(id)
}

// node returns the node of an id, a new one if need be and if nodes are not fixed. Its error names no file: the caller
// adds it.
func (n *numbering) node(id []byte) (uint32, error) {
	if n.ids != nil {
		node, err := n.ids.node(id, !n.fixed)
		if n.nodes = n.ids.count; err != nil && n.fixed && n.from != "" {
			err = fmt.Errorf("%w in %s: add a row for it, or remove the edge", err, n.from)
		}
		return node, err
	}
	v, ok := parseUint(id)
	if !ok {
		if v, ok = parseUint(wholeNumber(id)); !ok {
			return 0, fmt.Errorf("id %.100q is not a whole number%s", id, n.hint("takes any text"))
		}
	}
	return n.number(v)
}

// number returns the node of an id that is its number.
func (n *numbering) number(v uint64) (uint32, error) {
	v -= n.first
	switch {
	case n.fixed && v >= uint64(n.nodes): // also if v was less than first
		return 0, fmt.Errorf("there is no node %d: %s has %d nodes, numbered from %d",
			v+n.first, cmp.Or(n.of, "the graph"), n.nodes, n.first)
	case v >= MaxNodes:
		return 0, fmt.Errorf("node %d is beyond the %d nodes that a graph can have%s", v, int64(MaxNodes),
			n.hint("numbers only the ids that occur"))
	}
	n.nodes = max(n.nodes, int64(v)+1)
	return uint32(v), nil
}

// has tells whether an id is, or can be, that of a node.
func (n *numbering) has(id []byte) bool {
	if n.ids != nil {
		return n.ids.table[n.ids.find(id)] != 0
	}
	_, ok := parseUint(wholeNumber(id))
	return ok
}

func (n *numbering) name(node int64) string {
	if n.ids != nil {
		return fmt.Sprintf("id %q", n.ids.id(uint32(node)))
	}
	return fmt.Sprintf("node %d", node)
}

// idMap numbers ids densely, in the order in which they are first seen. It holds them in pieces, each as its length and
// its bytes.
type idMap struct {
	seed   maphash.Seed
	pieces [][]byte
	starts []uint64 // of each id: piece, then place in it
	table  []uint32 // 1 + node, by hash; 0: free
	count  int64
	limit  int64 // bytes; 0: none
}

const (
	idPiece = 1 << 20
	maxID   = 1 << 12 // bytes of an id
)

func newIDMap(limit int64) *idMap {
	return &idMap{seed: maphash.MakeSeed(), table: make([]uint32, 1<<10), limit: limit}
}

func (m *idMap) bytes() int64 {
	return int64(len(m.pieces))*idPiece + 8*int64(cap(m.starts)) + 4*int64(len(m.table))
}

func (m *idMap) id(node uint32) []byte {
	at := m.starts[node]
	piece := m.pieces[at/idPiece][at%idPiece:]
	n, width := binary.Uvarint(piece)
	return piece[width : width+int(n)]
}

// node finds an id, or gives it the next number, if it may.
func (m *idMap) node(id []byte, add bool) (uint32, error) {
	at := m.find(id)
	if m.table[at] != 0 {
		return m.table[at] - 1, nil
	}
	switch {
	case !add:
		return 0, fmt.Errorf("there is no node with the id %.100q", id)
	case len(id) == 0:
		return 0, errors.New("an id is empty")
	case len(id) > maxID:
		return 0, fmt.Errorf("an id is %d bytes long (at most %d)", len(id), maxID)
	case !utf8.Valid(id), bytes.IndexByte(id, 0) >= 0: // arrays of strings end at a zero
		return 0, fmt.Errorf("id %.100q is not UTF-8 text", id)
	case m.count == MaxNodes:
		return 0, fmt.Errorf("more than %d nodes", int64(MaxNodes))
	}
	need := len(id) + binary.MaxVarintLen64
	last := len(m.pieces) - 1
	if last < 0 || len(m.pieces[last])+need > idPiece {
		if err := m.checkRoom(idPiece); err != nil {
			return 0, err
		}
		m.pieces, last = append(m.pieces, nil), last+1
	}
	if piece := m.pieces[last]; len(piece)+need > cap(piece) { // a few ids take little, others a whole piece
		m.pieces[last] = append(make([]byte, 0, min(idPiece, 16*(cap(piece)+maxID))), piece...)
	}
	m.starts = append(m.starts, uint64(last)*idPiece+uint64(len(m.pieces[last])))
	m.pieces[last] = append(binary.AppendUvarint(m.pieces[last], uint64(len(id))), id...)
	node := uint32(m.count)
	m.count++
	m.table[at] = node + 1
	if m.count > int64(len(m.table))/4*3 {
		return node, m.grow()
	}
	return node, nil
}

// find is the place of an id in the table, or the free one where it belongs.
func (m *idMap) find(id []byte) uint64 {
	mask := uint64(len(m.table) - 1)
	at := maphash.Bytes(m.seed, id) & mask
	for m.table[at] != 0 && string(m.id(m.table[at]-1)) != string(id) {
		at = (at + 1) & mask
	}
	return at
}

func (m *idMap) grow() error {
	if err := m.checkRoom(8*int64(len(m.table)) + 8*m.count); err != nil {
		return err
	}
	m.table = make([]uint32, 2*len(m.table))
	mask := uint64(len(m.table) - 1)
	for node := range uint32(m.count) {
		at := maphash.Bytes(m.seed, m.id(node)) & mask
		for m.table[at] != 0 {
			at = (at + 1) & mask
		}
		m.table[at] = node + 1
	}
	return nil
}

func (m *idMap) checkRoom(more int64) error {
	if needed := m.bytes() + more; m.limit > 0 && needed > m.limit {
		return fmt.Errorf("%w: a map of more than %d ids needs %v of memory, and %v may be used (raise --memory)",
			machine.ErrDoesNotFit, m.count, units.Bytes(needed), units.Bytes(m.limit))
	}
	return nil
}

func (m *idMap) strings() []string {
	out := make([]string, m.count)
	for node := range out {
		out[node] = string(m.id(uint32(node)))
	}
	return out
}

// rowBytes is the memory of strings for one node, on average and rounded up.
func (m *idMap) rowBytes() int64 { return 32 + int64(len(m.pieces))*idPiece/max(1, m.count) }
