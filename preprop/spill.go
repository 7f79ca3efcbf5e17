package preprop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// A spill is a matrix in a scratch file: blocks of rows, row-major, one after
// another, and then the CRC-32C of each block, and of these checksums. It appears
// under its name when it is whole and durable, so that a job that was killed finds
// what it had finished.
type spillShape struct {
	bounds   []int64 // row with which each block begins, and the number of rows
	rowBytes int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// spillBlockBytes is about how much of a matrix is in a block, over all of its columns.
const spillBlockBytes = 2 << 20

// spillBlockRows is the rows of a block of a matrix with rows of this size: the same
// for any range of its columns, so that these go together block by block.
func spillBlockRows(matrixRowBytes int64) int64 { return max(1, spillBlockBytes/matrixRowBytes) }

// evenBlocks has blocks of blockRows, but for the last.
func evenBlocks(rows, blockRows, rowBytes int64) spillShape {
	s := spillShape{rowBytes: rowBytes}
	for row := int64(0); row < rows; row += blockRows {
		s.bounds = append(s.bounds, row)
	}
	s.bounds = append(s.bounds, rows)
	return s
}

// chunkBlocks has a block for each chunk of a matrix.
func chunkBlocks(m *format.Matrix, rowBytes int64) spillShape {
	s := spillShape{rowBytes: rowBytes}
	end := int64(0)
	for k := range m.Chunks() {
		first, rows := m.ChunkRowRange(k)
		s.bounds, end = append(s.bounds, first), first+int64(rows)
	}
	s.bounds = append(s.bounds, end)
	return s
}

func (s *spillShape) blocks() int { return len(s.bounds) - 1 }

// rows is those of block k.
func (s *spillShape) rows(k int) (first, end int64) { return s.bounds[k], s.bounds[k+1] }

// dataBytes is the size of all blocks, and size that of the file.
func (s *spillShape) dataBytes() int64 { return s.bounds[s.blocks()] * s.rowBytes }
func (s *spillShape) size() int64      { return s.dataBytes() + 4*int64(s.blocks()) + 4 }

// spillWriter writes a spill, blocks in any order. Close without Commit removes it.
type spillWriter struct {
	spillShape
	mu      sync.Mutex // a PendingFile is for one goroutine
	pending vfs.PendingFile
	crcs    []uint32
}

func createSpill(fsys vfs.FS, path string, shape spillShape) (*spillWriter, error) {
	pending, err := fsys.Create(path)
	if err != nil {
		return nil, err
	}
	return &spillWriter{spillShape: shape, pending: pending, crcs: make([]uint32, shape.blocks())}, nil
}

// write writes block k. It is safe for concurrent use.
func (s *spillWriter) write(k int, data []byte) error {
	s.crcs[k] = crc32.Checksum(data, castagnoli)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.pending.WriteAt(data, s.bounds[k]*s.rowBytes)
	return err
}

func (s *spillWriter) commit() error {
	foot := make([]byte, 0, 4*len(s.crcs)+4)
	for _, crc := range s.crcs {
		foot = binary.LittleEndian.AppendUint32(foot, crc)
	}
	foot = binary.LittleEndian.AppendUint32(foot, crc32.Checksum(foot, castagnoli))
	if _, err := s.pending.WriteAt(foot, s.dataBytes()); err != nil {
		return err
	}
	return s.pending.Commit()
}

func (s *spillWriter) Close() error { return s.pending.Abort() }

// spill is a spill that is open for reading.
type spill struct {
	spillShape
	fsys vfs.FS
	file vfs.File
	crcs []byte
}

// openSpill opens a spill of this shape. Damage is format.ErrCorrupt, and ends the spill,
// so that the job, started again, makes another.
func openSpill(fsys vfs.FS, path string, shape spillShape) (*spill, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	s := &spill{spillShape: shape, fsys: fsys, file: f, crcs: make([]byte, 4*shape.blocks()+4)}
	if err := s.read(s.crcs, shape.dataBytes(), -1); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	n := len(s.crcs) - 4
	if size, err := f.Size(); err != nil || size != shape.size() || crc32.Checksum(s.crcs[:n], castagnoli) != binary.LittleEndian.Uint32(s.crcs[n:]) {
		return nil, errors.Join(s.damaged(-1, "it is not of the size, or not with the checksums, with which it was written"), err, f.Close())
	}
	return s, nil
}

func (s *spill) damaged(block int, reason string) error {
	err := &format.CorruptError{File: s.file.Path(), Chunk: block, Reason: reason + " (a scratch file, which is removed: what it held is computed again)"}
	if remove := s.fsys.Remove(err.File); remove != nil && !errors.Is(remove, fs.ErrNotExist) { // another goroutine has
		return errors.Join(err, remove)
	}
	return err
}

func (s *spill) read(dst []byte, at int64, block int) error {
	n, err := s.file.ReadAt(dst, at)
	if n == len(dst) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.damaged(block, fmt.Sprintf("it ends at byte %d", at+int64(n)))
	}
	return err
}

// readBlock reads block k into dst, which is large enough, and returns its rows. It is
// safe for concurrent use.
func (s *spill) readBlock(k int, dst []byte) ([]byte, error) {
	first, end := s.rows(k)
	dst = dst[:(end-first)*s.rowBytes]
	if err := s.read(dst, first*s.rowBytes, k); err != nil {
		return nil, err
	}
	if crc32.Checksum(dst, castagnoli) != binary.LittleEndian.Uint32(s.crcs[4*k:]) {
		return nil, s.damaged(k, "its bytes are not those that were written")
	}
	return dst, nil
}

func (s *spill) Close() error { return s.file.Close() }
