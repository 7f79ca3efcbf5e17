// Package epoch is the core of all loaders. Buffers are the memory of batches: who has it, and until when. Run
// brings the batches of an epoch through stages, by the rules of a schedule, to the loop of the client.
//
// A loader brings its own memory (a type that embeds Buffer), its own jobs, and a function for each stage.
package epoch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// ErrInUse is loader.ErrInUse.
var ErrInUse = errors.New("loader in use")

// Buffer is the state of the memory of one batch on a device. Loaders embed it in theirs.
type Buffer struct {
	Ready    gds.Event // the batch is assembled, and the pinned memory that it came from is free
	Released gds.Event // the work that the loop has enqueued on the batch is done

	inStages bool        // taken, and not yet passed to the loop
	held     []gds.Event // after which the clients who held the batch do not use it; under Buffers.mu
	giveBack func(held []gds.Event)
}

// State is the Buffer itself.
func (b *Buffer) State() *Buffer { return b }

// Memory is a type that embeds Buffer.
type Memory interface{ State() *Buffer }

// Buffers are the batch buffers of a loader, which one epoch at a time uses.
type Buffers[M Memory] struct {
	all    []M
	free   chan M       // neither with a stage nor with the loop nor held
	waited atomic.Int64 // nanoseconds, for free buffers

	mu           sync.Mutex
	busy, closed bool
}

// NewBuffers makes room for up to most buffers.
func NewBuffers[M Memory](most int) *Buffers[M] { return &Buffers[M]{free: make(chan M, most)} }

// Add adds a buffer. It is called between epochs, or in the loop of one.
func (r *Buffers[M]) Add(m M) {
	b := m.State()
	b.giveBack = func(held []gds.Event) {
		r.putHeld(b, held)
		r.free <- m // there is room for all
	}
	r.mu.Lock()
	r.all = append(r.all, m)
	r.mu.Unlock()
	r.free <- m
}

// All are the buffers. The slice is not changed later.
func (r *Buffers[M]) All() []M {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Free is how many buffers are free.
func (r *Buffers[M]) Free() int { return len(r.free) }

// Full tells that there is no room for one more.
func (r *Buffers[M]) Full() bool { return len(r.all) == cap(r.free) }

// Waited is how long stages have waited for free buffers.
func (r *Buffers[M]) Waited() time.Duration { return time.Duration(r.waited.Load()) }

// Take waits for a free buffer that no client holds. The loop's work on its last batch may go on: see AwaitRelease.
func (r *Buffers[M]) Take(w *pipeline.Worker) (m M, err error) {
	start := time.Now()
	defer func() { r.waited.Add(int64(time.Since(start))) }()
	if m, err = pipeline.Take(w, r.free); err != nil {
		return m, err
	}
	b := m.State()
	b.inStages = true
	held := r.takeHeld(b)
	for i, e := range held {
		// An error is of a stream of the client, who sees it there.
		if _ = w.WaitForRoom(e); w.Context().Err() != nil {
			r.putHeld(b, held[i:])
			return m, context.Cause(w.Context())
		}
	}
	return m, nil
}

// AwaitRelease waits until the loop's work on the last batch is done, so that the host can write to the memory.
// It returns the error of this work.
func (r *Buffers[M]) AwaitRelease(w *pipeline.Worker, m M) error {
	b := m.State()
	if b.Released == nil {
		return nil
	}
	start := time.Now()
	err := w.WaitForRoom(b.Released)
	r.waited.Add(int64(time.Since(start)))
	if w.Context().Err() != nil {
		return context.Cause(w.Context()) // the work may go on, and the next epoch waits for it
	}
	b.Released = nil
	return err
}

// EachFree calls do for the buffers that are free, which no stage takes meanwhile, with none of the loop's work
// on them left.
func (r *Buffers[M]) EachFree(ctx context.Context, do func(M) error) error {
	for range len(r.free) {
		m := <-r.free
		err := r.settle(ctx, m)
		if err == nil {
			err = do(m)
		}
		if r.free <- m; err != nil {
			return err
		}
	}
	return nil
}

// SetAside takes free buffers out of use until put is called. sort orders the free ones, and says how many stay.
func (r *Buffers[M]) SetAside(sort func(free []M) (stay int)) (put func()) {
	var free []M
	for range len(r.free) { // clients hold the others
		free = append(free, <-r.free)
	}
	stay := sort(free)
	for _, m := range free[:stay] {
		r.free <- m
	}
	return func() {
		for _, m := range free[stay:] {
			r.free <- m
		}
	}
}

// Epoch reserves the buffers, waits for the work on the last batches, and runs do with a pipeline and a stream. Then it
// calls ended, when all stages have ended, and no work is left on the stream.
func (r *Buffers[M]) Epoch(ctx context.Context, device gds.Device, do func(*pipeline.Pipeline, gds.Stream) error,
	ended func(*pipeline.Pipeline)) (err error) {
	if err := r.begin(); err != nil {
		return err
	}
	defer r.end()
	for _, m := range r.all {
		if err := r.settle(ctx, m); err != nil {
			return err
		}
	}
	stream, err := device.NewStream() // an error in it ends with the epoch
	if err != nil {
		return err
	}
	p := pipeline.New(ctx)
	defer func() { // the loop's body may end its goroutine
		p.Close()
		if failed := stream.Close(); err == nil {
			err = failed
		}
		for _, m := range r.all {
			if b := m.State(); b.inStages {
				b.inStages = false
				r.free <- m
			}
		}
		ended(p)
	}()
	return do(p, stream)
}

// Step lends a batch in memory m to the loop. consumer, a stream of the loop, waits until the batch is ready.
func (r *Buffers[M]) Step(consumer gds.Stream, m M, loan *Loan, body func() bool) bool {
	b := m.State()
	consumer.WaitEvent(b.Ready)
	b.inStages = false
	loan.begin(b.giveBack)
	defer func() { // the body may end its goroutine
		b.Released = consumer.Record()
		loan.end()
	}()
	return body()
}

func (r *Buffers[M]) takeHeld(b *Buffer) []gds.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := b.held
	b.held = nil
	return held
}

func (r *Buffers[M]) putHeld(b *Buffer, events []gds.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.held = append(b.held, events...)
}

// settle waits until the work on the last batch is done. It ignores errors of that work: whoever enqueued it sees them.
func (r *Buffers[M]) settle(ctx context.Context, m M) error {
	b := m.State()
	events := r.takeHeld(b)
	if b.Released != nil {
		events = append(events, b.Released)
	}
	for i, e := range events {
		if _ = e.Wait(ctx); ctx.Err() != nil {
			r.putHeld(b, events[i:])
			return context.Cause(ctx)
		}
	}
	b.Ready, b.Released = nil, nil
	return nil
}

// begin reserves the buffers for an epoch or for Close.
func (r *Buffers[M]) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errors.New("loader used after Close")
	case r.busy:
		return fmt.Errorf("%w: another epoch is running (the sets of a loader are used one at a time)", ErrInUse)
	}
	r.busy = true
	return nil
}

func (r *Buffers[M]) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
}

// BeginClose reserves the buffers for Close, unless an epoch runs or batches are held. Call Close or, if nothing is
// closed after all, cancel.
func (r *Buffers[M]) BeginClose() (cancel func(), err error) {
	if err := r.begin(); err != nil {
		return nil, err
	}
	if n := len(r.all) - r.Free(); n > 0 {
		r.end()
		return nil, fmt.Errorf("%w: %d batches are still held", ErrInUse, n)
	}
	return r.end, nil
}

// Close waits for the work on the last batches, after which their memory may be freed.
func (r *Buffers[M]) Close() {
	r.mu.Lock()
	r.closed, r.busy = true, false
	r.mu.Unlock()
	for _, m := range r.all {
		_ = r.settle(context.Background(), m)
	}
}

// Loan is the memory of a batch, lent to the loop for a step and to clients who hold the batch.
type Loan struct {
	mu       sync.Mutex
	giveBack func(after []gds.Event)
	inStep   bool
	holds    int
	after    []gds.Event // when the clients who held the batch are done
}

// begin begins a step of the loop. giveBack is called when nobody has the batch any more, with the events after which
// the memory may be used again, beside the step's own event.
func (l *Loan) begin(giveBack func(after []gds.Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBack, l.inStep, l.holds, l.after = giveBack, true, 0, nil
}

// end ends the step of the loop.
func (l *Loan) end() {
	l.mu.Lock()
	l.inStep = false
	l.unlock()
}

// Hold keeps the memory beyond the step: see loader.Batch.
func (l *Loan) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inStep || l.holds > 0 {
		l.holds++
	}
}

// Release ends one Hold: see loader.Batch.
func (l *Loan) Release(after gds.Event) {
	l.mu.Lock()
	if l.holds == 0 {
		l.mu.Unlock()
		return
	}
	l.holds--
	if after != nil {
		l.after = append(l.after, after)
	}
	l.unlock()
}

// unlock gives the memory back if nobody has it.
func (l *Loan) unlock() {
	back, after := l.giveBack, l.after
	last := !l.inStep && l.holds == 0 && back != nil
	if last {
		l.giveBack, l.after = nil, nil
	}
	l.mu.Unlock()
	if last {
		back(after)
	}
}

// Growing is memory that grows with the batches.
type Growing struct{ gds.Buffer } // nil: none

// Size is how many bytes there are.
func (g *Growing) Size() int64 {
	if g.Buffer == nil {
		return 0
	}
	return g.Len()
}

// Grow replaces the memory, which nothing uses, if it is smaller than needed: by wanted bytes of alloc or, if they are
// not to be had, by needed.
func (g *Growing) Grow(needed, wanted int64, alloc func(bytes int64) (gds.Buffer, error)) error {
	if g.Buffer != nil && g.Len() >= needed {
		return nil
	}
	if err := g.Free(); err != nil {
		return err
	}
	return gds.AllocateRoom(needed, wanted, func(bytes int64) error {
		b, err := alloc(bytes)
		if err == nil {
			g.Buffer = b
		}
		return err
	})
}

// Free frees the memory, if there is any.
func (g *Growing) Free() error {
	b := g.Buffer
	if g.Buffer = nil; b == nil {
		return nil
	}
	return b.Free()
}

// Arena places parts of memory one after another.
type Arena struct {
	Bytes int64 // of all parts
	Align int64 // of each part; 0: 256
}

// Take is the place of a matrix, as a Tensor without memory.
func (a *Arena) Take(rows, cols int, t gds.DType) gds.Tensor {
	v := gds.NewTensor(nil, rows, cols, t)
	v.Offset = a.Bytes
	align := cmp.Or(a.Align, 256)
	a.Bytes = (a.Bytes + gds.Bytes(rows, cols, t) + align - 1) / align * align
	return v
}
