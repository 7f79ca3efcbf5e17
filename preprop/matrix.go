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
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// matrix is a range of columns of one hop of all nodes, row-major [n, features], off
// the Go heap.
type matrix struct {
	id       format.MatrixID
	first    int // column of the hop that is column 0 here
	features int
	dtype    format.DType
	buf      *offheap.Buffer
}

// newMatrix allocates a matrix for the first features columns of a hop.
func newMatrix(nodes int64, features int, t format.DType) (*matrix, error) {
	buf, err := offheap.Alloc(nodes * int64(features) * int64(t.Size()))
	if err != nil {
		return nil, err
	}
	return &matrix{features: features, dtype: t, buf: buf}, nil
}

func (m *matrix) rowBytes() int64 { return int64(m.features) * int64(m.dtype.Size()) }

// columns are the columns of the hop that m has.
func (m *matrix) columns() columnRange { return columnRange{m.first, m.first + m.features} }

// rows is the memory of rows [lo, hi).
func (m *matrix) rows(lo, hi int64) []byte {
	return m.buf.Bytes()[lo*m.rowBytes() : hi*m.rowBytes()]
}

// setRows stores rows of values, each times its factor, from row first on, rounded
// to the nearest even. It fails on the first number whose stored value is not
// finite, and may change values then.
func (m *matrix) setRows(first int64, values, factors []float32) error {
	if encode(m.rows(first, first+int64(len(factors))), values, factors, m.dtype, true) {
		return nil
	}
	for i := range factors {
		v, row := first+int64(i), values[i*m.features:][:m.features]
		if dst := m.rows(v, v+1); !encode(dst, row, factors[i:i+1], m.dtype, false) {
			return notFinite(m.id, v, m.first, dst, row, factors[i], m.dtype)
		}
	}
	panic("preprop: a row was finite when it was looked at again")
}

// unscaled is the factor for a row that is only rounded.
var unscaled = []float32{1}

// encode stores rows of values, each times its factor, rounded to the nearest even,
// and tells whether all that it stored is finite. stream is that of kernel.ScaleFloat32.
func encode(dst []byte, values, factors []float32, t format.DType, stream bool) (finite bool) {
	switch t {
	case dtype.Float32:
		return kernel.ScaleFloat32(dtype.Float32s(dst), values, factors, stream)
	case dtype.Float16:
		return kernel.ScaleFloat16(dtype.Uint16s(dst), values, factors, stream)
	default:
		return kernel.ScaleBFloat16(dtype.Uint16s(dst), values, factors, stream)
	}
}

// notFinite is the error that names the first of s times values that is not finite as an
// element of row v of a matrix. The values begin at column first. It changes row and values.
func notFinite(id format.MatrixID, v int64, first int, row []byte, values []float32, s float32, t format.DType) error {
	for j := range values {
		values[j] *= s
	}
	at := dtype.Encode(row, values, t)
	infinite := firstNotFinite(values)
	if at >= 0 && (infinite < 0 || at < infinite) {
		return fmt.Errorf("%s: node %d, column %d: %w: %g is too large for %s (choose a wider dtype, or scale the features)",
			id, v, first+at, ErrInvalid, values[at], t)
	}
	return fmt.Errorf("%s: node %d, column %d: %w: %g instead of a finite number (features or edge weights are too large, or not finite)",
		id, v, first+infinite, ErrInvalid, values[infinite])
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

// writeBufferBytes is about how many bytes all threads together write to a store at a time.
const writeBufferBytes = 8 << 20

// gather copies the rows of nodes to dst, one after another.
func (m *matrix) gather(dst []byte, nodes []uint32) []byte {
	row := int(m.rowBytes())
	dst = dst[:len(nodes)*row]
	for i, v := range nodes {
		copy(dst[i*row:(i+1)*row], m.rows(int64(v), int64(v)+1))
	}
	return dst
}

// writeStep is how many rows a thread gathers at a time, of so many rows of rowBytes.
func writeStep(rows, rowBytes int64, threads int) int64 {
	return max(1, min(rows, writeBufferBytes/int64(threads)/rowBytes))
}

// storeCost is what the store takes. Its rows are there from the start. Its matrices grow until the last panel, or
// while result files are assembled, but for hop 0 where that is kept.
func (w *work) storeCost(p *Plan) cost {
	rows := w.storeBytes - int64(w.matrices)*w.matrixBytes
	c := cost{written: w.storeBytes, store: during(preparing, assembling, rows)}
	c.store[assembling] = w.storeBytes
	if !p.ResultFiles {
		c.store[lastPanel] = w.storeBytes
	} else if w.keepsRows(p) {
		for at := cutting; at <= lastPanel; at++ {
			c.store[at] += w.matrixBytes
		}
	}
	return c
}

// write stores the rows of the given nodes, in this order, as a whole matrix, through storeBuffers.
func (m *matrix) write(ctx context.Context, store *format.Writer, nodes []uint32, threads int, b *buffers, p progress.Reporter) error {
	task := p.Start("write "+m.id.String(), int64(len(nodes))*m.rowBytes(), progress.Bytes)
	defer task.Done()
	out, err := store.Matrix(m.id)
	if err != nil {
		return err
	}
	rows := int64(len(nodes))
	step := writeStep(rows, m.rowBytes(), threads)
	err = m.gatherInOrder(ctx, nodes, func(k int64) (int64, int64) { return k * step, min(rows, (k+1)*step) }, (rows+step-1)/step, threads, b,
		func(buffer []byte) error {
			task.Add(int64(len(buffer)))
			return out.Write(buffer)
		})
	if err != nil {
		return err
	}
	return out.Close()
}

// writeColumnFile stores the rows of the given nodes, in this order, in a column file, through resultBuffers.
func (m *matrix) writeColumnFile(ctx context.Context, fsys vfs.FS, path string, blockRows int64, nodes []uint32, threads int, b *buffers) error {
	out, err := createColumnFile(fsys, path, evenBlocks(int64(len(nodes)), blockRows, m.rowBytes()))
	if err != nil {
		return err
	}
	defer out.Close()
	err = m.gatherInOrder(ctx, nodes, func(k int64) (int64, int64) { return out.rows(int(k)) }, int64(out.blocks()), threads, b, out.write)
	if err != nil {
		return err
	}
	return out.commit()
}

// gatherInOrder calls emit with the rows of the nodes [first, end) of each of n blocks.
func (m *matrix) gatherInOrder(ctx context.Context, nodes []uint32, block func(k int64) (first, end int64), n int64, threads int, b *buffers, emit func([]byte) error) error {
	var held [][]byte // which parallel.Ordered keeps
	defer func() {
		for _, buffer := range held {
			b.put(buffer)
		}
	}()
	take := func() []byte {
		held = append(held, b.get())
		return held[len(held)-1]
	}
	return parallel.Ordered(ctx, threads, n, take, func(k int64, buffer []byte) ([]byte, error) {
		first, end := block(k)
		return m.gather(buffer, nodes[first:end]), nil
	}, emit)
}

// lowestError holds the error with the lowest position of those that goroutines report.
// As parallel.For starts ranges in ascending order and finishes those that it has started,
// that is the same error for any number of threads.
type lowestError struct {
	mu  sync.Mutex
	at  int64
	err error
}

// report returns err, for the caller to stop with.
func (l *lowestError) report(at int64, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil || at < l.at {
		l.at, l.err = at, err
	}
	return err
}
