// Package progress shows how far long work is: a bar with rate and remaining
// time on a terminal, a plain line now and then in a log, or nothing.
package progress

// Unit says what a task counts.
type Unit uint8

const (
	Items Unit = iota
	Bytes
)

// Reporter starts tasks. It is safe for concurrent use.
type Reporter interface {
	// Start begins to show a task of total units (0: not known).
	Start(label string, total int64, unit Unit) Task
}

// Task is one piece of work. Add is safe for concurrent use.
type Task interface {
	Add(n int64)
	// Done ends the task, finished or not.
	Done()
}

// Silent shows nothing.
var Silent Reporter = silent{}

type silent struct{}

func (silent) Start(string, int64, Unit) Task { return silent{} }
func (silent) Add(int64)                      {}
func (silent) Done()                          {}
