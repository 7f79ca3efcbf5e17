package loader

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// backend is a kind of source.
type backend struct {
	open func(*Loader) (source, error)
	// hostWrites tells that, on a unified device, the host writes rows into batch buffers: in
	// assemble, or, if fromPrefetch, as early as in prefetch.
	hostWrites, fromPrefetch bool
	// joined tells that the matrices lie side by side: a row of all of them is one range of
	// memory.
	joined bool
}

// backends lists all placements.
var backends = map[Placement]backend{
	Device:  {open: openDevice, joined: true},
	Host:    {open: openHost, hostWrites: true, fromPrefetch: true, joined: true},
	Storage: {open: openStorage, hostWrites: true},
}

// Placements lists all placements.
func Placements() []Placement { return slices.Sorted(maps.Keys(backends)) }

// source brings the rows of batches. It is the only thing in which placements differ.
//
// Jobs pass prefetch, fetch and assemble in order. Different methods run beside
// one another; no method runs twice at a time.
type source interface {
	// fill reads the input into memory, for all ranks: it is called on that of rank 0, when all
	// are open.
	fill(ctx context.Context) error
	// check refuses sets that this source cannot read.
	check(s *Set) error
	// prefetch starts to read the rows of j. It waits for room, which must become free by the
	// progress of earlier jobs alone.
	prefetch(ctx context.Context, j *job) error
	// queueLength is the number of prefetched jobs that may wait for fetch.
	queueLength(s *Set) int
	// fetch waits until assemble can use the rows of j.
	fetch(ctx context.Context, j *job) error
	// assemble enqueues on stream the work that puts the rows into j.buffer.
	assemble(ctx context.Context, j *job, stream gds.Stream) error
	// release is called when the training loop is done with j; the device may still use it.
	release(j *job)
	// reset ends an epoch, and drops its unfinished jobs. No other method runs meanwhile, and
	// no work is left on the stream.
	reset()
	// reads returns what was read so far.
	reads() []ReadStats
	// close closes files; the loader frees the memory.
	close() error
}

// job is a batch in the pipeline. Its rows are given by numbers or by spans, never by both (see
// Set.bySpan).
type job struct {
	plan    chunk.Batch
	numbers []uint32
	spans   []chunk.Span
	chunks  []chunkSlice // of a source that reads chunks
	// Of one that gathers them: into what, if not into the buffer, and when they are there.
	staging   *staging
	gathering *sync.WaitGroup
	buffer    *batchBuffer // from assemble on, or, where gathered into, from before prefetch
}

// longSpan is the least number of rows of a span that is copied as one range. The rows of shorter
// spans are gathered.
const longSpan = 64

// waitForBuffer takes a free batch buffer, and waits until its memory can be written to: until the
// copies from its pinned memory are done and, if the host writes to its device memory, also the
// consumer's work.
func (j *job) waitForBuffer(ctx context.Context, l *Loader, free <-chan *batchBuffer, stream gds.Stream) error {
	if j.buffer != nil {
		return nil
	}
	select {
	case j.buffer = <-free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f := j.buffer
	if f.ready != nil {
		if err := f.ready.Wait(ctx); err != nil {
			return err
		}
	}
	if f.released == nil {
		return nil
	}
	if l.backend.hostWrites && l.unified() {
		return f.released.Wait(ctx)
	}
	stream.WaitEvent(f.released)
	return nil
}

func (j *job) assemble(ctx context.Context, l *Loader, stream gds.Stream) error {
	f := j.buffer
	f.layOut(l, j.plan)
	if j.plan.Rows > 0 {
		f.gatherLabels(l.labels, j)
		if err := l.source.assemble(ctx, j, stream); err != nil {
			return err
		}
		f.copyLabels(stream)
	}
	f.ready = stream.Record()
	return nil
}
