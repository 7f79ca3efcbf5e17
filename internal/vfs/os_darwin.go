package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// noAttribute is the error of a file without an attribute.
const noAttribute = unix.ENOATTR

// blockBytes is the unit that statfs counts in.
func blockBytes(st *unix.Statfs_t) int64 { return int64(st.Bsize) }

func exchange(onePath, otherPath string) error {
	return unix.RenamexNp(onePath, otherPath, unix.RENAME_SWAP)
}

// openDirect opens a file and keeps its reads and writes out of the page cache. They need no alignment here; asking for
// it keeps callers honest.
func openDirect(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_NOCACHE, 1); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// preallocate gives a file its size.
func preallocate(f *os.File, bytes int64) error { return WithoutPath(f.Truncate(bytes)) }
