package preprop

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// matrix is one hop of all nodes, row-major [n, features], off the Go heap.
type matrix struct {
	id       format.MatrixID
	features int
	dtype    format.DType
	buf      *offheap.Buffer
}

func newMatrix(nodes int64, features int, t format.DType) (*matrix, error) {
	buf, err := offheap.Alloc(nodes * int64(features) * int64(t.Size()))
	if err != nil {
		return nil, err
	}
	return &matrix{features: features, dtype: t, buf: buf}, nil
}

func (m *matrix) rowBytes() int64 { return int64(m.features) * int64(m.dtype.Size()) }

// rows is the memory of rows [lo, hi).
func (m *matrix) rows(lo, hi int64) []byte {
	return m.buf.Bytes()[lo*m.rowBytes() : hi*m.rowBytes()]
}

// setRow stores s times values as row v, rounded to the nearest even. It fails on
// the first column whose stored value is not finite, and may change values then.
func (m *matrix) setRow(v int64, values []float32, s float32) error {
	row, finite := m.rows(v, v+1), false
	switch m.dtype {
	case dtype.Float32:
		finite = kernel.ScaleFloat32(dtype.Float32s(row), values, s)
	case dtype.Float16:
		finite = kernel.ScaleFloat16(dtype.Uint16s(row), values, s)
	case dtype.BFloat16:
		finite = kernel.ScaleBFloat16(dtype.Uint16s(row), values, s)
	}
	if finite {
		return nil
	}
	for j := range values {
		values[j] *= s
	}
	at := dtype.Encode(row, values, m.dtype)
	infinite := firstNotFinite(values)
	if at >= 0 && (infinite < 0 || at < infinite) {
		return fmt.Errorf("%s: node %d, column %d: %w: %g is too large for %s (choose a wider dtype, or scale the features)",
			m.id, v, at, ErrInvalid, values[at], m.dtype)
	}
	return fmt.Errorf("%s: node %d, column %d: %w: %g instead of a finite number (features or edge weights are too large, or not finite)",
		m.id, v, infinite, ErrInvalid, values[infinite])
}

// firstNotFinite is the index of the first infinity or NaN, or -1.
func firstNotFinite(values []float32) int {
	const exponent = 0x7f800000
	for i, x := range values {
		if math.Float32bits(x)&exponent == exponent {
			return i
		}
	}
	return -1
}

// readInput fills m with the features of a graph, rounded to m's type: hop 0.
func (m *matrix) readInput(ctx context.Context, graph *format.Dir, threads int, p progress.Reporter) error {
	stored, err := graph.Matrix(format.Input)
	if err != nil {
		return err
	}
	defer stored.Close()
	m.id = format.Input
	task := p.Start("read "+m.id.String(), int64(len(m.buf.Bytes())), progress.Bytes)
	defer task.Done()

	from := stored.Layout.DType
	type scratch struct {
		chunk []byte
		row   []float32
	}
	rowBytes := m.features * from.Size()
	pool := sync.Pool{New: func() any {
		return &scratch{make([]byte, stored.Layout.ChunkRows*rowBytes), make([]float32, m.features)}
	}}
	var failure lowest
	err = parallel.For(ctx, threads, int64(stored.Chunks()), 1, func(k, _ int64) error {
		s := pool.Get().(*scratch)
		defer pool.Put(s)
		first, rows := stored.ChunkRowRange(int(k))
		chunk := s.chunk[:rows*rowBytes]
		if err := stored.ReadChunk(int(k), chunk); err != nil {
			return failure.report(first, err)
		}
		for i := range rows {
			dtype.Decode(s.row, chunk[i*rowBytes:(i+1)*rowBytes], from)
			if err := m.setRow(first+int64(i), s.row, 1); err != nil {
				return failure.report(first, err)
			}
		}
		task.Add(int64(rows) * m.rowBytes())
		return nil
	})
	if failure.err != nil {
		return failure.err
	}
	return err
}

// stagingBytes is about how much is written to a store at a time.
const stagingBytes = 8 << 20

// write stores the rows of the given nodes, in this order.
func (m *matrix) write(ctx context.Context, store *format.Writer, nodes []uint32, threads int, p progress.Reporter) error {
	task := p.Start("write "+m.id.String(), int64(len(nodes))*m.rowBytes(), progress.Bytes)
	defer task.Done()
	out, err := store.Matrix(m.id)
	if err != nil {
		return err
	}
	rowBytes := m.rowBytes()
	step := max(1, stagingBytes/rowBytes)
	staging := make([]byte, min(step, int64(len(nodes)))*rowBytes)
	for len(nodes) > 0 {
		some := nodes[:min(step, int64(len(nodes)))]
		nodes = nodes[len(some):]
		err := parallel.For(ctx, threads, int64(len(some)), max(1, step/16), func(lo, hi int64) error {
			for i := lo; i < hi; i++ {
				copy(staging[i*rowBytes:], m.rows(int64(some[i]), int64(some[i])+1))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := out.Write(staging[:int64(len(some))*rowBytes]); err != nil {
			return err
		}
		task.Add(int64(len(some)) * rowBytes)
	}
	return out.Close()
}

// lowest keeps, of the errors that goroutines report, the one at the lowest
// position. As parallel.For starts ranges in ascending order and finishes those
// that it has started, that is the same error for any number of threads.
type lowest struct {
	mu  sync.Mutex
	at  int64
	err error
}

// report returns err, for the caller to stop with.
func (l *lowest) report(at int64, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil || at < l.at {
		l.at, l.err = at, err
	}
	return err
}
