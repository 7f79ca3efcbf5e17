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
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// pieces are what a job that does not hold all columns at once has in its scratch
// folder: columns of the matrices that it makes, with the stored rows in their order.
// A piece that has its name is whole, so they are the journal of the job: whoever
// goes on with it, with other panels even, makes what they lack.
type pieces struct {
	fsys      vfs.FS
	dir       string
	matrices  []format.MatrixID // of the store; files are named by number
	rows      int64
	blockRows int64
	size      int // of an element
	features  int
}

// newPieces are those of the job that makes a store like this, of this type.
func newPieces(fsys vfs.FS, dir string, t target, dt format.DType) pieces {
	return pieces{
		fsys: fsys, dir: dir, matrices: t.matrices(), rows: t.StoredRows,
		blockRows: spillBlockRows(int64(t.Features * dt.Size())), size: dt.Size(), features: t.Features,
	}
}

func (p *pieces) path(matrix int, s span) string {
	return filepath.Join(p.dir, fmt.Sprintf("piece-%d-%d-%d", matrix, s.first, s.end))
}

func (p *pieces) shape(s span) spillShape {
	return evenBlocks(p.rows, p.blockRows, int64(s.width()*p.size))
}

// found is the spans of each matrix that are there.
func (p *pieces) found() ([][]span, error) {
	out := make([][]span, len(p.matrices))
	var err error
	for k := range out {
		out[k], err = foundSpans(p.fsys, p.dir, p.features, func(s span) string { return p.path(k, s) },
			func(s span) int64 { shape := p.shape(s); return shape.size() })
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// assemble writes a matrix to the store from spans that have all of its columns, and
// removes them.
func (p *pieces) assemble(ctx context.Context, store *format.Writer, matrix int, spans []span, threads int, report progress.Reporter) error {
	id, rowBytes := p.matrices[matrix], p.features*p.size
	task := report.Start("assemble "+id.String(), p.rows*int64(rowBytes), progress.Bytes)
	defer task.Done()
	out, err := store.Matrix(id)
	if err != nil {
		return err
	}
	parts := cover(span{0, p.features}, spans)
	open := make([]*spill, len(parts))
	for i, part := range parts {
		if open[i], err = openSpill(p.fsys, p.path(matrix, part.of), p.shape(part.of)); err != nil {
			return err
		}
		defer open[i].Close()
	}
	type buffers struct{ rows, piece []byte }
	blocks := evenBlocks(p.rows, p.blockRows, int64(rowBytes))
	err = parallel.Ordered(ctx, threads, int64(blocks.blocks()),
		func() buffers {
			most := p.blockRows * int64(rowBytes)
			return buffers{make([]byte, most), make([]byte, most)}
		},
		func(k int64, b buffers) ([]byte, error) {
			first, end := blocks.rows(int(k))
			rows := b.rows[:(end-first)*int64(rowBytes)]
			for i, part := range parts {
				block, err := open[i].readBlock(int(k), b.piece)
				if err != nil {
					return nil, err
				}
				stride, width := part.of.width()*p.size, part.width()*p.size
				from, to := (part.first-part.of.first)*p.size, part.first*p.size
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
	for _, s := range spans {
		if err := p.fsys.Remove(p.path(matrix, s)); err != nil {
			return err
		}
	}
	return nil
}

// foundSpans is the spans of columns whose files are in a folder, with their sizes.
func foundSpans(fsys vfs.FS, dir string, features int, path func(span) string, size func(span) int64) ([]span, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []span
	for _, e := range entries {
		var s span
		name := strings.Split(e.Name(), "-")
		if len(name) < 3 {
			continue
		}
		var errFirst, errEnd error
		s.first, errFirst = strconv.Atoi(name[len(name)-2])
		s.end, errEnd = strconv.Atoi(name[len(name)-1])
		if errFirst != nil || errEnd != nil || s.first < 0 || s.end > features || s.width() <= 0 || e.Name() != filepath.Base(path(s)) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Size() == size(s) { // else gone meanwhile, or not ours: it is made again
			out = append(out, s)
		}
	}
	return out, nil
}
