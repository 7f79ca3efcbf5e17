package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

var errTypes = errors.New("element types differ")

var copyOp = kind{name: "Copy", tensors: 2, run: (*stream).copy}

func (s *stream) Copy(dst, src gds.Tensor) {
	s.push(op{kind: &copyOp, tensors: [maxTensors]gds.Tensor{dst, src}})
}

func (s *stream) copy() error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if err := sameShape(dst, src); err != nil {
		return err
	}
	to, dstBuffer, err := memory(dst)
	if err != nil {
		return err
	}
	from, srcBuffer, err := memory(src)
	if err != nil || srcBuffer == nil {
		return err
	}
	if dst.DType != src.DType {
		return errTypes
	}
	s.views.bytes = [2]matrix[byte]{asBytes(dst, to), asBytes(src, from)}
	v := s.views.bytes[:]
	arrival := srcBuffer.sendTo(dstBuffer, v[1].rows*v[1].cols)
	flatten(v)
	s.each(v[0].rows, v[0].cols, func(s *stream, i, lo, hi int) {
		copy(s.views.bytes[0].row(i, lo, hi), s.views.bytes[1].row(i, lo, hi))
	})
	s.device.waitFor(arrival)
	return nil
}

// viewBytes views the first tensors of the operation as bytes.
func (s *stream) viewBytes(tensors int) (err error) {
	for i, t := range s.op.tensors[:tensors] {
		if s.views.bytes[i], err = s.device.raw(t); err != nil {
			return err
		}
	}
	return nil
}

var convertOp = kind{name: "Convert", tensors: 2, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if !dst.DType.IsFloat() || !src.DType.IsFloat() {
		return errors.New("want float types")
	}
	if err := sameShape(dst, src); err != nil {
		return err
	}
	if err := s.viewBytes(2); err != nil {
		return err
	}
	v := s.views.bytes[:]
	if dst.Dense() && src.Dense() {
		flatten(v)
	}
	// By numbers, not bytes, as their sizes differ.
	s.each(v[0].rows, v[0].cols/dst.DType.Size(), func(s *stream, i, lo, hi int) {
		dst, src := s.op.tensors[0].DType, s.op.tensors[1].DType
		convert(s.views.bytes[0].row(i, lo*dst.Size(), hi*dst.Size()), dst,
			s.views.bytes[1].row(i, lo*src.Size(), hi*src.Size()), src)
	})
	return nil
}}

func (s *stream) Convert(dst, src gds.Tensor) {
	s.push(op{kind: &convertOp, tensors: [maxTensors]gds.Tensor{dst, src}})
}

// convert converts numbers of one float type to another, or the same.
func convert(out []byte, to gds.DType, in []byte, from gds.DType) {
	switch {
	case to == from:
		copy(out, in)
	case to == gds.Float32:
		dtype.Decode(dtype.Float32s(out), in, from)
	case from == gds.Float32:
		dtype.Encode(out, dtype.Float32s(in), to)
	case to == gds.Float16:
		out := dtype.Uint16s(out)
		for i, h := range dtype.Uint16s(in) {
			out[i] = dtype.Float32ToFloat16(dtype.BFloat16ToFloat32(h))
		}
	default:
		out := dtype.Uint16s(out)
		for i, h := range dtype.Uint16s(in) {
			out[i] = dtype.Float32ToBFloat16(dtype.Float16ToFloat32(h))
		}
	}
}

var gatherOp = kind{name: "Gather", tensors: 3, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	var arrival time.Time
	if src.Pinned() { // the rows come over the link
		arrival = s.device.in.send(dst.Rows * dst.Cols * dst.DType.Size())
	}
	err := s.gather()
	s.device.waitFor(arrival)
	return err
}}

func (s *stream) gather() (err error) {
	dst, src, index := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if !isVector(index, dst.Rows) || dst.Cols != src.Cols {
		return errShape
	}
	if dst.Rows == 0 || dst.Cols == 0 {
		return nil
	}
	if dst.DType != src.DType {
		return errTypes
	}
	if err := s.viewBytes(1); err != nil {
		return err
	}
	from, _, err := s.device.mapped(src)
	if err != nil {
		return err
	}
	s.views.bytes[1] = asBytes(src, from)
	if index.DType == gds.Int64 {
		rows, err := view[int64](s.device, index, gds.Int64)
		if err != nil {
			return err
		}
		s.views.index64 = rows.data
		room(&s.scratch.rows, s.device.options.Threads*indexBlock)
		return s.eachRow(dst.Rows, s.views.bytes[0].cols, (*stream).gather64)
	}
	rows, err := view[uint32](s.device, index, gds.Uint32)
	if err != nil {
		return err
	}
	s.views.index = rows.data
	return s.eachRow(dst.Rows, s.views.bytes[0].cols, func(s *stream, p part) error {
		rows, sources := s.views.index[p.lo:p.hi], s.views.bytes[1].rows
		for i, row := range rows {
			if int64(row) >= int64(sources) {
				return errIndex(p.lo+i, int64(row), sources)
			}
		}
		s.gatherRows(p.lo, rows)
		return nil
	})
}

func (s *stream) Gather(dst, src, index gds.Tensor) {
	s.push(op{kind: &gatherOp, tensors: [maxTensors]gds.Tensor{dst, src, index}})
}

var scatterOp = kind{name: "Scatter", tensors: 3, run: func(s *stream) error {
	dst, src, index := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if !isVector(index, src.Rows) || dst.Cols != src.Cols {
		return errShape
	}
	if src.Rows == 0 || src.Cols == 0 {
		return nil
	}
	if dst.DType != src.DType {
		return errTypes
	}
	if err := s.viewBytes(2); err != nil {
		return err
	}
	rows, err := view[uint32](s.device, index, gds.Uint32)
	if err != nil {
		return err
	}
	s.views.index = rows.data
	return s.eachRow(src.Rows, s.views.bytes[1].cols, func(s *stream, p part) error {
		to, from := s.views.bytes[0], s.views.bytes[1]
		for i := p.lo; i < p.hi; i++ {
			row := int64(s.views.index[i])
			if row >= int64(to.rows) {
				return errIndex(i, row, to.rows)
			}
			copy(to.row(int(row), 0, to.cols), from.row(i, 0, from.cols))
		}
		return nil
	})
}}

func (s *stream) Scatter(dst, src, index gds.Tensor) {
	s.push(op{kind: &scatterOp, tensors: [maxTensors]gds.Tensor{dst, src, index}})
}

// indexBlock is how many row numbers of 64 bits are brought to 32 at a time.
const indexBlock = 1024

// gather64 gathers by row numbers of 64 bits.
func (s *stream) gather64(p part) error {
	rows, sources := s.scratch.rows[p.thread*indexBlock:][:indexBlock], min(s.views.bytes[1].rows, 1<<32)
	for lo := p.lo; lo < p.hi; lo += indexBlock {
		n := min(indexBlock, p.hi-lo)
		for i, row := range s.views.index64[lo : lo+n] {
			if row < 0 || row >= int64(sources) {
				return errIndex(lo+i, row, sources)
			}
			rows[i] = uint32(row)
		}
		s.gatherRows(lo, rows[:n])
	}
	return nil
}

func errIndex(i int, row int64, rows int) error {
	return fmt.Errorf("index[%d] is row %d of a matrix of %d", i, row, rows)
}

// gatherRows copies the given rows of src to dst, from its row at on.
func (s *stream) gatherRows(at int, rows []uint32) {
	to, from := s.views.bytes[0], s.views.bytes[1]
	kernel.GatherRows(to.data[at*to.stride:], to.stride, from.data, from.stride, to.cols, rows,
		len(to.data) >= kernel.StreamBytes)
}

var fillOp = kind{name: "Fill", tensors: 1, run: func(s *stream) error {
	if s.op.alpha == 0 {
		if err := s.viewBytes(1); err != nil {
			return err
		}
		flatten(s.views.bytes[:1])
		s.each(s.views.bytes[0].rows, s.views.bytes[0].cols,
			func(s *stream, i, lo, hi int) { clear(s.views.bytes[0].row(i, lo, hi)) })
		return nil
	}
	return s.elementwise(func(o *op, _ int, v [maxTensors][]float32) {
		value, dst := o.alpha, v[0]
		for i := range dst {
			dst[i] = value
		}
	})
}}

func (s *stream) Fill(dst gds.Tensor, value float32) {
	s.push(op{kind: &fillOp, tensors: [maxTensors]gds.Tensor{dst}, alpha: value})
}
