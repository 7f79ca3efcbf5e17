package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/ops"
)

// bodies compute the operations, whose arguments have been checked and viewed. init adds elementBodies.
var bodies = map[*ops.Op]func(s *stream) error{
	ops.Copy: (*stream).copy, ops.Convert: (*stream).convert, ops.Gather: (*stream).gather,
	ops.Scatter: (*stream).scatter, ops.Fill: (*stream).fill,

	ops.Gemm: (*stream).gemm, ops.Transpose: (*stream).transpose, ops.AddRow: (*stream).addRow,
	ops.MulRow: (*stream).mulRow, ops.SumRows: (*stream).sumRows,

	ops.PReLU: (*stream).prelu, ops.PReLUGrad: (*stream).preluGrad,

	ops.SumSquares: (*stream).sumSquares, ops.NormalizeColumns: (*stream).normalizeColumns,
	ops.NormalizeColumnsSums: (*stream).normalizeColumnsSums,
	ops.NormalizeColumnsGrad: (*stream).normalizeColumnsGrad,
	ops.NormalizeRows:        (*stream).normalizeRows, ops.NormalizeRowsGrad: (*stream).normalizeRowsGrad,

	ops.Attention: (*stream).attention, ops.AttentionGrad: (*stream).attentionGrad,
	ops.SoftmaxRows: (*stream).softmaxRows, ops.SoftmaxRowsGrad: (*stream).softmaxRowsGrad,
	ops.WeighTokens: (*stream).weighTokens, ops.WeighTokensGrad: (*stream).weighTokensGrad,

	ops.SumEdges: (*stream).sumEdges, ops.SumEdgesGrad: (*stream).sumEdgesGrad,
	ops.AttendEdges: (*stream).attendEdges, ops.AttendEdgesGrad: (*stream).attendEdgesGrad,

	ops.Propagate: (*stream).propagate, ops.Checksum: (*stream).checksum,

	ops.CountSampled: (*stream).countSampled, ops.SampleEdges: (*stream).sampleEdges,
	ops.Relabel: (*stream).relabel, ops.GatherCached: (*stream).gatherCached,

	ops.SoftmaxCrossEntropy: (*stream).softmaxCrossEntropy, ops.SigmoidCrossEntropy: (*stream).sigmoidCrossEntropy,
	ops.SquaredError: (*stream).squaredError, ops.AbsoluteError: (*stream).absoluteError,
	ops.CountCorrect: (*stream).countCorrect,

	ops.ClipNorm: (*stream).clipNorm,
}

// item is what a stream does next: an operation, or else a point in the stream is reached or waited for.
type item struct {
	call         ops.Call
	record, wait *event
}

// stream runs its operations on one goroutine, helped by others where one is large. The queue
// grows as needed, so that enqueueing never waits.
type stream struct {
	ops.Front
	device *Device

	mu     sync.Mutex
	more   sync.Cond // queue or closed has changed
	queue  []item
	closed bool

	stopped chan struct{}

	// Used by the stream's goroutine alone:
	err     error     // the first
	call    *ops.Call // that runs
	team    team
	views   views
	scratch scratch
}

// NewStream starts a stream.
func (d *Device) NewStream() (gds.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("host device: %w", gds.ErrClosed)
	}
	d.streams++
	s := &stream{device: d, stopped: make(chan struct{})}
	s.Enqueue = func(c ops.Call) { s.push(item{call: c}) }
	s.more.L = &s.mu
	s.team.init(s)
	go s.serve()
	return s, nil
}

func (s *stream) serve() {
	defer close(s.stopped)
	defer s.team.stop()
	var work []item
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.more.Wait()
		}
		work, s.queue = s.queue, work[:0]
		s.mu.Unlock()
		if len(work) == 0 {
			return
		}
		for i := range work {
			s.run(&work[i])
			work[i] = item{}
		}
	}
}

// run does an item. A poisoned stream still records and waits: whoever then sees its events may rely on the other
// stream's work being over.
func (s *stream) run(i *item) {
	switch {
	case i.record != nil:
		i.record.reach(s.err)
		// Looking helpers keep their processors busy, so who waits for the event may find this processor alone.
		if i.record.waited.Load() && s.team.looks() {
			runtime.Gosched()
		}
	case i.wait != nil:
		<-i.wait.reached
		if s.err == nil {
			s.err = i.wait.err
		}
	case s.err == nil:
		if err := s.compute(&i.call); err != nil {
			s.err = fmt.Errorf("host device: %w", i.call.Wrap(err))
		}
		for _, b := range s.views.buffers {
			if b != nil {
				b.leave()
			}
		}
		s.views = views{} // of memory that may be freed
	}
}

func (s *stream) compute(c *ops.Call) error {
	s.call = c
	if err := c.Check(); err != nil {
		return err
	}
	if err := s.view(); err != nil {
		return err
	}
	return bodies[c.Op](s)
}

// push appends an item, unless the stream is closed.
func (s *stream) push(i item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.queue = append(s.queue, i)
	s.more.Signal()
	return true
}

// event is a point in a stream; err and at are set before reached is closed.
type event struct {
	reached chan struct{}
	waited  atomic.Bool // somebody waits
	err     error
	at      time.Time
}

func newEvent() *event { return &event{reached: make(chan struct{})} }

func (e *event) reach(err error) {
	e.err, e.at = err, time.Now()
	close(e.reached)
}

func (s *stream) Record() gds.Event {
	e := newEvent()
	if !s.push(item{record: e}) {
		e.reach(fmt.Errorf("host device: stream %w", gds.ErrClosed))
	}
	return e
}

func (e *event) Wait(ctx context.Context) error {
	select {
	case <-e.reached:
		return e.err
	default:
	}
	e.waited.Store(true)
	select {
	case <-e.reached:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *event) Elapsed(since gds.Event) (time.Duration, error) {
	from, ok := since.(*event)
	if !ok {
		return 0, errors.New("host device: Elapsed: the event is of another kind of device")
	}
	for _, p := range []*event{from, e} {
		select {
		case <-p.reached:
		default:
			return 0, errors.New("host device: Elapsed: an event has not been reached")
		}
	}
	return e.at.Sub(from.at), nil
}

func (s *stream) WaitEvent(of gds.Event) {
	e, ok := of.(*event)
	if !ok {
		e = newEvent()
		e.reach(errors.New("host device: WaitEvent: the event is of another kind of device"))
	}
	s.push(item{wait: e})
}

func (s *stream) Synchronize(ctx context.Context) error { return s.Record().Wait(ctx) }

func (s *stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("host device: stream %w", gds.ErrClosed)
	}
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	<-s.stopped
	s.device.mu.Lock()
	s.device.streams--
	s.device.mu.Unlock()
	return s.err
}
