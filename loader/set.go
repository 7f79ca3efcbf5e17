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
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// Rows says which rows of the store a Set runs over: a region, or, if List is
// not nil, these row numbers (which Storage cannot do).
type Rows struct {
	Region string
	List   []uint32
}

// Set yields epochs over some rows of a loader's store.
type Set struct {
	l        *Loader
	plan     chunk.Plan
	firstRow int64    // of a region
	list     []uint32 // else the rows

	rows, remote atomic.Int64 // so far
}

// Set plans epochs over rows. It sets plan.Rows and, if the loader is Sharded, plan.Holder; then
// plan.Rank and plan.World must be the loader's. From Storage, a Shuffled order needs a
// plan.ChunkRows that is a multiple of the store's.
func (l *Loader) Set(rows Rows, plan chunk.Plan) (*Set, error) {
	s := &Set{l: l}
	if rows.List != nil {
		if err := s.setList(rows.List); err != nil {
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
		s.firstRow, plan.Rows = l.regions[i].firstRow, l.regions[i].Rows
	}
	if s.plan = plan; l.o.Sharded {
		s.plan.Holder = s.holder
		if plan.World != len(l.ranks) || plan.Rank != l.rank {
			return nil, fmt.Errorf("plan of rank %d of %d, but the loader holds the share of rank %d of %d", plan.Rank,
				plan.World, l.rank, len(l.ranks))
		}
	}
	if err := plan.Check(); err != nil {
		return nil, err
	}
	if n := plan.MaxBatchRows(); n > l.o.BatchRows {
		return nil, fmt.Errorf("batches of %d rows from a loader that was opened for %d", n, l.o.BatchRows)
	}
	if err := s.checkChunks(); err != nil {
		return nil, err
	}
	return s, nil
}

// checkChunks refuses what a source of whole chunks cannot bring.
func (s *Set) checkChunks() error {
	o, rows := s.l.o, s.l.layout.ChunkRows
	switch {
	case !s.l.source.wholeChunks:
	case s.list != nil:
		return fmt.Errorf("the rows of this split are scattered over the chunks of the store, so %s cannot bring "+
			"them: propagate again with that split, or use placement host or device", o.Placement)
	case s.plan.Order == chunk.Shuffled && max(s.plan.ChunkRows, 1)%rows != 0:
		return fmt.Errorf("%s reshuffles whole chunks: want chunks of a multiple of %d rows, not of %d", o.Placement,
			rows, s.plan.ChunkRows)
	}
	return nil
}

// setList converts row numbers of the store to row numbers of the loader.
func (s *Set) setList(list []uint32) error {
	s.list = make([]uint32, len(list))
	for i, row := range list {
		in := slices.IndexFunc(s.l.regions, func(r region) bool {
			return int64(row) >= r.FirstRow && int64(row) < r.FirstRow+r.Rows
		})
		if in < 0 {
			return fmt.Errorf("row %d, at place %d of the list, is not in the regions that the loader was opened for",
				row, i)
		}
		r := s.l.regions[in]
		at := int64(row) - r.FirstRow + r.firstRow
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

// Remote returns the number of rows of this rank in all epochs so far, and how many of them were
// copied from another rank's device.
func (s *Set) Remote() (rows, remote int64) { return s.rows.Load(), s.remote.Load() }

// Epoch yields the batches of epoch n in the plan's order. Before a batch is yielded, stream is made to wait until its
// data are there; the buffers are reused once the work that stream has when the loop comes back is done, unless the
// batch is held. An error is yielded once, last, after the batches that came before it; leaving the loop early, or the
// end of ctx, stops the pipeline and leaves nothing behind.
func (s *Set) Epoch(ctx context.Context, stream gds.Stream, n int) iter.Seq2[*Batch, error] {
	return s.EpochFrom(ctx, stream, n, 0)
}

// EpochFrom yields what Epoch does from batch first on, at once. Thus the plan's seed, the epoch and the next batch are
// all that a stopped epoch needs to go on, whatever the number of ranks was and will be.
func (s *Set) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*Batch, error] {
	return epoch.Sequence(func(yield func(*Batch) bool) error { return s.epoch(ctx, stream, n, first, yield) })
}

func (s *Set) epoch(ctx context.Context, consumer gds.Stream, n, first int, yield func(*Batch) bool) error {
	l := s.l
	var batches, rows, remote int64
	return l.buffers.Epoch(ctx, l.o.Device, func(p *pipeline.Pipeline, plain gds.Stream) error {
		stream := countingStream{plain, &l.copiedIn}
		ahead := l.source.aheadRows/max(1, s.plan.MaxBatchRows()) + 2
		room := len(l.buffers.All()) - 1
		run := &epoch.Run[*job]{
			Rules: schedule.Pipelined(max(0, s.Batches()-first), 1, ahead+room, room),
			Sample: epoch.Stage[*job]{Name: "prefetch", Work: func(w *pipeline.Worker, t *epoch.Task[*job]) error {
				t.Job = s.job(n, first+t.Batch)
				return l.begin(w, t.Job)
			}},
			Move: epoch.Stage[*job]{Name: "assemble", Work: func(w *pipeline.Worker, t *epoch.Task[*job]) error {
				return l.finish(w, t.Job, stream)
			}},
			Train: func(j *job) bool {
				batches, rows, remote = batches+1, rows+int64(j.plan.Rows), remote+int64(j.plan.Remote)
				more := l.buffers.Step(consumer, j.buffer, j.batch.Loan(), func() bool { return yield(&j.batch) })
				if j.released != nil {
					j.released()
				}
				return more
			},
		}
		return run.Do(p)
	}, func(p *pipeline.Pipeline) {
		if l.source.reset != nil {
			l.source.reset()
		}
		s.rows.Add(rows)
		s.remote.Add(remote)
		l.addEpoch(p.Times(), batches, rows, remote)
	})
}

// job is batch i of epoch n, with the row numbers of the loader.
func (s *Set) job(n, i int) *job {
	j := &job{plan: s.plan.Batch(n, i)}
	if s.bySpan() {
		j.spans = s.spans(j.plan)
	} else {
		j.numbers = s.numbers(j.plan)
	}
	return j
}

// RowNumbers lists the numbers, in the store, of the rows of batch i of epoch n that this rank gets.
// It reads nothing, and may be called during an epoch.
func (s *Set) RowNumbers(n, i int) []uint32 {
	if i >= s.Batches() {
		return nil
	}
	j := s.job(n, i)
	numbers := make([]uint32, j.plan.Rows)
	s.l.storeRows(numbers, j)
	return numbers
}

// bySpan tells whether batches are lists of spans, not of row numbers. Long spans are less work:
// they are copied as one range, or used in place.
func (s *Set) bySpan() bool {
	source, o := s.l.source, s.l.o
	switch {
	case o.BySpan, o.Sharded, source.wholeChunks:
		return true
	case s.list != nil, source.byNumber:
		return false
	}
	return s.plan.Order == chunk.Sequential || s.plan.ChunkRows >= longSpan
}

// numbers lists the rows of a batch.
func (s *Set) numbers(b chunk.Batch) []uint32 {
	out := make([]uint32, b.Rows)
	b.RowNumbers(out)
	switch {
	case s.list != nil:
		for i, at := range out {
			out[i] = s.list[at]
		}
	case s.firstRow > 0:
		for i := range out {
			out[i] += uint32(s.firstRow)
		}
	}
	return out
}

// spans lists the rows of a batch as spans; the rows of a list are spans of one row.
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
		out[i].First += s.firstRow
	}
	return out
}
