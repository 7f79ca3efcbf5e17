package progress

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hopfeed/hopfeed/internal/units"
)

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
