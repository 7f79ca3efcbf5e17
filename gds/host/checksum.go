package host

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

var checksumOp = kind{name: "Checksum", tensors: 2, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if !isVector(dst, 1) {
		return errShape
	}
	if !src.Dense() {
		return errDense
	}
	sum, err := view[uint32](s.device, dst, gds.Uint32)
	if err != nil {
		return err
	}
	bytes, err := s.device.memory(src)
	if err == nil {
		sum.data[0] = kernel.CRC32C(0, bytes)
	}
	return err
}}

func (s *stream) Checksum(dst, src gds.Tensor) {
	s.push(op{kind: &checksumOp, tensors: [maxTensors]gds.Tensor{dst, src}})
}
