//go:build cuda && cgo && linux

package cuda

import "github.com/hopfeed/hopfeed/gds"

type blasHandle struct{}

func (blasHandle) destroy() error   { return nil }
func (blasHandle) use(*stream) bool { return false }
func (blasHandle) gemm(s *stream, transA, transB bool, alpha float32, a, b gds.Tensor, beta float32, c gds.Tensor, at [3]uint64, inner int) error {
	return nil
}
