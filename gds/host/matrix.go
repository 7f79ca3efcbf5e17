package host

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/ops"
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

// all is row i, all of it.
func (m matrix[T]) all(i int) []T { return m.row(i, 0, m.cols) }

// views holds slices of an operation's tensors for the body of a loop.
type views struct {
	floats  [ops.MaxTensors]matrix[float32] // of tensors of float32
	bytes   [ops.MaxTensors]matrix[byte]    // of tensors of any type
	buffers [ops.MaxTensors]*buffer         // nil: without elements

	errorLoss func(e float64) (loss, slope float64) // what addErrors runs
	// What the loops of the same names run:
	lossBody    func(s *stream, p part) (loss float64, err error)
	eachBody    func(s *stream, row, lo, hi int)
	elementBody elementBody
	rowBody     func(s *stream, row int)
	sumBody     func(s *stream, sum []float32, row int)
	elements    int // tensors of elementBody
	cols        int // of the rows of eachBody, and of the sums of sumBody

	edges edgeViews
	graph graphView
}

// vector is the elements of tensor i of the operation, a vector of T.
func vector[T dtype.Number](s *stream, i int) []T { return dtype.As[T](s.views.bytes[i].data) }

// view views the tensors of the operation. Their memory must be the device's, or other memory that the operation may
// reach.
func (s *stream) view() error {
	for i := range s.call.Count() {
		t := &s.call.Tensors[i]
		size := t.DType.Size()
		s.views.floats[i] = matrix[float32]{rows: t.Rows, cols: t.Cols, stride: t.Stride}
		s.views.bytes[i] = matrix[byte]{rows: t.Rows, cols: t.Cols * size, stride: t.Stride * size}
		if t.Rows == 0 || t.Cols == 0 {
			continue
		}
		b, err := hostBuffer(t.Buf)
		if err != nil {
			return err
		}
		pages, err := b.use()
		if err != nil {
			return err
		}
		s.views.buffers[i] = b
		allowed := s.call.Memory(i)
		mapped := allowed == ops.MappedMemory && b.pinned && !s.device.options.Unmapped
		if allowed != ops.AnyMemory && !mapped && b.owner() != s.device {
			return errMemory(*t)
		}
		length := (int64(t.Rows-1)*int64(t.Stride) + int64(t.Cols)) * int64(size)
		bytes := pages[t.Offset : t.Offset+length : t.Offset+length]
		s.views.bytes[i].data = bytes
		if t.DType == gds.Float32 {
			s.views.floats[i].data = dtype.As[float32](bytes)
		}
	}
	return nil
}

func errMemory(t gds.Tensor) error {
	return fmt.Errorf("tensor %v is memory that the operation does not read: pinned, or of another device", t)
}

// overLink tells whether tensor i is read over the link, from pinned memory.
func (s *stream) overLink(i int) bool { return s.views.buffers[i] != nil && s.views.buffers[i].pinned }

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
