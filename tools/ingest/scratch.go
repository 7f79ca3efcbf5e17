package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// Workspace is what sources need that decode a file once and keep what they found
// on disk: text and deflated arrays are slow to read, and edges are asked for twice.
type Workspace struct {
	Output      string // the graph to be made
	Scratch     string // folder for scratch files, in a folder of their own; "": they go to Output.scratch
	Force       bool   // Output may be there already
	MemoryBytes int64  // most that may be used; 0: no limit
	Progress    progress.Reporter
}

// scratch is a folder of files that are gone when it is closed. What a killed
// process has left in it, the next one overwrites.
type scratch struct {
	Workspace
	fsys vfs.FS
	dir  string
	lock io.Closer
}

func openScratch(fsys vfs.FS, w Workspace) (*scratch, error) {
	if w.Progress == nil {
		w.Progress = progress.Silent
	}
	if !w.Force { // found now rather than after hours
		if there, err := exists(fsys, filepath.Join(w.Output, "manifest.json")); err != nil {
			return nil, err
		} else if there {
			return nil, fmt.Errorf("%s: %w (--force replaces it)", w.Output, format.ErrExists)
		}
	}
	s := &scratch{Workspace: w, fsys: fsys, dir: filepath.Clean(w.Output) + ".scratch"}
	var err error
	if w.Scratch != "" {
		if s.dir, err = scratchFolder(fsys, w.Scratch, w.Output); err != nil {
			return nil, err
		}
	}
	if err := fsys.MkdirAll(s.dir); err != nil {
		return nil, err
	}
	if s.lock, err = fsys.Lock(filepath.Join(s.dir, "lock")); errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s is being imported: %w", w.Output, err)
	}
	return s, err
}

// scratchFolder is the folder within parent for the scratch files of an output, the
// same when it is made again.
func scratchFolder(fsys vfs.FS, parent, output string) (string, error) {
	path, err := fsys.Resolve(output)
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(parent, "hopfeed-"+hex.EncodeToString(sum[:8])), err
}

func (s *scratch) path(name string) string { return filepath.Join(s.dir, name) }

// Close removes the folder.
func (s *scratch) Close() error {
	return errors.Join(s.fsys.RemoveAll(s.dir), s.lock.Close())
}

// edgeSpool keeps edges in a scratch file, in blocks of edgeBlock: the sources of
// a block, its destinations, and, if there are any, its weights; 4 bytes each.
type edgeSpool struct {
	path     string
	fsys     vfs.FS
	columns  int64 // 2, or 3 with weights
	edges    int64 // so far
	pending  vfs.PendingFile
	file     vfs.File
	task     progress.Task
	src, dst []uint32 // of the last block
	weights  []float32
}

// newEdges starts a spool. total is how many edges there will be, or 0.
func (s *scratch) newEdges(weighted bool, total int64) (*edgeSpool, error) {
	e := &edgeSpool{path: s.path("edges"), fsys: s.fsys, columns: 2}
	if weighted {
		e.columns, e.weights = 3, make([]float32, 0, edgeBlock)
	}
	if err := checkSpace(s.fsys, s.dir, 4*e.columns*total); err != nil {
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

// add puts an edge behind those that are there. weight counts only with weights.
func (e *edgeSpool) add(ctx context.Context, src, dst uint32, weight float32) error {
	e.src, e.dst = append(e.src, src), append(e.dst, dst)
	if e.columns == 3 {
		e.weights = append(e.weights, weight)
	}
	if e.edges++; e.edges%edgeBlock == 0 {
		return e.flush(ctx)
	}
	return nil
}

func (e *edgeSpool) flush(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, column := range [][]byte{dtype.BytesOf(e.src), dtype.BytesOf(e.dst), dtype.BytesOf(e.weights)} {
		if _, err := e.pending.Write(column); err != nil {
			return err
		}
	}
	e.task.Add(int64(len(e.src)))
	e.src, e.dst, e.weights = e.src[:0], e.dst[:0], e.weights[:0]
	return nil
}

// putColumn writes the sources (column 0) or destinations (1) of the block that
// begins at edge first, of total edges in all. It does not go with add.
func (e *edgeSpool) putColumn(ctx context.Context, column, first, total int64, ids []uint32) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	e.edges = total
	n := min(edgeBlock, total-first)
	_, err := e.pending.WriteAt(dtype.BytesOf(ids), 4*(first*e.columns+column*n))
	e.task.Add(column * n)
	return err
}

// finish makes the edges readable.
func (e *edgeSpool) finish(ctx context.Context) error {
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
func (e *edgeSpool) stream(ctx context.Context, nodes int64, threads int, emit func(Edges) error) error {
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

func (e *edgeSpool) Close() error {
	var errs []error
	if e.pending != nil {
		errs = append(errs, e.pending.Abort())
	}
	if e.file != nil {
		errs = append(errs, e.file.Close())
	}
	return errors.Join(errs...)
}

// rowSpool puts feature rows that come in any order into a scratch file, by node.
type rowSpool struct {
	scratch *scratch
	cols    int64
	pending vfs.PendingFile
	seen    bitset
	rows    int64 // one past the last row that is there
	start   int64 // first row of buffer
	buffer  []float32
}

func (s *scratch) newRows(cols int64) (*rowSpool, error) {
	pending, err := s.fsys.Create(s.path("features"))
	if err != nil {
		return nil, err
	}
	return &rowSpool{scratch: s, cols: cols, pending: pending}, nil
}

// put writes a row. The error names no file.
func (r *rowSpool) put(row int64, values []float32) error {
	if bytes := row / 8; r.scratch.MemoryBytes > 0 && bytes > r.scratch.MemoryBytes {
		return fmt.Errorf("%w: the features of %d nodes need %v of memory, %v may be used", machine.ErrDoesNotFit, row+1, units.Bytes(bytes), units.Bytes(r.scratch.MemoryBytes))
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
	r.rows = max(r.rows, row+1)
	return nil
}

func (r *rowSpool) flush() error {
	_, err := r.pending.WriteAt(dtype.BytesOf(r.buffer), 4*r.start*r.cols)
	r.buffer = r.buffer[:0]
	return err
}

// missing is the first of rows rows that has not been put, or -1.
func (r *rowSpool) missing(rows int64) int64 {
	for row := range rows {
		if !r.seen.has(row) {
			return row
		}
	}
	return -1
}

// finish returns the matrix, every row of which must be there.
func (r *rowSpool) finish() (*npy.Array, error) {
	err := r.flush()
	if err == nil {
		err = r.pending.Commit()
	}
	if err != nil {
		return nil, err
	}
	return npy.OpenRaw(r.scratch.fsys, r.scratch.path("features"), npy.Float32, r.rows, r.cols)
}

// Close removes what is not finished.
func (r *rowSpool) Close() error { return r.pending.Abort() }

// errTwice is returned for a node that has been there before.
var errTwice = errors.New("the same node again")

// bitset is a set of rows.
type bitset []uint64

// set puts a row in, and tells whether it was there.
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
