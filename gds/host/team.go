package host

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/internal/kernel"
)

// team runs the loop of an operation on the stream's goroutine and helpers. It allocates nothing:
// the body of a loop is a plain function, which finds the operation and its views in the stream.
type team struct {
	body     func(s *stream, p part) error
	n, grain int
	next     atomic.Int64   // part
	threads  atomic.Int64   // that have started
	helpers  []helper       // one less than threads of the device
	busy     sync.WaitGroup // helpers that are asked, or help

	failed sync.Mutex
	err    error // of a part, the first
}

// part is a range [lo, hi) of a loop, and the number of the thread that it runs on.
type part struct{ thread, lo, hi int }

// helper is a goroutine that helps with loops. Between loops it looks for the next one for a while
// (helperLooks), as there are several a millisecond, and to wake a thread takes about as long as a small
// one. Meanwhile it lets others run.
type helper struct {
	state atomic.Int32
	run   func() // what the goroutine does, made once
}

// States of a helper.
const (
	absent  = iota // there is no goroutine
	looking        // for a loop to help with
	asked          // to help with the loop of the moment
	helping
)

// helperLooks is how often a helper looks for a loop at most, and helperTime how long. If nothing else
// runs, the first takes about as long as the second; if much does, each look is a turn behind it all.
const (
	helperLooks = 300
	helperTime  = 50 * time.Microsecond
)

func (t *team) init(s *stream) {
	t.helpers = make([]helper, s.device.options.Threads-1)
	for i := range t.helpers {
		h := &t.helpers[i]
		h.run = func() { h.help(s) }
	}
}

// stop makes helpers that look for a loop end, the next time that they do. No loop runs.
func (t *team) stop() {
	for i := range t.helpers {
		t.helpers[i].state.Store(absent)
	}
}

// looks tells whether a helper looks for a loop.
func (t *team) looks() bool {
	for i := range t.helpers {
		if t.helpers[i].state.Load() == looking {
			return true
		}
	}
	return false
}

// loop calls body for consecutive parts that cover [0, n), grain long, the last shorter. They are
// the same for any number of threads. After an error no further part is started.
func (s *stream) loop(n, grain int, body func(s *stream, p part) error) error {
	t := &s.team
	t.body, t.n, t.grain, t.err = body, n, max(grain, 1), nil
	t.next.Store(0)
	t.threads.Store(0)
	helpers := t.helpers[:max(0, min(len(t.helpers), (n+t.grain-1)/t.grain-1))]
	t.busy.Add(len(helpers))
	for i := range helpers {
		if h := &helpers[i]; h.state.Swap(asked) == absent {
			go h.run()
		}
	}
	s.takeParts()
	for i := range helpers {
		if helpers[i].state.CompareAndSwap(asked, looking) { // it has not begun
			t.busy.Done()
		}
	}
	t.busy.Wait()
	return t.err
}

func (h *helper) help(s *stream) {
	for looks, since := 0, time.Now(); ; looks++ {
		switch {
		case h.state.CompareAndSwap(asked, helping):
			s.takeParts()
			h.state.Store(looking)
			s.team.busy.Done()
			looks, since = 0, time.Now()
		case h.state.Load() == absent: // the stream is closed
			return
		case (looks > helperLooks || time.Since(since) > helperTime) && h.state.CompareAndSwap(looking, absent):
			return
		}
		runtime.Gosched()
	}
}

func (s *stream) takeParts() {
	t := &s.team
	thread := int(t.threads.Add(1)) - 1
	for {
		lo := (int(t.next.Add(1)) - 1) * t.grain
		if lo >= t.n {
			return
		}
		if err := t.body(s, part{thread, lo, min(lo+t.grain, t.n)}); err != nil {
			t.failed.Lock()
			if t.err == nil {
				t.err = err
			}
			t.failed.Unlock()
			t.next.Store(int64(t.n)) // no further part
			return
		}
	}
}

// grainWork is how many elements' work is worth handing to another thread.
const grainWork = 1 << 15

// eachRow calls body for ranges of rows that are cols elements of work each.
func (s *stream) eachRow(rows, cols int, body func(s *stream, p part) error) error {
	return s.loop(rows, 1+grainWork/max(cols, 1), body)
}

// rowsOf is eachRow for the rows of tensor i; work is the cost of an element.
func (s *stream) rowsOf(i, work int, body func(s *stream, p part) error) error {
	return s.eachRow(s.views.floats[i].rows, s.views.floats[i].cols*work, body)
}

// byRow calls body for all rows of tensor i; work is the cost of an element.
func (s *stream) byRow(i, work int, body func(s *stream, row int)) error {
	s.views.rowBody = body
	return s.rowsOf(i, work, func(s *stream, p part) error {
		for row := p.lo; row < p.hi; row++ {
			s.views.rowBody(s, row)
		}
		return nil
	})
}

// each calls body for all elements of a matrix: columns [lo, hi) of a row. Ranges may be in any order and at once.
func (s *stream) each(rows, cols int, body func(s *stream, row, lo, hi int)) {
	s.views.eachBody, s.views.cols = body, cols
	if rows == 1 {
		_ = s.loop(cols, grainWork, func(s *stream, p part) error {
			s.views.eachBody(s, 0, p.lo, p.hi)
			return nil
		})
		return
	}
	_ = s.eachRow(rows, cols, func(s *stream, p part) error {
		for i := p.lo; i < p.hi; i++ {
			s.views.eachBody(s, i, 0, s.views.cols)
		}
		return nil
	})
}

// scratch is memory for operations that need some, kept for the next ones.
type scratch struct {
	gemm    kernel.Gemm
	sums    []float32 // of addUp
	columns []float32 // of NormalizeColumns and its like
	scores  []float32 // of AttentionGrad
	losses  []float64 // of losses and of ClipNorm
	powers  []float32 // of the classes of a row, for each thread
	rows    []uint32  // of Gather, by 64 bits
	edges   edgeScratch
	product productScratch
	sample  sampleScratch
}

// room returns n elements of scratch memory, as they happen to be.
func room[T any](memory *[]T, n int) []T {
	if len(*memory) < n {
		*memory = make([]T, n)
	}
	return (*memory)[:n]
}
