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
	// byHost tells that the source writes rows itself if the device's memory is the
	// host's: in assemble, or, if early, from prefetch on.
	byHost, early bool
	// joined tells that the matrices lie side by side: a row of all of them is one
	// row of memory, and is read at once.
	joined bool
}

// backends are those that there are. One that is new is a file and a line here.
var backends = map[Placement]backend{
	Device:  {open: openDevice, joined: true},
	Host:    {open: openHost, byHost: true, early: true, joined: true},
	Storage: {open: openStorage, byHost: true},
}

// Placements are those that there are.
func Placements() []Placement { return slices.Sorted(maps.Keys(backends)) }

// source is where the rows of batches come from: the only thing in which
// placements differ.
//
// Jobs pass prefetch, fetch and assemble in order. Different methods run beside
// one another; no method runs twice at a time.
type source interface {
	// fill reads what is held in memory, at once for all ranks, of which it is called
	// on the first when all are open.
	fill(ctx context.Context) error
	// check refuses sets that cannot be had from here.
	check(s *Set) error
	// prefetch starts to bring the rows of j within reach. It waits until there
	// is room for them, which jobs before j must be enough to make.
	prefetch(ctx context.Context, j *job) error
	// ahead is how many prefetched jobs may wait to be fetched.
	ahead(s *Set) int
	// fetch returns when the rows of j are within reach of assemble.
	fetch(ctx context.Context, j *job) error
	// assemble puts the rows into j.frame, by work that it enqueues on stream.
	assemble(ctx context.Context, j *job, stream gds.Stream) error
	// release is called when the loop is done with j, and the device perhaps not yet.
	release(j *job)
	// reset ends an epoch: it forgets the jobs that were on their way. No other
	// method runs, and no work is left on the stream.
	reset()
	// reads tells what was read so far.
	reads() []ReadStats
	// close closes files; the loader frees the memory.
	close() error
}

// job is a batch on its way through the pipeline. Which rows of the loader it has is
// told by their numbers, or else by spans (see Set.bySpan).
type job struct {
	plan    chunk.Batch
	numbers []uint32
	spans   []chunk.Span
	pieces  []piece // of a source that reads chunks
	// Of one that gathers them: into what, if not into the frame, and when they are there.
	staging  *staging
	gathered *sync.WaitGroup
	frame    *frame // from assemble on, or, where gathered into, from before prefetch
}

// longSpan is how many rows a span has, at least, that is copied by itself. Shorter
// ones are gathered row by row.
const longSpan = 64

// takeFrame waits for a frame, for the work on its pinned memory, and, where the
// host writes to its device memory, for the consumer's.
func (j *job) takeFrame(ctx context.Context, l *Loader, free <-chan *frame, stream gds.Stream) error {
	if j.frame != nil {
		return nil
	}
	select {
	case j.frame = <-free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f := j.frame
	if f.ready != nil {
		if err := f.ready.Wait(ctx); err != nil {
			return err
		}
	}
	if f.released == nil {
		return nil
	}
	if l.backend.byHost && l.unified() {
		return f.released.Wait(ctx)
	}
	stream.WaitEvent(f.released)
	return nil
}

func (j *job) assemble(ctx context.Context, l *Loader, stream gds.Stream) error {
	f := j.frame
	f.begin(l, j.plan)
	if j.plan.Rows > 0 {
		f.gatherLabels(l.labels, j)
		if err := l.source.assemble(ctx, j, stream); err != nil {
			return err
		}
		stream.CopyIn(f.batch.Labels, f.labels())
	}
	f.ready = stream.Record()
	return nil
}
