package loader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// drain runs the loop to its end.
func drain(ctx context.Context, items iter.Seq[int], stages []stage[int], times []durations) (got []int, err error) {
	for i, e := range pipeline(ctx, items, stages, times) {
		if e != nil {
			return got, e
		}
		got = append(got, i)
	}
	return got, nil
}

func failAt(name string, at int, err error) func(context.Context, int) error {
	return func(_ context.Context, i int) error {
		if i == at {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}

// synctest.Test fails when a goroutine is left, or all of them wait for ever.

func TestItemsPassAllStagesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, queue := range []int{0, 1, 5} {
			var passed [3][]int
			var stages []stage[int]
			for s := range passed {
				stages = append(stages, stage[int]{queue: queue, work: func(_ context.Context, i int) error {
					passed[s] = append(passed[s], i)
					return nil
				}})
			}
			got, err := drain(t.Context(), count(50), stages, make([]durations, 5))
			want := slices.Collect(count(50))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("queue %d: %v, %v", queue, got, err)
			}
			for s := range passed {
				if !slices.Equal(passed[s], want) {
					t.Errorf("queue %d: stage %d saw %v", queue, s, passed[s])
				}
			}
		}
	})
}

func TestAnErrorComesAfterTheItemsBeforeIt(t *testing.T) {
	broken := errors.New("broken")
	for stageAt := range 3 {
		for _, waits := range []bool{false, true} {
			for at := range 6 {
				synctest.Test(t, func(t *testing.T) {
					stages := make([]stage[int], 3)
					for i := range stages {
						stages[i].queue = i
					}
					if waits {
						stages[stageAt].wait = failAt("wait", at, broken)
					} else {
						stages[stageAt].work = failAt("work", at, broken)
					}
					got, err := drain(t.Context(), count(6), stages, make([]durations, 5))
					if !errors.Is(err, broken) || !slices.Equal(got, slices.Collect(count(at))) {
						t.Errorf("stage %d fails on %d: got %v, then %v", stageAt, at, got, err)
					}
				})
			}
		}
	}
}

// Stage 0 fails on item 4 long before stage 1, which is slow, fails on item 2.
func TestTheErrorOfTheEarlierItemWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early, late := errors.New("early"), errors.New("late")
		stages := []stage[int]{
			{queue: 9, work: failAt("first", 4, early)},
			{work: func(_ context.Context, i int) error {
				time.Sleep(time.Hour)
				return failAt("second", 2, late)(nil, i)
			}},
		}
		got, err := drain(t.Context(), count(9), stages, make([]durations, 4))
		if !errors.Is(err, late) || len(got) != 2 {
			t.Errorf("got %v, then %v", got, err)
		}
	})
}

func TestLeavingTheLoopStopsEveryStage(t *testing.T) {
	forever := func(yield func(int) bool) {
		for i := 0; yield(i); i++ {
		}
	}
	for leaveAt := range 4 {
		synctest.Test(t, func(t *testing.T) {
			stages := []stage[int]{{queue: 2}, {}, {queue: 1}}
			for i := range pipeline(t.Context(), forever, stages, make([]durations, 5)) {
				if i == leaveAt {
					break
				}
			}
		})
	}
}

func TestAStageThatWaitsForRoomIsStopped(t *testing.T) {
	blocked := func(ctx context.Context, i int) error {
		if i < 2 {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	t.Run("when the loop is left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for i := range pipeline(t.Context(), count(9), []stage[int]{{wait: blocked}, {}}, make([]durations, 4)) {
				if i == 1 {
					break
				}
			}
		})
	})
	t.Run("when the context ends, whose cause is the error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Hour, func() { cancel(why) })
			got, err := drain(ctx, count(9), []stage[int]{{wait: blocked}, {}}, make([]durations, 4))
			if err != why || len(got) != 2 {
				t.Errorf("got %v, then %v", got, err)
			}
		})
	})
}

func TestALoopBodyThatPanicsLeavesNothingRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		for range pipeline(t.Context(), count(9), []stage[int]{{}, {}}, make([]durations, 4)) {
			panic("body")
		}
	})
}

// With time that stands still while anything runs, the durations are exact. The
// stages take 3, 1 and 2 seconds for each of 10 items, the loop 1; the first
// stage is the bottleneck and never rests.
func TestDurationsSayWhereTheTimeWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := func(seconds int) func(context.Context, int) error {
			return func(context.Context, int) error { time.Sleep(time.Duration(seconds) * time.Second); return nil }
		}
		stages := []stage[int]{{work: takes(3)}, {wait: takes(1)}, {work: takes(2)}}
		times := make([]durations, 5)
		for _, err := range pipeline(t.Context(), count(10), stages, times) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		s := time.Second
		want := []durations{
			{blocked: 27 * s},                      // each item but the first waits for stage 0
			{work: 30 * s},                         // hands each over at once
			{blocked: 10 * s, idle: (3 + 9*2) * s}, // waits for room a second each
			{work: 20 * s, idle: (4 + 9*1) * s},    // gets item i at 4+3i
			{work: 10 * s, idle: (6 + 9*2) * s},    // gets item i at 6+3i
		}
		for i := range want {
			if times[i] != want[i] {
				t.Errorf("stage %d: %+v, want %+v", i, times[i], want[i])
			}
		}
	})
}
