// Package readpath reads files into memory for all devices: it chooses the path, goes on by another when one does not
// work, writes receipts, and checks ranges. A device brings a ReadFunc, which moves bytes into its memory.
package readpath

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ReadFunc fills buf[bufOffset : bufOffset+length], which lies in the buffer, with the bytes of f at offset, by f.Fill
// where the host can write to the memory. It runs in several goroutines at once.
type ReadFunc func(f *File, buf gds.Buffer, bufOffset, length, offset int64) error

// File is a gds.File, read past the page cache where possible. It is open for buffered reads too, so that after a
// refused direct read the very same file is read.
type File struct {
	read     ReadFunc
	buffered vfs.File
	direct   vfs.File // or nil
	receipt  atomic.Pointer[gds.Receipt]
	library  atomic.Pointer[library]
	closing  func() // what a library has made for it
}

// library reads files by itself, as long as it can.
type library struct{ file uintptr }

var _ gds.File = (*File)(nil)

// Open opens a file, for direct reads if its file system has them.
func Open(fsys vfs.FS, path string, read ReadFunc) (*File, error) {
	buffered, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{read: read, buffered: buffered}
	err = fmt.Errorf("%w: the file system has none", vfs.ErrNoDirect)
	if directer, ok := fsys.(vfs.Directer); ok {
		f.direct, err = directer.OpenDirect(path)
	}
	switch {
	case err == nil:
		f.receipt.Store(&gds.Receipt{Path: "direct"})
	case errors.Is(err, vfs.ErrNoDirect):
		if r, ok := buffered.(vfs.Receipter); ok {
			path, reason := r.Receipt()
			f.receipt.Store(&gds.Receipt{Path: path, Reason: reason})
			break
		}
		f.fallBack(vfs.WithoutPath(err))
	default:
		return nil, errors.Join(err, buffered.Close())
	}
	return f, nil
}

func (f *File) fallBack(why error) {
	f.library.Store(nil)
	f.receipt.Store(&gds.Receipt{Path: "buffered", Reason: why.Error()})
}

// Descriptor is the file descriptor, if it is open for direct reads and has one.
func (f *File) Descriptor() (descriptor uintptr, ok bool) {
	if f.Receipt().Path != "direct" {
		return 0, false
	}
	d, ok := f.direct.(vfs.Descriptor)
	if !ok {
		return 0, false
	}
	return d.Fd(), true
}

// UseLibrary makes a library read the file, by a path, for a reason if there is a better one. close is
// called before the file is closed. It must be called before the first read.
func (f *File) UseLibrary(path, reason string, file uintptr, close func()) {
	f.closing = close
	f.library.Store(&library{file})
	f.receipt.Store(&gds.Receipt{Path: path, Reason: reason})
}

// Library is the library's file, unless it has none, or was given up.
func (f *File) Library() (file uintptr, ok bool) {
	if l := f.library.Load(); l != nil {
		return l.file, true
	}
	return 0, false
}

// GiveUpLibrary goes on without the library.
func (f *File) GiveUpLibrary(why error) {
	if f.library.Swap(nil) != nil {
		f.receipt.Store(&gds.Receipt{Path: "direct", Reason: why.Error()})
	}
}

// Explain says why a file that is read directly is not read by a better path.
func (f *File) Explain(why error) {
	if r := f.Receipt(); r.Path == "direct" {
		f.receipt.Store(&gds.Receipt{Path: r.Path, Reason: why.Error()})
	}
}

// Doubt implements vfs.Doubter.
func (f *File) Doubt(off, bytes int64) bool { return vfs.Doubt(f.buffered, off, bytes) }

func (f *File) Receipt() gds.Receipt { return *f.receipt.Load() }

func (f *File) Close() error {
	if f.closing != nil {
		f.closing()
		f.closing = nil
	}
	f.library.Store(nil)
	err := f.buffered.Close()
	if f.direct != nil {
		err = errors.Join(err, f.direct.Close())
	}
	return err
}

func (f *File) ReadInto(buf gds.Buffer, bufOffset, length, offset int64) error {
	err := checkRange(buf, bufOffset, length, offset)
	if err == nil && length > 0 {
		err = f.read(f, buf, bufOffset, length, offset)
	}
	if err != nil {
		return fmt.Errorf("%s: reading %d bytes at %d: %w", f.buffered.Path(), length, offset, err)
	}
	return nil
}

func checkRange(buf gds.Buffer, bufOffset, length, offset int64) error {
	if bufOffset < 0 || length < 0 || offset < 0 || length > buf.Len()-bufOffset {
		return fmt.Errorf("does not fit at %d of a buffer of %d bytes", bufOffset, buf.Len())
	}
	if bufOffset%gds.Align != 0 || offset%gds.Align != 0 {
		return fmt.Errorf("to %d of a buffer: both places must be multiples of %d", bufOffset, gds.Align)
	}
	return nil
}

// Fill reads length bytes at offset to the start of memory by the best path that still works. memory begins at a
// multiple of gds.Align and is at least length rounded up to one; what lies between may be overwritten.
func (f *File) Fill(memory []byte, length, offset int64) error {
	if f.direct != nil && f.Receipt().Path != "buffered" {
		// The end is rounded up to what the disk can do. At the end of the file fewer bytes
		// come, and an error with them, which matters only if they are too few.
		n, err := f.direct.ReadAt(memory[:vfs.WholePages(length)], offset)
		if int64(n) >= length {
			return nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			return unexpectedEOF(err)
		}
		f.fallBack(fmt.Errorf("%w: the file system refused a read at %d (%w)", vfs.ErrNoDirect, offset,
			vfs.WithoutPath(err)))
	}
	n, err := f.buffered.ReadAt(memory[:length], offset)
	if int64(n) == length {
		return nil
	}
	return unexpectedEOF(err)
}

// unexpectedEOF is the error of a read that brought too few bytes.
func unexpectedEOF(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
