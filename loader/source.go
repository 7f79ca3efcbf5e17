package loader

import (
	"context"
	"maps"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// backends lists all placements. A backend sets Loader.source of each rank, whose labels and batch buffers are there
// already, and reads the input if it holds it in memory. What it has opened when it fails is closed with the loaders.
var backends = map[Placement]func(context.Context, Ranks) error{}

// Placements lists all placements.
func Placements() []Placement { return slices.Sorted(maps.Keys(backends)) }

// source brings the rows of batches to one rank. It is the only thing in which placements differ.
// What a placement does not need is left nil or 0, except finish.
type source struct {
	// joined tells that the matrices lie side by side: a row of all of them is one range of memory.
	joined bool
	// wholeChunks tells that rows come in whole chunks of the store, so sets are regions, and only
	// such chunks can be reshuffled.
	wholeChunks bool
	// byNumber tells that rows are wanted by number, however long their spans are.
	byNumber bool
	// aheadRows is how many rows may be begun before the first of them is finished.
	aheadRows int

	// begin starts to bring the rows of j, in the order of the plan, ahead of finish. It may wait
	// for room, which must become free by the progress of earlier jobs alone.
	begin func(w *pipeline.Worker, j *job) error
	// finish enqueues on stream the work that puts the rows into j.buffer, in the order of the
	// plan. It runs beside begin, for another job.
	finish func(w *pipeline.Worker, j *job, stream gds.Stream) error
	// reset ends an epoch, and drops the jobs that were begun only. Nothing else runs meanwhile,
	// and no work is left on the stream.
	reset func()
	// reads counts reads so far.
	reads func() []ReadStats
	// close closes files; the loader frees the memory.
	close func() error
}

// job is a batch in the pipeline. Its rows are given by numbers or by spans, never by both (see Set.bySpan).
type job struct {
	plan    chunk.Batch
	numbers []uint32
	spans   []chunk.Span
	buffer  *batchBuffer // from finish on, or from when begin takes it
	batch   Batch        // the same

	// Set by the source's begin:
	state    any    // what finish needs to know
	released func() // called when the loop goes on to the next batch, or nil; the device may still use this one
}

// longSpan is the least number of rows of a span that is copied as one range. The rows of shorter spans are gathered.
const longSpan = 64

func (l *Loader) begin(w *pipeline.Worker, j *job) error {
	if l.source.begin == nil || j.plan.Rows == 0 {
		return nil
	}
	return l.source.begin(w, j)
}

// finish assembles the batch of a job.
func (l *Loader) finish(w *pipeline.Worker, j *job, stream gds.Stream) error {
	if err := l.takeBuffer(w, j); err != nil {
		return err
	}
	f := j.buffer
	if f.Released != nil {
		stream.WaitEvent(f.Released)
	}
	if j.plan.Rows > 0 {
		l.gatherColumns(f.pinned.Bytes(), j) // while what begin started goes on
		if err := l.source.finish(w, j, stream); err != nil {
			return err
		}
		bytes := int(l.columnBytes(j.plan.Rows))
		stream.Copy(gds.NewTensor(f.columns, 1, bytes, gds.Uint8), gds.NewTensor(f.pinned, 1, bytes, gds.Uint8))
	}
	f.Ready = stream.Record()
	return nil
}

// refill makes all free again, in order.
func refill[T any](free chan T, all []T, reset func(T)) {
	for len(free) > 0 {
		<-free
	}
	for _, t := range all {
		reset(t)
		free <- t
	}
}
