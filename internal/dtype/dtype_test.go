package dtype

import (
	"slices"
	"strings"
	"testing"
)

func TestTypesHaveTheirSizesAndComeBackFromTheirNames(t *testing.T) {
	for _, c := range []struct {
		t       DType
		name    string
		size    int
		isFloat bool
	}{
		{Float32, "float32", 4, true}, {Float16, "float16", 2, true}, {BFloat16, "bfloat16", 2, true},
		{Int32, "int32", 4, false}, {Uint32, "uint32", 4, false}, {Int8, "int8", 1, false}, {Uint8, "uint8", 1, false},
	} {
		if c.t.String() != c.name || c.t.Size() != c.size || c.t.IsFloat() != c.isFloat {
			t.Errorf("%s has %d bytes, float %t; want %s, %d, %t", c.t, c.t.Size(), c.t.IsFloat(), c.name, c.size,
				c.isFloat)
		}
		if got, err := Parse(c.name); got != c.t || err != nil {
			t.Errorf("%q is %v, %v", c.name, got, err)
		}
	}
}

func TestParseRefusesOtherNames(t *testing.T) {
	for _, name := range []string{"", "float8", "Float32", "float32 ", "half"} {
		if got, err := Parse(name); err == nil {
			t.Errorf("%q is taken for %v", name, got)
		} else if !strings.Contains(err.Error(), `"`+name+`"`) || !strings.Contains(err.Error(), "bfloat16") {
			t.Errorf("the error for %q names neither it nor the choice: %v", name, err)
		}
	}
}

func TestBytesAreReinterpretedInPlace(t *testing.T) {
	b := BytesOf(make([]uint64, 2)) // aligned for all types
	copy(b, []byte{1, 2, 3, 4, 0, 0, 0x80, 0x3f, 0xff, 0xff, 0xff, 0xff})
	if got := Uint16s(b[:4]); !slices.Equal(got, []uint16{0x0201, 0x0403}) {
		t.Errorf("uint16: %#x", got)
	}
	if got := Uint32s(b[:7]); !slices.Equal(got, []uint32{0x04030201}) {
		t.Errorf("uint32 of 7 bytes: %#x", got)
	}
	if got := Float32s(b[4:8]); !slices.Equal(got, []float32{1}) {
		t.Errorf("float32: %g", got)
	}
	if got := Int32s(b[8:12]); !slices.Equal(got, []int32{-1}) {
		t.Errorf("int32: %d", got)
	}
	if got := Int64s(b[8:]); !slices.Equal(got, []int64{0xffffffff}) {
		t.Errorf("int64: %d", got)
	}
	Uint32s(b)[0] = 7
	if b[0] != 7 || b[1] != 0 {
		t.Errorf("writing does not reach the bytes: %v", b[:4])
	}
	if As[int64](b[:7]) != nil || As[int64](nil) != nil || BytesOf([]int32(nil)) != nil {
		t.Error("nothing became something")
	}
	if got := Uint16s(b[:3:8]); cap(got) != 1 {
		t.Errorf("the numbers reach %d beyond the bytes", cap(got))
	}
}

func TestBytesThatAreNotAlignedAreRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it went through")
		}
	}()
	As[int32](BytesOf(make([]uint64, 2))[2:])
}
