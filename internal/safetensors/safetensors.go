// Package safetensors encodes float32 tensors in the format of the same name, which Python's safetensors reads: eight
// bytes with the length of a header (little endian), the header (JSON: for each tensor its type, shape and place, and a
// table of texts called metadata), and the tensors one after another.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/jsontext"
)

// Tensor is one tensor, row-major.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

const (
	metadataKey = "__metadata__"
	lengthBytes = 8
	align       = 8 // of the data
)

// entry describes a tensor in the header. Offsets are bytes from the end of the header.
type entry struct {
	name    string
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Encode returns a file with the tensors in this order. Their names must differ.
func Encode(metadata map[string]string, tensors []Tensor) ([]byte, error) {
	var header bytes.Buffer
	add := func(key string, value any) error {
		name, err := json.Marshal(key)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if header.Len() > 1 {
			header.WriteByte(',')
		}
		header.Write(append(append(name, ':'), text...))
		return err
	}
	header.WriteByte('{')
	if metadata != nil {
		if err := add(metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	size := int64(0)
	for _, t := range tensors {
		end := size + 4*int64(len(t.Data))
		if err := add(t.Name, entry{"", "F32", t.Shape, [2]int64{size, end}}); err != nil {
			return nil, err
		}
		size = end
	}
	header.WriteByte('}')
	for header.Len()%align != 0 {
		header.WriteByte(' ')
	}
	out := make([]byte, lengthBytes, lengthBytes+int64(header.Len())+size)
	binary.LittleEndian.PutUint64(out, uint64(header.Len()))
	out = append(out, header.Bytes()...)
	for _, t := range tensors {
		out = append(out, dtype.BytesOf(t.Data)...)
	}
	return out, nil
}

// Decode returns copies of the tensors of a file, in the order of their data, which must have no
// gaps. It allocates no more than a small multiple of the file.
func Decode(data []byte) (metadata map[string]string, tensors []Tensor, err error) {
	if len(data) < lengthBytes {
		return nil, nil, fmt.Errorf("corrupt: %d bytes", len(data))
	}
	length, body := binary.LittleEndian.Uint64(data), data[lengthBytes:]
	if length > uint64(len(body)) {
		return nil, nil, fmt.Errorf("corrupt: the header says %d bytes, the file has %d", length, len(body))
	}
	header, body := body[:length], body[length:]
	var raw map[string]json.RawMessage
	if err := jsontext.Decode(header, &raw); err != nil {
		return nil, nil, fmt.Errorf("corrupt header: %w", err)
	}
	if text, ok := raw[metadataKey]; ok {
		if err := jsontext.Decode(text, &metadata); err != nil {
			return nil, nil, fmt.Errorf("corrupt header: %w", err)
		}
		delete(raw, metadataKey)
	}
	var entries []entry
	for name, text := range raw {
		e := entry{name: name}
		if err := jsontext.Decode(text, &e); err != nil {
			return nil, nil, fmt.Errorf("corrupt header: tensor %q: %w", name, err)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Offsets[0], b.Offsets[0]) })
	at := int64(0)
	for _, e := range entries {
		count := int64(1)
		for _, n := range e.Shape {
			if n < 1 || count > int64(len(body))/int64(n) {
				return nil, nil, fmt.Errorf("corrupt: tensor %q has the shape %v in %d bytes",
					e.name, e.Shape, len(body))
			}
			count *= int64(n)
		}
		if e.DType != "F32" || e.Offsets[0] != at || e.Offsets[1] != at+4*count || e.Offsets[1] > int64(len(body)) {
			return nil, nil, fmt.Errorf("corrupt: tensor %q of type %s and shape %v at bytes %v, want F32 from "+
				"byte %d on", e.name, e.DType, e.Shape, e.Offsets, at)
		}
		t := Tensor{e.name, e.Shape, make([]float32, count)}
		copy(dtype.BytesOf(t.Data), body[at:])
		tensors, at = append(tensors, t), e.Offsets[1]
	}
	if at != int64(len(body)) {
		return nil, nil, errors.New("corrupt: bytes after the last tensor")
	}
	return metadata, tensors, nil
}
