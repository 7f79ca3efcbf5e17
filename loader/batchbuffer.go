package loader

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// Batch is what one step of training sees. It is valid for work enqueued on the
// stream that was given to Epoch, until the loop asks for the next batch.
type Batch struct {
	Index      int
	Rows       int // of this rank; may be 0
	GlobalRows int // over all ranks: what the loss is divided by
	// X is one matrix [Rows, F] float32 for each of Options.Matrices, whose rows
	// may lie apart. It must not be written to: it may be a view of preloaded memory.
	X      []gds.Tensor
	Labels gds.Tensor // int32 [1, Rows], -1 unlabelled
}

// batchBuffer is the memory that a batch is assembled in. Its matrices lie side by side if they
// do so in the source (source.joined), else one after another. Either way there are no gaps, so
// all can be copied or converted by one operation.
type batchBuffer struct {
	capacity int        // rows
	features gds.Buffer // float32 [rows, matrices * F] or [matrices * rows, F]
	stored   gds.Buffer // the same in the stored type; features where that is float32
	numbers  gds.Buffer // on the device: labels, then row numbers
	pinned   gds.Buffer // the same

	ready    gds.Event // the batch is assembled, and pinned memory free
	released gds.Event // the consumer's work on the batch is done

	batch      Batch
	raw, float gds.Tensor // its matrices, in the stored type and as float32
}

// batchBufferBytes is the device memory of a batch buffer: features, stored (0 where these
// are the same) and numbers.
func (l *Loader) batchBufferBytes() (features, stored, numbers int64) {
	rows := int64(l.o.BatchRows)
	vectors := rows * int64(len(l.o.Matrices))
	if l.layout.DType != gds.Float32 {
		stored = vectors * l.rowBytes()
	}
	return vectors * int64(l.layout.Features) * 4, stored, rows * 8
}

func newBatchBuffer(l *Loader) (f *batchBuffer, err error) {
	features, stored, numbers := l.batchBufferBytes()
	f = &batchBuffer{capacity: l.o.BatchRows}
	if f.features, err = l.memory.alloc(features); err != nil {
		return nil, err
	}
	f.stored = f.features
	if stored > 0 {
		if f.stored, err = l.memory.alloc(stored); err != nil {
			return nil, err
		}
	}
	if f.numbers, err = l.memory.alloc(numbers); err != nil {
		return nil, err
	}
	f.pinned, err = l.memory.pin(numbers)
	return f, err
}

// takeBuffer gives a job a free batch buffer, if it has none, once the copies from its pinned memory
// are done.
func (l *Loader) takeBuffer(w *pipeline.Worker, j *job) error {
	if j.buffer != nil {
		return nil
	}
	start := time.Now()
	f, err := pipeline.Take(w, l.free)
	l.waited.Add(int64(time.Since(start)))
	if err != nil {
		return err
	}
	j.buffer = f
	if f.ready != nil {
		if err := w.Wait(f.ready); err != nil {
			return err
		}
	}
	f.layOut(l, j.plan)
	return nil
}

// waitForConsumer waits until the consumer's work on the buffer is done, so that the host can write
// to its device memory. Streams need not wait: finish makes them.
func (l *Loader) waitForConsumer(w *pipeline.Worker, f *batchBuffer) error {
	if f.released == nil {
		return nil
	}
	start := time.Now()
	err := w.WaitForRoom(f.released)
	l.waited.Add(int64(time.Since(start)))
	return err
}

// waitReleased waits until the consumer's work on the buffer is done. It ignores errors of that
// work, which the consumer sees.
func (f *batchBuffer) waitReleased(ctx context.Context) error {
	if f.released != nil {
		_ = f.released.Wait(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	f.ready, f.released = nil, nil
	return nil
}

// layOut sets the shapes of the buffer's tensors to those of a batch.
func (f *batchBuffer) layOut(l *Loader, b chunk.Batch) {
	rows, cols := len(l.o.Matrices)*b.Rows, l.layout.Features
	if l.source.joined {
		rows, cols = b.Rows, l.joinedColumns()
	}
	f.float = gds.NewTensor(f.features, rows, cols, gds.Float32)
	f.raw = gds.NewTensor(f.stored, rows, cols, l.layout.DType)
	f.batch = Batch{
		Index:      b.Index,
		Rows:       b.Rows,
		GlobalRows: b.GlobalRows,
		Labels:     gds.NewTensor(f.numbers, 1, b.Rows, gds.Int32),
	}
	f.setMatrices(l, f.float)
}

// setMatrices makes views of x the matrices of the batch.
func (f *batchBuffer) setMatrices(l *Loader, x gds.Tensor) {
	// A new slice: the consumer may still look at that of the batch before.
	f.batch.X = make([]gds.Tensor, len(l.o.Matrices))
	for m := range f.batch.X {
		if l.source.joined {
			f.batch.X[m] = x.Columns(m*l.layout.Features, (m+1)*l.layout.Features)
		} else {
			f.batch.X[m] = x.Slice(m*f.batch.Rows, (m+1)*f.batch.Rows)
		}
	}
}

// copyLabels copies the labels of the batch from pinned memory to the device.
func (f *batchBuffer) copyLabels(stream gds.Stream) {
	stream.Copy(f.batch.Labels, gds.NewTensor(f.pinned, 1, f.batch.Rows, gds.Int32))
}

// gatherLabels copies the labels of the batch to pinned memory.
func (f *batchBuffer) gatherLabels(labels []int32, j *job) {
	at := dtype.Int32s(f.pinned.Bytes()[:f.batch.Rows*4])
	for i, row := range j.numbers {
		at[i] = labels[row]
	}
	for _, s := range j.spans {
		at = at[copy(at, labels[s.First:s.First+int64(s.Rows)]):]
	}
}

// copyIndex copies row numbers, at most as many as a batch has, to the device.
func (f *batchBuffer) copyIndex(numbers []uint32, stream gds.Stream) gds.Tensor {
	copy(f.pinned.Bytes()[f.capacity*4:][:len(numbers)*4], dtype.BytesOf(numbers))
	index := func(b gds.Buffer) gds.Tensor {
		return gds.NewTensor(b, 1, f.capacity+len(numbers), gds.Uint32).Columns(f.capacity, f.capacity+len(numbers))
	}
	stream.Copy(index(f.numbers), index(f.pinned))
	return index(f.numbers)
}

// storeRows copies rows that are on the device, in the stored type, to rows [at, ...) of
// the batch, as float32.
func (f *batchBuffer) storeRows(at int, rows gds.Tensor, stream gds.Stream) {
	dst := f.float.Slice(at, at+rows.Rows)
	if rows.DType == gds.Float32 {
		stream.Copy(dst, rows)
	} else {
		stream.Convert(dst, rows)
	}
}

// convert converts the batch from the stored type to float32.
func (f *batchBuffer) convert(stream gds.Stream) {
	if f.stored != f.features {
		stream.Convert(f.float, f.raw)
	}
}

// yieldTo passes the batch to the consumer, whose stream waits until the batch is ready. It
// reports whether the consumer wants more batches.
func (f *batchBuffer) yieldTo(consumer gds.Stream, yield func(*Batch) bool) bool {
	consumer.WaitEvent(f.ready)
	defer func() { f.released = consumer.Record() }()
	return yield(&f.batch)
}
