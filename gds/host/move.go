package host

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/ops"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

func (s *stream) copy() error {
	v := s.views.bytes[:2]
	from, to := s.views.buffers[1], s.views.buffers[0]
	if from == nil {
		return nil
	}
	arrival := from.sendTo(to, v[1].rows*v[1].cols)
	flatten(v)
	s.each(v[0].rows, v[0].cols, func(s *stream, i, lo, hi int) {
		copy(s.views.bytes[0].row(i, lo, hi), s.views.bytes[1].row(i, lo, hi))
	})
	s.device.waitFor(arrival)
	return nil
}

func (s *stream) convert() error {
	dst, src := s.call.Tensors[0], s.call.Tensors[1]
	rows, cols := dst.Rows, dst.Cols // of numbers, not bytes, as their sizes differ
	if dst.Dense() && src.Dense() {
		flatten(s.views.bytes[:2])
		rows, cols = min(rows, 1), rows*cols
	}
	s.each(rows, cols, func(s *stream, i, lo, hi int) {
		dst, src := s.call.Tensors[0].DType, s.call.Tensors[1].DType
		convert(s.views.bytes[0].row(i, lo*dst.Size(), hi*dst.Size()), dst,
			s.views.bytes[1].row(i, lo*src.Size(), hi*src.Size()), src)
	})
	return nil
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
			out[i] = kernel.Float32ToFloat16(kernel.BFloat16ToFloat32(h))
		}
	default:
		out := dtype.Uint16s(out)
		for i, h := range dtype.Uint16s(in) {
			out[i] = kernel.Float32ToBFloat16(kernel.Float16ToFloat32(h))
		}
	}
}

func (s *stream) gather() error {
	dst, index := s.views.bytes[0], s.call.Tensors[2]
	if dst.rows == 0 || dst.cols == 0 {
		return nil
	}
	if s.overLink(1) {
		defer s.device.waitFor(s.device.in.send(dst.rows * dst.cols))
	}
	if index.DType == gds.Int64 {
		room(&s.scratch.rows, s.device.options.Threads*indexRange)
		return s.eachRow(dst.rows, dst.cols, (*stream).gather64)
	}
	return s.eachRow(dst.rows, dst.cols, func(s *stream, p part) error {
		rows, sources := vector[uint32](s, 2)[p.lo:p.hi], s.views.bytes[1].rows
		for i, row := range rows {
			if int64(row) >= int64(sources) {
				return errIndex(p.lo+i, int64(row), sources)
			}
		}
		s.gatherRows(p.lo, rows)
		return nil
	})
}

func (s *stream) scatter() error {
	src := s.views.bytes[1]
	if src.rows == 0 || src.cols == 0 {
		return nil
	}
	return s.eachRow(src.rows, src.cols, func(s *stream, p part) error {
		to, from := s.views.bytes[0], s.views.bytes[1]
		for i, row := range vector[uint32](s, 2)[p.lo:p.hi] {
			if int64(row) >= int64(to.rows) {
				return errIndex(p.lo+i, int64(row), to.rows)
			}
			copy(to.all(int(row)), from.all(p.lo+i))
		}
		return nil
	})
}

// indexRange is how many row numbers of 64 bits are brought to 32 at a time.
const indexRange = 1024

// gather64 gathers by row numbers of 64 bits.
func (s *stream) gather64(p part) error {
	rows, sources := s.scratch.rows[p.thread*indexRange:][:indexRange], min(s.views.bytes[1].rows, 1<<32)
	for lo := p.lo; lo < p.hi; lo += indexRange {
		n := min(indexRange, p.hi-lo)
		for i, row := range vector[int64](s, 2)[lo : lo+n] {
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

func (s *stream) fill() error {
	if s.call.Alpha != 0 {
		s.elementwise(1, func(c *ops.Call, _ int, v operands) {
			value, dst := c.Alpha, v[0]
			for i := range dst {
				dst[i] = value
			}
		})
		return nil
	}
	v := s.views.bytes[:1]
	flatten(v)
	s.each(v[0].rows, v[0].cols, func(s *stream, i, lo, hi int) { clear(s.views.bytes[0].row(i, lo, hi)) })
	return nil
}

func (s *stream) checksum() error {
	vector[uint32](s, 0)[0] = kernel.CRC32C(0, s.views.bytes[1].data)
	return nil
}
