package parquet

import (
	"encoding/binary"
	"errors"
	"slices"
)

// compact reads structures in the compact protocol of Apache Thrift
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md). After the first error all its
// methods do nothing and return zeros.
type compact struct {
	data  []byte // not read yet
	depth int
	err   error
}

// wire is the type of a value in the protocol.
type wire byte

const (
	wireTrue wire = iota + 1
	wireFalse
	wireByte
	wireInt16
	wireInt32
	wireInt64
	wireDouble
	wireBinary
	wireList
	wireSet
	wireMap
	wireStruct
)

const maxDepth = 32

var errCut = errors.New("its metadata end early")

var errThrift = errors.New("its metadata are not valid Thrift")

func (c *compact) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *compact) bytes(n uint64) []byte {
	if c.err == nil && n > uint64(len(c.data)) {
		c.fail(errCut)
	}
	if c.err != nil {
		return nil
	}
	out := c.data[:n]
	c.data = c.data[n:]
	return out
}

func (c *compact) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *compact) uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.data)
	switch {
	case n == 0:
		c.fail(errCut)
		return 0
	case n < 0:
		c.fail(errThrift)
		return 0
	}
	c.data = c.data[n:]
	return v
}

// int reads an integer of 16, 32 or 64 bits.
func (c *compact) int() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// number reads a field that is an integer.
func (c *compact) number(t wire, to *int64) {
	if t < wireInt16 || t > wireInt64 {
		c.fail(errThrift)
		return
	}
	*to = c.int()
}

// fieldTo is the target of a field of a structure: an integer (*int64), fields (a structure), or anything (func(wire)).
type fieldTo struct {
	id int64
	to any
}

type fields []fieldTo

// read reads a structure, and skips the fields that are not listed.
func (c *compact) read(f fields) {
	c.structure(func(id int64, t wire) {
		i := slices.IndexFunc(f, func(f fieldTo) bool { return f.id == id })
		if i < 0 {
			c.skip(t, false)
			return
		}
		switch to := f[i].to.(type) {
		case *int64:
			c.number(t, to)
		case fields:
			c.group(t, to)
		case func(wire):
			to(t)
		}
	})
}

// group reads a field that is a structure.
func (c *compact) group(t wire, f fields) {
	c.expect(t, wireStruct)
	c.read(f)
}

func (c *compact) expect(t, want wire) {
	if t != want {
		c.fail(errThrift)
	}
}

// structure calls field for each field, and field must read or skip its value.
func (c *compact) structure(field func(id int64, t wire)) {
	c.deeper(func() {
		for id := int64(0); c.err == nil; {
			head := c.byte()
			t := wire(head & 15)
			if t == 0 {
				break
			}
			if delta := int64(head >> 4); delta != 0 {
				id += delta
			} else {
				id = c.int()
			}
			if c.err == nil {
				field(id, t)
			}
		}
	})
}

// deeper reads what is within a structure or a list.
func (c *compact) deeper(read func()) {
	if c.depth++; c.depth > maxDepth {
		c.fail(errThrift)
	}
	read()
	c.depth--
}

// items reads a field that is a list: it calls item for each item, and item must read it. An item has at least min
// bytes, so a count of items for which the data are too short is refused before memory is allocated.
func (c *compact) items(t wire, min int, item func(t wire)) {
	c.expect(t, wireList)
	head := c.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = c.uvarint()
	}
	if c.err == nil && n > uint64(len(c.data)/min) {
		c.fail(errCut)
	}
	for ; n > 0 && c.err == nil; n-- {
		before := len(c.data)
		item(wire(head & 15))
		if before-len(c.data) < min {
			c.fail(errThrift)
		}
	}
}

// skip skips a value. A truth value has a byte of its own only in lists.
func (c *compact) skip(t wire, inList bool) {
	switch t {
	case wireTrue, wireFalse:
		if inList {
			c.byte()
		}
	case wireByte:
		c.byte()
	case wireInt16, wireInt32, wireInt64:
		c.uvarint()
	case wireDouble:
		c.bytes(8)
	case wireBinary:
		c.bytes(c.uvarint())
	case wireList, wireSet:
		c.deeper(func() { c.items(wireList, 1, func(t wire) { c.skip(t, true) }) })
	case wireStruct:
		c.structure(func(_ int64, t wire) { c.skip(t, false) })
	default: // there are no maps in Parquet
		c.fail(errThrift)
	}
}
