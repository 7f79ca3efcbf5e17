package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// An input that several machines read is cut by each into column files of some of its chunks, for all ranges of
// columns. Who computes the hops of a range reads the files of that range, which together are an input of few columns.

// ChunkRange is the chunks [First, End) of an input.
type ChunkRange struct{ First, End int }

// someChunks are some chunks of an input, with rows from 0 on.
type someChunks struct {
	Chunked
	ChunkRange
}

func (s someChunks) Chunks() int { return s.End - s.First }

func (s someChunks) ChunkRowRange(k int) (first int64, rows int) {
	start, _ := s.Chunked.ChunkRowRange(s.First)
	first, rows = s.Chunked.ChunkRowRange(s.First + k)
	return first - start, rows
}

func (s someChunks) ReadChunk(k int, dst []byte) error { return s.Chunked.ReadChunk(s.First+k, dst) }

// chunksOf are some chunks of an input.
func (in *Input) chunksOf(r ChunkRange) *Input {
	part := *in
	part.Chunked = someChunks{in.Chunked, r}
	first, _ := in.ChunkRowRange(r.First)
	if part.FirstNode = first; in.Nodes != nil {
		part.Nodes = in.Nodes[first:]
	}
	return &part
}

// CutName is the first part of the names of the column files that chunks of an input are cut into, before their
// columns.
func (in *Input) CutName(r ChunkRange) string {
	name := "cut-" + in.Tag
	if in.ID != format.Input {
		name += fmt.Sprintf("-%s-%d", strings.ReplaceAll(in.ID.Operator, ":", "+"), in.ID.Hop)
	}
	return fmt.Sprintf("%s-%d-%d", name, r.First, r.End)
}

// cutFiles are the column files that chunks of an input are cut into.
func (in *Input) cutFiles(fsys vfs.FS, dir string, r ChunkRange) *ColumnFiles {
	return in.chunksOf(r).columnFiles(fsys, dir, in.CutName(r))
}

// UncutColumns are those of the ranges of columns for which there are no files of these chunks.
func (in *Input) UncutColumns(fsys vfs.FS, dir string, r ChunkRange,
	ranges []product.ColumnRange) ([]product.ColumnRange, error) {
	files := in.cutFiles(fsys, dir, r)
	if err := files.Find(); err != nil {
		return nil, err
	}
	var rest []product.ColumnRange
	for _, s := range ranges {
		rest = append(rest, product.Missing(s, files.Have)...)
	}
	return rest, nil
}

// Cut writes a column file of these chunks for each of the ranges of columns, which do not overlap.
func (in *Input) Cut(ctx context.Context, fsys vfs.FS, dir string, r ChunkRange, ranges []product.ColumnRange,
	threads int, p progress.Reporter) error {
	part := in.chunksOf(r)
	task := p.Start(fmt.Sprintf("cut chunks %d to %d of %s", r.First, r.End, in.ID), part.bytes(), progress.Bytes)
	defer task.Done()
	return part.cut(ctx, nil, ranges, in.cutFiles(fsys, dir, r), threads, task)
}

// cuts are the column files of one range of columns, one for each of the chunk ranges that an input is cut by.
type cuts struct {
	files  []*columnFile
	starts []int64 // first row of each
	chunks []int   // number of the first chunk of each, and of all chunks
}

// OpenCuts opens a range of columns of an input that Cut has cut, by these chunk ranges, which cover it in order. If
// files are missing the error is fs.ErrNotExist.
func (in *Input) OpenCuts(fsys vfs.FS, dir string, ranges []ChunkRange, s product.ColumnRange) (_ *Input,
	close func() error, err error) {
	c := &cuts{}
	close = func() error {
		var err error
		for _, f := range c.files {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	for _, r := range ranges {
		f, err := in.cutFiles(fsys, dir, r).open(s)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w (chunks %d to %d of the input are not cut yet)", err, r.First, r.End)
		}
		if err != nil {
			return nil, nil, errors.Join(err, close())
		}
		start, _ := in.ChunkRowRange(r.First)
		c.files, c.starts, c.chunks = append(c.files, f), append(c.starts, start), append(c.chunks, r.First)
	}
	c.chunks = append(c.chunks, in.Chunks())
	part := in.Part(s)
	part.Chunked = c
	return part, close, nil
}

// Part is an input as if some of its columns, labels among them, were all that is stored, in the type of the new hops.
func (in *Input) Part(s product.ColumnRange) *Input {
	part := *in
	part.FirstColumn, part.Labels = s.First, nil
	part.Layout.Features, part.Layout.DType = s.Width(), in.DType
	return &part
}

func (c *cuts) Chunks() int { return c.chunks[len(c.files)] }

// place is the file of a chunk, and the chunk's group in it.
func (c *cuts) place(k int) (file, group int) {
	file = sort.Search(len(c.files), func(i int) bool { return c.chunks[i+1] > k })
	return file, k - c.chunks[file]
}

func (c *cuts) ChunkRowRange(k int) (first int64, rows int) {
	file, group := c.place(k)
	from, to := c.files[file].rows(group)
	return c.starts[file] + from, int(to - from)
}

func (c *cuts) ReadChunk(k int, dst []byte) error {
	file, group := c.place(k)
	_, err := c.files[file].readGroup(group, dst)
	return err
}

// nodesFile is a column file with the node of each row of the store, which takes long to find.
func nodesFile(fsys vfs.FS, dir string, rows int64) (*ColumnFiles, product.ColumnRange) {
	return &ColumnFiles{fsys: fsys, dir: dir, name: "nodes", features: 1, size: 4, bounds: evenBounds(rows, 1<<18)},
		product.ColumnRange{First: 0, End: 1}
}

// WriteNodes writes the node of each row of a store into a folder.
func WriteNodes(fsys vfs.FS, dir string, nodes []uint32) error {
	files, all := nodesFile(fsys, dir, int64(len(nodes)))
	out, err := files.create(all)
	if err != nil {
		return err
	}
	defer out.Close()
	for k := range out.groups() {
		first, end := out.rows(k)
		if err := out.write(dtype.BytesOf(nodes[first:end])); err != nil {
			return err
		}
	}
	return out.commit()
}

// ReadNodes reads what WriteNodes has written for this many rows. Without it the error is fs.ErrNotExist.
func ReadNodes(fsys vfs.FS, dir string, rows int64) ([]uint32, error) {
	files, all := nodesFile(fsys, dir, rows)
	in, err := files.open(all)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	nodes := make([]uint32, rows)
	for k := range in.groups() {
		first, end := in.rows(k)
		if _, err := in.readGroup(k, dtype.BytesOf(nodes[first:end])); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// ChunkRanges divides the chunks of an input into at most count ranges.
func (in *Input) ChunkRanges(count int) []ChunkRange {
	n := in.Chunks()
	count = max(1, min(count, n))
	out := make([]ChunkRange, count)
	for i := range out {
		out[i] = ChunkRange{n * i / count, n * (i + 1) / count}
	}
	return out
}
