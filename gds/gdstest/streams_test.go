package gdstest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
)

var streamTests = []test{
	{"groups compute what single operations do", func(b *fixture) {
		grouper, ok := b.stream.(gds.Grouper)
		if !ok {
			b.Skip("streams of this device have no groups")
		}
		pinned := b.pin(4 * 40 * 30)
		x, y, w, sums := b.floats(strided, 40, 30, b.normal(40*30)), b.floats(dense, 40, 30, nil),
			b.floats(dense, 30, 30, b.normal(900)), b.floats(dense, 1, 30, nil)
		// step is other work for each i, with one operation more for every fourth.
		step := func(i int) {
			rows := 40 - i%3
			if i%4 == 3 {
				b.stream.Fill(y.Tensor, float32(i))
			}
			b.stream.Gemm(false, false, float32(i), x.Slice(0, rows), w.Tensor, 0, y.Slice(0, rows))
			b.stream.Dropout(y.Slice(0, rows), y.Slice(0, rows), 0.5, uint64(i))
			b.stream.SumRows(sums.Tensor, 0.5, y.Slice(0, rows))
			b.stream.AddRow(x.Tensor, sums.Tensor)
			b.stream.ClipNorm(w.Slice(0, 1), 1)
			b.stream.Copy(gds.NewTensor(pinned, 40, 30, gds.Float32), x.Tensor)
		}
		start := b.bytes(x)
		startW := b.bytes(w)
		var want [4][]byte
		for grouped := range 2 {
			for _, a := range []*array{x, w} {
				values := map[*array][]byte{x: start, w: startW}[a]
				if err := gds.Upload(b.device, b.stream, a.Tensor, values); err != nil {
					b.Fatal(err)
				}
			}
			b.stream.Fill(sums.Tensor, 0)
			b.stream.Fill(y.Tensor, 0)
			for i := range 9 {
				if grouped == 1 {
					if err := grouper.BeginGroup(); err != nil {
						b.Fatal(err)
					}
				}
				step(i)
				if grouped == 1 {
					if err := grouper.EndGroup(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.sync()
			got := [4][]byte{b.bytes(x), b.bytes(y), b.bytes(w), slices.Clone(pinned.Bytes())}
			if grouped == 0 {
				want = got
				continue
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					b.Errorf("matrix %d is another", i)
				}
			}
		}
	}},
	{"a group with an error is dropped, and the stream goes on", func(b *fixture) {
		s := b.newStream()
		grouper, ok := s.(gds.Grouper)
		if !ok {
			_ = s.Close()
			b.Skip("streams of this device have no groups")
		}
		x := b.floats(dense, 2, 3, []float32{1, 2, 3, 4, 5, 6})
		busy := b.stream.Record()
		for name, call := range map[string]func(){
			"Record": func() { s.Record() }, "WaitEvent": func() { s.WaitEvent(busy) },
			"Gemm": func() { s.Gemm(false, false, 1, x.Tensor, x.Tensor, 0, x.Tensor) },
		} {
			if err := grouper.BeginGroup(); err != nil {
				b.Fatal(err)
			}
			if err := grouper.BeginGroup(); err == nil {
				b.Error("a group in a group")
			}
			s.Fill(x.Tensor, 7)
			call()
			s.Fill(x.Tensor, 8)
			if err := grouper.EndGroup(); err == nil || !strings.Contains(err.Error(), name) {
				b.Errorf("%s in a group: %v", name, err)
			}
			if err := grouper.EndGroup(); err == nil {
				b.Error("a group ended twice")
			}
		}
		s.AddRow(x.Slice(1, 2), x.Slice(0, 1))
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		if got := b.read(x); !slices.Equal(got[3:], []float32{5, 7, 9}) {
			b.Errorf("got %v", got)
		}
	}},
	{"work runs in the order it was enqueued", func(b *fixture) {
		// x -> 2x + 1 does not commute with itself under another order of its two
		// halves; 20 times gives 2^20 - 1.
		x, one := b.floats(dense, 1, 1, []float32{0}), b.floats(dense, 1, 1, []float32{1})
		for range 20 {
			b.stream.Axpy(1, x.Tensor, x.Tensor)
			b.stream.Axpy(1, one.Tensor, x.Tensor)
		}
		if got := b.read(x)[0]; got != 1<<20-1 {
			b.Errorf("got %v, want %v", got, 1<<20-1)
		}
	}},
	{"to enqueue is not to wait, not even on a stream that waits", func(b *fixture) {
		other := b.newStream()
		x := b.floats(dense, 1, 1, []float32{0})
		b.beforeWorkIsDone(func(busy gds.Event) bool {
			other.WaitEvent(busy)
			for range gds.QueueLength - 1 {
				other.Axpy(1, x.Tensor, x.Tensor)
			}
			return isReached(busy)
		})
		if err := other.Close(); err != nil {
			b.Error(err)
		}
	}},
	{"streams run beside each other", func(b *fixture) {
		other := b.newStream()
		x := b.floats(dense, 1, 1, []float32{0})
		b.beforeWorkIsDone(func(busy gds.Event) bool {
			other.Fill(x.Tensor, 1)
			if err := other.Synchronize(context.Background()); err != nil {
				b.Fatal(err)
			}
			return isReached(busy)
		})
		if err := other.Close(); err != nil {
			b.Error(err)
		}
	}},
	{"streams of two goroutines wait for each other's events", func(b *fixture) {
		streams := [2]gds.Stream{b.newStream(), b.newStream()}
		var events [2]atomic.Pointer[gds.Event]
		for i, s := range streams {
			e := s.Record()
			events[i].Store(&e)
		}
		var together sync.WaitGroup
		for i, s := range streams {
			together.Go(func() {
				for range 2000 {
					s.WaitEvent(*events[1-i].Load())
					e := s.Record()
					events[i].Store(&e)
				}
			})
		}
		together.Wait()
		for _, s := range streams {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		}
	}},
	{"a context ends a wait, with its cause, but not the work", func(b *fixture) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cause := errors.New("enough")
		cancel(cause)
		b.beforeWorkIsDone(func(busy gds.Event) bool {
			err := busy.Wait(ctx)
			if err != nil && !errors.Is(err, cause) {
				b.Errorf("Wait: %v, want the context's cause", err)
			}
			return err == nil
		})
		b.sync()
		if err := b.stream.Record().Wait(context.Background()); err != nil {
			b.Error(err)
		}
	}},
	{"an event that has been reached does not look at the context", func(b *fixture) {
		e := b.stream.Record()
		b.sync()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 100 {
			if err := e.Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}},
	{"events have times, in the order of the stream", func(b *fixture) {
		var events []gds.Event
		for range 5 {
			events = append(events, b.stream.Record())
			b.work(4, 128)
		}
		b.sync()
		for i, e := range events {
			for j, since := range events {
				elapsed, err := e.Elapsed(since)
				if err != nil || i == j && elapsed != 0 || i > j && elapsed < 0 || i < j && elapsed > 0 {
					b.Errorf("from event %d to %d: %v, %v", j, i, elapsed, err)
				}
			}
		}
	}},
	{"events that are not reached, or of nobody's, have no times", func(b *fixture) {
		start := b.stream.Record()
		b.sync()
		b.beforeWorkIsDone(func(busy gds.Event) bool {
			_, forward := busy.Elapsed(start)
			_, back := start.Elapsed(busy)
			if isReached(busy) {
				return true
			}
			if forward == nil || back == nil {
				b.Errorf("from or to an event that is not reached: %v, %v", forward, back)
			}
			return false
		})
		if _, err := start.Elapsed(nil); err == nil {
			b.Error("time since no event")
		}
	}},
	{"events order the work of two streams", func(b *fixture) {
		// A value goes to the other stream's buffer and is added to itself when
		// it has come back; a step too early adds what was there before.
		other := b.newStream()
		here, there := b.floats(dense, 1, 1, []float32{1}), b.floats(dense, 1, 1, nil)
		const rounds = 100
		for range rounds {
			other.WaitEvent(b.stream.Record())
			other.Copy(there.Tensor, here.Tensor)
			b.stream.WaitEvent(other.Record())
			b.stream.Axpy(1, there.Tensor, here.Tensor)
		}
		if got, want := float64(b.read(here)[0]), math.Ldexp(1, rounds); got != want {
			b.Errorf("got %v, want %v", got, want)
		}
		if err := other.Close(); err != nil {
			b.Error(err)
		}
	}},
	{"many goroutines wait for one event", func(b *fixture) {
		b.work(20, 128)
		e := b.stream.Record()
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				if err := e.Wait(context.Background()); err != nil {
					b.Error(err)
				}
			})
		}
		wait.Wait()
	}},
	{"the first error stays, and what follows is skipped", func(b *fixture) {
		s := b.newStream()
		x := b.floats(dense, 1, 2, []float32{3, 4})
		before := s.Record()
		s.Gemm(false, false, 1, b.floats(dense, 3, 4, nil).Tensor, b.floats(dense, 5, 6, nil).Tensor, 0,
			b.floats(dense, 3, 6, nil).Tensor)
		s.Fill(x.Tensor, 9)
		s.Copy(gds.Tensor{}, x.Tensor)
		after := s.Record()
		err := s.Synchronize(context.Background())
		if err == nil || !strings.Contains(err.Error(), "Gemm") || !strings.Contains(err.Error(), "[3,4]") ||
			!strings.Contains(err.Error(), "[5,6]") {
			b.Errorf("want an error that names Gemm, [3,4] and [5,6], got %v", err)
		}
		if e := before.Wait(context.Background()); e != nil {
			b.Errorf("an event before the error comes with %v", e)
		}
		for _, e := range []error{after.Wait(context.Background()), s.Synchronize(context.Background()), s.Close()} {
			if e == nil || e.Error() != err.Error() {
				b.Errorf("later %v, want the first error", e)
			}
		}
		if got := b.read(x); got[0] != 3 || got[1] != 4 {
			b.Errorf("work after the error changed memory to %v", got)
		}
	}},
	{"waiting for a poisoned stream poisons, other streams go on", func(b *fixture) {
		first, second := b.newStream(), b.newStream()
		x := b.floats(dense, 1, 1, []float32{3})
		first.Copy(gds.Tensor{}, x.Tensor)
		second.WaitEvent(first.Record())
		second.Fill(x.Tensor, 9)
		want := first.Close()
		if got := second.Close(); want == nil || got == nil || got.Error() != want.Error() {
			b.Errorf("streams closed with %v and %v", want, got)
		}
		if got := b.read(x)[0]; got != 3 {
			b.Errorf("work after the wait changed memory to %v", got)
		}
	}},
	{"a poisoned stream still waits for events", func(b *fixture) {
		s := b.newStream()
		x := b.floats(dense, 1, 1, []float32{3})
		s.Copy(gds.Tensor{}, x.Tensor)
		b.work(20, 128)
		busy := b.stream.Record()
		s.WaitEvent(busy)
		if err := s.Synchronize(context.Background()); err == nil {
			b.Error("the stream is not poisoned")
		}
		if !isReached(busy) {
			b.Error("the stream has gone past the event")
		}
		if err := s.Close(); err == nil {
			b.Error("Close says nothing of the error")
		}
	}},
	{"Close waits for the work", func(b *fixture) {
		s := b.newStream()
		b.work(20, 128)
		s.WaitEvent(b.stream.Record())
		end := s.Record()
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		if !isReached(end) {
			b.Error("closed before its work was done")
		}
	}},
	{"a closed stream says so", func(b *fixture) {
		s := b.newStream()
		x := b.floats(dense, 1, 1, []float32{3})
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		s.Fill(x.Tensor, 9)
		s.WaitEvent(b.stream.Record())
		for _, err := range []error{s.Record().Wait(context.Background()), s.Synchronize(context.Background()),
			s.Close()} {
			if !errors.Is(err, gds.ErrClosed) {
				b.Errorf("after Close: %v", err)
			}
		}
		if got := b.read(x)[0]; got != 3 {
			b.Errorf("work after Close changed memory to %v", got)
		}
	}},
}

// isReached tells whether an event has happened.
func isReached(e gds.Event) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return e.Wait(ctx) == nil
}

// work keeps the bench's stream busy: n products of square matrices.
func (b *fixture) work(n, side int) {
	x := b.alloc(3 * gds.Bytes(side, side, gds.Float32))
	m := gds.NewTensor(x, 3*side, side, gds.Float32)
	for range n {
		b.stream.Gemm(false, false, 1, m.Slice(0, side), m.Slice(side, 2*side), 0, m.Slice(2*side, 3*side))
	}
}

// beforeWorkIsDone shows that try gets done while the bench's stream is busy:
// given an event after the work, it returns whether that was reached at its
// end. As long as it was, there is another try with matrices of twice the side, so
// that no speed of the device matters: more operations would take as long to enqueue
// as to run. A device that makes try wait never gets there.
func (b *fixture) beforeWorkIsDone(try func(busy gds.Event) (reached bool)) {
	b.Helper()
	for side := 128; side <= 4096; side *= 2 {
		b.work(16, side)
		reached := try(b.stream.Record())
		b.sync()
		if !reached {
			return
		}
	}
	b.Error("always waits until the other stream's work is done")
}
