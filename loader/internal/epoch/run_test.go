package epoch

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/schedule"
)

// The loop gets all batches in order up to the one that fails in some stage, or up to the one at which it leaves.
func TestAnErrorTakesThePlaceOfItsBatch(t *testing.T) {
	broken := errors.New("broken")
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			batches := 1 + r.IntN(12)
			fails, failing, leaves := r.IntN(2*batches), r.IntN(3), r.IntN(3*batches)
			stage := func(name string, number int) Stage[*int] {
				takes := time.Duration(r.IntN(5))
				return Stage[*int]{name, func(_ *pipeline.Worker, task *Task[*int]) error {
					time.Sleep(takes * time.Second)
					if number == 0 {
						task.Job = new(int)
						*task.Job = task.Batch
					}
					if task.Batch == fails && number == failing {
						return broken
					}
					return nil
				}}
			}
			seen := 0
			x := &Run[*int]{
				Rules:  schedule.Pipelined(batches, 1+r.IntN(3), 2+r.IntN(4), 1+r.IntN(3)),
				Sample: stage("sample", 0), Move: stage("move", 1), Arrive: stage("arrive", 2),
				Train: func(batch *int) bool {
					if *batch != seen {
						t.Errorf("seed %d: batch %d after %d others", seed, *batch, seen)
					}
					seen++
					return *batch != leaves
				},
			}
			p := pipeline.New(t.Context())
			err := x.Do(p)
			p.Close()
			want, wantErr := min(batches, fails, leaves+1), error(nil)
			if fails < batches && fails <= leaves {
				wantErr = broken
			}
			if seen != want || err != wantErr {
				t.Errorf("seed %d: %d batches, then %v; want %d, then %v", seed, seen, err, want, wantErr)
			}
		})
	}
}

// slowStream is a device that trains a batch in a second.
type slowStream struct{ gds.Stream }

type slowEvent struct {
	gds.Event
	at time.Time
}

func (slowStream) Record() gds.Event { return slowEvent{at: time.Now().Add(time.Second)} }

func (e slowEvent) Wait(ctx context.Context) error { return pipeline.Until(e.at).Wait(ctx) }

func (e slowEvent) Elapsed(since gds.Event) (time.Duration, error) {
	return e.at.Sub(since.(slowEvent).at), nil
}

// What a loop measures does not depend on whether the device or the loop is first when it leaves.
func TestTheLastBatchOfALoopThatLeavesIsTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trained := 0
		x := &Run[*int]{
			Rules: schedule.Pipelined(9, 2, 3, 2),
			Sample: Stage[*int]{"sample", func(_ *pipeline.Worker, task *Task[*int]) error {
				task.Job = &task.Batch
				return nil
			}},
			Move:     Stage[*int]{"move", func(*pipeline.Worker, *Task[*int]) error { return nil }},
			Train:    func(batch *int) bool { return *batch < 3 },
			Consumer: slowStream{},
			Trace: func(s schedule.Span) {
				if s.Stage == schedule.Train {
					trained++
				}
			},
		}
		p := pipeline.New(t.Context())
		defer p.Close()
		if err := x.Do(p); err != nil || trained != 4 {
			t.Errorf("%d batches are traced, %v; the loop had 4", trained, err)
		}
	})
}

// Memory comes back once, when the step (s) and all holds (h) have ended (r: release), in whatever order; a release too
// many does nothing.
func TestALoanComesBackOnce(t *testing.T) {
	for _, order := range []string{"s", "hrs", "hsr", "rs", "hhsrr", "hhrsr", "hsrr", "hsh r r"} {
		var l Loan
		back := 0
		l.begin(func([]gds.Event) { back++ })
		holds, ended := 0, false
		for _, do := range order {
			switch do {
			case 'h':
				l.Hold()
				holds++
			case 'r':
				l.Release(nil)
				holds = max(0, holds-1)
			case 's':
				l.end()
				ended = true
			}
			if want := ended && holds == 0; want != (back == 1) || back > 1 {
				t.Errorf("%s: after %c it came back %d times", order, do, back)
			}
		}
	}
}
