package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// file is read past the page cache where that can be had. It is open the
// ordinary way too, so that a later refusal finds the very same file.
type file struct {
	device   *Device
	buffered vfs.File
	direct   vfs.File // or nil
	align    int64
	receipt  atomic.Pointer[gds.Receipt]
}

// OpenFile opens a file, for direct reads if its file system has them.
func (d *Device) OpenFile(fsys vfs.FS, path string) (gds.File, error) {
	buffered, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	f := &file{device: d, buffered: buffered}
	err = fmt.Errorf("%w: the file system has none", vfs.ErrNoDirect)
	if directer, ok := fsys.(vfs.Directer); ok {
		var align int
		f.direct, align, err = directer.OpenDirect(path)
		f.align = int64(align)
	}
	switch {
	case err == nil && page%f.align == 0:
		f.receipt.Store(&gds.Receipt{Path: "direct"})
	case err == nil:
		f.fallBack(fmt.Errorf("%w: reads would have to be aligned to %d bytes", vfs.ErrNoDirect, f.align))
	case errors.Is(err, vfs.ErrNoDirect):
		f.fallBack(withoutPath(err))
	default:
		return nil, errors.Join(err, buffered.Close())
	}
	return f, nil
}

func (f *file) fallBack(why error) {
	f.receipt.Store(&gds.Receipt{Path: "buffered", Reason: why.Error()})
}

// withoutPath is err without the name of a file, so that the same error of many files is one reason.
func withoutPath(err error) error {
	var named *fs.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

func (f *file) Receipt() gds.Receipt { return *f.receipt.Load() }

func (f *file) Close() error {
	err := f.buffered.Close()
	if f.direct != nil {
		err = errors.Join(err, f.direct.Close())
	}
	return err
}

func (f *file) ReadInto(buf gds.Buffer, bufOffset, length, offset int64) error {
	err := f.readInto(buf, bufOffset, length, offset)
	if err != nil {
		return fmt.Errorf("%s: reading %d bytes at %d: %w", f.buffered.Path(), length, offset, err)
	}
	return nil
}

func (f *file) readInto(buf gds.Buffer, bufOffset, length, offset int64) error {
	b, err := hostBuffer(buf)
	if err != nil {
		return err
	}
	if b.device != f.device && !b.pinned {
		return errors.New("the buffer is of another device")
	}
	pages, err := b.pages()
	if err != nil {
		return err
	}
	if bufOffset < 0 || length < 0 || offset < 0 || length > b.length-bufOffset {
		return fmt.Errorf("does not fit at %d of a buffer of %d bytes", bufOffset, b.length)
	}
	if bufOffset%page != 0 || offset%page != 0 {
		return fmt.Errorf("to %d of a buffer: both places must be multiples of %d", bufOffset, page)
	}
	if length == 0 {
		return nil
	}
	if f.device.options.Discrete && !b.pinned {
		arrival := f.device.in.send(int(length))
		err := f.fill(pages, bufOffset, length, offset)
		f.device.waitFor(arrival)
		return err
	}
	return f.fill(pages, bufOffset, length, offset)
}

// fill reads into memory by the best path that still works.
func (f *file) fill(pages []byte, bufOffset, length, offset int64) error {
	if f.Receipt().Path == "direct" {
		// The end is rounded up to what the disk can do; buffers are whole
		// pages. At the end of the file fewer bytes come, and an error with
		// them, which matters only if they are too few.
		end := bufOffset + (length+f.align-1)/f.align*f.align
		n, err := f.direct.ReadAt(pages[bufOffset:end], offset)
		if int64(n) >= length {
			return nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			return unexpectedEOF(err)
		}
		f.fallBack(fmt.Errorf("%w: the file system refused a read at %d (%w)", vfs.ErrNoDirect, offset, withoutPath(err)))
	}
	n, err := f.buffered.ReadAt(pages[bufOffset:bufOffset+length], offset)
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
