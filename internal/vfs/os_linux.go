package vfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// noAttribute is the error of a file without an attribute.
const noAttribute = unix.ENODATA

// blockBytes is the unit that statfs counts in.
func blockBytes(st *unix.Statfs_t) int64 {
	if st.Frsize > 0 {
		return st.Frsize
	}
	return st.Bsize
}

func exchange(onePath, otherPath string) error {
	return unix.Renameat2(unix.AT_FDCWD, onePath, unix.AT_FDCWD, otherPath, unix.RENAME_EXCHANGE)
}

// openDirect opens a file with O_DIRECT.
func openDirect(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	if err := checkDirect(int(f.Fd())); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkDirect fails where direct reads and writes of whole pages are refused, or do not bypass the page cache.
func checkDirect(fd int) error {
	// Newer tmpfs accept O_DIRECT, and read from the page cache all the same.
	var fsys unix.Statfs_t
	if err := retryInterrupted(func() error { return unix.Fstatfs(fd, &fsys) }); err == nil &&
		fsys.Type == unix.TMPFS_MAGIC {
		return errors.New("tmpfs keeps its files in the page cache")
	}
	var st unix.Statx_t
	err := retryInterrupted(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) })
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return nil // kernels before 6.1 cannot tell; the first read will
	}
	if st.Dio_offset_align == 0 {
		return errors.New("the filesystem reads and writes this file through the page cache only")
	}
	if align := max(st.Dio_offset_align, st.Dio_mem_align); align > PageBytes {
		return fmt.Errorf("reads and writes would have to be aligned to %d bytes", align)
	}
	return nil
}

// preallocate gives a file its size and its room on disk, so that writes of its parts need not wait for one another.
// Where the file system cannot, the file has its size.
func preallocate(f *os.File, bytes int64) error {
	err := retryInterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, bytes) })
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.EINVAL {
		return WithoutPath(f.Truncate(bytes))
	}
	return err
}

// Cached tells whether the page cache has a range of the file, where the kernel tells (from 6.5 on).
func (f *osFile) Cached(off, length int64) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	cached := false
	_ = conn.Control(func(fd uintptr) { // else the file is closed
		var in unix.Cachestat_t
		err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(length)}, &in, 0)
		cached = err == nil && int64(in.Cache)*int64(os.Getpagesize()) >= length
	})
	return cached
}
