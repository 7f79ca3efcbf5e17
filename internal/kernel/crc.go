package kernel

import "hash/crc32"

// crcStep: implementation.crc takes multiples of this number of bytes.
const crcStep = 256

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C adds bytes to a checksum, which is 0 at the start. Where the bytes are not in the caches, it takes half the
// time of
//
//	crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), p)
func CRC32C(crc uint32, p []byte) uint32 {
	if whole := len(p) &^ (crcStep - 1); whole > 0 && active.crc != nil {
		crc = ^active.crc(^crc, p[:whole])
		p = p[whole:]
	}
	return crc32.Update(crc, castagnoli, p)
}
