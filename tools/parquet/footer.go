package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// footer is the part of the metadata at the end of a file that is used
// (https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
type footer struct {
	columns []Column // with the fields of structures last
	groups  []rowGroup
	rows    int64 // of all groups

	columnBytes int64 // memory that columns take
}

// rowGroup is a range of rows, stored column by column.
type rowGroup struct {
	rows   int64
	chunks []chunk // one for each leaf of the schema
}

// chunk is the place of a column of a row group in the file.
type chunk struct {
	start     int64 // offset of the first page
	size      int64 // bytes of all pages
	inflated  int64 // as the file says
	cells     int64
	codec     codec
	elsewhere bool // in another file, or encrypted
}

// Limits of metadata. A list is refused if the file has fewer bytes for it than its structures need at least (min...),
// so that memory stays proportional to the size of the file.
const (
	maxFooter        = 256 << 20
	maxRows          = 1 << 48 // so that sums do not overflow
	maxRowsPerByte   = 1 << 16 // of a file: far more than run lengths and compression reach
	minElement       = 4       // bytes in the file of an element of the schema
	minRowGroup      = 4
	minChunk         = 12
	elementBytes     = 96 // this and the following: bytes in memory
	columnBytes      = 160
	rowGroupBytes    = 64
	chunkBytes       = 40
	defaultMetaBytes = 1 << 30 // for all files of a table, if there is no memory limit
)

var errNoTable = errors.New("no Parquet file (it does not end with PAR1)")

// allowance is the memory that metadata may take, and what is left of it.
type allowance struct{ total, left int64 }

func (a *allowance) take(bytes int64) error {
	if a.left -= bytes; a.left < 0 {
		return fmt.Errorf("%w: the metadata of the table take more than %v of memory (give more with --memory, or "+
			"write fewer and larger row groups)", machine.ErrDoesNotFit, units.Bytes(a.total))
	}
	return nil
}

// readFooter reads the metadata of a file. Errors of the file system name the file; other errors do not.
func readFooter(f vfs.File, size int64, memory *allowance) (*footer, error) {
	var end [8]byte
	if size < 12 {
		return nil, errNoTable
	}
	if err := readFull(f, end[:], size-8); err != nil {
		return nil, err
	}
	switch string(end[4:]) {
	case magic:
	case "PARE":
		return nil, errors.New("it is encrypted; write it anew without encryption")
	default:
		return nil, errNoTable
	}
	length := int64(binary.LittleEndian.Uint32(end[:]))
	if length > min(size-12, maxFooter) {
		return nil, fmt.Errorf("metadata of %d bytes cannot be in a file of %d%s", length, size, damaged)
	}
	if err := memory.take(length); err != nil {
		return nil, err
	}
	defer func() { memory.left += length }()
	data := make([]byte, length)
	if err := readFull(f, data, size-8-length); err != nil {
		return nil, err
	}
	c := &compact{data: data}
	out, err := c.footer(size, memory)
	if err == nil {
		err = c.err
	}
	if err != nil && !errors.Is(err, machine.ErrDoesNotFit) {
		err = fmt.Errorf("%w%s", err, damaged)
	}
	return out, err
}

func (c *compact) footer(size int64, memory *allowance) (*footer, error) {
	var schema []element
	out, rows := &footer{}, int64(-1)
	take := func(bytes int64) {
		if err := memory.take(bytes); err != nil {
			c.fail(err)
		}
	}
	c.read(fields{
		{2, func(t wire) {
			c.items(t, minElement, func(t wire) {
				take(elementBytes)
				schema = append(schema, c.element(t))
			})
		}},
		{3, &rows},
		{4, func(t wire) {
			c.items(t, minRowGroup, func(t wire) {
				take(rowGroupBytes)
				out.groups = append(out.groups, c.rowGroup(t, take))
			})
		}},
	})
	if c.err != nil {
		return nil, c.err
	}
	memory.left += int64(len(schema)) * elementBytes
	before := memory.left
	var leaves int
	var err error
	if out.columns, leaves, err = columns(schema, memory); err != nil {
		return nil, err
	}
	out.columnBytes = before - memory.left
	for i, g := range out.groups {
		if g.rows < 0 || g.rows > min(maxRows-out.rows, size*maxRowsPerByte) {
			return nil, fmt.Errorf("row group %d has %d rows, in a file of %d bytes", i, g.rows, size)
		}
		if len(g.chunks) != leaves {
			return nil, fmt.Errorf("row group %d has %d columns, and the schema %d", i, len(g.chunks), leaves)
		}
		out.rows += g.rows
	}
	if rows != out.rows {
		return nil, fmt.Errorf("it says that it has %d rows, and its row groups have %d", rows, out.rows)
	}
	return out, nil
}

func (c *compact) rowGroup(t wire, take func(int64)) (g rowGroup) {
	c.group(t, fields{
		{1, func(t wire) {
			c.items(t, minChunk, func(t wire) {
				take(chunkBytes)
				g.chunks = append(g.chunks, c.chunk(t))
			})
		}},
		{3, &g.rows},
	})
	return g
}

func (c *compact) chunk(t wire) (k chunk) {
	var dictionary int64
	k.cells = -1
	elsewhere := func(t wire) {
		k.elsewhere = true
		c.skip(t, false)
	}
	c.group(t, fields{
		{1, elsewhere}, // in another file
		{3, fields{
			{4, (*int64)(&k.codec)}, {5, &k.cells}, {6, &k.inflated}, {7, &k.size}, {9, &k.start}, {11, &dictionary},
		}},
		{8, elsewhere}, {9, elsewhere}, // encrypted
	})
	if dictionary > 0 {
		k.start = min(k.start, dictionary)
	}
	return k
}

// damaged ends the errors of files that contradict themselves: what the user can do.
const damaged = "; the file is damaged or cut off: copy or write it again"

// readFull reads len(p) bytes from position at; fewer are an error.
func readFull(f io.ReaderAt, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return fmt.Errorf("it ends at byte %d (cut off while being read?)", at+int64(n))
	}
	return err
}
