package gdstest

import (
	"fmt"
	"hash/crc32"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

var checksumTests = []test{
	{"Checksum is the CRC-32C of bytes", func(b *fixture) {
		table := crc32.MakeTable(crc32.Castagnoli)
		lengths := []int{0, 1, 2, 3, 4, 5, 7, 8, 1023, 1024, 1025, 4096, 32767, 32768, 32769, 65536, 100_003, 1_000_001}
		for i, n := range lengths {
			for _, l := range []layout{dense, shifted, {"on a word", 8, 0}} {
				b.at(fmt.Sprintf("bytes=%d,%s", n, l.name), func(b *fixture) {
					content := b.random(n)
					if i%3 == 1 {
						clear(content) // zeros have a checksum too
					}
					sum := b.array(shifted, 1, 1, gds.Uint32, nil)
					b.stream.Checksum(sum.Tensor, b.array(l, 1, n, gds.Uint8, content).Tensor)
					if got, want := dtype.Uint32s(b.bytes(sum))[0], crc32.Checksum(content, table); got != want {
						b.Errorf("%#x, want %#x", got, want)
					}
				})
			}
		}
		b.at("a matrix of floats", func(b *fixture) {
			values := b.normal(70 * 30)
			sum := b.array(dense, 1, 1, gds.Uint32, nil)
			b.stream.Checksum(sum.Tensor, b.floats(shifted, 70, 30, values).Tensor)
			if got, want := dtype.Uint32s(b.bytes(sum))[0], crc32.Checksum(dtype.BytesOf(values), table); got != want {
				b.Errorf("%#x, want %#x", got, want)
			}
		})
	}},
}
