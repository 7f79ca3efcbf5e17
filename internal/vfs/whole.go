package vfs

import (
	"errors"
	"fmt"
	"io"
)

// ErrSize is returned when a file is longer than it can be, or ends while it is read.
var ErrSize = errors.New("wrong size")

// ReadFile reads a file of at most maxBytes bytes. Another file may take its place meanwhile; what is read is of one of
// the two.
func ReadFile(fsys FS, path string, maxBytes int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxBytes {
		return nil, pathError("read", path, fmt.Errorf("%w: it has %d bytes, at most %d are expected", ErrSize, size,
			maxBytes))
	}
	b := AlignedBytes(int(size), PageBytes) // whether it is read past the page cache depends on its size alone
	if n, err := f.ReadAt(b, 0); int64(n) < size {
		if err == io.EOF {
			err = pathError("read", path, fmt.Errorf("%w: it ends after %d of its %d bytes", ErrSize, n, size))
		}
		return nil, err
	}
	return b, nil
}

// WriteFile writes a file, whole and durable: after an error there is what was there before.
func WriteFile(fsys FS, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}
