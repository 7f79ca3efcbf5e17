package loader

import (
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// batchBuffer is the memory that a batch is assembled in. Its matrices lie side by side if they
// do so in the source (source.joined), else one after another. Either way there are no gaps, so
// all can be copied or converted by one operation.
type batchBuffer struct {
	epoch.Buffer
	memory   gds.Memory
	features gds.Buffer // in the type of batches
	stored   gds.Buffer // the same in the stored type; features where that is the same type
	columns  gds.Buffer // on the device: the columns of a batch, then row numbers to gather by
	pinned   gds.Buffer // the same

	// All matrices, [rows, columns of all]: in the stored type, and in the type of batches. See Loader.matrix.
	raw, x gds.Tensor
}

// batchType is the type of the matrices of batches.
func (l *Loader) batchType() gds.DType {
	if l.o.AsStored {
		return l.layout.DType
	}
	return gds.Float32
}

// batchBufferBytes is the device memory of a batch buffer: features, stored (0 where these are the same) and columns.
func (l *Loader) batchBufferBytes() (features, stored, columns int64) {
	rows := int64(l.o.BatchRows)
	if l.layout.DType != l.batchType() {
		stored = rows * l.joinedBytes()
	}
	return rows * int64(l.joinedColumns()*l.batchType().Size()), stored,
		l.columnBytes(l.o.BatchRows) + 4*int64(l.o.BatchRows)
}

func newBatchBuffer(l *Loader) (*batchBuffer, error) {
	f := &batchBuffer{memory: gds.Memory{Device: l.o.Device}}
	m, what := &f.memory, fmt.Sprintf("a batch of %d rows", l.o.BatchRows)
	features, stored, columns := l.batchBufferBytes()
	f.features = m.Alloc(what, features)
	if f.stored = f.features; stored > 0 {
		f.stored = m.Alloc(what, stored)
	}
	f.columns, f.pinned = m.Alloc(what, columns), m.Pin(what, columns)
	if m.Err != nil {
		return nil, errors.Join(m.Err, m.Free())
	}
	return f, nil
}

// takeBuffer gives a job a free batch buffer, if it has none, once the copies from its pinned memory are done.
func (l *Loader) takeBuffer(w *pipeline.Worker, j *job) (err error) {
	if j.buffer != nil {
		return nil
	}
	if j.buffer, err = l.buffers.Take(w); err != nil {
		return err
	}
	if ready := j.buffer.Ready; ready != nil {
		if err := w.Wait(ready); err != nil {
			return err
		}
	}
	l.layOut(j)
	return nil
}

// layOut sets the shapes of the tensors of a job's buffer and batch.
func (l *Loader) layOut(j *job) {
	f, b := j.buffer, &j.batch
	b.Index, b.Rows, b.GlobalRows = j.plan.Index, j.plan.Rows, j.plan.GlobalRows
	f.x = gds.NewTensor(f.features, b.Rows, l.joinedColumns(), l.batchType())
	f.raw = gds.NewTensor(f.stored, b.Rows, l.joinedColumns(), l.layout.DType)
	b.X = make([]gds.Tensor, len(l.o.Matrices))
	b.Traffic = Traffic{Rows: int64(b.Rows) * int64(len(b.X))}
	b.Traffic.AddBytes(l.o.Placement, int64(b.Rows)*l.joinedBytes())
	l.setMatrices(b, f.x)
	l.layOutColumns(b, f.columns)
}

// setMatrices makes views of x the matrices of a batch.
func (l *Loader) setMatrices(b *Batch, x gds.Tensor) {
	for m := range b.X {
		b.X[m] = l.matrix(x, m)
	}
}

// matrix is matrix m of a batch whose matrices are x: in its columns if the source is joined, else behind the matrices
// before it.
func (l *Loader) matrix(x gds.Tensor, m int) gds.Tensor {
	if l.source.joined {
		return x.Columns(l.starts[m], l.starts[m+1])
	}
	x.Offset += gds.Bytes(x.Rows, l.starts[m], x.DType)
	x.Cols, x.Stride = l.width(m), l.width(m)
	return x
}

// copyIndex copies row numbers, at most as many as a batch has, to the device.
func (l *Loader) copyIndex(f *batchBuffer, numbers []uint32, stream gds.Stream) gds.Tensor {
	index := gds.NewTensor(f.columns, 1, len(numbers), gds.Uint32)
	index.Offset = l.columnBytes(l.o.BatchRows)
	pinned := index
	pinned.Buf = f.pinned
	copy(dtype.Uint32s(f.pinned.Bytes()[index.Offset:]), numbers)
	stream.Copy(index, pinned)
	return index
}

// storeRows copies rows that are on the device, in the stored type, to rows [at, ...) of the batch.
func (f *batchBuffer) storeRows(at int, rows gds.Tensor, stream gds.Stream) {
	dst := f.x.Slice(at, at+rows.Rows)
	if rows.DType == dst.DType {
		stream.Copy(dst, rows)
	} else {
		stream.Convert(dst, rows)
	}
}

// writeRows lets the host write rows in the stored type to rows [at, ...) of x, a matrix of the batch without gaps in
// memory that it can write to, past the caches if they do not hold a batch.
func (f *batchBuffer) writeRows(x gds.Tensor, at int, stored []byte) {
	as := f.raw.DType
	first := x.Offset + gds.Bytes(at, x.Cols, x.DType)
	dst := f.features.Bytes()[first:][:len(stored)/as.Size()*x.DType.Size()]
	switch {
	case x.DType != as:
		dtype.Decode(dtype.Float32s(dst), stored, as)
	case gds.Bytes(f.x.Rows, f.x.Cols, f.x.DType) >= kernel.StreamBytes:
		kernel.CopyPastCaches(dst, stored)
	default:
		copy(dst, stored)
	}
}

// convert converts the batch from the stored type to the type of batches.
func (f *batchBuffer) convert(stream gds.Stream) {
	if f.stored != f.features {
		stream.Convert(f.x, f.raw)
	}
}
