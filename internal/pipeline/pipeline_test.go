package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/internal/pipeline"
)

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

func feed(p *pipeline.Pipeline, items iter.Seq[int]) *pipeline.Queue[int] {
	out := pipeline.NewQueue[int](p, 0)
	p.Go("feed", func(w *pipeline.Worker) {
		defer out.Close()
		for i := range items {
			if !out.Send(w, i) {
				return
			}
		}
	})
	return out
}

// stage is one goroutine that works on items and passes them on. An error takes the place of its item.
type stage struct {
	queue int
	work  func(*pipeline.Worker, int) error
}

func chain(p *pipeline.Pipeline, items iter.Seq[int], stages []stage) *pipeline.Queue[int] {
	in := feed(p, items)
	for k, s := range stages {
		from, out := in, pipeline.NewQueue[int](p, s.queue)
		p.Go(fmt.Sprint("stage ", k), func(w *pipeline.Worker) {
			defer out.Close()
			for {
				item, err, ok := from.Receive(w)
				if ok && err == nil {
					err = s.work(w, item)
				}
				if !ok || err != nil && out.Fail(w, err) || err != nil || !out.Send(w, item) {
					return
				}
			}
		})
		in = out
	}
	return in
}

func sleep(seconds int) { time.Sleep(time.Duration(seconds) * time.Second) }

// itemError says which stage failed on which item.
type itemError struct{ stage, item int }

func (e itemError) Error() string { return fmt.Sprintf("stage %d, item %d", e.stage, e.item) }

// randomStages take random times; each fails on some items, or none. They draw nothing while they run, so the same
// seed always means the same.
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
		stages = append(stages, stage{r.IntN(4), func(_ *pipeline.Worker, i int) error {
			sleep(takes[i])
			seen[s][i]++
			if failing[i] {
				return itemError{s, i}
			}
			return nil
		}})
	}
	return stages, fails
}

// Whatever the stages are, items pass each of them once and come out in order, up to the first that a stage fails on;
// its error follows. Nothing is left, wherever the loop or the context ends.
func TestAnyChainGivesItsItemsInOrderAndThenTheFirstError(t *testing.T) {
	enough := errors.New("enough")
	for seed := range uint64(100) {
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

// Workers take each item once, with a number, and so memory, of their own. The fastest is first.
func TestWorkersServeItemsAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline.New(t.Context())
		defer p.Close()
		in, out := pipeline.NewQueue[int](p, 30), pipeline.NewQueue[int](p, 30)
		for i := range 30 {
			in.Put(i)
		}
		memory := make([]int, 4)
		in.Serve("work", len(memory), func(w *pipeline.Worker, i int) {
			memory[w.Index()] = i
			sleep(10 - i%4)
			if memory[w.Index()] != i {
				t.Errorf("the memory of worker %d was written to by another", w.Index())
			}
			out.Put(i)
		})
		var got []int
		for i, err := range out.All() {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, i); len(got) == 30 {
				break
			}
		}
		if first := got[:4]; !slices.Equal(first, []int{3, 2, 1, 0}) {
			t.Errorf("first %v", first)
		}
		if slices.Sort(got); !slices.Equal(got, slices.Collect(count(30))) {
			t.Error(got)
		}
	})
}

// A failing stage does not wait for items that never come.
func TestAnErrorIsToldWhileTheFeedStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		one := func(yield func(int) bool) {
			if yield(0) {
				<-ctx.Done()
			}
		}
		failing := stage{work: func(*pipeline.Worker, int) error { return itemError{} }}
		for _, err := range chain(pipeline.New(ctx), one, []stage{failing}).All() {
			if err != (itemError{}) {
				t.Errorf("error %v", err)
			}
		}
	})
}

// With one item worked on and two places to wait, three items are on their way, and no more.
func TestQueuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		p := pipeline.New(t.Context())
		defer p.Close()
		q := chain(p, func(yield func(int) bool) {
			for ; yield(begun); begun++ {
			}
		}, []stage{{queue: 2, work: func(*pipeline.Worker, int) error { return nil }}})
		synctest.Wait()
		if want := 3; begun != want {
			t.Errorf("%d items were passed to the stage, want %d", begun, want)
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

// A stage feeds a queue for each of two devices, which train side by side: each gets its batches in order, and all get
// the error. One that leaves ends the pipeline for all.
func TestAStageCanFeedAQueueForEachDevice(t *testing.T) {
	const batches, devices = 20, 2
	for _, c := range []struct{ failsAt, leavesAt int }{{-1, -1}, {0, -1}, {7, -1}, {-1, 4}} {
		synctest.Test(t, func(t *testing.T) {
			p := pipeline.New(t.Context())
			defer p.Close()
			queues := make([]*pipeline.Queue[int], devices)
			for d := range queues {
				queues[d] = pipeline.NewQueue[int](p, 2)
			}
			p.Go("sample", func(w *pipeline.Worker) {
				for i := range batches {
					sleep(i % 5)
					if i == c.failsAt {
						for _, q := range queues {
							q.Fail(w, itemError{0, i})
						}
						break
					}
					if !queues[i%devices].Send(w, i) {
						break
					}
				}
				for _, q := range queues {
					q.Close()
				}
			})
			got, errs := make([][]int, devices), make([]error, devices)
			var training sync.WaitGroup
			for d, q := range queues {
				batches := q.All()
				training.Go(func() {
					for i, err := range batches {
						if errs[d] = err; err == nil {
							got[d] = append(got[d], i)
							sleep(1 + d)
						}
						if i == c.leavesAt {
							p.Close()
							return
						}
					}
				})
			}
			training.Wait()
			for d := range devices {
				var want []int
				for i := d; i < batches && (c.failsAt < 0 || i < c.failsAt); i += devices {
					want = append(want, i)
				}
				left := c.leavesAt >= 0
				if !left && !slices.Equal(got[d], want) || (errs[d] != nil) != (c.failsAt >= 0 || left && d == 1) {
					t.Errorf("%+v, device %d: %v, then %v; want %v", c, d, got[d], errs[d], want)
				}
			}
		})
	}
}

type after time.Duration

func (a after) Wait(ctx context.Context) error {
	return pipeline.Until(time.Now().Add(time.Duration(a))).Wait(ctx)
}

func TestWhatAWorkerWaitsForEndsWithThePipeline(t *testing.T) {
	forever := after(1 << 60)
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
			p := pipeline.New(ctx)
			defer p.Close()
			var got []int
			var err error
			for i, e := range chain(p, count(9), []stage{{work: func(w *pipeline.Worker, i int) error {
				if i < 2 || wait == nil {
					return nil
				}
				return wait(w)
			}}, {work: func(*pipeline.Worker, int) error {
				if wait == nil {
					sleep(4000)
				}
				return nil
			}}}).All() {
				if err = e; e == nil {
					got = append(got, i)
				}
			}
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
		for range feed(p, count(9)).All() {
			panic("body")
		}
	})
}

// With time that stands still while anything runs, the durations are exact. The stages take 3 (of them 2 for an event)
// and 1 seconds (for room) for each of 10 items, the loop 1; the first stage is the bottleneck and never rests.
func TestDurationsSayWhereTheTimeWent(t *testing.T) {
	const s = time.Second
	synctest.Test(t, func(t *testing.T) {
		p := pipeline.New(t.Context())
		in, middle, out := pipeline.NewQueue[int](p, 10), pipeline.NewQueue[int](p, 0), pipeline.NewQueue[int](p, 0)
		in.Serve("first", 1, func(w *pipeline.Worker, i int) {
			sleep(1)
			_ = w.Wait(after(2 * s))
			middle.Send(w, i)
		})
		middle.Serve("second", 1, func(w *pipeline.Worker, i int) {
			_ = w.WaitForRoom(after(s))
			out.Send(w, i)
		})
		for i := range 10 {
			in.Put(i)
		}
		for i, err := range out.All() {
			if err != nil {
				t.Fatal(err)
			}
			if sleep(1); i == 9 {
				break
			}
		}
		p.Close()
		for i, want := range []pipeline.Durations{
			{Work: 10 * s, Waiting: 20 * s, Idle: s + s}, // the last item leaves at 30, and the loop ends at 32
			{Blocked: 10 * s, Idle: (3+9*2)*s + s},
			{Work: 10 * s, Idle: (4 + 9*2) * s},
		} {
			if got := p.Times()[i]; got.Durations != want {
				t.Errorf("%s: %+v, want %+v", got.Name, got.Durations, want)
			}
		}
	})
}
