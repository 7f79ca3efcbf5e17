package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/edsrzf/mmap-go"
)

// osFile is a file that is open for reads, or being written under its temporary name. os.File.ReadAt goes on after
// interrupted and short reads.
type osFile struct {
	*os.File
	direct bool   // past the page cache, by whole pages
	ring   *ring  // nil: there is none
	path   string // that Commit gives it
	done   bool   // it is committed or aborted
}

func (f *osFile) Path() string { return f.Name() }

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Map() (bytes []byte, unmap func() error, err error) {
	size, err := f.Size()
	if err != nil {
		return nil, nil, err
	}
	if size == 0 { // mmap refuses to map nothing
		return nil, func() error { return nil }, nil
	}
	m, err := mmap.MapRegion(f.File, int(size), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, nil, pathError("map", f.Name(), err)
	}
	return m, m.Unmap, nil
}

func (f *osFile) ReadAt(p []byte, off int64) (n int, err error) {
	if !f.direct {
		return f.File.ReadAt(p, off)
	}
	// os.File.ReadAt would go on after the short read at the end of the file from an offset that is not aligned.
	err = f.pages("read", p, off, func(fd int) error {
		n, err = readBlocks(p, off, PageBytes, f.Size, func(p []byte, off int64) (int, error) {
			return f.ring.read(fd, p, off)
		})
		return err
	})
	if n == len(p) && n > 0 {
		err = nil
	}
	return n, err
}

func (f *osFile) WriteAt(p []byte, off int64) (n int, err error) {
	if !f.direct {
		return f.File.WriteAt(p, off)
	}
	err = f.pages("write", p, off, func(fd int) error {
		n, err = writeBlocks(p, off, PageBytes, func(p []byte, off int64) (int, error) {
			return f.ring.write(fd, p, off)
		})
		return err
	})
	return n, err
}

// pages does a direct read or write, with the descriptor of the file, which stays open meanwhile.
func (f *osFile) pages(op string, p []byte, off int64, do func(fd int) error) error {
	err := errUnaligned
	if off >= 0 && aligned(p, off) {
		conn, open := f.SyscallConn()
		if open == nil {
			open = conn.Control(func(fd uintptr) { err = do(int(fd)) })
		}
		if open != nil {
			err = fs.ErrClosed
		}
	}
	if err != nil && err != io.EOF {
		err = pathError(op, f.Name(), err)
	}
	return err
}

func (f *osFile) Close() error {
	err := f.File.Close()
	if !errors.Is(err, fs.ErrClosed) {
		releaseRing(f.ring)
	}
	return err
}

func (f *osFile) Commit() (err error) {
	if f.done {
		return pathError("commit", f.path, fs.ErrClosed)
	}
	f.done = true
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	_, before := os.Lstat(f.path)
	if err := rename(f.Name(), f.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		if errors.Is(before, fs.ErrNotExist) {
			os.Remove(f.path)
		}
		return err
	}
	return nil
}

func (f *osFile) Abort() error {
	if f.done {
		return nil
	}
	f.done = true
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
