package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// columnFileLayout tells where the rows are in a column file, a scratch file with a range of columns of one matrix:
// blocks of rows, row-major, one after another, then the CRC-32C of each block, then the CRC-32C of these checksums. A
// column file appears under its name when it is whole and durable, so a job that was killed finds what it had finished.
type columnFileLayout struct {
	bounds   []int64 // row with which each block begins, and the number of rows
	rowBytes int64
}

// evenBounds are the bounds of blocks of blockRows rows; the last one may have fewer.
func evenBounds(rows, blockRows int64) (bounds []int64) {
	for row := int64(0); row < rows; row += blockRows {
		bounds = append(bounds, row)
	}
	return append(bounds, rows)
}

func (s *columnFileLayout) blocks() int { return len(s.bounds) - 1 }

// rows are the rows [first, end) of block k.
func (s *columnFileLayout) rows(k int) (first, end int64) { return s.bounds[k], s.bounds[k+1] }

// dataBytes is the size of all blocks, and size that of the file.
func (s *columnFileLayout) dataBytes() int64 { return s.bounds[s.blocks()] * s.rowBytes }
func (s *columnFileLayout) size() int64      { return s.dataBytes() + 4*int64(s.blocks()) + 4 }

// columnFileWriter writes a column file, blocks in order. Close without commit removes it.
type columnFileWriter struct {
	columnFileLayout
	file *vfs.Stream
	crcs []byte // of the blocks so far
}

func createColumnFile(fsys vfs.FS, path string, layout columnFileLayout) (*columnFileWriter, error) {
	file, err := vfs.CreateStream(fsys, path, layout.size())
	if err != nil {
		return nil, err
	}
	return &columnFileWriter{columnFileLayout: layout, file: file, crcs: make([]byte, 0, 4*layout.blocks()+4)}, nil
}

// write writes the next block.
func (s *columnFileWriter) write(data []byte) error {
	s.crcs = binary.LittleEndian.AppendUint32(s.crcs, kernel.CRC32C(0, data))
	_, err := s.file.Write(data)
	return err
}

func (s *columnFileWriter) commit() error {
	if _, err := s.file.Write(binary.LittleEndian.AppendUint32(s.crcs, kernel.CRC32C(0, s.crcs))); err != nil {
		return err
	}
	return s.file.Commit()
}

func (s *columnFileWriter) Close() error { return s.file.Abort() }

// columnFile is a column file that is open for reading.
type columnFile struct {
	columnFileLayout
	fsys vfs.FS
	file vfs.File
	crcs []byte
}

// openColumnFile opens a column file with this layout. A damaged file is format.ErrCorrupt, and is removed, so that
// the job, started again, makes it again.
func openColumnFile(fsys vfs.FS, path string, layout columnFileLayout) (*columnFile, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	s := &columnFile{columnFileLayout: layout, fsys: fsys, file: f, crcs: make([]byte, 4*layout.blocks()+4)}
	if err := s.read(s.crcs, layout.dataBytes(), -1); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	n := len(s.crcs) - 4
	if size, err := f.Size(); err != nil || size != layout.size() ||
		kernel.CRC32C(0, s.crcs[:n]) != binary.LittleEndian.Uint32(s.crcs[n:]) {
		return nil, errors.Join(s.damaged(-1, "its size or its checksums differ from what was written"), err, f.Close())
	}
	return s, nil
}

func (s *columnFile) damaged(block int, reason string) error {
	err := &format.CorruptError{File: s.file.Path(), Chunk: block, Reason: reason +
		" (this scratch file is removed, and the next run computes its columns again)"}
	// another goroutine has removed it
	if remove := s.fsys.Remove(err.File); remove != nil && !errors.Is(remove, fs.ErrNotExist) {
		return errors.Join(err, remove)
	}
	return err
}

func (s *columnFile) read(dst []byte, at int64, block int) error {
	n, err := s.file.ReadAt(dst, at)
	if n == len(dst) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.damaged(block, fmt.Sprintf("it ends at byte %d", at+int64(n)))
	}
	return err
}

// readBlock reads block k into dst, which must be large enough, and returns its rows. It is safe for concurrent use.
func (s *columnFile) readBlock(k int, dst []byte) ([]byte, error) {
	first, end := s.rows(k)
	dst = dst[:(end-first)*s.rowBytes]
	if err := s.read(dst, first*s.rowBytes, k); err != nil {
		return nil, err
	}
	return dst, s.check(k, dst)
}

// check compares the bytes of block k with their checksum.
func (s *columnFile) check(k int, data []byte) error {
	if kernel.CRC32C(0, data) != binary.LittleEndian.Uint32(s.crcs[4*k:]) {
		return s.damaged(k, "the disk returned different bytes than were written")
	}
	return nil
}

// readAll reads all blocks into dst, which is as long as they are, and calls read with the number of bytes of each
// part that it has read. If dst begins at a page, that is past the page cache, whatever the size of the blocks.
func (s *columnFile) readAll(ctx context.Context, threads int, dst []byte, read func(bytes int)) error {
	err := parallel.For(ctx, threads, int64(len(dst)), plan.ColumnFileBlockBytes, func(lo, hi int64) error {
		err := s.read(dst[lo:hi], lo, -1)
		read(int(hi - lo))
		return err
	})
	if err != nil {
		return err
	}
	return parallel.For(ctx, threads, int64(s.blocks()), 1, func(k, _ int64) error {
		first, end := s.rows(int(k))
		return s.check(int(k), dst[first*s.rowBytes:end*s.rowBytes])
	})
}

func (s *columnFile) Close() error { return s.file.Close() }
