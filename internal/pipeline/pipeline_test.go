package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/internal/pipeline"
)

type stage = pipeline.Stage[int]

// synctest.Test fails when a goroutine is left, or all of them wait for ever.

func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func chain(p *pipeline.Pipeline, items iter.Seq[int], stages []stage) *pipeline.Queue[int] {
	q := pipeline.Feed(p, "feed", items)
	for _, s := range stages {
		q = q.Then(s)
	}
	return q
}

// drain runs a chain of stages to its end.
func drain(ctx context.Context, items iter.Seq[int], stages ...stage) (got []int, err error) {
	p := pipeline.New(ctx)
	defer p.Close()
	for i, e := range chain(p, items, stages).All() {
		if e != nil {
			return got, e
		}
		got = append(got, i)
	}
	return got, nil
}

func sleep(seconds int) { time.Sleep(time.Duration(seconds) * time.Second) }

// itemError says which stage failed on which item.
type itemError struct{ stage, item int }

func (e itemError) Error() string { return fmt.Sprintf("stage %d, item %d", e.stage, e.item) }

// randomStages take random times and have random numbers of workers; each fails on some items, or
// none. They draw nothing while they run, so the same seed always means the same.
func randomStages(r *rand.Rand, items int, seen [][]int32) (stages []stage, fails []itemError) {
	for s := range seen {
		takes := make([]int, items)
		for i := range takes {
			takes[i] = r.IntN(4)
		}
		failing := map[int]bool{}
		if r.IntN(2) == 0 {
			for range r.IntN(3) {
				i := r.IntN(items)
				failing[i] = true
				fails = append(fails, itemError{s, i})
			}
		}
		seen[s] = make([]int32, items)
		stages = append(stages, stage{
			Name: fmt.Sprint(s), Workers: r.IntN(5), Queue: r.IntN(4),
			Work: func(_ *pipeline.Worker, i int) error {
				sleep(takes[i])
				seen[s][i]++
				if failing[i] {
					return itemError{s, i}
				}
				return nil
			},
		})
	}
	return stages, fails
}

// Whatever the stages are, items pass each of them once and come out in order, up to the first that
// a stage fails on; its error follows. Nothing is left, wherever the loop or the context ends.
func TestAnyChainGivesItsItemsInOrderAndThenTheFirstError(t *testing.T) {
	enough := errors.New("enough")
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		items := 1 + r.IntN(20)
		seen := make([][]int32, r.IntN(4))
		stages, fails := randomStages(r, items, seen)
		end, want := items, error(nil)
		for _, f := range fails { // in the order of stages: the earlier one sees an item first
			if f.item < end {
				end, want = f.item, f
			}
		}
		leaveAt, cancelAt := -1, -1
		switch r.IntN(3) {
		case 0:
			leaveAt = r.IntN(items)
		case 1:
			cancelAt = r.IntN(items)
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			p := pipeline.New(ctx)
			var got []int
			var err error
			for i, e := range chain(p, count(items), stages).All() {
				if err = e; e != nil {
					continue
				}
				got = append(got, i)
				if i == cancelAt {
					cancel(enough)
				}
				if i == leaveAt {
					break
				}
			}
			p.Close()
			if stop := max(leaveAt, cancelAt); stop >= 0 && stop < end {
				end, want = stop+1, nil
				if cancelAt >= 0 {
					want = enough
				}
			}
			if !slices.Equal(got, slices.Collect(count(end))) || err != want {
				t.Errorf("seed %d: got %v, then %v; want %d items, then %v", seed, got, err, end, want)
			}
			for s := range seen {
				for i, n := range seen[s] {
					if n > 1 || i < len(got) && n != 1 {
						t.Errorf("seed %d: stage %d saw item %d %d times", seed, s, i, n)
					}
				}
			}
		})
	}
}

// Without order, all items before the stage that fails are still items: none is lost or repeated.
func TestAsTheyComeLosesAndRepeatsNothing(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		const items = 30
		stages, _ := randomStages(r, items, make([][]int32, 3))
		for i := range stages {
			work := stages[i].Work
			stages[i].AsTheyCome = r.IntN(2) == 0
			stages[i].Work = func(w *pipeline.Worker, item int) error { _ = work(w, item); return nil }
		}
		failsAt := -1
		if r.IntN(2) == 0 {
			failsAt = r.IntN(items)
			stages[0].Workers = 1
			stages[0].Work = func(_ *pipeline.Worker, i int) error {
				if i == failsAt {
					return itemError{0, i}
				}
				return nil
			}
		}
		synctest.Test(t, func(t *testing.T) {
			got, err := drain(t.Context(), count(items), stages...)
			want := slices.Collect(count(items))
			if failsAt >= 0 {
				want = want[:failsAt]
			}
			slices.Sort(got)
			if !slices.Equal(got, want) || (err != nil) != (failsAt >= 0) {
				t.Errorf("seed %d: got %v, then %v; want %v", seed, got, err, want)
			}
		})
	}
}

func TestTheFastestWorkerIsFirstWhereItemsLeaveAsTheyCome(t *testing.T) {
	for asTheyCome, want := range map[bool][]int{false: {0, 1, 2, 3}, true: {3, 2, 1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			got, err := drain(t.Context(), count(4),
				stage{Workers: 4, AsTheyCome: asTheyCome, Work: func(_ *pipeline.Worker, i int) error {
					sleep(10 - i)
					return nil
				}})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("as they come %v: %v, %v", asTheyCome, got, err)
			}
		})
	}
}

// A failing worker does not wait for items that never come.
func TestAnErrorIsToldWhileTheFeedStandsStill(t *testing.T) {
	for _, asTheyCome := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			one := func(yield func(int) bool) {
				if yield(0) {
					<-ctx.Done()
				}
			}
			p := pipeline.New(ctx)
			failing := stage{Workers: 3, AsTheyCome: asTheyCome,
				Work: func(*pipeline.Worker, int) error { return itemError{} }}
			for _, err := range pipeline.Feed(p, "", one).Then(failing).All() {
				if err != (itemError{}) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// With three workers and two places to wait, five items are on their way, and no more.
func TestQueuesAreBounded(t *testing.T) {
	for _, asTheyCome := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begun := 0
			p := pipeline.New(t.Context())
			defer p.Close()
			q := pipeline.Feed(p, "", func(yield func(int) bool) {
				for ; yield(begun); begun++ {
				}
			}).Then(stage{Workers: 3, Queue: 2, AsTheyCome: asTheyCome})
			synctest.Wait()
			if want := 5; begun != want {
				t.Errorf("as they come %v: %d items were passed to the stage, want %d", asTheyCome, begun, want)
			}
			for i, err := range q.All() {
				if err != nil {
					t.Fatal(err)
				}
				if i == 50 {
					break
				}
			}
		})
	}
}

func TestEachWorkerHasANumberOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := make([]int, 3) // that only one worker may write to at a time
		got, err := drain(t.Context(), count(30), stage{Workers: len(memory),
			Work: func(w *pipeline.Worker, i int) error {
				memory[w.Index()] = i
				sleep(i % 4)
				if memory[w.Index()] != i {
					t.Errorf("the memory of worker %d was written to by another", w.Index())
				}
				return nil
			}})
		if err != nil || len(got) != 30 {
			t.Error(got, err)
		}
	})
}

type after time.Duration

func (a after) Wait(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(a)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestWhatAWorkerWaitsForEndsWithThePipeline(t *testing.T) {
	forever := after(1 << 62)
	for name, wait := range map[string]func(*pipeline.Worker) error{
		"an event":     func(w *pipeline.Worker) error { return w.Wait(forever) },
		"room":         func(w *pipeline.Worker) error { return w.WaitForRoom(forever) },
		"free memory":  func(w *pipeline.Worker) error { _, err := pipeline.Take(w, make(chan int)); return err },
		"a queue":      func(w *pipeline.Worker) error { <-w.Context().Done(); return context.Cause(w.Context()) },
		"a full queue": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Hour, func() { cancel(why) })
			got, err := drain(ctx, count(9), stage{Workers: 2, Work: func(w *pipeline.Worker, i int) error {
				if i < 2 || wait == nil {
					return nil
				}
				return wait(w)
			}}, stage{Work: func(*pipeline.Worker, int) error {
				if wait == nil {
					sleep(4000)
				}
				return nil
			}})
			if err != why || wait != nil && len(got) != 2 {
				t.Errorf("%s: got %v, then %v", name, got, err)
			}
		})
	}
}

func TestALoopBodyThatPanicsLeavesNothingRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		p := pipeline.New(t.Context())
		defer p.Close()
		for range chain(p, count(9), []stage{{Workers: 2}, {}}).All() {
			panic("body")
		}
	})
}

// With time that stands still while anything runs, the durations are exact. The stages take 3, 1
// and 2 seconds for each of 10 items, the loop 1; the first stage is the bottleneck and never rests.
// What it takes is told apart, whether it works or waits.
func TestDurationsSayWhereTheTimeWent(t *testing.T) {
	const s = time.Second
	ten := count(10)
	work := func(seconds int) func(*pipeline.Worker, int) error {
		return func(*pipeline.Worker, int) error { sleep(seconds); return nil }
	}
	for _, c := range []struct {
		name   string
		stages []stage
		want   []pipeline.Durations
	}{
		{
			"work, events and room", []stage{
				{Work: func(w *pipeline.Worker, _ int) error { sleep(1); return w.Wait(after(2 * s)) }},
				{Work: func(w *pipeline.Worker, _ int) error { return w.WaitForRoom(after(s)) }},
				{Work: work(2)},
			},
			[]pipeline.Durations{
				{Blocked: 27 * s},                      // each item but the first waits for stage 0
				{Work: 10 * s, Waiting: 20 * s},        // hands each over at once
				{Blocked: 10 * s, Idle: (3 + 9*2) * s}, // waits for room a second each
				{Work: 20 * s, Idle: (4 + 9*1) * s},    // gets item i at 4+3i
				{Work: 10 * s, Idle: (6 + 9*2) * s},    // gets item i at 6+3i
			},
		},
		{
			// Both finish at 3, and the second waits for the loop; from then on they take turns.
			"two workers, in order", []stage{{Workers: 2, Work: work(3)}},
			[]pipeline.Durations{{Blocked: 13 * s}, {Work: 30 * s, Blocked: s}, {Work: 10 * s, Idle: (3 + 4*1) * s}},
		},
		{
			"two workers, as they come", []stage{{Workers: 2, AsTheyCome: true, Work: work(3)}},
			[]pipeline.Durations{{Blocked: 13 * s}, {Work: 30 * s, Blocked: s}, {Work: 10 * s, Idle: (3 + 4*1) * s}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipeline.New(t.Context())
				for _, err := range chain(p, ten, c.stages).All() {
					if err != nil {
						t.Fatal(err)
					}
					sleep(1)
				}
				p.Close()
				for i, got := range p.Times() {
					if got.Durations != c.want[i] {
						t.Errorf("%s %d: %+v, want %+v", got.Name, i, got.Durations, c.want[i])
					}
				}
			})
		})
	}
}

// Both workers of a stage fail, and the next stage has two workers that take the errors.
func TestErrorsOfSeveralWorkersHoldNobodyUp(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			failing := stage{Workers: 3, AsTheyCome: true,
				Work: func(_ *pipeline.Worker, i int) error { return itemError{item: i} }}
			passing := stage{Workers: 2, AsTheyCome: true}
			if _, err := drain(t.Context(), count(9), failing, passing, passing); err == nil {
				t.Error("no error")
			}
		})
	}
}
