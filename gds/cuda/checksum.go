//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
)

var (
	checksumPartsKernel = newKernel("checksum", "checksum_parts")
	checksumWholeKernel = newKernel("checksum", "checksum_whole")
)

// checksumWords is part_words of kernels/checksum.cu.
const checksumWords = 256 * 32

func (s *stream) Checksum(dst, src gds.Tensor) {
	s.enqueue("Checksum", []gds.Tensor{dst, src}, func(c *call) {
		c.require(isVector(dst, 1), errShape)
		c.require(src.Dense(), errors.New("the rows of the matrix do not touch"))
		to, from := c.typed(dst, gds.Uint32), c.address(src)
		bytes := gds.Bytes(src.Rows, src.Cols, src.DType)
		words := uint64(bytes / 4)
		count := (words + checksumWords - 1) / checksumWords
		c.require(count < 1<<31, errors.New("the matrix is too large"))
		parts := c.scratch(int(4 * max(count, 1)))
		c.number(parts)
		c.number(from)
		c.number(words)
		c.launch(checksumPartsKernel, C.hopfeed_shape{grid_x: C.uint(count), grid_y: 1, block_x: 256, block_y: 1})
		c.number(to)
		c.number(parts)
		c.number(count)
		c.number(uint64(multiplyCRC(^uint32(0), powerCRC(32*words))))
		c.number(from + 4*words)
		c.number(uint64(bytes % 4))
		c.launch(checksumWholeKernel, C.hopfeed_shape{grid_x: 1, grid_y: 1, block_x: 1, block_y: 1})
	})
}

// multiplyCRC and powerCRC are multiply and power of kernels/checksum.cu.
func multiplyCRC(a, b uint32) (product uint32) {
	for bit := uint32(1 << 31); bit > 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		b = b>>1 ^ 0x82f63b78*(b&1)
	}
	return product
}

func powerCRC(n uint64) uint32 {
	result, base := uint32(1<<31), uint32(1<<30)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			result = multiplyCRC(result, base)
		}
		base = multiplyCRC(base, base)
	}
	return result
}
