package kernel

import "fmt"

// ScaleFloat32 multiplies each row of a matrix, src, which has a row for each of factors, by its factor:
//
//	columns := len(src) / len(factors)
//	for j, v := range src {
//		dst[j] = factors[j/columns] * v
//	}
//
// and tells whether all that it wrote is finite. With stream set it writes past the caches where it can, which is
// faster for what is not read soon.
func ScaleFloat32(dst, src, factors []float32, stream bool) (finite bool) {
	return scale(active.scaleFloat32, portable.scaleFloat32, dst, src, factors, stream)
}

// ScaleFloat16 is ScaleFloat32 with results rounded to float16.
func ScaleFloat16(dst []uint16, src, factors []float32, stream bool) (finite bool) {
	return scale(active.scaleFloat16, portable.scaleFloat16, dst, src, factors, stream)
}

// ScaleBFloat16 is ScaleFloat32 with results rounded to bfloat16.
func ScaleBFloat16(dst []uint16, src, factors []float32, stream bool) (finite bool) {
	return scale(active.scaleBFloat16, portable.scaleBFloat16, dst, src, factors, stream)
}

func scale[T float32 | uint16](vectors, rest scaleRows[T], dst []T, src, factors []float32, stream bool) bool {
	if len(src) == 0 {
		return true
	}
	if len(factors) == 0 || len(src)%len(factors) != 0 || len(dst) < len(src) {
		panic(fmt.Sprintf("kernel: %d numbers in rows for %d factors, to %d", len(src), len(factors), len(dst)))
	}
	columns := len(src) / len(factors)
	finite := vectors(dst, src, factors, columns, stream)
	if whole := columns &^ (active.lanes - 1); whole < columns {
		for i := range factors {
			lo, hi := i*columns+whole, (i+1)*columns
			finite = rest(dst[lo:hi], src[lo:hi], factors[i:i+1], hi-lo, false) && finite
		}
	}
	return finite
}

// DecodeFloat16 converts all of src to float32, exactly.
func DecodeFloat16(dst []float32, src []uint16) {
	decode(active.decodeFloat16, portable.decodeFloat16, dst, src)
}

// DecodeBFloat16 converts all of src to float32, exactly.
func DecodeBFloat16(dst []float32, src []uint16) {
	decode(active.decodeBFloat16, portable.decodeBFloat16, dst, src)
}

func decode(vectors, rest func(dst []float32, src []uint16), dst []float32, src []uint16) {
	dst = dst[:len(src)]
	vectors(dst, src)
	whole := len(src) &^ (active.lanes - 1)
	rest(dst[whole:], src[whole:])
}
