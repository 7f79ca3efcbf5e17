package wholegraph

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// spilled are rows of all nodes in a scratch file, which the page cache has as far as there is memory. It implements
// loader.NodeRows.
type spilled struct {
	pending vfs.PendingFile
	file    vfs.File
	columns int
	sums    []uint32 // CRC-32C of each row
	threads int
}

func newSpilled(fsys vfs.FS, path string, nodes int64, threads int) (*spilled, error) {
	pending, file, err := vfs.CreateScratch(fsys, path)
	if err != nil {
		return nil, err
	}
	return &spilled{pending: pending, file: file, sums: make([]uint32, nodes), threads: threads}, nil
}

func (s *spilled) close() error { return errors.Join(s.file.Close(), s.pending.Abort()) }

func (s *spilled) Columns() int { return s.columns }

func (s *spilled) Begin(columns int) { s.columns = columns }

func (s *spilled) Write(first int, rows []byte) error {
	size := 4 * s.columns
	for i := range len(rows) / size {
		s.sums[first+i] = kernel.CRC32C(0, rows[i*size:][:size])
	}
	_, err := s.pending.WriteAt(rows, int64(first)*int64(size))
	return err
}

// Gather reads consecutive nodes at once. Rows that are not as they were written are folder.ErrDamaged.
func (s *spilled) Gather(ctx context.Context, dst []byte, _ gds.DType, nodes []uint32) error {
	const grain = 64
	size := 4 * s.columns
	return parallel.For(ctx, s.threads, int64(len(nodes)), grain, func(lo, hi int64) error {
		for lo < hi {
			n := int64(1)
			for lo+n < hi && nodes[lo+n] == nodes[lo]+uint32(n) {
				n++
			}
			rows := dst[lo*int64(size):][:n*int64(size)]
			if k, err := s.file.ReadAt(rows, int64(nodes[lo])*int64(size)); k < len(rows) {
				return fmt.Errorf("row of node %d in %s: %w", nodes[lo], s.file.Path(),
					errors.Join(err, io.ErrUnexpectedEOF))
			}
			for i := range int(n) {
				if kernel.CRC32C(0, rows[i*size:][:size]) != s.sums[nodes[lo]+uint32(i)] {
					return fmt.Errorf("%s: %w", s.file.Path(), folder.ErrDamaged)
				}
			}
			lo += n
		}
		return nil
	})
}
