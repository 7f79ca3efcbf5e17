package loader

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// Rows says which rows of the store a Set runs over: a region, or, if List is
// not nil, these row numbers (which Storage cannot do).
type Rows struct {
	Region string
	List   []uint32
}

// Set is the epochs over some rows of a loader's store.
type Set struct {
	l    *Loader
	plan chunk.Plan
	at   int64    // first row, of a region
	list []uint32 // else the rows

	rows, remote atomic.Int64 // so far
}

// Set plans epochs over rows: plan.Rows is filled in, and, where rows are Sharded, plan.Holder,
// for which plan.Rank and plan.World must be those of the loader. From Storage, an order that
// is Shuffled needs plan.ChunkRows to be whole chunks of the store.
func (l *Loader) Set(rows Rows, plan chunk.Plan) (*Set, error) {
	s := &Set{l: l}
	if rows.List != nil {
		if err := s.takeList(rows.List); err != nil {
			return nil, err
		}
		plan.Rows = int64(len(s.list))
	} else {
		i := slices.IndexFunc(l.regions, func(r region) bool { return r.Name == rows.Region })
		if i < 0 {
			if _, ok := l.o.Store.Region(rows.Region); ok {
				return nil, fmt.Errorf("loader was opened for regions %q, not for %q", l.o.Regions, rows.Region)
			}
			return nil, l.noRegion(rows.Region)
		}
		s.at, plan.Rows = l.regions[i].at, l.regions[i].Rows
	}
	if s.plan = plan; l.o.Sharded {
		s.plan.Holder = s.holder
		if plan.World != len(l.ranks) || plan.Rank != l.rank {
			return nil, fmt.Errorf("plan for rank %d of %d from the shard of rank %d of %d", plan.Rank, plan.World, l.rank, len(l.ranks))
		}
	}
	if err := plan.Check(); err != nil {
		return nil, err
	}
	if n := plan.MaxBatchRows(); n > l.o.BatchRows {
		return nil, fmt.Errorf("batches of %d rows from a loader that was opened for %d", n, l.o.BatchRows)
	}
	if err := l.source.check(s); err != nil {
		return nil, err
	}
	return s, nil
}

// takeList turns row numbers of the store into the loader's.
func (s *Set) takeList(list []uint32) error {
	s.list = make([]uint32, len(list))
	for i, row := range list {
		in := slices.IndexFunc(s.l.regions, func(r region) bool {
			return int64(row) >= r.FirstRow && int64(row) < r.FirstRow+r.Rows
		})
		if in < 0 {
			return fmt.Errorf("row %d, at place %d of the list, is not in the regions that the loader was opened for", row, i)
		}
		r := s.l.regions[in]
		at := int64(row) - r.FirstRow + r.at
		if at > math.MaxUint32 {
			return fmt.Errorf("row %d, at place %d of the list, is beyond 2^32 rows", row, i)
		}
		s.list[i] = uint32(at)
	}
	return nil
}

// Rows is the number of rows of an epoch, over all ranks.
func (s *Set) Rows() int64 { return s.plan.Rows }

// Batches is the number of batches of an epoch.
func (s *Set) Batches() int { return s.plan.Batches() }

// Remote tells how many rows this rank was given in epochs so far, and how many of
// these another rank held.
func (s *Set) Remote() (rows, remote int64) { return s.rows.Load(), s.remote.Load() }

// Epoch yields the batches of epoch n in the plan's order. Before a batch is
// yielded, stream is made to wait until its data are there; the buffers are
// reused once the work that stream has when the loop comes back is done. An
// error is yielded once, last, after the batches that came before it; leaving
// the loop early, or the end of ctx, stops the pipeline and leaves nothing
// behind.
func (s *Set) Epoch(ctx context.Context, stream gds.Stream, n int) iter.Seq2[*Batch, error] {
	return s.EpochFrom(ctx, stream, n, 0)
}

// EpochFrom yields what Epoch does from batch first on, at once. Thus the plan's
// seed, the epoch and the next batch are all that a stopped epoch needs to go on,
// whatever the number of ranks was and will be.
func (s *Set) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		left := false
		err := s.epoch(ctx, stream, n, first, func(b *Batch) bool {
			left = !yield(b, nil)
			return !left
		})
		if err != nil && !left {
			yield(nil, err)
		}
	}
}

func (s *Set) epoch(ctx context.Context, consumer gds.Stream, n, first int, yield func(*Batch) bool) (err error) {
	l := s.l
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	free := make(chan *frame, len(l.frames))
	for _, f := range l.frames {
		if err := f.settle(ctx); err != nil {
			return err
		}
		free <- f
	}
	// A stream of its own, so that what poisons it ends with the epoch.
	plain, err := l.o.Device.NewStream()
	if err != nil {
		return err
	}
	stream := countingStream{plain, &l.copiedIn}
	stages := []stage[*job]{
		{
			name: "prefetch",
			wait: func(ctx context.Context, j *job) error {
				if l.backend.early && l.unified() {
					if err := j.takeFrame(ctx, l, free, stream); err != nil {
						return err
					}
				}
				return l.source.prefetch(ctx, j)
			},
			queue: l.source.ahead(s),
		},
		{name: "fetch", work: l.source.fetch, queue: 1},
		{
			name: "assemble",
			wait: func(ctx context.Context, j *job) error { return j.takeFrame(ctx, l, free, stream) },
			work: func(ctx context.Context, j *job) error { return j.assemble(ctx, l, stream) },
			// As many as there are frames can be done.
			queue: len(l.frames),
		},
	}
	times := make([]durations, len(stages)+2)
	var batches, rows, remote int64
	// Deferred, since the loop body may end its goroutine.
	defer func() {
		// The pipeline has ended; so has, after Close, the work on the buffers.
		if failed := stream.Close(); err == nil {
			err = failed
		}
		l.source.reset()
		s.rows.Add(rows)
		s.remote.Add(remote)
		l.count(stages, times, batches, rows, remote)
	}()
	for j, err := range pipeline(ctx, s.jobs(n, first), stages, times) {
		if err != nil {
			return err
		}
		more := j.frame.lend(consumer, yield)
		batches, rows, remote = batches+1, rows+int64(j.plan.Rows), remote+int64(j.plan.Remote)
		free <- j.frame
		l.source.release(j)
		if !more {
			break
		}
	}
	return nil
}

// jobs are the batches of an epoch, in the loader's rows.
func (s *Set) jobs(n, first int) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for b := range s.plan.EpochFrom(n, first) {
			j := &job{plan: b}
			if s.bySpan() {
				j.spans = s.spans(b)
			} else {
				j.numbers = s.numbers(b)
			}
			if !yield(j) {
				return
			}
		}
	}
}

// bySpan tells whether the rows of batches are told by spans, and not by numbers: it
// is less work where spans are long, and they can be copied, or lent, as they are.
func (s *Set) bySpan() bool {
	o := s.l.o
	switch {
	case o.BySpan, o.Sharded, o.Placement == Storage:
		return true
	case s.list != nil, o.Placement == Host && s.l.unified():
		return false
	}
	return s.plan.Order == chunk.Sequential || s.plan.ChunkRows >= longSpan
}

// numbers are the rows of a batch.
func (s *Set) numbers(b chunk.Batch) []uint32 {
	out := make([]uint32, b.Rows)
	b.RowNumbers(out)
	switch {
	case s.list != nil:
		for i, at := range out {
			out[i] = s.list[at]
		}
	case s.at > 0:
		for i := range out {
			out[i] += uint32(s.at)
		}
	}
	return out
}

// spans are the rows of a batch, those of a list each by itself.
func (s *Set) spans(b chunk.Batch) []chunk.Span {
	if s.list != nil {
		out := make([]chunk.Span, b.Rows)
		for i, row := range s.numbers(b) {
			out[i] = chunk.Span{First: int64(row), Rows: 1}
		}
		return out
	}
	out := b.Spans()
	for i := range out {
		out[i].First += s.at
	}
	return out
}
