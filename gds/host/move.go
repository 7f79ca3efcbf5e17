package host

import (
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

func (s *stream) Copy(dst, src gds.Tensor) {
	s.enqueue("Copy", func() error { return s.device.copy(dst, src) }, dst, src)
}

func (d *Device) copy(dst, src gds.Tensor) error {
	if err := sameShape(dst, src); err != nil {
		return err
	}
	dstBytes, dstBuffer, err := memory(dst)
	if err != nil {
		return err
	}
	srcBytes, srcBuffer, err := memory(src)
	if err != nil || srcBuffer == nil {
		return err
	}
	if dst.DType != src.DType {
		return errors.New("element types differ")
	}
	to, from := asBytes(dst, dstBytes), asBytes(src, srcBytes)
	arrival := srcBuffer.sendTo(dstBuffer, from.rows*from.cols)
	flatten(&to, &from)
	d.each(to.rows, to.cols, func(i, lo, hi int) { copy(to.row(i, lo, hi), from.row(i, lo, hi)) })
	d.waitFor(arrival)
	return nil
}

func (s *stream) Convert(dst, src gds.Tensor) {
	s.enqueue("Convert", func() error {
		d := s.device
		if !dst.DType.IsFloat() || !src.DType.IsFloat() {
			return errors.New("want float types")
		}
		if dst.DType == src.DType {
			return d.copy(dst, src)
		}
		if err := sameShape(dst, src); err != nil {
			return err
		}
		to, err := d.raw(dst)
		if err != nil {
			return err
		}
		from, err := d.raw(src)
		if err != nil {
			return err
		}
		dense := dst.Dense() && src.Dense()
		return d.eachRow(dst.Rows, dst.Cols, func(lo, hi int) error {
			if dense && dst.Cols > 0 { // as one long row
				convert(to.data[lo*to.cols:hi*to.cols], dst.DType, from.data[lo*from.cols:hi*from.cols], src.DType)
				return nil
			}
			for i := lo; i < hi; i++ {
				convert(to.row(i, 0, to.cols), dst.DType, from.row(i, 0, from.cols), src.DType)
			}
			return nil
		})
	}, dst, src)
}

// convert converts numbers of one float type to another.
func convert(out []byte, to gds.DType, in []byte, from gds.DType) {
	switch {
	case to == gds.Float32:
		dtype.Decode(dtype.Float32s(out), in, from)
	case from == gds.Float32:
		dtype.Encode(out, dtype.Float32s(in), to)
	default:
		wide := make([]float32, len(in)/from.Size())
		dtype.Decode(wide, in, from)
		dtype.Encode(out, wide, to)
	}
}

func (s *stream) Gather(dst, src, index gds.Tensor) {
	s.enqueue("Gather", func() error {
		d := s.device
		if !isVector(index, dst.Rows) || dst.Cols != src.Cols {
			return errShape
		}
		if dst.Rows == 0 || dst.Cols == 0 {
			return nil
		}
		if dst.DType != src.DType {
			return errors.New("element types differ")
		}
		to, err := d.raw(dst)
		if err != nil {
			return err
		}
		from, err := d.raw(src)
		if err != nil {
			return err
		}
		rows, err := view[uint32](d, index, gds.Uint32)
		if err != nil {
			return err
		}
		return d.eachRow(to.rows, to.cols, func(lo, hi int) error {
			part := rows.data[lo:hi]
			for i, row := range part {
				if int64(row) >= int64(from.rows) {
					return fmt.Errorf("index[%d] is row %d of a matrix of %d", lo+i, row, from.rows)
				}
			}
			kernel.GatherRows(to.data[lo*to.stride:], to.stride, from.data, from.stride, to.cols, part, len(to.data) >= kernel.StreamBytes)
			return nil
		})
	}, dst, src, index)
}

func (s *stream) Fill(dst gds.Tensor, value float32) {
	s.enqueue("Fill", func() error {
		if value != 0 {
			m, err := view[float32](s.device, dst, gds.Float32)
			if err == nil {
				flatten(&m)
				s.device.each(m.rows, m.cols, func(i, lo, hi int) {
					row := m.row(i, lo, hi)
					for j := range row {
						row[j] = value
					}
				})
			}
			return err
		}
		m, err := s.device.raw(dst)
		if err == nil {
			flatten(&m)
			s.device.each(m.rows, m.cols, func(i, lo, hi int) { clear(m.row(i, lo, hi)) })
		}
		return err
	}, dst)
}
