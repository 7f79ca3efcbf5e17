package host

import (
	"sync"
	"time"
)

// link is one way between host memory and a device's own. All streams share it:
// it carries one transfer after another, at so many bytes a second.
type link struct {
	bytesPerSecond int64 // 0: no limit
	stop           <-chan struct{}

	mu   sync.Mutex
	over time.Time // when all that was sent so far has arrived
}

// lateness is how long a link may stand idle without losing the time: about what
// sleeping takes too long.
const lateness = time.Millisecond

// transfer moves bytes, and returns when the link would have, or, once it is to stop, when
// they are moved.
func (l *link) transfer(bytes int, move func()) {
	if l.bytesPerSecond == 0 {
		move()
		return
	}
	l.mu.Lock()
	if earliest := time.Now().Add(-lateness); l.over.Before(earliest) {
		l.over = earliest
	}
	l.over = l.over.Add(time.Duration(float64(bytes) / float64(l.bytesPerSecond) * float64(time.Second)))
	arrival := l.over
	l.mu.Unlock()
	move()
	select {
	case <-time.After(time.Until(arrival)):
	case <-l.stop:
	}
}
