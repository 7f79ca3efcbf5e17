package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ScratchOptions are for sources that decode their files once and keep the result in scratch files: text and compressed
// arrays are slow to read, and edges are read twice.
type ScratchOptions struct {
	Output      string // the graph to be made
	Scratch     string // folder in which the scratch files get a folder of their own; "": Output.scratch
	Force       bool   // Output may be there already
	MemoryBytes int64  // most that may be used; 0: no limit
	Progress    progress.Reporter
}

// scratch is a folder of scratch files, which closing removes. The next import removes what a killed process has left.
type scratch struct {
	ScratchOptions
	*folder.Scratch
	fsys vfs.FS
}

func openScratch(fsys vfs.FS, w ScratchOptions) (*scratch, error) {
	if w.Progress == nil {
		w.Progress = progress.Silent
	}
	if !w.Force { // so that it is refused now and not after hours
		if there, err := exists(fsys, filepath.Join(w.Output, "manifest.json")); err != nil {
			return nil, err
		} else if there {
			return nil, fmt.Errorf("%s: %w (--force replaces it)", w.Output, format.ErrExists)
		}
	}
	dir, err := fsys.Resolve(w.Output) // "." has no name to add to
	if dir += folder.Suffix; w.Scratch != "" && err == nil {
		dir, err = scratchFolder(fsys, w.Scratch, w.Output)
	}
	if err != nil {
		return nil, err
	}
	s, err := folder.OpenScratch(fsys, dir)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, fmt.Errorf("%s: another process is importing to it: %w", w.Output, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return nil, fmt.Errorf("a folder for scratch files: %w (--scratch DIR names another place)", err)
	}
	return &scratch{w, s, fsys}, err
}

// scratchFolder is the folder within parent for the scratch files of an output. It depends on the path of the output
// alone, so that the next import finds it.
func scratchFolder(fsys vfs.FS, parent, output string) (string, error) {
	path, err := fsys.Resolve(output)
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(parent, "hopfeed-"+hex.EncodeToString(sum[:8])), err
}

// scratchEdges is edges in a scratch file, in blocks of edgeBlock: the sources of a block, its destinations, and its
// weights if edges have weights; 4 bytes each.
type scratchEdges struct {
	path     string
	fsys     vfs.FS
	columns  int64 // 2, or 3 with weights
	edges    int64 // so far
	pending  vfs.PendingFile
	file     vfs.File
	task     progress.Task
	src, dst []uint32 // of the last block
	weights  []float32
	sums     [][3]uint32 // CRC-32C of the columns of each block, as written
}

// sum records the checksum of a column of the block that begins at edge first.
func (e *scratchEdges) sum(first, column int64, data []byte) {
	for int64(len(e.sums)) <= first/edgeBlock {
		e.sums = append(e.sums, [3]uint32{})
	}
	e.sums[first/edgeBlock][column] = kernel.CRC32C(0, data)
}

// newEdges creates an empty file for edges. total is their number, or 0 if unknown.
func (s *scratch) newEdges(weighted bool, total int64) (*scratchEdges, error) {
	e := &scratchEdges{path: s.Path("edges"), fsys: s.fsys, columns: 2}
	if weighted {
		e.columns, e.weights = 3, make([]float32, 0, edgeBlock)
	}
	if err := checkSpace(s.fsys, s.Dir(), 4*e.columns*total); err != nil {
		return nil, err
	}
	var err error
	if e.pending, err = s.fsys.Create(e.path); err != nil {
		return nil, err
	}
	e.task = s.Progress.Start("read edges", total, progress.Items)
	e.src, e.dst = make([]uint32, 0, edgeBlock), make([]uint32, 0, edgeBlock)
	return e, nil
}

// add appends an edge. weight is ignored where edges have none.
func (e *scratchEdges) add(ctx context.Context, src, dst uint32, weight float32) error {
	e.src, e.dst = append(e.src, src), append(e.dst, dst)
	if e.columns == 3 {
		e.weights = append(e.weights, weight)
	}
	if e.edges++; e.edges%edgeBlock == 0 {
		return e.flush(ctx)
	}
	return nil
}

func (e *scratchEdges) flush(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for i, column := range [][]byte{dtype.BytesOf(e.src), dtype.BytesOf(e.dst), dtype.BytesOf(e.weights)} {
		if len(e.src) > 0 {
			e.sum(e.edges-int64(len(e.src)), int64(i), column)
		}
		if _, err := e.pending.Write(column); err != nil {
			return err
		}
	}
	e.task.Add(int64(len(e.src)))
	e.src, e.dst, e.weights = e.src[:0], e.dst[:0], e.weights[:0]
	return nil
}

// putColumn writes the sources (column 0) or destinations (1) of the block that begins at edge first; the file is to
// hold total edges. It is used instead of add.
func (e *scratchEdges) putColumn(ctx context.Context, column, first, total int64, ids []uint32) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	e.edges = total
	n := min(edgeBlock, total-first)
	e.sum(first, column, dtype.BytesOf(ids))
	_, err := e.pending.WriteAt(dtype.BytesOf(ids), 4*(first*e.columns+column*n))
	e.task.Add(column * n)
	return err
}

// finish writes what is left and opens the file for reading.
func (e *scratchEdges) finish(ctx context.Context) error {
	err := e.flush(ctx)
	e.task.Done()
	if err != nil {
		return err
	}
	pending := e.pending
	e.pending, e.src, e.dst, e.weights = nil, nil, nil, nil
	if err := pending.Commit(); err != nil {
		return err
	}
	e.file, err = e.fsys.Open(e.path)
	return err
}

// stream calls emit with all edges, between nodes nodes, as Source.Edges does.
func (e *scratchEdges) stream(ctx context.Context, nodes int64, threads int, emit func(Edges) error) error {
	buffers := sync.Pool{New: func() any { b := make([]uint32, e.columns*edgeBlock); return &b }}
	return parallel.For(ctx, threads, e.edges, edgeBlock, func(first, end int64) error {
		buffer := buffers.Get().(*[]uint32)
		defer buffers.Put(buffer)
		n := end - first
		block := (*buffer)[:n*e.columns]
		bytes := dtype.BytesOf(block)
		if got, err := e.file.ReadAt(bytes, 4*first*e.columns); got < len(bytes) {
			if err == nil || errors.Is(err, io.EOF) {
				err = errChanged
			}
			return fmt.Errorf("%s: %w", e.path, err)
		}
		for column := range e.columns {
			if kernel.CRC32C(0, bytes[4*n*column:4*n*(column+1)]) != e.sums[first/edgeBlock][column] {
				return fmt.Errorf("%s: %w", e.path, folder.ErrDamaged)
			}
		}
		for _, v := range block[:2*n] {
			if int64(v) >= nodes {
				return fmt.Errorf("%s: %w", e.path, errChanged)
			}
		}
		edges := Edges{Src: block[:n], Dst: block[n : 2*n]}
		if e.columns == 3 {
			edges.Weights = dtype.Float32s(bytes[8*n:])
		}
		return emit(edges)
	})
}

func (e *scratchEdges) Close() error {
	var errs []error
	if e.pending != nil {
		errs = append(errs, e.pending.Abort())
	}
	if e.file != nil {
		errs = append(errs, e.file.Close())
	}
	return errors.Join(errs...)
}

// scratchRows is a scratch file of feature rows, which come in any order, by node.
type scratchRows struct {
	scratch *scratch
	cols    int64
	pending vfs.PendingFile
	seen    bitset
	rows    int64  // 1 more than the highest row so far
	sum     uint64 // sumElements of all rows
	start   int64  // first row of buffer
	buffer  []float32
}

// put writes a row. Its error names no file: the caller adds it.
func (r *scratchRows) put(row int64, values []float32) error {
	if bytes := row / 8; r.scratch.MemoryBytes > 0 && bytes > r.scratch.MemoryBytes {
		return fmt.Errorf("%w: a bit for each of %d nodes with features needs %v of memory, and %v may be used "+
			"(raise --memory)", machine.ErrDoesNotFit, row+1, units.Bytes(bytes), units.Bytes(r.scratch.MemoryBytes))
	}
	if r.seen.set(row) {
		return errTwice
	}
	if row != r.start+int64(len(r.buffer))/r.cols || int64(len(r.buffer)) >= max(r.cols, 1<<18) {
		if err := r.flush(); err != nil {
			return err
		}
		r.start = row
	}
	r.buffer = append(r.buffer, values...)
	r.sum += sumElements(row*r.cols, 1, values)
	r.rows = max(r.rows, row+1)
	return nil
}

// sumElements is a checksum of elements of a matrix and of their numbers in it, row by row: the i-th value has the
// number first + i*stride. Sums of parts of a matrix, in any order, add up to the sum of the whole.
func sumElements(first, stride int64, values []float32) (sum uint64) {
	for _, v := range values {
		sum += rng.At(uint64(math.Float32bits(v)), uint64(first))
		first += stride
	}
	return sum
}

func (r *scratchRows) flush() error {
	_, err := r.pending.WriteAt(dtype.BytesOf(r.buffer), 4*r.start*r.cols)
	r.buffer = r.buffer[:0]
	return err
}

// missing is the lowest of rows rows that has not been put, or -1.
func (r *scratchRows) missing(rows int64) int64 {
	for row := range rows {
		if !r.seen.has(row) {
			return row
		}
	}
	return -1
}

// errTwice is returned for a second row of a node.
var errTwice = errors.New("the node has a row already")

// bitset is a set of rows.
type bitset []uint64

// set adds a row, and returns whether it was in the set before.
func (b *bitset) set(row int64) bool {
	word := int(row >> 6)
	if word >= len(*b) {
		*b = append(*b, make([]uint64, word+1-len(*b))...)
	}
	was := b.has(row)
	(*b)[word] |= 1 << (row & 63)
	return was
}

func (b *bitset) has(row int64) bool {
	word := int(row >> 6)
	return word < len(*b) && (*b)[word]>>(row&63)&1 == 1
}
