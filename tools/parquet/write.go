package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
)

// Writer writes a Parquet file, a row group at a time: columns of int32, uint32, float32 and text, without nulls. A
// column of a row group is one page, plain and not compressed. After an error every call returns it.
type Writer struct {
	w      io.Writer
	fields []writtenField
	size   int64
	rows   int64
	groups []writtenGroup
	err    error
}

// writtenField is a column, in the terms of the format.
type writtenField struct {
	name     string
	physical physical
	unsigned bool
}

// text tells that the values are texts; other values have 4 bytes.
func (f *writtenField) text() bool { return f.physical == byteArray }

const magic = "PAR1" // at both ends of a file

// writtenGroup is where a row group lies.
type writtenGroup struct {
	rows    int64
	offsets []int64 // of each column's page
	bytes   []int64 // of each, with its header
}

// NewWriter starts a file of rows with these columns. It does not buffer.
func NewWriter(w io.Writer, schema *arrow.Schema) (*Writer, error) {
	out := &Writer{w: w}
	for _, f := range schema.Fields() {
		field := writtenField{name: f.Name}
		switch f.Type.(type) {
		case *arrow.Int32Type:
			field.physical = int32s
		case *arrow.Uint32Type:
			field.physical, field.unsigned = int32s, true
		case *arrow.Float32Type:
			field.physical = floats
		case *arrow.LargeStringType:
			field.physical = byteArray
		default:
			return nil, fmt.Errorf("parquet: column %q has type %s, which is not written", f.Name, f.Type)
		}
		out.fields = append(out.fields, field)
	}
	out.write([]byte(magic))
	return out, out.err
}

// Batch writes a row group. buffers are the data of the columns as a record batch of Arrow has them: little-endian
// numbers, and of a text the offsets (int64) before the bytes.
func (w *Writer) Batch(rows int64, buffers ...[]byte) error {
	if w.err == nil && rows > math.MaxInt32 {
		w.err = fmt.Errorf("parquet: a row group of %d rows", rows)
	}
	group := writtenGroup{rows: rows}
	for i := range w.fields {
		if w.err != nil {
			return w.err
		}
		f := &w.fields[i]
		parts := 1
		if f.text() {
			parts = 2
		}
		if len(buffers) < parts {
			w.err = fmt.Errorf("parquet: no data for column %q", f.name)
			return w.err
		}
		data := buffers[0]
		if f.text() {
			data = plainText(buffers[0], buffers[1])
		} else if int64(len(data)) != 4*rows {
			w.err = fmt.Errorf("parquet: %d bytes of column %q in %d rows", len(data), f.name, rows)
			return w.err
		}
		if len(data) > math.MaxInt32 {
			w.err = fmt.Errorf("parquet: %d bytes of column %q in one row group", len(data), f.name)
			return w.err
		}
		buffers = buffers[parts:]
		start := w.size
		w.write(pageHeader(rows, len(data)))
		w.write(data)
		group.offsets, group.bytes = append(group.offsets, start), append(group.bytes, w.size-start)
	}
	if w.err == nil {
		w.groups, w.rows = append(w.groups, group), w.rows+rows
	}
	return w.err
}

// plainText is the plain encoding of texts: each after its length.
func plainText(offsets, text []byte) []byte {
	n := max(len(offsets)/8-1, 0)
	out := make([]byte, 0, 4*n+len(text))
	for i := range n {
		from, to := binary.LittleEndian.Uint64(offsets[8*i:]), binary.LittleEndian.Uint64(offsets[8*i+8:])
		out = append(binary.LittleEndian.AppendUint32(out, uint32(to-from)), text[from:to]...)
	}
	return out
}

// Close writes the footer. It does not close the underlying writer.
func (w *Writer) Close() error {
	footer := w.footer()
	w.write(footer)
	w.write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))), magic...))
	return w.err
}

func (w *Writer) write(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(p)
	w.size += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	w.err = err
}

// pageHeader is the header of a data page of so many bytes.
func pageHeader(rows int64, bytes int) []byte {
	var b builder
	b.begin()
	b.int(1, wireInt32, 0) // a data page
	b.int(2, wireInt32, int64(bytes))
	b.int(3, wireInt32, int64(bytes))
	b.structure(5, func() {
		b.int(1, wireInt32, rows)
		b.int(2, wireInt32, int64(plainEncoding))
		b.int(3, wireInt32, int64(runsEncoding)) // of levels; columns without nulls have none
		b.int(4, wireInt32, int64(runsEncoding))
	})
	b.end()
	return b.data
}

// footer is the structure FileMetaData.
func (w *Writer) footer() []byte {
	var b builder
	b.begin()
	b.int(1, wireInt32, 2) // version of the format
	b.list(2, wireStruct, len(w.fields)+1, func(i int) {
		b.begin()
		if i == 0 {
			b.text(4, "schema")
			b.int(5, wireInt32, int64(len(w.fields)))
		} else {
			w.fields[i-1].schemaElement(&b)
		}
		b.end()
	})
	b.int(3, wireInt64, w.rows)
	b.list(4, wireStruct, len(w.groups), func(i int) {
		b.begin()
		w.rowGroup(&b, &w.groups[i])
		b.end()
	})
	b.text(6, "hopfeed")
	b.end()
	return b.data
}

func (f *writtenField) schemaElement(b *builder) {
	b.int(1, wireInt32, int64(f.physical))
	b.int(3, wireInt32, required)
	b.text(4, f.name)
	switch {
	case f.text():
		b.int(6, wireInt32, convertedUTF8)
		b.structure(10, func() { b.structure(logicalString, func() {}) })
	case f.unsigned:
		b.int(6, wireInt32, convertedUint32)
		b.structure(10, func() {
			b.structure(logicalInteger, func() {
				b.field(1, wireByte)
				b.data = append(b.data, 32) // bits
				b.field(2, wireFalse)       // not signed
			})
		})
	}
}

func (w *Writer) rowGroup(b *builder, g *writtenGroup) {
	total := int64(0)
	for _, bytes := range g.bytes {
		total += bytes
	}
	b.list(1, wireStruct, len(w.fields), func(i int) {
		f := &w.fields[i]
		b.begin()
		b.int(2, wireInt64, g.offsets[i])
		b.structure(3, func() {
			b.int(1, wireInt32, int64(f.physical))
			b.list(2, wireInt32, 1, func(int) { b.signed(int64(plainEncoding)) })
			b.list(3, wireBinary, 1, func(int) { b.bytes(f.name) })
			b.int(4, wireInt32, 0) // not compressed
			b.int(5, wireInt64, g.rows)
			b.int(6, wireInt64, g.bytes[i])
			b.int(7, wireInt64, g.bytes[i])
			b.int(9, wireInt64, g.offsets[i])
		})
		b.end()
	})
	b.int(2, wireInt64, total)
	b.int(3, wireInt64, g.rows)
}

// builder writes structures in the compact protocol of Thrift, as compact reads them.
type builder struct {
	data []byte
	last []int64 // number of the field before, in each structure that is open
}

func (b *builder) begin() { b.last = append(b.last, 0) }

func (b *builder) end() {
	b.data = append(b.data, 0)
	b.last = b.last[:len(b.last)-1]
}

// field begins a field of a structure; numbers ascend.
func (b *builder) field(id int64, t wire) {
	last := &b.last[len(b.last)-1]
	if step := id - *last; step <= 15 {
		b.data = append(b.data, byte(step)<<4|byte(t))
	} else {
		b.data = append(b.data, byte(t))
		b.signed(id)
	}
	*last = id
}

// signed writes a number in zigzag encoding.
func (b *builder) signed(v int64) { b.data = binary.AppendVarint(b.data, v) }

func (b *builder) int(id int64, t wire, v int64) {
	b.field(id, t)
	b.signed(v)
}

func (b *builder) bytes(s string) {
	b.data = append(binary.AppendUvarint(b.data, uint64(len(s))), s...)
}

func (b *builder) text(id int64, s string) {
	b.field(id, wireBinary)
	b.bytes(s)
}

func (b *builder) structure(id int64, fields func()) {
	b.field(id, wireStruct)
	b.begin()
	fields()
	b.end()
}

func (b *builder) list(id int64, t wire, n int, item func(i int)) {
	b.field(id, wireList)
	if n < 15 {
		b.data = append(b.data, byte(n)<<4|byte(t))
	} else {
		b.data = append(b.data, 0xf0|byte(t))
		b.data = binary.AppendUvarint(b.data, uint64(n))
	}
	for i := range n {
		item(i)
	}
}
