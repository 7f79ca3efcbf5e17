package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// footer is what is read of the metadata at the end of a file
// (https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
type footer struct {
	schema []element
	groups []rowGroup
	rows   int64 // over all groups
}

// element is a node of the schema, in depth-first order.
type element struct {
	name       string
	physical   physical
	size       int64 // of a fixed-size byte array
	repetition int64
	children   int64
	converted  int64 // -1: none
	logical    int64 // field of the union LogicalType; 0: none
	signed     bool  // of logical integers
}

// physical is how values are stored.
type physical int64

const (
	boolean physical = iota
	int32s
	int64s
	int96s
	floats
	doubles
	byteArray
	fixedArray
)

// Repetitions of an element.
const (
	required = iota
	optional
	repeated
)

// Logical types that matter here.
const (
	logicalInteger = 10
	logicalFloat16 = 15
)

// Converted types, which older writers have instead, that matter here.
const (
	convertedUint8   = 11
	convertedUint64  = 14
	convertedNothing = -1
)

// rowGroup is some rows, column by column.
type rowGroup struct {
	rows   int64
	chunks []chunk
}

// chunk is where a column of a row group is.
type chunk struct {
	elsewhere  bool // in another file, or encrypted
	codec      codec
	cells      int64
	size       int64
	data       int64 // offset of the first data page
	dictionary int64 // offset of the dictionary; 0: none
}

// maxFooter bounds the metadata, which are in memory as a whole.
const maxFooter = 256 << 20

// maxRows is beyond all that is of use, so that sums do not overflow.
const maxRows = 1 << 48

var errNoTable = errors.New("no Parquet file (it does not end with PAR1)")

// readFooter reads the metadata of a file. The error names no file, unless it is
// the file system's.
func readFooter(f vfs.File, size int64) (*footer, error) {
	var end [8]byte
	if size < 12 {
		return nil, errNoTable
	}
	if err := readFull(f, end[:], size-8); err != nil {
		return nil, err
	}
	switch string(end[4:]) {
	case "PAR1":
	case "PARE":
		return nil, errors.New("it is encrypted")
	default:
		return nil, errNoTable
	}
	length := int64(binary.LittleEndian.Uint32(end[:]))
	if length > min(size-12, maxFooter) {
		return nil, fmt.Errorf("metadata of %d bytes cannot be in a file of %d", length, size)
	}
	data := make([]byte, length)
	if err := readFull(f, data, size-8-length); err != nil {
		return nil, err
	}
	c := &compact{data: data}
	out := &footer{}
	c.structure(func(id int64, t wire) {
		switch {
		case id == 2 && t == wireList:
			c.list(func(t wire) { out.schema = append(out.schema, c.element(t)) })
		case id == 4 && t == wireList:
			c.list(func(t wire) { out.groups = append(out.groups, c.rowGroup(t)) })
		default:
			c.skip(t, false)
		}
	})
	if c.err != nil {
		return nil, c.err
	}
	for i, g := range out.groups {
		if g.rows < 0 || g.rows > maxRows-out.rows {
			return nil, fmt.Errorf("row group %d has %d rows", i, g.rows)
		}
		out.rows += g.rows
	}
	return out, nil
}

// fields reads a structure whose fields of interest are integers, and calls other
// for all others.
func (c *compact) fields(t wire, ints map[int64]*int64, other func(id int64, t wire)) {
	if t != wireStruct {
		c.fail(errThrift)
		return
	}
	c.structure(func(id int64, t wire) {
		if p := ints[id]; p != nil && t >= wireInt16 && t <= wireInt64 {
			*p = c.int()
			return
		}
		other(id, t)
	})
}

func (c *compact) skipField(_ int64, t wire) { c.skip(t, false) }

func (c *compact) element(t wire) element {
	e := element{converted: convertedNothing}
	c.fields(t, map[int64]*int64{1: (*int64)(&e.physical), 2: &e.size, 3: &e.repetition, 5: &e.children, 6: &e.converted}, func(id int64, t wire) {
		switch {
		case id == 4 && t == wireBinary:
			e.name = c.text()
		case id == 10 && t == wireStruct:
			c.structure(func(id int64, t wire) {
				e.logical = id
				if id != logicalInteger || t != wireStruct {
					c.skip(t, false)
					return
				}
				c.structure(func(id int64, t wire) {
					if id == 2 {
						e.signed = t == wireTrue
					}
					c.skip(t, false)
				})
			})
		default:
			c.skip(t, false)
		}
	})
	return e
}

func (c *compact) rowGroup(t wire) (g rowGroup) {
	c.fields(t, map[int64]*int64{3: &g.rows}, func(id int64, t wire) {
		if id == 1 && t == wireList {
			c.list(func(t wire) { g.chunks = append(g.chunks, c.chunk(t)) })
			return
		}
		c.skip(t, false)
	})
	return g
}

func (c *compact) chunk(t wire) (k chunk) {
	c.fields(t, nil, func(id int64, t wire) {
		switch {
		case id == 3 && t == wireStruct:
			c.fields(t, map[int64]*int64{4: (*int64)(&k.codec), 5: &k.cells, 7: &k.size, 9: &k.data, 11: &k.dictionary}, c.skipField)
			return
		case id == 1 || id == 8 || id == 9:
			k.elsewhere = true
		}
		c.skip(t, false)
	})
	return k
}

// readFull reads all of p.
func readFull(f io.ReaderAt, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return fmt.Errorf("it ends at byte %d (cut off while being read?)", at+int64(n))
	}
	return &diskError{err}
}

// diskError is an error of the file system, in which the file is not at fault.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }
