package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// columnFileLayout tells where the rows are in a column file, a scratch file with a range of columns of one matrix:
// groups of rows, row-major, one after another, then the CRC-32C of each group, then the CRC-32C of these checksums. A
// column file appears under its name when it is whole and durable, so a job that was killed finds what it had finished.
type columnFileLayout struct {
	bounds   []int64 // row with which each group begins, and the number of rows
	rowBytes int64
}

// evenBounds are the bounds of groups of groupRows rows; the last one may have fewer.
func evenBounds(rows, groupRows int64) (bounds []int64) {
	for row := int64(0); row < rows; row += groupRows {
		bounds = append(bounds, row)
	}
	return append(bounds, rows)
}

func (s *columnFileLayout) groups() int { return len(s.bounds) - 1 }

// rows are the rows [first, end) of group k.
func (s *columnFileLayout) rows(k int) (first, end int64) { return s.bounds[k], s.bounds[k+1] }

// largest is the size in bytes of the largest group.
func (s *columnFileLayout) largest() (bytes int64) {
	for k := range s.groups() {
		first, end := s.rows(k)
		bytes = max(bytes, (end-first)*s.rowBytes)
	}
	return bytes
}

// dataBytes is the size of all groups, and size that of the file.
func (s *columnFileLayout) dataBytes() int64 { return s.bounds[s.groups()] * s.rowBytes }
func (s *columnFileLayout) size() int64      { return s.dataBytes() + 4*int64(s.groups()) + 4 }

// columnFileWriter writes a column file, groups in order. Close without commit removes it.
type columnFileWriter struct {
	columnFileLayout
	columns product.ColumnRange
	file    *vfs.Stream
	crcs    []byte // of the groups so far
}

func createColumnFile(fsys vfs.FS, path string, layout columnFileLayout) (*columnFileWriter, error) {
	file, err := vfs.CreateStream(fsys, path, layout.size())
	if err != nil {
		return nil, err
	}
	return &columnFileWriter{columnFileLayout: layout, file: file, crcs: make([]byte, 0, 4*layout.groups()+4)}, nil
}

// write writes the next group.
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
	s := &columnFile{columnFileLayout: layout, fsys: fsys, file: f, crcs: make([]byte, 4*layout.groups()+4)}
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

func (s *columnFile) damaged(group int, reason string) error {
	err := &format.CorruptError{File: s.file.Path(), Chunk: group, Reason: reason +
		" (this scratch file is removed, and the next run computes its columns again)"}
	// another goroutine has removed it
	if remove := s.fsys.Remove(err.File); remove != nil && !errors.Is(remove, fs.ErrNotExist) {
		return errors.Join(err, remove)
	}
	return err
}

func (s *columnFile) read(dst []byte, at int64, group int) error {
	n, err := s.file.ReadAt(dst, at)
	if n == len(dst) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.damaged(group, fmt.Sprintf("it ends at byte %d", at+int64(n)))
	}
	return err
}

// readGroup reads group k into dst, which must be large enough, and returns its rows. It is safe for concurrent use.
func (s *columnFile) readGroup(k int, dst []byte) ([]byte, error) {
	first, end := s.rows(k)
	dst = dst[:(end-first)*s.rowBytes]
	if err := s.read(dst, first*s.rowBytes, k); err != nil {
		return nil, err
	}
	return dst, s.check(k, dst)
}

// check compares the bytes of group k with their checksum.
func (s *columnFile) check(k int, data []byte) error {
	if kernel.CRC32C(0, data) != binary.LittleEndian.Uint32(s.crcs[4*k:]) {
		return s.damaged(k, "the disk returned different bytes than were written")
	}
	return nil
}

// readAll reads all groups into dst, which is as long as they are. If dst begins at a page, it reads past the page
// cache, whatever the size of the groups.
func (s *columnFile) readAll(ctx context.Context, threads int, dst []byte, task progress.Task) error {
	err := parallel.For(ctx, threads, int64(len(dst)), plan.ColumnFileGroupBytes, func(lo, hi int64) error {
		err := s.read(dst[lo:hi], lo, -1)
		task.Add(hi - lo)
		return err
	})
	if err != nil {
		return err
	}
	return parallel.For(ctx, threads, int64(s.groups()), 1, func(k, _ int64) error {
		first, end := s.rows(int(k))
		return s.check(int(k), dst[first*s.rowBytes:end*s.rowBytes])
	})
}

func (s *columnFile) Close() error { return s.file.Close() }

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
	nodes    []uint32              // node of each row; nil: row i is node i
	Have     []product.ColumnRange // columns that files have
}

// ResultFiles are the column files of the matrices of a store, which have these widths and this many rows, of these
// nodes.
func ResultFiles(fsys vfs.FS, dir string, widths []int, rows int64, nodes []uint32, t format.DType) []ColumnFiles {
	out := make([]ColumnFiles, len(widths))
	for k, features := range widths {
		out[k] = ColumnFiles{fsys: fsys, dir: dir, name: fmt.Sprintf("result-%d", k), features: features,
			size: t.Size(), bounds: evenBounds(rows, plan.ColumnFileGroupRows(int64(features*t.Size()))), nodes: nodes}
	}
	return out
}

// Share gives the files with some of the columns, which have been written, to another matrix of the same rows and
// columns, under its names.
func (f *ColumnFiles) Share(s product.ColumnRange, to *ColumnFiles) error {
	for _, part := range product.Cover(s, f.Have) {
		if slices.Contains(to.Have, part.Source) {
			continue
		}
		if err := vfs.Share(f.fsys, f.path(part.Source), to.path(part.Source)); err != nil {
			return err
		}
		to.Have = append(to.Have, part.Source)
	}
	return f.fsys.Sync(f.dir)
}

// columnFiles are the column files that an input is cut into. They have a group for each of its chunks.
func (j *Job) columnFiles(in *Input) *ColumnFiles {
	return in.columnFiles(j.Fsys, j.Scratch, fmt.Sprintf("input-%s%d", j.Name, j.number(in.ID)))
}

func (in *Input) columnFiles(fsys vfs.FS, dir, name string) *ColumnFiles {
	bounds := []int64{0}
	for k := range in.Chunks() {
		first, rows := in.ChunkRowRange(k)
		bounds = append(bounds, first+int64(rows))
	}
	return &ColumnFiles{fsys: fsys, dir: dir, name: name, features: in.all().End,
		size: in.DType.Size(), bounds: bounds, nodes: in.Nodes}
}

// all are all columns of the matrix.
func (f *ColumnFiles) all() product.ColumnRange {
	return product.ColumnRange{First: 0, End: f.features}
}

func (f *ColumnFiles) path(s product.ColumnRange) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s-%d-%d%s", f.name, s.First, s.End, folder.Suffix))
}

func (f *ColumnFiles) layout(s product.ColumnRange) columnFileLayout {
	return columnFileLayout{f.bounds, int64(s.Width() * f.size)}
}

func (f *ColumnFiles) create(s product.ColumnRange) (*columnFileWriter, error) {
	w, err := createColumnFile(f.fsys, f.path(s), f.layout(s))
	if err == nil {
		w.columns = s
	}
	return w, err
}

func (f *ColumnFiles) open(s product.ColumnRange) (*columnFile, error) {
	return openColumnFile(f.fsys, f.path(s), f.layout(s))
}

func (f *ColumnFiles) remove(ranges ...product.ColumnRange) error {
	for _, s := range ranges {
		if err := f.fsys.Remove(f.path(s)); err != nil {
			return err
		}
	}
	return nil
}

// Find looks for the columns of files that are there. A file of another size is not the job's: its columns are made
// again.
func (f *ColumnFiles) Find() error {
	entries, err := f.fsys.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.Have = nil
	for _, e := range entries {
		var s product.ColumnRange
		n, _ := fmt.Sscanf(e.Name(), f.name+"-%d-%d", &s.First, &s.End)
		if n < 2 || s.First < 0 || s.End > f.features || s.Width() <= 0 || e.Name() != filepath.Base(f.path(s)) {
			continue
		}
		layout := f.layout(s)
		if info, err := e.Info(); err == nil && info.Size() == layout.size() {
			f.Have = append(f.Have, s)
		}
	}
	return nil
}

// load fills m from the files, which together have all of its columns.
func (f *ColumnFiles) load(ctx context.Context, m *product.Matrix, threads int, p progress.Reporter) error {
	task := p.Start(fmt.Sprintf("read %s, %s", m.ID, m.Columns()), f.bounds[len(f.bounds)-1]*m.RowBytes(),
		progress.Bytes)
	defer task.Done()
	most, parts := int64(0), product.Cover(m.Columns(), f.Have)
	for _, part := range parts {
		layout := f.layout(part.Source)
		most = max(most, layout.largest())
	}
	buffers, err := product.NewBuffers(threads, vfs.WholePages(most))
	if err != nil {
		return err
	}
	defer buffers.Free()
	for _, part := range parts {
		file, err := f.open(part.Source)
		if err != nil {
			return err
		}
		defer file.Close()
		// A file with the same rows and columns as m is read into m at once.
		if f.nodes == nil && part.ColumnRange == part.Source && part.ColumnRange == m.Columns() {
			if err := file.readAll(ctx, plan.DiskReaders(threads), m.Buf.Bytes()[:file.dataBytes()], task); err != nil {
				return err
			}
			continue
		}
		from, to := (part.First-part.Source.First)*f.size, (part.First-m.First)*f.size
		width := part.Width() * f.size
		err = parallel.For(ctx, threads, int64(file.groups()), 1, func(at, _ int64) error {
			buffer := buffers.Get()
			defer buffers.Put(buffer)
			group, err := file.readGroup(int(at), buffer)
			if err != nil {
				return err
			}
			first, end := file.rows(int(at))
			task.Add((end - first) * int64(width))
			for row := first; row < end; row++ {
				v := row
				if f.nodes != nil {
					v = int64(f.nodes[row])
				}
				copy(m.Rows(v, v+1)[to:to+width], group[(row-first)*file.rowBytes:][from:])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// assemble writes a matrix to the store from the files, which must have all of its columns, and removes them.
func (f *ColumnFiles) assemble(ctx context.Context, store *format.Writer, id format.MatrixID, threads int,
	report progress.Reporter) error {
	out, err := store.Matrix(id)
	if err != nil {
		return err
	}
	if err := f.WriteRows(ctx, id, 0, f.bounds[len(f.bounds)-1], threads, report, out.Write); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return f.remove(f.Have...)
}

// WriteRows calls write with the rows [first, end) of a matrix, with all of its columns, which the files must have.
func (f *ColumnFiles) WriteRows(ctx context.Context, id format.MatrixID, first, end int64, threads int,
	report progress.Reporter, write func(rows []byte) error) error {
	if gaps := product.Missing(f.all(), f.Have); len(gaps) > 0 {
		return fmt.Errorf("%s lacks %s among the files in %s", id, gaps[0], f.dir)
	}
	whole := f.layout(f.all())
	task := report.Start("assemble "+id.String(), (end-first)*whole.rowBytes, progress.Bytes)
	defer task.Done()
	parts := product.Cover(f.all(), f.Have)
	files := make([]*columnFile, len(parts))
	for i, part := range parts {
		var err error
		if files[i], err = f.open(part.Source); err != nil {
			return err
		}
		defer files[i].Close()
	}
	most := vfs.WholePages(whole.largest())
	buffers, err := product.NewBuffers(threads+1, 2*most)
	if err != nil {
		return err
	}
	defer buffers.Free()
	before := sort.Search(whole.groups(), func(k int) bool { return whole.bounds[k+1] > first }) // groups
	groups := sort.Search(whole.groups(), func(k int) bool { return whole.bounds[k] >= end }) - before
	return parallel.Ordered(ctx, threads, int64(groups), buffers.Get,
		func(k int64, buffer []byte) ([]byte, error) {
			group := before + int(k)
			from, to := whole.rows(group)
			rows := buffer[:(to-from)*whole.rowBytes]
			for i, part := range parts {
				data, err := files[i].readGroup(group, buffer[most:])
				if err != nil {
					return nil, err
				}
				from, to := (part.First-part.Source.First)*f.size, part.First*f.size
				for at := 0; at < len(data); at, to = at+int(files[i].rowBytes), to+int(whole.rowBytes) {
					copy(rows[to:to+part.Width()*f.size], data[at+from:])
				}
			}
			return rows[max(0, first-from)*whole.rowBytes : (min(end, to)-from)*whole.rowBytes], nil
		},
		func(rows []byte) error {
			task.Add(int64(len(rows)))
			return write(rows)
		})
}
