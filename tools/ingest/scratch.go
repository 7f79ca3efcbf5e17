package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
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
	fsys   vfs.FS
	spaces []*scratchSpace
}

// create makes the space of a scratch file. Closing the folder frees it.
func (s *scratch) create(name string) (*scratchSpace, error) {
	space, err := newFileSpace(s.fsys, s.Path(fmt.Sprintf("%s-%d", name, len(s.spaces))))
	s.spaces = append(s.spaces, space)
	return space, err
}

func (s *scratch) newFile(name string) (*scratchFile, error) {
	space, err := s.create(name)
	return &scratchFile{scratchSpace: space, held: -1}, err
}

// Close frees all space, and removes the folder.
func (s *scratch) Close() (err error) {
	for _, space := range s.spaces {
		err = errors.Join(err, space.free())
	}
	return errors.Join(err, s.Scratch.Close())
}

func openScratch(fsys vfs.FS, w ScratchOptions) (*scratch, error) {
	if w.Progress == nil {
		w.Progress = progress.Silent
	}
	if !w.Force { // so that it is refused now and not after hours
		if there, err := exists(fsys, filepath.Join(w.Output, "manifest.json")); err != nil {
			return nil, err
		} else if there || format.IsTyped(fsys, w.Output) {
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
	return &scratch{ScratchOptions: w, Scratch: s, fsys: fsys}, err
}

// scratchFolder is the folder within parent for the scratch files of an output. It depends on the path of the output
// alone, so that the next import finds it.
func scratchFolder(fsys vfs.FS, parent, output string) (string, error) {
	path, err := fsys.Resolve(output)
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(parent, "hopfeed-"+hex.EncodeToString(sum[:8])), err
}

// scratchEdges is edges in scratch files: their sources, their destinations and, if they have them, their weights.
type scratchEdges struct {
	columns []*scratchFile
	edges   int64 // so far
	task    progress.Task
}

// newEdges creates empty files for edges. total is their number, or 0 if unknown.
func (s *scratch) newEdges(weighted bool, total int64) (*scratchEdges, error) {
	names := []string{"edges-sources", "edges-destinations", "edges-weights"}
	if !weighted {
		names = names[:2]
	}
	if err := machine.CheckSpace(s.fsys, s.Dir(), 4*total*int64(len(names))); err != nil {
		return nil, err
	}
	e := &scratchEdges{task: s.Progress.Start("read edges", total, progress.Items)}
	for _, name := range names {
		f, err := s.newFile(name)
		if err != nil {
			return nil, err
		}
		e.columns = append(e.columns, f)
	}
	return e, nil
}

// add appends an edge. weight is ignored where edges have none.
func (e *scratchEdges) add(ctx context.Context, src, dst uint32, weight float32) error {
	values := [3]uint32{src, dst, math.Float32bits(weight)}
	for i := range e.columns {
		if err := e.addTo(i, values[i]); err != nil {
			return err
		}
	}
	if e.edges++; e.edges%edgeBlock == 0 {
		e.task.Add(edgeBlock)
		return context.Cause(ctx)
	}
	return nil
}

func (e *scratchEdges) addTo(column int, v uint32) error {
	f := e.columns[column]
	if f.block = binary.LittleEndian.AppendUint32(f.block, v); len(f.block) < scratchBlock {
		return nil
	}
	return f.flush()
}

func (e *scratchEdges) finish(ctx context.Context) error {
	defer e.task.Done()
	e.task.Add(e.edges % edgeBlock)
	for _, f := range e.columns {
		if err := f.flush(); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// stream calls emit with all edges, between this many sources and destinations, as Source.Edges does.
func (e *scratchEdges) stream(ctx context.Context, nodes [2]int64, threads int, emit func(Edges) error) error {
	most := min(edgeBlock, e.edges)
	buffers := sync.Pool{New: func() any { b := make([]uint32, most*int64(len(e.columns))); return &b }}
	return parallel.For(ctx, threads, e.edges, edgeBlock, func(first, end int64) error {
		buffer := buffers.Get().(*[]uint32)
		defer buffers.Put(buffer)
		var blocks [3][]uint32
		for i, f := range e.columns {
			blocks[i] = (*buffer)[int64(i)*most:][:end-first]
			if err := f.read(dtype.BytesOf(blocks[i]), 4*first); err != nil {
				return err
			}
			if i < 2 && int64(slices.Max(blocks[i])) >= nodes[i] {
				return fmt.Errorf("%s: %w", f.file.Path(), errChanged)
			}
		}
		edges := Edges{Src: blocks[0], Dst: blocks[1], Weights: dtype.Float32s(dtype.BytesOf(blocks[2]))}
		return emit(edges)
	})
}

// free removes the files.
func (e *scratchEdges) free() (err error) {
	for _, f := range e.columns {
		err = errors.Join(err, f.free())
	}
	return err
}

// scratchFile is bytes in memory, or in a scratch file that is written from front to end, in blocks with a checksum
// each.
type scratchFile struct {
	*scratchSpace
	bytes int64    // written so far
	sums  []uint32 // CRC-32C of each block
	block []byte   // that is being filled or, when all are written, was read last
	held  int64    // its number, if it was read; -1: none
}

// scratchBlock is the bytes of a block of a scratchFile.
const scratchBlock = 4 * edgeBlock

// put appends bytes.
func (f *scratchFile) put(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), scratchBlock-len(f.block))
		if f.block, p = append(f.block, p[:n]...), p[n:]; len(f.block) == scratchBlock {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes the block that was filled, if it has anything.
func (f *scratchFile) flush() error {
	if len(f.block) == 0 {
		return nil
	}
	_, err := f.WriteAt(f.block, f.bytes)
	f.bytes, f.sums, f.block = f.bytes+int64(len(f.block)), append(f.sums, f.sum(0, f.block)), f.block[:0]
	return err
}

// read reads bytes from an offset, and checks the blocks that they lie in. It may be called concurrently for whole
// blocks.
func (f *scratchFile) read(p []byte, off int64) error {
	if f.memory != nil {
		_, err := f.ReadAt(p, off)
		return err
	}
	for len(p) > 0 {
		k := off / scratchBlock
		start := k * scratchBlock
		n := min(scratchBlock, f.bytes-start)
		if off == start && int64(len(p)) >= n {
			if err := f.readBlock(p[:n], k); err != nil {
				return err
			}
			p, off = p[n:], off+n
			continue
		}
		if f.held != k {
			f.block, f.held = slices.Grow(f.block[:0], int(n))[:n], -1
			if err := f.readBlock(f.block, k); err != nil {
				return err
			}
			f.held = k
		}
		read := copy(p, f.block[off-start:])
		p, off = p[read:], off+int64(read)
	}
	return nil
}

func (f *scratchFile) readBlock(block []byte, k int64) error {
	if _, err := f.ReadAt(block, k*scratchBlock); err != nil {
		return err
	}
	return f.compare(f.sum(0, block), f.sums[k])
}

// scratchMatrix is a scratch file of features, whose values come in any order.
type scratchMatrix struct {
	npy.Header // with the shape, [n,F], and the order
	to         *scratchSpace
	sum        uint64 // sumElements of what was put
}

// put writes consecutive values of a column, in Fortran order, or else of rows.
func (m *scratchMatrix) put(row, column int64, values []float32) error {
	first, stride := row*m.Shape[1]+column, int64(1)
	at := first
	if m.Fortran {
		at, stride = column*m.Shape[0]+row, m.Shape[1]
	}
	m.sum += sumElements(first, stride, values)
	_, err := m.to.WriteAt(dtype.BytesOf(values), 4*at)
	return err
}

// scratchRows writes whole rows of a matrix, which come in any order, by node.
type scratchRows struct {
	*scratchMatrix
	memoryBytes int64 // most that may be used; 0: no limit
	seen        bitset
	start       int64 // first row of buffer
	buffer      []float32
}

// put writes a row. Its error names no file: the caller adds it.
func (r *scratchRows) put(row int64, values []float32) error {
	if bytes := row / 8; r.memoryBytes > 0 && bytes > r.memoryBytes {
		return fmt.Errorf("%w: a bit for each of %d nodes with features needs %v of memory, and %v may be used "+
			"(raise --memory)", machine.ErrDoesNotFit, row+1, units.Bytes(bytes), units.Bytes(r.memoryBytes))
	}
	if r.seen.set(row) {
		return errTwice
	}
	cols := r.Shape[1]
	if row != r.start+int64(len(r.buffer))/cols || int64(len(r.buffer)) >= max(cols, 1<<18) {
		if err := r.flush(); err != nil {
			return err
		}
		r.start = row
	}
	r.buffer = append(r.buffer, values...)
	r.Shape[0] = max(r.Shape[0], row+1)
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
	err := r.scratchMatrix.put(r.start, 0, r.buffer)
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

var errTwice = errors.New("the node has a row already")

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

// scratchSpace is bytes that are written and read at offsets, in memory off the Go heap or in a scratch file. The file
// is read under its temporary name and never committed, so nothing waits for the disk. It is safe for concurrent use.
type scratchSpace struct {
	memory *offheap.Buffer

	mu      sync.Mutex
	pending vfs.PendingFile
	file    vfs.File
}

func alloc(bytes int64) (*offheap.Buffer, error) {
	b, err := offheap.Alloc(bytes)
	if err != nil {
		err = fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	return b, err
}

func newFileSpace(fsys vfs.FS, path string) (*scratchSpace, error) {
	pending, file, err := vfs.CreateScratch(fsys, path)
	if err != nil {
		return nil, err
	}
	return &scratchSpace{pending: pending, file: file}, nil
}

func (s *scratchSpace) WriteAt(p []byte, off int64) (int, error) {
	if s.memory != nil {
		return s.copyAt(off, len(p), func(b []byte) int { return copy(b, p) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.WriteAt(p, off)
}

// copyAt copies n bytes at an offset, which it checks: it may come from damaged bytes.
func (s *scratchSpace) copyAt(off int64, n int, copyTo func([]byte) int) (int, error) {
	b := s.memory.Bytes()
	if off < 0 || off > int64(len(b)) || int64(n) > int64(len(b))-off {
		return 0, fmt.Errorf("%d bytes at offset %d of a scratch buffer of %d bytes: %w",
			n, off, len(b), io.ErrUnexpectedEOF)
	}
	return copyTo(b[off:]), nil
}

// ReadAt fills p, or returns an error.
func (s *scratchSpace) ReadAt(p []byte, off int64) (int, error) {
	if s.memory != nil {
		return s.copyAt(off, len(p), func(b []byte) int { return copy(p, b) })
	}
	n, err := s.file.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: the scratch file ends at byte %d: %w", s.file.Path(), off+int64(n), io.ErrUnexpectedEOF)
	}
	return n, err
}

// sum adds data of the space to a CRC-32C. Memory needs none: its sums are 0.
func (s *scratchSpace) sum(crc uint32, data []byte) uint32 {
	if s.memory != nil {
		return 0
	}
	return kernel.CRC32C(crc, data)
}

// compare returns an error, which names the file, if a checksum differs from the one when it was written.
func (s *scratchSpace) compare(found, written uint32) error {
	if found != written {
		return fmt.Errorf("%s: %w", s.file.Path(), folder.ErrDamaged)
	}
	return nil
}

// free frees the memory or removes the file. A second call does nothing.
func (s *scratchSpace) free() (err error) {
	switch {
	case s == nil:
	case s.memory != nil:
		err = s.memory.Free()
	case s.pending != nil:
		err = errors.Join(s.file.Close(), s.pending.Abort())
	}
	if s != nil {
		s.memory, s.pending = nil, nil
	}
	return err
}
