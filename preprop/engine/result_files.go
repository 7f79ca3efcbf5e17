package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// resultFiles are the column files of a job's results, in its scratch folder, where the
// job does not hold all columns at once. Each has a range of columns of one matrix of the
// store, with the stored rows in their order. A file that has its name is whole, so the
// files are the journal of the job: a process that goes on with it, even with other panels,
// makes the columns that are in none of them.
type resultFiles struct {
	fsys      vfs.FS
	dir       string
	matrices  []format.MatrixID // of the store; file names have their indices
	rows      int64
	blockRows int64
	size      int // bytes of an element
	features  int
}

// NewResultFiles are the result files of the job that makes this store, with elements of
// this type.
func NewResultFiles(fsys vfs.FS, dir string, matrices []format.MatrixID, rows int64, features int, dt format.DType) resultFiles {
	return resultFiles{
		fsys: fsys, dir: dir, matrices: matrices, rows: rows,
		blockRows: plan.ColumnFileBlockRows(int64(features * dt.Size())), size: dt.Size(), features: features,
	}
}

func (p *resultFiles) path(matrix int, s product.ColumnRange) string {
	return filepath.Join(p.dir, fmt.Sprintf("result-%d-%d-%d%s", matrix, s.First, s.End, folder.Suffix))
}

func (p *resultFiles) layout(s product.ColumnRange) columnFileLayout {
	return evenBlocks(p.rows, p.blockRows, int64(s.Width()*p.size))
}

// Find lists the result files that are there: the column ranges of each matrix.
func (p *resultFiles) Find() ([][]product.ColumnRange, error) {
	out := make([][]product.ColumnRange, len(p.matrices))
	var err error
	for k := range out {
		out[k], err = findColumnFiles(p.fsys, p.dir, p.features, func(s product.ColumnRange) string { return p.path(k, s) },
			func(s product.ColumnRange) int64 { layout := p.layout(s); return layout.size() })
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// assemble writes a matrix to the store from the files of these ranges, which must have
// all of its columns, and removes the files.
func (p *resultFiles) assemble(ctx context.Context, store *format.Writer, matrix int, ranges []product.ColumnRange, threads int, report progress.Reporter) error {
	id, rowBytes := p.matrices[matrix], p.features*p.size
	if gaps := product.Missing(product.ColumnRange{First: 0, End: p.features}, ranges); len(gaps) > 0 {
		return fmt.Errorf("%s lacks columns %d to %d among the files in %s", id, gaps[0].First, gaps[0].End-1, p.dir)
	}
	task := report.Start("assemble "+id.String(), p.rows*int64(rowBytes), progress.Bytes)
	defer task.Done()
	out, err := store.Matrix(id)
	if err != nil {
		return err
	}
	parts := product.Cover(product.ColumnRange{First: 0, End: p.features}, ranges)
	open := make([]*columnFile, len(parts))
	for i, part := range parts {
		if open[i], err = openColumnFile(p.fsys, p.path(matrix, part.Source), p.layout(part.Source)); err != nil {
			return err
		}
		defer open[i].Close()
	}
	blocks, most := evenBlocks(p.rows, p.blockRows, int64(rowBytes)), vfs.WholePages(min(p.rows, p.blockRows)*int64(rowBytes))
	buffers, err := product.NewBuffers(threads+1, 2*most)
	if err != nil {
		return err
	}
	defer buffers.Free()
	err = parallel.Ordered(ctx, threads, int64(blocks.blocks()), buffers.Get,
		func(k int64, buffer []byte) ([]byte, error) {
			first, end := blocks.rows(int(k))
			rows := buffer[:(end-first)*int64(rowBytes)]
			for i, part := range parts {
				block, err := open[i].readBlock(int(k), buffer[most:])
				if err != nil {
					return nil, err
				}
				stride, width := part.Source.Width()*p.size, part.Width()*p.size
				from, to := (part.First-part.Source.First)*p.size, part.First*p.size
				for at := 0; at < len(block); at, to = at+stride, to+rowBytes {
					copy(rows[to:to+width], block[at+from:])
				}
			}
			return rows, nil
		},
		func(rows []byte) error {
			task.Add(int64(len(rows)))
			return out.Write(rows)
		})
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	for _, s := range ranges {
		if err := p.fsys.Remove(p.path(matrix, s)); err != nil {
			return err
		}
	}
	return nil
}

// findColumnFiles lists the column ranges whose files are in a folder, under the name that
// path gives and with the bytes that size gives. Names end with the first column and the
// one after the last.
func findColumnFiles(fsys vfs.FS, dir string, features int, path func(product.ColumnRange) string, size func(product.ColumnRange) int64) ([]product.ColumnRange, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []product.ColumnRange
	for _, e := range entries {
		var s product.ColumnRange
		name := strings.Split(strings.TrimSuffix(e.Name(), folder.Suffix), "-")
		if len(name) < 3 {
			continue
		}
		var errFirst, errEnd error
		s.First, errFirst = strconv.Atoi(name[len(name)-2])
		s.End, errEnd = strconv.Atoi(name[len(name)-1])
		if errFirst != nil || errEnd != nil || s.First < 0 || s.End > features || s.Width() <= 0 || e.Name() != filepath.Base(path(s)) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Size() == size(s) { // else it was removed meanwhile, or is none of ours: its columns are made again
			out = append(out, s)
		}
	}
	return out, nil
}
