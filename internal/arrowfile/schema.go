package arrowfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	flatbuffers "github.com/google/flatbuffers/go"
)

// columnType is a type as the union Type in Arrow's Schema.fbs has it, and the buffers of its columns.
type columnType struct {
	kind    byte         // 0: none that is stored
	number  int64        // slot 0: bits of integers, precision of floats, length of lists; 0: none
	bytes   int          // size of that number
	signed  bool         // slot 1, of integers
	item    *arrow.Field // of lists
	offsets bool         // a buffer of offsets comes before the values
	width   int64        // size of a value in bytes; of lists, of an item
}

// Numbers of the union Type.
const (
	typeInt           = 2
	typeFloat         = 3
	typeFixedSizeList = 16
	typeLargeString   = 20
	typeLargeList     = 21
)

func typeOf(t arrow.DataType) columnType {
	switch t := t.(type) {
	case *arrow.FixedSizeListType:
		item := t.ElemField()
		return columnType{kind: typeFixedSizeList, number: int64(t.Len()), bytes: 4, item: &item,
			width: width(t.Elem())}
	case *arrow.LargeListType:
		item := t.ElemField()
		return columnType{kind: typeLargeList, item: &item, offsets: true, width: width(t.Elem())}
	case *arrow.LargeStringType:
		return columnType{kind: typeLargeString, offsets: true, width: 1}
	case *arrow.Float16Type, *arrow.Float32Type, *arrow.Float64Type:
		return columnType{kind: typeFloat, number: width(t) / 4, bytes: 2, width: width(t)} // HALF 0, SINGLE 1, DOUBLE 2
	}
	if width(t) == 0 {
		return columnType{}
	}
	return columnType{kind: typeInt, number: 8 * width(t), bytes: 4, signed: arrow.IsSignedInteger(t.ID()),
		width: width(t)}
}

// checkSchema fails for schemas that this package cannot store: it has columns of integers and floats, of
// fixed-size and large lists of them, and of large strings, none nullable. Columns may have metadata, the schema not.
func checkSchema(s *arrow.Schema) error {
	if s.HasMetadata() {
		return errors.New("the schema has metadata")
	}
	for _, f := range s.Fields() {
		t := typeOf(f.Type)
		if t.width == 0 {
			return fmt.Errorf("column %q has type %s, which is not stored", f.Name, f.Type)
		}
		if f.Nullable || t.item != nil && t.item.Nullable {
			return fmt.Errorf("column %q is nullable", f.Name)
		}
	}
	return nil
}

// appendSchema builds the table Schema.
func appendSchema(b *flatbuffers.Builder, s *arrow.Schema) flatbuffers.UOffsetT {
	fields := make([]flatbuffers.UOffsetT, s.NumFields())
	for i, f := range s.Fields() {
		fields[i] = appendField(b, f)
	}
	list := b.CreateVectorOfTables(fields)
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, list, 0)
	return b.EndObject()
}

func appendField(b *flatbuffers.Builder, f arrow.Field) flatbuffers.UOffsetT {
	t := typeOf(f.Type)
	var children []flatbuffers.UOffsetT
	if t.item != nil {
		children = append(children, appendField(b, *t.item))
	}
	list := b.CreateVectorOfTables(children)
	metadata := appendMetadata(b, f.Metadata)
	name := b.CreateString(f.Name)

	slots := min(t.bytes, 1)
	if t.kind == typeInt {
		slots = 2
	}
	b.StartObject(slots)
	if t.bytes == 2 {
		b.PrependInt16Slot(0, int16(t.number), 0)
	} else if t.bytes == 4 {
		b.PrependInt32Slot(0, int32(t.number), 0)
	}
	if t.kind == typeInt {
		b.PrependBoolSlot(1, t.signed, false)
	}
	typ := b.EndObject()

	b.StartObject(7)
	b.PrependUOffsetTSlot(0, name, 0)
	b.PrependByteSlot(2, t.kind, 0)
	b.PrependUOffsetTSlot(3, typ, 0)
	b.PrependUOffsetTSlot(5, list, 0)
	b.PrependUOffsetTSlot(6, metadata, 0)
	return b.EndObject()
}

func appendMetadata(b *flatbuffers.Builder, m arrow.Metadata) flatbuffers.UOffsetT {
	if m.Len() == 0 {
		return 0
	}
	pairs := make([]flatbuffers.UOffsetT, m.Len())
	for i := range pairs {
		key, value := b.CreateString(m.Keys()[i]), b.CreateString(m.Values()[i])
		b.StartObject(2)
		b.PrependUOffsetTSlot(0, key, 0)
		b.PrependUOffsetTSlot(1, value, 0)
		pairs[i] = b.EndObject()
	}
	return b.CreateVectorOfTables(pairs)
}

// matchSchema fails unless a table Schema has little-endian columns as s.
func matchSchema(t table, s *arrow.Schema) error {
	columns := t.vector(1, 4)
	same := t.int16(0) == 0 && !t.present(2) && columns.n == s.NumFields()
	for i := 0; same && i < columns.n; i++ {
		f := columns.table(i)
		same = f.string(0) == s.Field(i).Name && matchField(f, s.Field(i))
	}
	if t.err() != nil {
		return t.err()
	}
	if same {
		return nil
	}
	want := make([]string, s.NumFields())
	for i, f := range s.Fields() {
		want[i] = fmt.Sprintf("%s %s", f.Name, f.Type)
	}
	return invalid("its columns are not: %s", strings.Join(want, ", "))
}

// matchField tells whether a table Field is as f, whose name is not looked at: items of lists may have any.
func matchField(t table, f arrow.Field) bool {
	want, typ, children, metadata := typeOf(f.Type), t.table(3), t.vector(5, 4), t.vector(6, 4)
	if t.bool(1) || t.present(4) || t.uint8(2) != want.kind || typ.number(0, want.bytes) != uint64(want.number) ||
		want.kind == typeInt && typ.bool(1) != want.signed || metadata.n != f.Metadata.Len() {
		return false
	}
	for i := range metadata.n {
		entry := metadata.table(i)
		if entry.string(0) != f.Metadata.Keys()[i] || entry.string(1) != f.Metadata.Values()[i] {
			return false
		}
	}
	if want.item == nil {
		return children.n == 0
	}
	return children.n == 1 && matchField(children.table(0), *want.item)
}
