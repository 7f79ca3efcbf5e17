// Package epoch is the core of all loaders. Buffers are the memory of batches: who has it, and until when. Run
// brings the batches of an epoch through stages, by the rules of a schedule, to the loop of the client.
//
// A loader brings its own memory (a type that embeds Buffer), its own jobs, and a function for each stage.
package epoch

import (
	"sync"

	"github.com/hopfeed/hopfeed/gds"
)

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
