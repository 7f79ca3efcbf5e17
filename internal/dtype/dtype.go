// Package dtype names the element types that matrices are stored and computed
// in, and converts rows between them and float32.
package dtype

import "fmt"

// DType is the element type of a matrix. The zero value is no type.
type DType uint8

const (
	Float32 DType = iota + 1
	Float16
	BFloat16
	Int32
	Uint32
	Int64
	Int8
	Uint8
	Int16
	Uint16
	Uint64
	Float64
)

var names = [...]string{"", "float32", "float16", "bfloat16", "int32", "uint32", "int64", "int8", "uint8", "int16",
	"uint16", "uint64", "float64"}
var sizes = [...]int{0, 4, 2, 2, 4, 4, 8, 1, 1, 2, 2, 8, 8}

// Size is the number of bytes of one element.
func (t DType) Size() int { return sizes[t] }

func (t DType) String() string { return names[t] }

// IsFloat tells whether features can have this type.
func (t DType) IsFloat() bool { return t == Float32 || t == Float16 || t == BFloat16 }

// Parse is the inverse of String.
func Parse(name string) (DType, error) {
	for i, n := range names {
		if i > 0 && n == name {
			return DType(i), nil
		}
	}
	return 0, fmt.Errorf("unknown element type %q (want one of %v)", name, names[1:])
}
