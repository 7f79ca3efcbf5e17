package gds

// Room is what is allocated where n bytes, or rows, are needed and more may be later: a quarter more, so that
// what grows with batches is allocated seldom.
func Room(n int64) int64 { return n + n/4 }

// Aligned is bytes, rounded up to a multiple of Align.
func Aligned(bytes int64) int64 { return (bytes + Align - 1) / Align * Align }

// AllocateRoom calls allocate(wanted), in bytes or rows, and, if memory is too small, allocate(needed).
// After an error, allocate has allocated nothing.
func AllocateRoom(needed, wanted int64, allocate func(n int64) error) error {
	err := allocate(wanted)
	if err != nil && wanted > needed {
		err = allocate(needed)
	}
	return err
}
