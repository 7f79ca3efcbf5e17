package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/gds"
)

// op is an operation in the queue of a stream: what to do, and its arguments. It is a value, so
// that enqueueing allocates nothing.
type op struct {
	*kind
	tensors        [maxTensors]gds.Tensor // kind.tensors of them count
	alpha, beta    float32
	tokens, heads  int
	transA, transB bool
	seed           uint64
	adam           gds.AdamOptions
	event          *event
	graph          *gds.Graph
	sampling       gds.Sampling
}

// maxTensors is how many an operation has at most.
const maxTensors = 10

// kind is what all operations of one name have in common.
type kind struct {
	name    string
	tensors int
	run     func(s *stream) error // s.op is the operation
	always  bool                  // on a poisoned stream too
}

// stream runs its operations on one goroutine, helped by others where one is large. The queue
// grows as needed: whoever feeds several streams never waits for one of them.
type stream struct {
	device *Device

	mu     sync.Mutex
	more   sync.Cond // queue or closed has changed
	queue  []op
	closed bool

	stopped chan struct{}

	// Used by the stream's goroutine alone:
	err     error // the first
	op      *op   // that runs
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
	s.more.L = &s.mu
	s.team.init(s)
	go s.serve()
	return s, nil
}

func (s *stream) serve() {
	defer close(s.stopped)
	defer s.team.stop()
	var work []op
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
			work[i] = op{}
		}
	}
}

// run runs an operation. Its error names it and its tensors.
func (s *stream) run(o *op) {
	if s.err != nil && !o.always {
		return
	}
	s.op = o
	if err := o.kind.run(s); err != nil {
		views := make([]string, o.kind.tensors)
		for i := range views {
			views[i] = o.tensors[i].String()
		}
		s.err = fmt.Errorf("host device: %s(%s): %w", o.name, strings.Join(views, ", "), err)
	}
	s.views = views{} // of memory that may be freed
}

// push appends an operation, unless the stream is closed.
func (s *stream) push(o op) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.queue = append(s.queue, o)
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

var recordOp = kind{name: "Record", always: true, run: func(s *stream) error {
	s.op.event.reach(s.err)
	// Looking helpers keep their processors busy, so who waits for the event may find this processor alone.
	if s.op.event.waited.Load() && s.team.looks() {
		runtime.Gosched()
	}
	return nil
}}

func (s *stream) Record() gds.Event {
	e := newEvent()
	if !s.push(op{kind: &recordOp, event: e}) {
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

// It waits on a poisoned stream too: whoever then sees this stream's events may rely on the
// other's work being over.
var waitEventOp = kind{name: "WaitEvent", always: true, run: func(s *stream) error {
	<-s.op.event.reached
	if s.err == nil {
		s.err = s.op.event.err
	}
	return nil
}}

func (s *stream) WaitEvent(of gds.Event) {
	e, ok := of.(*event)
	if !ok {
		e = newEvent()
		e.reach(errors.New("host device: WaitEvent: the event is of another kind of device"))
	}
	s.push(op{kind: &waitEventOp, event: e})
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
