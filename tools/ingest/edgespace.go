package ingest

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// scratchSpace is bytes that are written and read at offsets, in memory off the Go heap or in a scratch file. The file
// is read under its temporary name and never committed, so nothing waits for the disk. It is safe for concurrent use.
type scratchSpace struct {
	memory *offheap.Buffer

	mu      sync.Mutex
	pending vfs.PendingFile
	file    vfs.File
}

func newMemorySpace(bytes int64) (*scratchSpace, error) {
	b, err := offheap.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	return &scratchSpace{memory: b}, nil
}

func newFileSpace(fsys vfs.FS, path string) (*scratchSpace, error) {
	pending, err := fsys.Create(path)
	if err != nil {
		return nil, err
	}
	file, err := fsys.Open(path + vfs.TempSuffix)
	if err != nil {
		return nil, errors.Join(err, pending.Abort())
	}
	return &scratchSpace{pending: pending, file: file}, nil
}

func (s *scratchSpace) WriteAt(p []byte, off int64) (int, error) {
	if s.memory != nil {
		return s.copyAt(off, len(p), func(b []byte) int { return copy(b, p) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.WriteAt(p, off)
}

// copyAt copies n bytes at an offset, which it checks: it may come from damaged bytes.
func (s *scratchSpace) copyAt(off int64, n int, copyTo func([]byte) int) (int, error) {
	b := s.memory.Bytes()
	if off < 0 || off > int64(len(b)) || int64(n) > int64(len(b))-off {
		return 0, fmt.Errorf("%d bytes at offset %d of a scratch buffer of %d bytes: %w",
			n, off, len(b), io.ErrUnexpectedEOF)
	}
	return copyTo(b[off:]), nil
}

// ReadAt fills p, or returns an error.
func (s *scratchSpace) ReadAt(p []byte, off int64) (int, error) {
	if s.memory != nil {
		return s.copyAt(off, len(p), func(b []byte) int { return copy(p, b) })
	}
	n, err := s.file.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: the scratch file ends at byte %d: %w", s.file.Path(), off+int64(n), io.ErrUnexpectedEOF)
	}
	return n, err
}

// free frees the memory or removes the file. A second call does nothing.
func (s *scratchSpace) free() (err error) {
	switch {
	case s == nil:
	case s.memory != nil:
		err = s.memory.Free()
	case s.pending != nil:
		err = errors.Join(s.file.Close(), s.pending.Abort())
	}
	if s != nil {
		s.memory, s.pending = nil, nil
	}
	return err
}
