package engine

import (
	"context"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// firstUse takes the memory of matrices from the machine, which on a virtual one takes as long as a hop: while the
// input is read, since cores wait for the disk then, and what is left before the first hop, on all cores.
type firstUse struct {
	stages *pipeline.Pipeline // nil: done, or not begun
	pieces [][]byte
	next   atomic.Int64
}

// firstUsePiece is how much is taken at a time.
const firstUsePiece = 16 << 20

// start begins, on so many threads: each gets memory from the host of a virtual machine by itself.
func (f *firstUse) start(matrices []*product.Matrix, threads int) {
	for _, m := range matrices {
		for rest := m.Buf.Bytes(); len(rest) > 0; {
			n := min(len(rest), firstUsePiece)
			f.pieces, rest = append(f.pieces, rest[:n]), rest[n:]
		}
	}
	f.stages = pipeline.New(context.Background())
	for range threads {
		f.stages.Go("first use", func(w *pipeline.Worker) { f.take(w.Context()) })
	}
}

// take takes pieces that nobody else has taken, until ctx ends.
func (f *firstUse) take(ctx context.Context) {
	for ctx.Err() == nil {
		k := f.next.Add(1) - 1
		if k >= int64(len(f.pieces)) || offheap.Populate(f.pieces[k]) != nil {
			return
		}
	}
}

// finish takes what is left, on so many threads.
func (f *firstUse) finish(ctx context.Context, threads int) {
	if f.stages == nil {
		return
	}
	_ = parallel.For(ctx, threads, int64(threads), 1, func(int64, int64) error {
		f.take(ctx)
		return nil
	})
	f.stop()
}

// stop ends the taking. The memory may be freed then.
func (f *firstUse) stop() {
	if f.stages != nil {
		f.stages.Close()
		f.stages = nil
	}
}
