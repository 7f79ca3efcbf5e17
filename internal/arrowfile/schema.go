package arrowfile

import (
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	flatbuffers "github.com/google/flatbuffers/go"
)

// Numbers of the union Type in Arrow's Schema.fbs.
const (
	typeInt           = 2
	typeFloat         = 3
	typeFixedSizeList = 16
	typeLargeString   = 20
	typeLargeList     = 21
)

// Limits of what is read, far above what graphs, stores and checkpoints have.
const (
	maxFields   = 64
	maxMetadata = 64
	maxText     = 4096
)

// CheckSchema fails for schemas that this package cannot store: it has columns of integers, float16 and float32, of
// fixed-size and large lists of them, and of large strings, none nullable. Columns may have metadata, the schema not.
func CheckSchema(s *arrow.Schema) error {
	if s.HasMetadata() {
		return errors.New("the schema has metadata")
	}
	for _, f := range s.Fields() {
		if err := checkField(f, true); err != nil {
			return err
		}
	}
	return nil
}

func checkField(f arrow.Field, outer bool) error {
	if f.Nullable {
		return fmt.Errorf("column %q is nullable", f.Name)
	}
	if width(f.Type) > 0 {
		return nil
	}
	if outer {
		switch t := f.Type.(type) {
		case *arrow.FixedSizeListType:
			return checkField(t.ElemField(), false)
		case *arrow.LargeListType:
			return checkField(t.ElemField(), false)
		case *arrow.LargeStringType:
			return nil
		}
	}
	return fmt.Errorf("column %q has type %s, which is not stored", f.Name, f.Type)
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
	var children []flatbuffers.UOffsetT
	switch t := f.Type.(type) {
	case *arrow.FixedSizeListType:
		children = append(children, appendField(b, t.ElemField()))
	case *arrow.LargeListType:
		children = append(children, appendField(b, t.ElemField()))
	}
	list := b.CreateVectorOfTables(children)
	metadata := appendMetadata(b, f.Metadata)
	name := b.CreateString(f.Name)

	var kind byte
	switch t := f.Type.(type) {
	case *arrow.FixedSizeListType:
		kind = typeFixedSizeList
		b.StartObject(1)
		b.PrependInt32Slot(0, t.Len(), 0)
	case *arrow.LargeListType:
		kind = typeLargeList
		b.StartObject(0)
	case *arrow.LargeStringType:
		kind = typeLargeString
		b.StartObject(0)
	case *arrow.Float16Type, *arrow.Float32Type:
		kind = typeFloat
		b.StartObject(1)
		b.PrependInt16Slot(0, int16(width(t)/4), 0) // HALF 0, SINGLE 1
	default:
		kind = typeInt
		b.StartObject(2)
		b.PrependInt32Slot(0, int32(8*width(t)), 0)
		b.PrependBoolSlot(1, arrow.IsSignedInteger(t.ID()), false)
	}
	typ := b.EndObject()

	b.StartObject(7)
	b.PrependUOffsetTSlot(0, name, 0)
	b.PrependByteSlot(2, kind, 0)
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

// readSchema is the inverse of appendSchema.
func readSchema(t table) (*arrow.Schema, error) {
	if t.int16(0) != 0 {
		return nil, invalid("big-endian data")
	}
	list := t.vector(1, 4)
	if list.n > maxFields {
		return nil, invalid("%d columns are more than %d", list.n, maxFields)
	}
	fields := make([]arrow.Field, list.n)
	for i := range fields {
		f, err := readField(list.table(i), true)
		if err != nil {
			return nil, err
		}
		fields[i] = f
	}
	if t.present(2) {
		return nil, invalid("the schema has metadata")
	}
	if t.err() != nil {
		return nil, t.err()
	}
	return arrow.NewSchema(fields, nil), nil
}

func readField(t table, outer bool) (arrow.Field, error) {
	f := arrow.Field{Name: t.string(0)}
	metadata, err := readMetadata(t.vector(6, 4))
	if err != nil {
		return f, err
	}
	f.Metadata = metadata
	if t.bool(1) || t.present(4) {
		return f, invalid("column %q is nullable or has a dictionary", f.Name)
	}
	kind, typ, children := t.uint8(2), t.table(3), t.vector(5, 4)

	var child arrow.Field
	if kind == typeFixedSizeList || kind == typeLargeList {
		if !outer || children.n != 1 {
			return f, invalid("column %q is a list of %d columns", f.Name, children.n)
		}
		if child, err = readField(children.table(0), false); err != nil {
			return f, err
		}
	} else if children.n != 0 {
		return f, invalid("column %q has child columns", f.Name)
	}

	switch kind {
	case typeFixedSizeList:
		n := typ.int32(0)
		if n <= 0 {
			return f, invalid("column %q has lists of length %d", f.Name, n)
		}
		f.Type = arrow.FixedSizeListOfField(n, child)
	case typeLargeList:
		f.Type = arrow.LargeListOfField(child)
	case typeLargeString:
		if outer {
			f.Type = arrow.BinaryTypes.LargeString
		}
	case typeFloat:
		f.Type = map[int16]arrow.DataType{0: arrow.FixedWidthTypes.Float16,
			1: arrow.PrimitiveTypes.Float32}[typ.int16(0)]
	case typeInt:
		width, signed := typ.int32(0), typ.bool(1)
		for _, i := range integers {
			if int32(i.(arrow.FixedWidthDataType).BitWidth()) == width && arrow.IsSignedInteger(i.ID()) == signed {
				f.Type = i
			}
		}
	}
	if t.err() != nil {
		return f, t.err()
	}
	if f.Type == nil {
		return f, invalid("column %q has a type that is not stored (%d)", f.Name, kind)
	}
	return f, nil
}

var integers = []arrow.DataType{
	arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Uint16,
	arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64,
}

func readMetadata(list vector) (arrow.Metadata, error) {
	if list.n == 0 {
		return arrow.Metadata{}, nil
	}
	if list.n > maxMetadata {
		return arrow.Metadata{}, invalid("%d entries of metadata are more than %d", list.n, maxMetadata)
	}
	var keys, values []string
	for i := range list.n {
		pair := list.table(i)
		keys, values = append(keys, pair.string(0)), append(values, pair.string(1))
	}
	return arrow.NewMetadata(keys, values), nil
}
