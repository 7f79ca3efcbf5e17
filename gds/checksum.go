package gds

// ChecksumOps compute checksums of memory, so that what is read into a device is checked there.
type ChecksumOps interface {
	// Checksum sets dst, uint32 [1,1], to the CRC-32C of the bytes of src, which is dense and of any type. Go's
	// hash/crc32 gives the same with the polynomial of Castagnoli.
	Checksum(dst, src Tensor)
}
