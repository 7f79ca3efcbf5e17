package engine

import (
	"context"
	"testing"
	"time"
)

func TestAnUndisturbedJobWritesNoMoreCheckpointsThanItsShare(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &Pace{Clock: func() time.Time { return now }, Share: SteadyShare, Rate: 100 << 20,
		Deadline: now.Add(100 * time.Second)}
	p.beginHops()
	const state = 300 << 20 // 3 s
	for _, c := range []struct {
		after            time.Duration
		due, stop, worth bool
	}{{0, false, false, false}, {time.Second, false, false, true}, {96 * time.Second, false, false, true},
		{97 * time.Second, false, true, true}} {
		now = time.Unix(1000, 0).Add(c.after)
		if p.checkpointDue(state) != c.due || p.mustStop(context.Background(), state) != c.stop ||
			p.worthSaving(state) != c.worth {
			t.Errorf("after %v: due %v, stop %v, worth %v", c.after, p.checkpointDue(state),
				p.mustStop(context.Background(), state), p.worthSaving(state))
		}
	}
	if p.Deadline = (time.Time{}); p.checkpointDue(state) {
		t.Error("due after 97 s: 3 s are more than 3 %")
	}
	if now = now.Add(5 * time.Second); !p.checkpointDue(state) || p.mustStop(context.Background(), state) {
		t.Error("not due after 102 s")
	}
	p.Share = InterruptedShare
	p.saved(p.Clock())
	if now = now.Add(16 * time.Second); !p.checkpointDue(state) {
		t.Error("an interrupted job: not due after 16 s")
	}
}
