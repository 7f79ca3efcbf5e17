package host

import (
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// matrix is a Tensor's memory: rows stride elements apart.
type matrix[T dtype.Number] struct {
	data               []T
	rows, cols, stride int
}

// row is one row, columns [lo, hi) of it. Its capacity ends there.
func (m matrix[T]) row(i, lo, hi int) []T {
	if lo == hi {
		return nil
	}
	at := i * m.stride
	return m.data[at+lo : at+hi : at+hi]
}

// views is what the body of a loop finds of an operation beside its arguments.
type views struct {
	floats  [maxTensors]matrix[float32]
	bytes   [2]matrix[byte] // of dst and src, whatever their type
	index   []uint32        // or
	index64 []int64
	labels  []int32
	counts  []int64

	offsets                   []uint32 // of the edges of destinations, whose sources are index
	sources, firstEdge, edges int

	multiLabels matrix[int8]
	rowWeights  []float32                                         // of losses: see rowWeight
	lossBody    func(s *stream, p part) (loss float64, err error) // what addLosses runs
	errorLoss   func(e float64) (loss, slope float64)             // what addErrors runs
	// What each, elementwise and withRow and addUp run.
	eachBody    func(s *stream, row, lo, hi int)
	elementBody elementBody
	rowBody     func(out, row []float32)
	sumBody     func(s *stream, sum []float32, lo, hi int)
	cols        int // of the rows of eachBody, and of the sums of sumBody

	graph graphView
}

// memory is the bytes from t's first element to its last, and the buffer that they
// are in; without elements, nil.
func memory(t gds.Tensor) ([]byte, *buffer, error) {
	if err := t.Check(); err != nil || t.Rows == 0 || t.Cols == 0 {
		return nil, nil, err
	}
	b, err := hostBuffer(t.Buf)
	if err != nil {
		return nil, nil, err
	}
	pages, err := b.pages()
	if err != nil {
		return nil, nil, err
	}
	length := (int64(t.Rows-1)*int64(t.Stride) + int64(t.Cols)) * int64(t.DType.Size())
	return pages[t.Offset : t.Offset+length : t.Offset+length], b, nil
}

// memory is the same of memory of this device, which all operations but Copy want.
func (d *Device) memory(t gds.Tensor) ([]byte, error) {
	bytes, b, err := memory(t)
	if b != nil && b.owner() != d {
		return nil, fmt.Errorf("tensor %v is pinned memory, or of another device: only Copy reaches it", t)
	}
	return bytes, err
}

// view is t's memory as numbers of the one type that an operation takes.
func view[T dtype.Number](d *Device, t gds.Tensor, want gds.DType) (matrix[T], error) {
	m := matrix[T]{rows: t.Rows, cols: t.Cols, stride: t.Stride}
	bytes, err := d.memory(t)
	if err != nil || bytes == nil {
		return m, err
	}
	if t.DType != want {
		return m, fmt.Errorf("tensor %v: want %v", t, want)
	}
	m.data = dtype.As[T](bytes)
	return m, nil
}

// raw is t's memory as bytes, whatever its type.
func (d *Device) raw(t gds.Tensor) (matrix[byte], error) {
	bytes, err := d.memory(t)
	return asBytes(t, bytes), err
}

// asBytes is a tensor, whose memory is given, as a matrix of bytes.
func asBytes(t gds.Tensor, memory []byte) matrix[byte] {
	size := t.DType.Size()
	return matrix[byte]{data: memory, rows: t.Rows, cols: t.Cols * size, stride: t.Stride * size}
}

// viewFloats views the tensors of the operation, all of them float32.
func (s *stream) viewFloats() ([]matrix[float32], error) {
	views := s.views.floats[:s.op.kind.tensors]
	for i := range views {
		var err error
		if views[i], err = view[float32](s.device, s.op.tensors[i], gds.Float32); err != nil {
			return nil, err
		}
	}
	return views, nil
}

var errShape = errors.New("shapes disagree")

// sameShape is what elementwise operations ask for.
func sameShape(tensors ...gds.Tensor) error {
	for _, t := range tensors[1:] {
		if t.Rows != tensors[0].Rows || t.Cols != tensors[0].Cols {
			return errShape
		}
	}
	return nil
}

// isVector tells whether t is [1,n]; without elements it may be the zero Tensor.
func isVector(t gds.Tensor, n int) bool { return t.Cols == n && (t.Rows == 1 || n == 0) }

// flatten makes one long row of matrices of one shape if all of them are dense.
func flatten[T dtype.Number](views []matrix[T]) {
	for _, m := range views {
		if m.rows > 1 && m.stride != m.cols {
			return
		}
	}
	for i, m := range views {
		views[i].rows, views[i].cols, views[i].stride = min(m.rows, 1), m.rows*m.cols, m.rows*m.cols
	}
}
