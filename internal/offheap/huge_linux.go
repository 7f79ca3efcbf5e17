package offheap

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages; a kernel without them ignores it.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// populate has memory there at once, and leaves its content. A kernel before 5.14 cannot.
func populate(b []byte) error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }
