package dtype

import "unsafe"

// Number is a type whose slices can be reinterpreted as bytes. Numbers in files
// are little endian, as are all processors that the project is built for.
type Number interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// As reinterprets bytes as numbers, without copying; len(b) is rounded down to whole numbers. b must be aligned for T,
// which memory from make, offheap and mappings at their start is.
func As[T Number](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%unsafe.Alignof(zero) != 0 {
		panic("dtype: bytes are not aligned for their numbers")
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// BytesOf reinterprets numbers as bytes, without copying.
func BytesOf[T Number](s []T) []byte {
	var zero T
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

func Float32s(b []byte) []float32 { return As[float32](b) }
func Uint16s(b []byte) []uint16   { return As[uint16](b) }
func Uint32s(b []byte) []uint32   { return As[uint32](b) }
func Int32s(b []byte) []int32     { return As[int32](b) }
func Int64s(b []byte) []int64     { return As[int64](b) }
