package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrMaxTime is returned when a job ended because Options.MaxTime was over.
var ErrMaxTime = errors.New("--max-time is over")

// ErrTooShort is returned, beside the reason why a job ended, when it ended before it could save anything: started
// again with as much time, it would get no further.
var ErrTooShort = errors.New("the time was too short to save any progress")

// Writing checkpoints takes at most these shares of the time that a job computes: the second in a job that has been
// interrupted before, as it may be again, and the third where the start before saved nothing.
const (
	SteadyShare      = 0.03
	InterruptedShare = 0.2
	NoProgressShare  = 0.5
)

// Pace decides when a job interrupts computing to write a checkpoint, or to end. mustStop and checkpointDue are safe
// for concurrent use with each other, other methods are not.
type Pace struct {
	Clock    func() time.Time
	Started  time.Time // the job
	firstHop time.Time // the first hop; zero: not yet
	Deadline time.Time // zero: none
	Share    float64   // of the time, for checkpoints
	Rate     float64   // bytes a second that are written
	savedAt  time.Time // when all that was computed was on disk
	SavedAny bool      // has been kept
}

// writeTime is about how long it takes to write bytes, durably.
func (p *Pace) writeTime(bytes int64) time.Duration {
	const sync = 50 * time.Millisecond // of a file and its folder
	return sync + time.Duration(float64(bytes)/p.Rate*float64(time.Second))
}

// measureRate sets the rate from a write that began at start, unless it was too small for that.
func (p *Pace) measureRate(bytes int64, start time.Time) {
	const enough = 1 << 20
	if took := p.Clock().Sub(start).Seconds(); bytes >= enough && took > 0 {
		p.Rate = float64(bytes) / took
	}
}

// saved records that all that was computed up to a time is on disk.
func (p *Pace) saved(upTo time.Time) { p.savedAt, p.SavedAny = upTo, true }

// beginHops records that the first hop of a sequence begins.
func (p *Pace) beginHops() {
	if p.savedAt = p.Clock(); p.firstHop.IsZero() {
		p.firstHop = p.savedAt
	}
}

// margin is how long before the deadline computing must end, to write bytes.
func (p *Pace) margin(bytes int64) time.Duration {
	return p.writeTime(bytes)*5/4 + 100*time.Millisecond
}

// mustStop tells whether computing must end now: ctx is cancelled, or there is only time left to write a checkpoint
// of this size.
func (p *Pace) mustStop(ctx context.Context, bytes int64) bool {
	return ctx.Err() != nil || !p.Deadline.IsZero() && !p.Clock().Add(p.margin(bytes)).Before(p.Deadline)
}

// checkpointDue tells whether it is time for a checkpoint of this size.
func (p *Pace) checkpointDue(bytes int64) bool {
	return float64(p.Clock().Sub(p.savedAt))*p.Share >= float64(p.writeTime(bytes))
}

// worthSaving tells whether a job that ends should write a checkpoint of this size: it should not if computing
// since the last one took less than a quarter of the time.
func (p *Pace) worthSaving(bytes int64) bool { return p.Clock().Sub(p.savedAt) >= p.writeTime(bytes)/4 }

// endCause is the reason why a job ended early.
func endCause(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return ErrMaxTime
}

// TooShort is ErrTooShort with how much time the job needs.
func (p *Pace) TooShort(stateBytes int64) error {
	if p.firstHop.IsZero() {
		return fmt.Errorf("%w: after %v the job was still reading the graph", ErrTooShort,
			p.Clock().Sub(p.Started).Round(100*time.Millisecond))
	}
	ready, keeping := p.firstHop.Sub(p.Started), p.writeTime(stateBytes)
	return fmt.Errorf("%w: reading the graph takes %v, and writing a checkpoint about %v (give the job %v at least)",
		ErrTooShort, ready.Round(100*time.Millisecond), keeping.Round(100*time.Millisecond),
		(3*(ready+keeping)).Round(time.Second)+time.Second)
}
