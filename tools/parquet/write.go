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
	groups []any // as the footer has them
	err    error
}

type writtenField struct {
	name     string
	physical physical
	unsigned bool
}

// text tells that the values are texts; other values have 4 bytes.
func (f *writtenField) text() bool { return f.physical == byteArray }

const magic = "PAR1" // at both ends of a file

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
	if w.err == nil {
		w.err = w.batch(rows, buffers)
	}
	return w.err
}

func (w *Writer) batch(rows int64, buffers [][]byte) error {
	if rows > math.MaxInt32 {
		return fmt.Errorf("parquet: a row group of %d rows", rows)
	}
	var columns []any
	groupStart := w.size
	for _, f := range w.fields {
		parts := 1
		if f.text() {
			parts = 2
		}
		if len(buffers) < parts {
			return fmt.Errorf("parquet: no data for column %q", f.name)
		}
		data := buffers[0]
		if f.text() {
			data = plainText(buffers[0], buffers[1])
		} else if int64(len(data)) != 4*rows {
			return fmt.Errorf("parquet: %d bytes of column %q in %d rows", len(data), f.name, rows)
		}
		if len(data) > math.MaxInt32 {
			return fmt.Errorf("parquet: %d bytes of column %q in one row group", len(data), f.name)
		}
		buffers = buffers[parts:]
		start := w.size
		w.write(pageHeader(rows, len(data)))
		w.write(data)
		columns = append(columns, object{{2, start}, {3, object{
			{1, int32(f.physical)},
			{2, []any{int32(plainEncoding)}},
			{3, []any{f.name}},
			{4, int32(uncompressed)},
			{5, rows}, {6, w.size - start}, {7, w.size - start}, {9, start},
		}}})
	}
	w.groups = append(w.groups, object{{1, columns}, {2, w.size - groupStart}, {3, rows}})
	w.rows += rows
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

// pageHeader is the header of a data page of this size. Columns without nulls have no levels.
func pageHeader(rows int64, bytes int) []byte {
	return object{{1, int32(dataPage)}, {2, int32(bytes)}, {3, int32(bytes)}, {5, object{
		{1, int32(rows)}, {2, int32(plainEncoding)}, {3, int32(runsEncoding)}, {4, int32(runsEncoding)},
	}}}.append(nil)
}

// footer is the structure FileMetaData.
func (w *Writer) footer() []byte {
	schema := []any{object{{4, "schema"}, {5, int32(len(w.fields))}}}
	for _, f := range w.fields {
		e := object{{1, int32(f.physical)}, {3, int32(required)}, {4, f.name}}
		switch {
		case f.text():
			e = append(e, member{6, int32(convertedUTF8)}, member{10, object{{logicalString, object{}}}})
		case f.unsigned:
			bits, signed := int8(32), false
			e = append(e, member{6, int32(convertedUint32)},
				member{10, object{{logicalInteger, object{{1, bits}, {2, signed}}}}})
		}
		schema = append(schema, e)
	}
	const version = 2 // of the format
	return object{{1, int32(version)}, {2, schema}, {3, w.rows}, {4, w.groups}, {6, "hopfeed"}}.append(nil)
}

// object is a structure as it is written, with its fields in ascending order; compact reads such. A value is a bool,
// int8, int32, int64, string, object, or a list of these ([]any).
type object []member

type member struct {
	id    int64
	value any
}

// append appends the structure in the compact protocol of Thrift.
func (o object) append(to []byte) []byte {
	last := int64(0)
	for _, m := range o {
		t, value := encoded(m.value)
		if step := m.id - last; step <= 15 {
			to = append(to, byte(step)<<4|byte(t))
		} else {
			to = binary.AppendVarint(append(to, byte(t)), m.id)
		}
		to, last = append(to, value...), m.id
	}
	return append(to, 0)
}

func encoded(value any) (t wire, out []byte) {
	switch v := value.(type) {
	case bool:
		if v {
			return wireTrue, nil
		}
		return wireFalse, nil
	case int8:
		return wireByte, []byte{byte(v)}
	case int32:
		return wireInt32, binary.AppendVarint(nil, int64(v))
	case int64:
		return wireInt64, binary.AppendVarint(nil, v)
	case string:
		return wireBinary, append(binary.AppendUvarint(nil, uint64(len(v))), v...)
	case object:
		return wireStruct, v.append(nil)
	}
	list := value.([]any)
	t = wireStruct // of the items, if there are none
	for _, item := range list {
		var bytes []byte
		t, bytes = encoded(item)
		out = append(out, bytes...)
	}
	if n := len(list); n >= 15 {
		return wireList, append(binary.AppendUvarint([]byte{0xf0 | byte(t)}, uint64(n)), out...)
	}
	return wireList, append([]byte{byte(len(list))<<4 | byte(t)}, out...)
}
