package safetensors

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"
)

func sample(t testing.TB) []byte {
	t.Helper()
	data, err := Encode(map[string]string{"kind": "a \"test\""},
		[]Tensor{{"b", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}}, {"a", []int{1}, []float32{-0.5}}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTheFileIsWhatTheFormatSays compares with bytes that were written by hand, after the
// specification. (.ci/run opens files with Python's library.)
func TestTheFileIsWhatTheFormatSays(t *testing.T) {
	header := `{"__metadata__":{"kind":"a \"test\""},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},` +
		`"a":{"dtype":"F32","shape":[1],"data_offsets":[24,28]}}`
	for len(header)%8 != 0 {
		header += " "
	}
	want := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	want = append(want, header...)
	for _, bits := range []uint32{0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x40a00000, 0x40c00000, 0xbf000000} {
		want = binary.LittleEndian.AppendUint32(want, bits)
	}
	if got := sample(t); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTensorsComeBackAsTheyWere(t *testing.T) {
	metadata, tensors, err := Decode(sample(t))
	if err != nil || metadata["kind"] != `a "test"` || len(tensors) != 2 || tensors[0].Name != "b" ||
		!reflect.DeepEqual(tensors[0].Data, []float32{1, 2, 3, 4, 5, 6}) || !slices.Equal(tensors[1].Shape, []int{1}) {
		t.Errorf("%v %+v %v", metadata, tensors, err)
	}
}

func TestATruncatedFileIsRefused(t *testing.T) {
	data := sample(t)
	for n := range data {
		if _, _, err := Decode(data[:n]); err == nil {
			t.Errorf("%d of %d bytes are accepted", n, len(data))
		}
	}
	if _, _, err := Decode(append(data, 0)); err == nil {
		t.Error("a byte more is accepted")
	}
}

// FuzzDecode encodes what is accepted again, without metadata.
func FuzzDecode(f *testing.F) {
	f.Add(sample(f))
	for _, header := range []string{`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`,
		`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, `{"a":null}`} {
		f.Add(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+"1234"...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, tensors, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(nil, tensors)
		if err != nil {
			t.Fatal(err)
		}
		if _, back, err := Decode(again); err != nil || len(back) != len(tensors) {
			t.Errorf("%d tensors come back as %d: %v", len(tensors), len(back), err)
		}
	})
}
