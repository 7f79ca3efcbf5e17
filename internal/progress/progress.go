// Package progress shows how far long work is: a bar with rate and remaining
// time on a terminal, a plain line now and then in a log, or nothing.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/hopfeed/hopfeed/internal/units"
)

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

// A task gets a line when it is a tenth further and lineGap has passed since the
// last one, or when it has been silent for lineSilence.
const (
	lineGap     = 3 * time.Second
	lineSilence = 30 * time.Second
)

// New shows progress on w: by bars where that is a terminal, else by lines.
func New(w io.Writer, terminal bool) Reporter {
	if terminal {
		return &bars{w: w}
	}
	return &lines{w: w, now: time.Now}
}

// lines is the Reporter for logs. A task that is over within lineGap leaves none.
type lines struct {
	mu  sync.Mutex // of w and the tasks
	w   io.Writer
	now func() time.Time
}

type lineTask struct {
	*lines
	label       string
	unit        Unit
	total, done int64
	start       time.Time
	shownAt     time.Time // the last line, or start
	shown       int64     // done in the last line
}

func (l *lines) Start(label string, total int64, unit Unit) Task {
	now := l.now()
	return &lineTask{lines: l, label: label, unit: unit, total: total, start: now, shownAt: now}
}

func (t *lineTask) Add(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += n
	now := t.now()
	tenth := t.total > 0 && t.done-t.shown >= (t.total+9)/10
	if since := now.Sub(t.shownAt); since < lineGap || since < lineSilence && !tenth {
		return
	}
	elapsed := now.Sub(t.start)
	rate := float64(t.done) / elapsed.Seconds()
	fmt.Fprintf(t.w, "%s: ", t.label)
	if t.total > 0 {
		fmt.Fprintf(t.w, "%d %%, ", 100*t.done/t.total)
	}
	fmt.Fprintf(t.w, "%s, %s/s", t.unit.format(t.done), t.unit.format(int64(rate)))
	if t.total > t.done && rate > 0 {
		left := time.Duration(float64(t.total-t.done) / rate * float64(time.Second))
		fmt.Fprintf(t.w, ", %s left", left.Round(time.Second))
	}
	fmt.Fprintln(t.w)
	t.shown, t.shownAt = t.done, now
}

func (t *lineTask) Done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shownAt.Equal(t.start) {
		return
	}
	state := "done"
	if t.done < t.total {
		state = "stopped"
	}
	fmt.Fprintf(t.w, "%s: %s, %s in %s\n", t.label, state, t.unit.format(t.done),
		t.now().Sub(t.start).Round(time.Second))
}

func (u Unit) format(n int64) string {
	if u == Bytes {
		return units.Bytes(n).String()
	}
	return fmt.Sprint(n)
}

// bars is the Reporter for terminals. Bars that are up at one time share a container, which is closed with the last of
// them: between tasks the terminal belongs to whoever prints. A bar vanishes when its task is done.
type bars struct {
	w io.Writer

	mu        sync.Mutex
	container *mpb.Progress
	up        int
}

type barTask struct {
	*bars
	bar *mpb.Bar
}

func (b *bars) Start(label string, total int64, unit Unit) Task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.up == 0 {
		b.container = mpb.New(mpb.WithOutput(b.w), mpb.WithAutoRefresh())
	}
	b.up++
	counters, speed := decor.CountersNoUnit("%d / %d"), decor.AverageSpeed(0, "%.0f/s")
	if unit == Bytes {
		counters, speed = decor.CountersKibiByte("% .1f / % .1f"), decor.AverageSpeed(decor.SizeB1024(0), "% .1f")
	}
	space := decor.Name("  ")
	bar := b.container.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(label, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), space, counters, space, speed, space,
			decor.AverageETA(decor.ET_STYLE_GO), decor.Name(" left")))
	return &barTask{b, bar}
}

func (t *barTask) Add(n int64) { t.bar.IncrInt64(n) }

func (t *barTask) Done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bar.Abort(true) // without effect on a bar that is complete
	t.bar.Wait()
	if t.up--; t.up == 0 {
		t.container.Wait()
	}
}
