package offheap

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages; a kernel without them ignores it.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// populate needs Linux 5.14.
func populate(b []byte) error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }
