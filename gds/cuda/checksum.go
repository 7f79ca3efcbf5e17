//go:build cuda && cgo && linux

package cuda

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
)

// checksumWords is part_words of kernels/checksum.cu.
const checksumWords = 256 * 32

func (c *call) checksum() {
	src, from := c.Tensors[1], c.at[1]
	bytes := gds.Bytes(src.Rows, src.Cols, src.DType)
	words := uint64(bytes / 4)
	count := (words + checksumWords - 1) / checksumWords
	if count >= 1<<31 {
		c.err = errors.New("the matrix is too large")
		return
	}
	parts := c.scratch(int(4 * max(count, 1)))
	c.launch("checksum_parts", blocks(int(count)), parts, from, words)
	c.launch("checksum_whole", shape{1, 1, 1, 1}, vector(0), parts, count, multiplyCRC(^uint32(0), powerCRC(32*words)),
		from+4*words, uint64(bytes%4))
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
