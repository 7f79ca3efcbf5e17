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

// edgeArea is bytes that are written and read at places, in memory off the Go heap
// or in a file. The file is never committed: it is read under its temporary name,
// and nothing waits for the disk. It is safe for concurrent use.
type edgeArea struct {
	memory *offheap.Buffer

	mu      sync.Mutex
	pending vfs.PendingFile
	file    vfs.File
}

func newAreaMemory(bytes int64) (*edgeArea, error) {
	b, err := offheap.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	return &edgeArea{memory: b}, nil
}

func newAreaFile(fsys vfs.FS, path string) (*edgeArea, error) {
	pending, err := fsys.Create(path)
	if err != nil {
		return nil, err
	}
	file, err := fsys.Open(path + vfs.TempSuffix)
	if err != nil {
		return nil, errors.Join(err, pending.Abort())
	}
	return &edgeArea{pending: pending, file: file}, nil
}

func (s *edgeArea) WriteAt(p []byte, off int64) (int, error) {
	if s.memory != nil {
		return s.copyAt(off, len(p), func(b []byte) int { return copy(b, p) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.WriteAt(p, off)
}

// copyAt keeps a place that came from damaged bytes from being touched.
func (s *edgeArea) copyAt(off int64, n int, copyTo func([]byte) int) (int, error) {
	b := s.memory.Bytes()
	if off < 0 || off > int64(len(b)) || int64(n) > int64(len(b))-off {
		return 0, fmt.Errorf("%d bytes at %d of %d: %w", n, off, len(b), io.ErrUnexpectedEOF)
	}
	return copyTo(b[off:]), nil
}

// ReadAt reads all of p.
func (s *edgeArea) ReadAt(p []byte, off int64) (int, error) {
	if s.memory != nil {
		return s.copyAt(off, len(p), func(b []byte) int { return copy(p, b) })
	}
	n, err := s.file.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: cut short at byte %d: %w", s.file.Path(), off+int64(n), io.ErrUnexpectedEOF)
	}
	return n, err
}

// free gives memory or disk back. A second call does nothing.
func (s *edgeArea) free() (err error) {
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
