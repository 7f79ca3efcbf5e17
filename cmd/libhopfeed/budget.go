//go:build cgo && (linux || darwin)

package main

import (
	"math"
	"sync"

	"github.com/hopfeed/hopfeed/internal/offheap"
)

// budgets are the memory of all that is open or runs in the process, whose sum limits the Go heap.
var budgets budgetTable

// pool is the memory that loaders of the same data hold together.
var pool offheap.Pool

// budgetTable is a set of budgets.
type budgetTable struct {
	mu sync.Mutex
	of map[*budget]bool
}

// budget is the memory that a loader or a task may use. A shared one is what the machine has: all such
// budgets mean the same memory.
type budget struct {
	all    *budgetTable
	bytes  int64
	shared bool
}

// open adds a budget until it is closed.
func (t *budgetTable) open(bytes int64, shared bool) *budget {
	b := &budget{t, bytes, shared}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[*budget]bool{}
	}
	t.of[b] = true
	t.limit()
	return b
}

// Close takes the budget away.
func (b *budget) Close() error {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	delete(b.all.of, b)
	b.all.limit()
	return nil
}

// limit limits the process to the sum of all budgets; shared budgets count once, as the largest of them.
// Without budgets there is no limit.
func (t *budgetTable) limit() {
	shared, sum := int64(0), int64(0)
	for b := range t.of {
		if b.shared {
			shared = max(shared, b.bytes)
		} else {
			sum += min(b.bytes, math.MaxInt64-sum)
		}
	}
	offheap.LimitProcess(sum + min(shared, math.MaxInt64-sum))
}
