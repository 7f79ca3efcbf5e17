package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenDirect tries a read before it promises any, because filesystems may accept the open and refuse reads.
func (osFS) OpenDirect(path string) (File, error) {
	// What is wrong with the file itself shows here.
	buffered, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer buffered.Close()
	raw, err := openDirect(path, os.O_RDONLY)
	if err != nil {
		return nil, noDirect(path, err)
	}
	f := &osFile{File: raw, direct: true, ring: acquireRing()}
	if _, err := f.ReadAt(AlignedBytes(PageBytes, PageBytes), 0); err != nil && err != io.EOF {
		f.Close()
		return nil, noDirect(path, err)
	}
	return f, nil
}

// noDirect is the error that direct reads or writes are refused, and why.
func noDirect(path string, why error) error {
	return pathError("open", path, fmt.Errorf("%w: %w", ErrNoDirect, WithoutPath(why)))
}

// CreateDirect tries a write before it promises any, as OpenDirect does with reads.
func (osFS) CreateDirect(path string, bytes int64) (_ PendingFile, err error) {
	if bytes < MinDirect {
		return nil, noDirect(path, errSmall)
	}
	if path, err = followLink(path); err != nil {
		return nil, err
	}
	temp := path + TempSuffix
	// What is wrong with the folder, or with what is left there, shows here.
	buffered, err := createTemp(temp)
	if err != nil {
		return nil, err
	}
	if err := buffered.Close(); err != nil {
		return nil, errors.Join(err, os.Remove(temp))
	}
	raw, err := openDirect(temp, os.O_RDWR)
	if err != nil {
		return nil, errors.Join(noDirect(path, err), os.Remove(temp))
	}
	f := &osFile{File: raw, direct: true, ring: acquireRing(), path: path}
	if err := preallocate(raw, bytes); err != nil {
		return nil, errors.Join(pathError("allocate", temp, err), f.Abort())
	}
	if _, err := f.WriteAt(AlignedBytes(PageBytes, PageBytes), 0); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			err = noDirect(path, err)
		}
		return nil, errors.Join(err, f.Abort())
	}
	return f, nil
}

// MinDirect is the size of files, in bytes, from which on the operating system's files are written directly: direct
// writes of smaller ones are not worth their calls.
const MinDirect = 1 << 20

var errSmall = errors.New("the file is small")

// writeBlocks writes all of p. What is interrupted is done again, and what is cut short goes on from its last whole
// block.
func writeBlocks(p []byte, off int64, align int, pwrite func([]byte, int64) (int, error)) (n int, err error) {
	for n < len(p) {
		m, err := pwrite(p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, err
		case m < align && m < len(p)-n:
			return n, io.ErrShortWrite
		}
		n += m / align * align
	}
	return n, nil
}

// PageBytes is the alignment of direct reads and writes: the page size that drives and filesystems agree on, and what
// the file format aligns to. Files that would need more are read and written through the page cache.
const PageBytes = 4096

// WholePages is a number of bytes rounded up to whole pages.
func WholePages(bytes int64) int64 { return (bytes + PageBytes - 1) / PageBytes * PageBytes }

// PagedBytes is the memory that ReadPages takes to read bytes.
func PagedBytes(bytes int64) int64 { return WholePages(bytes) + PageBytes }

// ReadPages reads bytes from byte at of a file into buf, together with the rest of their pages, so that PastCache
// reads them past the page cache where buf is page-aligned. It returns where they are in buf, and buf after them, a
// multiple of PageBytes further. buf has PagedBytes(bytes) or more.
func ReadPages(f File, buf []byte, at, bytes int64) (data, rest []byte, err error) {
	skip := at % PageBytes
	span := WholePages(skip + bytes)
	n, err := f.ReadAt(buf[:span], at-skip)
	if int64(n) >= skip+bytes { // the last page of a file may end before it is whole
		return buf[skip : skip+bytes : skip+bytes], buf[span:], nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return buf[:max(0, int64(n)-skip)], buf, err
}

// AlignedBytes makes memory that starts at a multiple of align.
func AlignedBytes(size, align int) []byte {
	b := make([]byte, size+align)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (align - 1)
	return b[skip : skip+size : skip+size]
}

// aligned tells whether a direct read or write is allowed.
func aligned(p []byte, off int64) bool {
	return (uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))|uint64(len(p))|uint64(off))%PageBytes == 0
}

var errUnaligned = errors.New("direct read or write whose offset, length or memory is not aligned")

// readBlocks reads until p is full or the file ends. What is interrupted is done again, and what is cut short goes on
// from its last whole block; a file system that gives no whole block is one that refuses (EINVAL).
func readBlocks(p []byte, off int64, align int, size func() (int64, error),
	pread func([]byte, int64) (int, error)) (n int, err error) {
	for n < len(p) {
		m, err := pread(p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, err
		case m == 0:
			return n, io.EOF
		case m%align == 0:
			n += m
			continue
		}
		end, err := size()
		if err != nil {
			return n, err
		}
		if off+int64(n+m) >= end {
			return n + m, io.EOF
		}
		if m < align {
			return n, unix.EINVAL
		}
		n += m / align * align
	}
	return n, nil
}
