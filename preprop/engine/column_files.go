package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// ColumnFiles are the column files of one matrix in a scratch folder: of an input that is cut, or of a result, where
// the job does not hold all columns at once. A file that has its name is whole. So the files of results are the
// journal of the job: a process that goes on with it, even with other panels, makes the columns that are in no file.
type ColumnFiles struct {
	fsys     vfs.FS
	dir      string
	name     string // "result-3": the first part of the names of files, before their columns
	features int    // of the matrix
	size     int    // bytes of an element
	bounds   []int64
	nodes    []uint32 // node of each row; nil: row i is node i
}

// ResultFiles are the column files of the matrices of a store with this many rows, which are of these nodes.
func ResultFiles(fsys vfs.FS, dir string, matrices int, rows int64, nodes []uint32, features int,
	t format.DType) []ColumnFiles {
	out := make([]ColumnFiles, matrices)
	bounds := evenBounds(rows, plan.ColumnFileBlockRows(int64(features*t.Size())))
	for k := range out {
		out[k] = ColumnFiles{fsys, dir, fmt.Sprintf("result-%d", k), features, t.Size(), bounds, nodes}
	}
	return out
}

// inputFiles are the column files that an input is cut into. They have a block for each of its chunks.
func (j *Job) inputFiles(in *Input) *ColumnFiles {
	bounds := []int64{0}
	for k := range in.Chunks() {
		first, rows := in.ChunkRowRange(k)
		bounds = append(bounds, first+int64(rows))
	}
	name := fmt.Sprintf("input-%d", j.number(in.ID))
	return &ColumnFiles{j.Fsys, j.Scratch, name, in.Layout.Features, in.DType.Size(), bounds, in.Nodes}
}

func (f *ColumnFiles) path(s product.ColumnRange) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s-%d-%d%s", f.name, s.First, s.End, folder.Suffix))
}

func (f *ColumnFiles) layout(s product.ColumnRange) columnFileLayout {
	return columnFileLayout{f.bounds, int64(s.Width() * f.size)}
}

func (f *ColumnFiles) create(s product.ColumnRange) (*columnFileWriter, error) {
	return createColumnFile(f.fsys, f.path(s), f.layout(s))
}

func (f *ColumnFiles) remove(ranges ...product.ColumnRange) error {
	for _, s := range ranges {
		if err := f.fsys.Remove(f.path(s)); err != nil {
			return err
		}
	}
	return nil
}

// Find lists the columns of the files that are there. A file of another size is not the job's: its columns are made
// again.
func (f *ColumnFiles) Find() ([]product.ColumnRange, error) {
	entries, err := f.fsys.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []product.ColumnRange
	for _, e := range entries {
		var s product.ColumnRange
		n, _ := fmt.Sscanf(e.Name(), f.name+"-%d-%d", &s.First, &s.End)
		if n < 2 || s.First < 0 || s.End > f.features || s.Width() <= 0 || e.Name() != filepath.Base(f.path(s)) {
			continue
		}
		layout := f.layout(s)
		if info, err := e.Info(); err == nil && info.Size() == layout.size() {
			out = append(out, s)
		}
	}
	return out, nil
}

// load fills m from the files of these ranges, which together have all of its columns.
func (f *ColumnFiles) load(ctx context.Context, m *product.Matrix, ranges []product.ColumnRange, threads int,
	p progress.Reporter) error {
	most := int64(0)
	parts := product.Cover(m.Columns(), ranges)
	for _, part := range parts {
		most = max(most, f.longestBlock()*f.layout(part.Source).rowBytes)
	}
	task := p.Start(fmt.Sprintf("read %s, %s", m.ID, m.Columns()), f.bounds[len(f.bounds)-1]*m.RowBytes(),
		progress.Bytes)
	defer task.Done()
	buffers, err := product.NewBuffers(threads, vfs.WholePages(most))
	if err != nil {
		return err
	}
	defer buffers.Free()
	for _, part := range parts {
		file, err := openColumnFile(f.fsys, f.path(part.Source), f.layout(part.Source))
		if err != nil {
			return err
		}
		defer file.Close()
		// A file with the same rows and columns as m is read into m at once.
		if f.nodes == nil && part.ColumnRange == part.Source && part.ColumnRange == m.Columns() {
			read := func(bytes int) { task.Add(int64(bytes)) }
			if err := file.readAll(ctx, plan.DiskReaders(threads), m.Buf.Bytes()[:file.dataBytes()], read); err != nil {
				return err
			}
			continue
		}
		from, to := (part.First-part.Source.First)*f.size, (part.First-m.First)*f.size
		width := part.Width() * f.size
		err = parallel.For(ctx, threads, int64(file.blocks()), 1, func(at, _ int64) error {
			first, end := file.rows(int(at))
			task.Add((end - first) * int64(width))
			buffer := buffers.Get()
			defer buffers.Put(buffer)
			block, err := file.readBlock(int(at), buffer)
			if err != nil {
				return err
			}
			for row := first; row < end; row++ {
				v := row
				if f.nodes != nil {
					v = int64(f.nodes[row])
				}
				copy(m.Rows(v, v+1)[to:to+width], block[(row-first)*file.rowBytes:][from:])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// longestBlock is the most rows of a block.
func (f *ColumnFiles) longestBlock() (rows int64) {
	for k := range len(f.bounds) - 1 {
		rows = max(rows, f.bounds[k+1]-f.bounds[k])
	}
	return rows
}

// assemble writes a matrix to the store from the files of these ranges, which must have all of its columns, and
// removes the files.
func (f *ColumnFiles) assemble(ctx context.Context, store *format.Writer, id format.MatrixID,
	ranges []product.ColumnRange, threads int, report progress.Reporter) error {
	all := product.ColumnRange{First: 0, End: f.features}
	if gaps := product.Missing(all, ranges); len(gaps) > 0 {
		return fmt.Errorf("%s lacks %s among the files in %s", id, gaps[0], f.dir)
	}
	blocks := f.layout(all)
	task := report.Start("assemble "+id.String(), blocks.dataBytes(), progress.Bytes)
	defer task.Done()
	out, err := store.Matrix(id)
	if err != nil {
		return err
	}
	parts := product.Cover(all, ranges)
	open := make([]*columnFile, len(parts))
	for i, part := range parts {
		if open[i], err = openColumnFile(f.fsys, f.path(part.Source), f.layout(part.Source)); err != nil {
			return err
		}
		defer open[i].Close()
	}
	most := vfs.WholePages(f.longestBlock() * blocks.rowBytes)
	buffers, err := product.NewBuffers(threads+1, 2*most)
	if err != nil {
		return err
	}
	defer buffers.Free()
	err = parallel.Ordered(ctx, threads, int64(blocks.blocks()), buffers.Get,
		func(k int64, buffer []byte) ([]byte, error) {
			first, end := blocks.rows(int(k))
			rows := buffer[:(end-first)*blocks.rowBytes]
			for i, part := range parts {
				block, err := open[i].readBlock(int(k), buffer[most:])
				if err != nil {
					return nil, err
				}
				from, to := (part.First-part.Source.First)*f.size, part.First*f.size
				for at := 0; at < len(block); at, to = at+int(open[i].rowBytes), to+int(blocks.rowBytes) {
					copy(rows[to:to+part.Width()*f.size], block[at+from:])
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
	return f.remove(ranges...)
}
