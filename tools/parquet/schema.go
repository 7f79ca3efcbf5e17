package parquet

import (
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/tools/npy"
)

// Kind is the kind of the values of a column.
type Kind uint8

const (
	Other   Kind = iota // none of these: dates, times, maps, structures, lists of lists
	Integer             // up to 64 bits, signed or not; decimals without decimal places
	Float               // float16, float32, float64; other decimals
	Bool
	Text
)

// Column is a column of a table, with one value a row or, if it is a List, a list of values.
type Column struct {
	Name  string
	Kind  Kind
	List  bool
	Type  string // its type in words, for messages
	Field bool   // it is a field of a structure; its name has dots
	Key   bool   // its values are in the names of folders (key=value), not in the files

	leaf     int      // index among the leaves of the schema or, of a key, among the keys
	stored   npy.Type // type of the values in pages; Bytes: text, or big-endian decimals
	size     int      // bytes of a value; 0: values differ in size
	scale    int      // decimal places
	unsigned bool     // of integers
	maxDef   int      // definition level of a value that is not null
	maxRep   int
}

// NumberType is the type of numbers that holds all values of a column of integers or floats.
func (c *Column) NumberType() npy.Type {
	switch {
	case c.Kind == Integer && c.unsigned && c.stored == npy.Int64:
		return npy.Uint64
	case c.Kind == Integer && c.stored.IsInteger(), c.Kind == Float && c.stored.IsFloat():
		return c.stored
	case c.Kind == Integer: // a decimal
		return npy.Int64
	}
	return npy.Float64
}

// element is a node of the schema, whose nodes are listed in depth-first order.
type element struct {
	name       []byte
	physical   physical
	size       int64 // bytes of a fixed-size byte array
	repetition int64
	children   int64
	converted  int64 // -1: none
	scale      int64
	logical    int64 // number of the field of the union LogicalType; 0: none
	unsigned   bool  // of an integer
}

// physical is the type by which the values are stored in pages.
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

// Repetition of an element.
const (
	required = iota
	optional
	repeated
)

// Logical types and, by older writers, converted types that are used here.
const (
	logicalString    = 1
	logicalMap       = 2
	logicalDecimal   = 5
	logicalInteger   = 10
	logicalFloat16   = 15
	convertedUTF8    = 0
	convertedMap     = 1
	convertedList    = 3
	convertedDecimal = 5
	convertedUint8   = 11
	convertedUint32  = 13
	convertedUint64  = 14
	convertedNothing = -1
)

// physicalTypes says what each physical type is in messages, and what it can be read as.
var physicalTypes = []struct {
	name   string
	kind   Kind
	stored npy.Type
}{{"truth values", Bool, npy.Bool}, {"int32", Integer, npy.Int32}, {"int64", Integer, npy.Int64},
	{"int96 timestamp", Other, 0}, {"float32", Float, npy.Float32}, {"float64", Float, npy.Float64},
	{"text", Text, npy.Bytes}, {"fixed-size binary", Other, 0}}

// Names of logical and of converted types in messages.
var (
	logicalNames = map[int64]string{6: "date", 7: "time", 8: "timestamp", 11: "null", 12: "json", 13: "bson",
		14: "uuid", 16: "variant", 17: "geometry", 18: "geography"}
	convertedOnes = map[int64]string{6: "date", 7: "time", 8: "time", 9: "timestamp", 10: "timestamp", 19: "json",
		20: "bson", 21: "interval"}
)

func (c *compact) element(t wire) element {
	e := element{physical: -1, converted: convertedNothing}
	c.group(t, fields{
		{1, (*int64)(&e.physical)}, {2, &e.size}, {3, &e.repetition}, {5,
			&e.children}, {6, &e.converted}, {7, &e.scale},
		{4, func(t wire) {
			c.expect(t, wireBinary)
			e.name = c.bytes(c.uvarint())
		}},
		{10, func(t wire) { // the union LogicalType
			c.expect(t, wireStruct)
			c.structure(func(id int64, t wire) {
				e.logical = id
				switch id {
				case logicalDecimal:
					c.group(t, fields{{1, &e.scale}})
				case logicalInteger:
					c.group(t, fields{{2, func(t wire) {
						e.unsigned = t == wireFalse
						c.skip(t, false)
					}}})
				default:
					c.group(t, nil)
				}
			})
		}},
	})
	return e
}

// columns lists the columns of a schema, then the fields of its structures, and counts the leaves.
func columns(schema []element, memory *allowance) (out []Column, leaves int, err error) {
	if len(schema) == 0 {
		return nil, 0, errors.New("it has no schema")
	}
	w := &schemaWalk{left: schema[1:], memory: memory}
	var fields []Column
	for range schema[0].children {
		if len(w.left) == 0 {
			return nil, 0, errors.New("its schema ends early")
		}
		top, first := w.left[0], len(w.leaves)
		if err := w.walk("", 0, 0, 1); err != nil {
			return nil, 0, err
		}
		inside := w.leaves[first:]
		c := Column{Type: "structure"}
		switch {
		case top.isMap():
			c.Type = "map"
		case len(inside) == 1 && top.children == 0 && top.repetition != repeated:
			c = inside[0]
		case len(inside) == 1 && inside[0].maxRep == 1:
			c = inside[0]
			c.List, c.Type = true, "list of "+c.Type
		case len(inside) == 1 && inside[0].maxRep > 1:
			c.Type = "list of lists"
		case len(inside) > 0 && inside[0].maxRep > 0 && top.converted == convertedList:
			c.Type = "list of structures"
		default:
			for _, f := range inside {
				if f.maxRep == 0 {
					f.Field = true
					fields = append(fields, f)
				}
			}
		}
		c.Name = string(top.name)
		out = append(out, c)
	}
	if len(w.left) > 0 {
		return nil, 0, errors.New("its schema goes on after its last column")
	}
	return append(out, fields...), len(w.leaves), nil
}

func (e *element) isMap() bool {
	return e.children > 0 && (e.logical == logicalMap || e.converted == convertedMap || e.converted == convertedMap+1)
}

type schemaWalk struct {
	left   []element
	leaves []Column // each named by the structures around it and itself
	memory *allowance
}

// walk visits an element and those within it. maxRep and maxDef are the levels of the element around it.
func (w *schemaWalk) walk(path string, maxRep, maxDef, depth int) error {
	if len(w.left) == 0 || depth > maxDepth {
		return fmt.Errorf("its schema ends early, or has more than %d levels", maxDepth)
	}
	e := &w.left[0]
	w.left = w.left[1:]
	if len(path)+len(e.name) > maxName {
		return fmt.Errorf("a column has a name of more than %d bytes", maxName)
	}
	path += string(e.name)
	switch e.repetition {
	case required:
	case repeated:
		maxRep++
		maxDef++
	case optional:
		maxDef++
	default:
		return fmt.Errorf("its column %q has the unknown repetition %d", e.name, e.repetition)
	}
	if e.children == 0 {
		c := Column{Name: path, leaf: len(w.leaves), maxRep: maxRep, maxDef: maxDef}
		c.setKind(e)
		w.leaves = append(w.leaves, c)
		return w.memory.take(2*columnBytes + int64(len(path)))
	}
	for range e.children {
		if err := w.walk(path+".", maxRep, maxDef, depth+1); err != nil {
			return err
		}
	}
	return nil
}

const maxName = 1 << 12

// maxScale is the greatest number of decimal places; writers allow 38 or 76.
const maxScale = 100

func (c *Column) setKind(e *element) {
	c.Kind, c.Type = Other, "unknown type"
	if e.physical < 0 || int(e.physical) >= len(physicalTypes) {
		return
	}
	t := physicalTypes[e.physical]
	c.Type = t.name
	name, other := logicalNames[e.logical]
	if !other && e.logical == 0 {
		name, other = convertedOnes[e.converted]
	}
	if other {
		c.Type = name
		return
	}
	isDecimal := e.logical == logicalDecimal || e.logical == 0 && e.converted == convertedDecimal
	if isDecimal {
		c.Type = "decimal"
		if e.scale < 0 || e.scale > maxScale {
			return
		}
		c.scale = int(e.scale)
	}
	c.Kind, c.stored = t.kind, t.stored
	switch {
	case e.physical == fixedArray && e.logical == logicalFloat16 && e.size == 2:
		c.Kind, c.stored, c.Type = Float, npy.Float16, "float16"
	case e.physical == fixedArray && isDecimal && e.size > 0 && e.size <= maxDecimal:
		c.Kind, c.stored, c.size = Integer, npy.Bytes, int(e.size)
	case e.physical == byteArray && isDecimal:
		c.Kind = Integer
	}
	if c.stored != npy.Bytes {
		c.size = int(c.stored.Size())
	}
	c.unsigned = c.Kind == Integer && !isDecimal && (e.logical == logicalInteger && e.unsigned || e.logical == 0 &&
		e.converted >= convertedUint8 && e.converted <= convertedUint64)
	switch {
	case c.scale > 0 && c.Kind == Integer:
		c.Kind = Float
	case c.unsigned && c.stored == npy.Int32:
		c.stored = npy.Uint32
	}
}
