package preprop

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

// newResultFiles are the result files of the job that makes this store, with elements of
// this type.
func newResultFiles(fsys vfs.FS, dir string, t target, dt format.DType) resultFiles {
	return resultFiles{
		fsys: fsys, dir: dir, matrices: t.matrices(), rows: t.StoredRows,
		blockRows: columnFileBlockRows(int64(t.Features * dt.Size())), size: dt.Size(), features: t.Features,
	}
}

func (p *resultFiles) path(matrix int, s columnRange) string {
	return filepath.Join(p.dir, fmt.Sprintf("result-%d-%d-%d%s", matrix, s.first, s.end, folder.Suffix))
}

func (p *resultFiles) layout(s columnRange) columnFileLayout {
	return evenBlocks(p.rows, p.blockRows, int64(s.width()*p.size))
}

// find lists the result files that are there: the column ranges of each matrix.
func (p *resultFiles) find() ([][]columnRange, error) {
	out := make([][]columnRange, len(p.matrices))
	var err error
	for k := range out {
		out[k], err = findColumnFiles(p.fsys, p.dir, p.features, func(s columnRange) string { return p.path(k, s) },
			func(s columnRange) int64 { layout := p.layout(s); return layout.size() })
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// resultsCost is what result files take. They grow with the panels. They are read once, a matrix at a time,
// through two buffers for each thread and one more; those of a matrix are removed when the store has it.
func (w *work) resultsCost(p *Plan) cost {
	if !p.ResultFiles {
		return cost{}
	}
	row, matrices := w.storedRowBytes(), w.matrices
	if w.keepsRows(p) {
		matrices-- // hop 0 is in the store by then
	}
	made := w.share(w.rows * row * int64(matrices))
	c := cost{read: made, written: made}
	c.scratch[writing], c.scratch[lastPanel], c.scratch[assembling] = made/int64(p.Panels), made, made/int64(max(1, matrices))
	c.memory[assembling] = int64(w.threads+1)*2*vfs.WholePages(columnFileBlock(w.rows, row, row)) + vfs.StreamBytes(w.matrixBytes)
	return c
}

// assemble writes a matrix to the store from the files of these ranges, which must have
// all of its columns, and removes the files.
func (p *resultFiles) assemble(ctx context.Context, store *format.Writer, matrix int, ranges []columnRange, threads int, report progress.Reporter) error {
	id, rowBytes := p.matrices[matrix], p.features*p.size
	if gaps := missing(columnRange{0, p.features}, ranges); len(gaps) > 0 {
		return fmt.Errorf("%s lacks columns %d to %d among the files in %s", id, gaps[0].first, gaps[0].end-1, p.dir)
	}
	task := report.Start("assemble "+id.String(), p.rows*int64(rowBytes), progress.Bytes)
	defer task.Done()
	out, err := store.Matrix(id)
	if err != nil {
		return err
	}
	parts := cover(columnRange{0, p.features}, ranges)
	open := make([]*columnFile, len(parts))
	for i, part := range parts {
		if open[i], err = openColumnFile(p.fsys, p.path(matrix, part.source), p.layout(part.source)); err != nil {
			return err
		}
		defer open[i].Close()
	}
	blocks, most := evenBlocks(p.rows, p.blockRows, int64(rowBytes)), vfs.WholePages(min(p.rows, p.blockRows)*int64(rowBytes))
	buffers, err := newBuffers(threads+1, 2*most)
	if err != nil {
		return err
	}
	defer buffers.Free()
	err = parallel.Ordered(ctx, threads, int64(blocks.blocks()), buffers.get,
		func(k int64, buffer []byte) ([]byte, error) {
			first, end := blocks.rows(int(k))
			rows := buffer[:(end-first)*int64(rowBytes)]
			for i, part := range parts {
				block, err := open[i].readBlock(int(k), buffer[most:])
				if err != nil {
					return nil, err
				}
				stride, width := part.source.width()*p.size, part.width()*p.size
				from, to := (part.first-part.source.first)*p.size, part.first*p.size
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
func findColumnFiles(fsys vfs.FS, dir string, features int, path func(columnRange) string, size func(columnRange) int64) ([]columnRange, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []columnRange
	for _, e := range entries {
		var s columnRange
		name := strings.Split(strings.TrimSuffix(e.Name(), folder.Suffix), "-")
		if len(name) < 3 {
			continue
		}
		var errFirst, errEnd error
		s.first, errFirst = strconv.Atoi(name[len(name)-2])
		s.end, errEnd = strconv.Atoi(name[len(name)-1])
		if errFirst != nil || errEnd != nil || s.first < 0 || s.end > features || s.width() <= 0 || e.Name() != filepath.Base(path(s)) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Size() == size(s) { // else it was removed meanwhile, or is none of ours: its columns are made again
			out = append(out, s)
		}
	}
	return out, nil
}
