package host

import (
	"sync"
	"time"
)

// link is one way between host memory and a device's own. All streams share it:
// it carries one transfer after another, at a fixed rate.
type link struct {
	bytesPerSecond int64 // 0: no limit

	mu   sync.Mutex
	over time.Time // when all that was sent so far has arrived
}

// lateness is how long a link may stand idle without losing the time: about what sleeping takes too long.
const lateness = time.Millisecond

// send returns when bytes that are sent now have arrived; the zero Time if at once.
func (l *link) send(bytes int) time.Time {
	if l.bytesPerSecond == 0 {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if earliest := time.Now().Add(-lateness); l.over.Before(earliest) {
		l.over = earliest
	}
	l.over = l.over.Add(time.Duration(float64(bytes) / float64(l.bytesPerSecond) * float64(time.Second)))
	return l.over
}

// sendTo sends bytes from one buffer to another over the links that lie between, of
// one device or of two at once, and returns when they have arrived.
func (b *buffer) sendTo(to *buffer, bytes int) (arrival time.Time) {
	from, into := b.owner(), to.owner()
	if from == into {
		return arrival
	}
	if from != nil {
		arrival = from.out.send(bytes)
	}
	if into != nil {
		if in := into.in.send(bytes); in.After(arrival) {
			arrival = in
		}
	}
	return arrival
}

// waitFor returns at the time of an arrival, or once the device is to stop.
func (d *Device) waitFor(arrival time.Time) {
	if wait := time.Until(arrival); wait > 0 {
		select {
		case <-time.After(wait):
		case <-d.options.Stop:
		}
	}
}
