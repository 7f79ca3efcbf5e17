package host

import "github.com/hopfeed/hopfeed/internal/kernel"

func (s *stream) checksum() error {
	vector[uint32](s, 0)[0] = kernel.CRC32C(0, s.views.bytes[1].data)
	return nil
}
