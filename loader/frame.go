package loader

import (
	"context"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// Batch is what one step of training sees. It is valid for work enqueued on the
// stream that was given to Epoch, until the loop asks for the next batch.
type Batch struct {
	Index      int
	Rows       int // of this rank; may be 0
	GlobalRows int // over all ranks: what the loss is divided by
	// X is one matrix [Rows, F] float32 for each of Options.Matrices. It must
	// not be written to: it may be a view of preloaded memory.
	X      []gds.Tensor
	Labels gds.Tensor // int32 [1, Rows], -1 unlabelled
}

// frame is the memory that a batch is assembled in. The matrices of a batch lie
// one after another without gaps, so that they can be copied and converted as one.
type frame struct {
	capacity int        // rows
	features gds.Buffer // float32 [matrices * rows, F]
	stored   gds.Buffer // the same in the stored type; features where that is float32
	numbers  gds.Buffer // on the device: labels, then row numbers
	pinned   gds.Buffer // labels, then row numbers, then, where staged, stored rows

	ready    gds.Event // the batch is assembled, and pinned memory free
	released gds.Event // the consumer's work on the batch is done

	batch Batch
	// Views for the batch at hand, in the stored type: each of its matrices, and
	// all of them; and all of them in float32.
	raw              []gds.Tensor
	allRaw, allFloat gds.Tensor
}

// frameBytes is the device memory of a frame: features, stored (0 where these
// are the same) and numbers.
func (l *Loader) frameBytes() (features, stored, numbers int64) {
	rows := int64(l.o.BatchRows)
	vectors := rows * int64(len(l.o.Matrices))
	if l.layout.DType != gds.Float32 {
		stored = vectors * l.rowBytes()
	}
	return vectors * int64(l.layout.Features) * 4, stored, rows * 8
}

func newFrame(l *Loader) (f *frame, err error) {
	features, stored, numbers := l.frameBytes()
	f = &frame{capacity: l.o.BatchRows}
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
	pinned := numbers
	if l.backend.staged && !l.unified() {
		pinned += int64(l.o.BatchRows) * int64(len(l.o.Matrices)) * l.rowBytes()
	}
	f.pinned, err = l.memory.pin(pinned)
	return f, err
}

// settle waits until the consumer has done its work on the frame, which may have
// failed: that is the consumer's matter.
func (f *frame) settle(ctx context.Context) error {
	if f.released != nil {
		_ = f.released.Wait(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	f.ready, f.released = nil, nil
	return nil
}

// begin lays the frame out for a batch.
func (f *frame) begin(l *Loader, b chunk.Batch) {
	matrices, features := len(l.o.Matrices), l.layout.Features
	f.allFloat = gds.NewTensor(f.features, matrices*b.Rows, features, gds.Float32)
	f.allRaw = gds.NewTensor(f.stored, matrices*b.Rows, features, l.layout.DType)
	// New slices: the consumer may still look at those of the batch before.
	f.batch = Batch{
		Index:      b.Index,
		Rows:       b.Rows,
		GlobalRows: b.GlobalRows,
		X:          make([]gds.Tensor, matrices),
		Labels:     gds.NewTensor(f.numbers, 1, b.Rows, gds.Int32),
	}
	f.raw = make([]gds.Tensor, matrices)
	for m := range matrices {
		f.batch.X[m] = f.allFloat.Slice(m*b.Rows, (m+1)*b.Rows)
		f.raw[m] = f.allRaw.Slice(m*b.Rows, (m+1)*b.Rows)
	}
}

// copyLabels brings the labels of the batch to the device.
func (f *frame) copyLabels(labels []int32, spans []chunk.Span, stream gds.Stream) {
	pinned := f.pinned.Bytes()[:f.batch.Rows*4]
	at := dtype.Int32s(pinned)
	for _, s := range spans {
		at = at[copy(at, labels[s.First:s.First+int64(s.Rows)]):]
	}
	stream.CopyIn(f.batch.Labels, pinned)
}

// index is the row numbers of the batch, in pinned memory.
func (f *frame) index(spans []chunk.Span) []uint32 {
	rows := dtype.Uint32s(f.pinned.Bytes()[f.capacity*4 : (f.capacity+f.batch.Rows)*4])
	i := 0
	for _, s := range spans {
		for row := s.First; row < s.First+int64(s.Rows); row++ {
			rows[i] = uint32(row)
			i++
		}
	}
	return rows
}

// copyIndex brings the row numbers of the batch to the device.
func (f *frame) copyIndex(spans []chunk.Span, stream gds.Stream) gds.Tensor {
	index := gds.NewTensor(f.numbers, 1, f.batch.Rows, gds.Uint32)
	index.Offset = int64(f.capacity) * 4
	stream.CopyIn(index, dtype.BytesOf(f.index(spans)))
	return index
}

// staging is pinned memory for all matrices of the batch, in the stored type.
func (f *frame) staging() []byte {
	return f.pinned.Bytes()[f.capacity*8:][:gds.Bytes(f.allRaw.Rows, f.allRaw.Cols, f.allRaw.DType)]
}

// put copies rows of a device matrix, in the stored type, to rows [at, ...) of
// matrix m of the batch, as float32.
func (f *frame) put(m, at int, rows gds.Tensor, stream gds.Stream) {
	dst := f.batch.X[m].Slice(at, at+rows.Rows)
	if rows.DType == gds.Float32 {
		stream.Copy(dst, rows)
	} else {
		stream.Convert(dst, rows)
	}
}

// convert makes float32 of what was assembled in the stored type.
func (f *frame) convert(stream gds.Stream) {
	if f.stored != f.features {
		stream.Convert(f.allFloat, f.allRaw)
	}
}

// lend gives the batch to the consumer, whose work from here on waits for it,
// and reports whether the consumer wants more.
func (f *frame) lend(consumer gds.Stream, yield func(*Batch) bool) bool {
	consumer.WaitEvent(f.ready)
	defer func() { f.released = consumer.Record() }()
	return yield(&f.batch)
}
