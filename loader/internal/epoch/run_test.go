package epoch

import (
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
