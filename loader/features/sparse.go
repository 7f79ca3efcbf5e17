package features

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Features are sparse if at most 1 of sparseRatio elements is not zero: then their rows take at most an eighth of
// the memory of dense float32, and products with them less time.
const sparseRatio = 16

// probedChunks are looked at before all others are: dense features show in them.
const probedChunks = 8

// elementBytes is the memory of an element that is not zero: its column and its value.
const elementBytes = 4 + 4

// Elements counts the elements of each row of sparse features that are not zero.
type Elements struct {
	shape
	offsets []uint32 // of the elements of each row, [rows+1]
}

// Count is how many elements are not zero.
func (e *Elements) Count() int64 { return int64(e.offsets[e.rows]) }

// Bytes is the memory that the features take as sparse rows.
func (e *Elements) Bytes() int64 { return 4*int64(len(e.offsets)) + elementBytes*e.Count() }

// FindElements counts the elements of a graph's features that are not zero; nil: these are not sparse. It reads a few
// chunks, and all if these are sparse. threads 0 is parallel.Threads.
func FindElements(ctx context.Context, graph *format.Dir, threads int) (_ *Elements, err error) {
	e := &Elements{}
	if e.shape, err = newShape(graph); err != nil {
		return nil, err
	}
	r, err := newChunkReader(graph, e.shape)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.matrix.Close()) }()
	chunks := int64(r.matrix.Chunks())
	probed := min(chunks, probedChunks)
	found, seen := int64(0), int64(0)
	for i := range probed {
		count, rows := int64(0), int64(0)
		err := r.read(int(i*chunks/probed), func(_ int64, values []float32) {
			rows++
			count += countElements(values)
		})
		if err != nil {
			return nil, err
		}
		found, seen = found+count, seen+rows
	}
	if found > seen*int64(e.columns)/sparseRatio {
		return nil, nil
	}
	e.offsets = make([]uint32, e.rows+1)
	var total atomic.Int64
	most := min(e.rows*int64(e.columns)/sparseRatio, math.MaxUint32)
	err = parallel.For(ctx, threads, chunks, 1, func(k, _ int64) error {
		if total.Load() > most {
			return nil
		}
		return r.read(int(k), func(row int64, values []float32) {
			count := countElements(values)
			e.offsets[row+1] = uint32(count)
			total.Add(count)
		})
	})
	if err != nil || total.Load() > most {
		return nil, err
	}
	for i := range e.rows {
		e.offsets[i+1] += e.offsets[i]
	}
	return e, nil
}

func countElements(values []float32) (n int64) {
	for _, v := range values {
		if v != 0 {
			n++
		}
	}
	return n
}

// chunkReader reads chunks of features as float32. Any goroutine may read.
type chunkReader struct {
	shape
	matrix  *format.Matrix
	buffers sync.Pool // of *chunkBuffer
}

type chunkBuffer struct {
	stored []byte
	values []float32 // decoded, unless they are stored so
}

func newChunkReader(graph *format.Dir, s shape) (*chunkReader, error) {
	m, err := graph.Matrix(format.Input)
	if err != nil {
		return nil, err
	}
	r := &chunkReader{shape: s, matrix: m}
	r.buffers.New = func() any {
		b := &chunkBuffer{stored: make([]byte, s.chunkRows*s.rowBytes())}
		if s.dtype != gds.Float32 {
			b.values = make([]float32, s.chunkRows*int64(s.columns))
		}
		return b
	}
	return r, nil
}

// read calls do for the rows of chunk k, in order.
func (r *chunkReader) read(k int, do func(row int64, values []float32)) error {
	b := r.buffers.Get().(*chunkBuffer)
	defer r.buffers.Put(b)
	first, rows := r.matrix.ChunkRowRange(k)
	stored := b.stored[:int64(rows)*r.rowBytes()]
	if err := r.matrix.ReadChunk(k, stored); err != nil {
		return err
	}
	values := b.values[:min(len(b.values), rows*r.columns)]
	if r.dtype == gds.Float32 {
		values = dtype.Float32s(stored)
	} else {
		dtype.Decode(values, stored, r.dtype)
	}
	for i := range rows {
		do(first+int64(i), values[i*r.columns:(i+1)*r.columns])
	}
	return nil
}

// Sparse has the elements of all rows that are not zero in host memory, as float32. It is a Source of dense rows, too.
type Sparse struct {
	Elements          // whose type is float32
	column   []uint32 // of each element
	values   []float32
	memory   *offheap.Buffer // of column and values

	gathered, elements atomic.Int64
}

// LoadSparse reads and checks the sparse features of a graph. threads 0 is parallel.Threads.
func LoadSparse(ctx context.Context, graph *format.Dir, e *Elements, threads int) (_ *Sparse, err error) {
	s := &Sparse{Elements: *e}
	s.dtype = gds.Float32
	if s.memory, err = offheap.Alloc(elementBytes * e.Count()); err != nil {
		return nil, fmt.Errorf("sparse features of %d nodes: %w", s.rows, err)
	}
	half := 4 * e.Count()
	s.column, s.values = dtype.Uint32s(s.memory.Bytes()[:half]), dtype.Float32s(s.memory.Bytes()[half:2*half])
	r, err := newChunkReader(graph, e.shape)
	if err == nil {
		err = parallel.For(ctx, threads, int64(r.matrix.Chunks()), 1, func(k, _ int64) (wrong error) {
			err := r.read(int(k), func(row int64, values []float32) {
				at, end := s.offsets[row], s.offsets[row+1]
				for j, v := range values {
					if v == 0 {
						continue
					}
					if at < end {
						s.column[at], s.values[at] = uint32(j), v
					}
					at++
				}
				if at != end {
					wrong = fmt.Errorf("%s has changed while it was read: row %d has other elements", graph.Path(), row)
				}
			})
			return errors.Join(err, wrong)
		})
		err = errors.Join(err, r.matrix.Close())
	}
	if err != nil {
		return nil, errors.Join(err, s.memory.Free())
	}
	return s, nil
}

// InRange is how many elements of rows first to first+rows-1 are not zero.
func (e *Elements) InRange(first, rows int64) int64 {
	return int64(e.offsets[first+rows] - e.offsets[first])
}

// In is how many elements of some rows are not zero. Nodes must be below Rows.
func (e *Elements) In(nodes []uint32) (n int64) {
	for _, v := range nodes {
		n += int64(e.offsets[v+1] - e.offsets[v])
	}
	return n
}

// GatherElements writes the elements of the rows of nodes that are not zero, in their order: offsets are
// len(nodes)+1, columns and values as many as In says.
func (s *Sparse) GatherElements(offsets, columns []uint32, values []float32, nodes []uint32) error {
	if n := s.In(nodes); int64(len(columns)) < n || int64(len(values)) < n || len(offsets) <= len(nodes) {
		return fmt.Errorf("%d offsets, %d columns and %d values for %d rows with %d elements", len(offsets),
			len(columns), len(values), len(nodes), n)
	}
	at := 0
	for i, v := range nodes {
		lo, hi := s.offsets[v], s.offsets[v+1]
		offsets[i] = uint32(at)
		copy(columns[at:], s.column[lo:hi])
		at += copy(values[at:], s.values[lo:hi])
	}
	offsets[len(nodes)] = uint32(at)
	s.gathered.Add(int64(len(nodes)))
	s.elements.Add(int64(at))
	return nil
}

// Gather writes dense rows; see Source.
func (s *Sparse) Gather(_ context.Context, dst []byte, as gds.DType, nodes []uint32) error {
	if err := s.check(dst, as, nodes); err != nil || len(nodes) == 0 {
		return err
	}
	out := dtype.Float32s(dst)[:len(nodes)*s.columns]
	clear(out)
	for i, v := range nodes {
		lo, hi := s.offsets[v], s.offsets[v+1]
		for k, j := range s.column[lo:hi] {
			out[i*s.columns+int(j)] = s.values[int(lo)+k]
		}
	}
	s.gathered.Add(int64(len(nodes)))
	s.elements.Add(s.In(nodes))
	return nil
}

// Stats counts gathered rows.
func (s *Sparse) Stats() Stats {
	return Stats{Rows: s.gathered.Load(), Bytes: elementBytes * s.elements.Load(), Path: "memory"}
}

// Close frees the rows.
func (s *Sparse) Close() error { return s.memory.Free() }
