package pipeline_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// These are the shapes that schedulers need, made of the parts of the package. Stages before and
// after do not know of them.

// fanOut passes each item to the queue of its device (MQ-GNN section IV: batch queues for each
// device).
func fanOut(p *pipeline.Pipeline, in *pipeline.Queue[int], devices, length int,
	deviceOf func(int) int) []*pipeline.Queue[int] {
	out := make([]*pipeline.Queue[int], devices)
	for d := range out {
		out[d] = pipeline.NewQueue[int](p, length)
	}
	p.Go("fan-out", func(w *pipeline.Worker) {
		for {
			item, err, ok := in.Receive(w)
			switch {
			case ok && err == nil:
				ok = out[deviceOf(item)].Send(w, item)
			case ok:
				for _, q := range out {
					q.Fail(w, err)
				}
				ok = false
			}
			if !ok {
				break
			}
		}
		for _, q := range out {
			q.Close()
		}
	})
	return out
}

// merge passes on the items of several queues in the order in which choose names these (MorphGL
// section 4.2: batches that the processor prepared, and batches that the device did). It ends when
// choose returns nil, or the queue that it names has ended.
func merge(p *pipeline.Pipeline, choose func() *pipeline.Queue[int]) *pipeline.Queue[int] {
	out := pipeline.NewQueue[int](p, 0)
	p.Go("merge", func(w *pipeline.Worker) {
		defer out.Close()
		for from := choose(); from != nil; from = choose() {
			item, err, ok := from.Receive(w)
			if !ok {
				return
			}
			if err != nil {
				out.Fail(w, err)
				return
			}
			if !out.Send(w, item) {
				return
			}
		}
	})
	return out
}

// A sampler of three workers feeds a queue for each of two devices, which train side by side; every
// device gets its batches in order, and all get the error.
func TestAStageCanFeedAQueueForEachDevice(t *testing.T) {
	const batches, devices = 20, 2
	for _, failsAt := range []int{-1, 0, 7} {
		synctest.Test(t, func(t *testing.T) {
			p := pipeline.New(t.Context())
			defer p.Close()
			sampled := pipeline.Feed(p, "seeds", count(batches)).Then(stage{Name: "sample", Workers: 3,
				Work: func(_ *pipeline.Worker, i int) error {
					sleep(i % 5)
					if i == failsAt {
						return itemError{0, i}
					}
					return nil
				}})
			got, errs := make([][]int, devices), make([]error, devices)
			var training sync.WaitGroup
			for d, q := range fanOut(p, sampled, devices, 2, func(i int) int { return i % devices }) {
				loaded := q.Then(stage{Name: fmt.Sprintf("transfer to device %d", d), Queue: 1}).All()
				training.Go(func() {
					for i, err := range loaded {
						if errs[d] = err; err == nil {
							got[d] = append(got[d], i)
							sleep(1 + d)
						}
					}
				})
			}
			training.Wait()
			for d := range devices {
				var want []int
				for i := d; i < batches && (failsAt < 0 || i < failsAt); i += devices {
					want = append(want, i)
				}
				if !slices.Equal(got[d], want) || (errs[d] != nil) != (failsAt >= 0) {
					t.Errorf("failing at %d, device %d: %v, then %v; want %v", failsAt, d, got[d], errs[d], want)
				}
			}
		})
	}
}

// A device that fails ends the pipeline for all.
func TestWhenOneDeviceFailsNoneIsLeftWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline.New(t.Context())
		queues := fanOut(p, pipeline.Feed(p, "seeds", count(100)), 2, 1, func(i int) int { return i % 2 })
		var devices sync.WaitGroup
		for d, q := range queues {
			loop := q.All()
			devices.Go(func() {
				for i, err := range loop {
					if d == 0 && i == 4 {
						p.Close()
						return
					}
					if err != nil && d == 0 {
						t.Error(err)
					}
				}
			})
		}
		devices.Wait()
	})
}

// Two producers prepare batches at their own pace, and three of four that are trained are the
// second's. The order does not depend on the paces.
func TestTwoProducersMergeInTheOrderThatIsChosen(t *testing.T) {
	broken := errors.New("broken")
	for _, pace := range [][2]int{{1, 1}, {9, 2}, {0, 5}} {
		for _, failsAt := range []int{-1, 5} {
			synctest.Test(t, func(t *testing.T) {
				p := pipeline.New(t.Context())
				defer p.Close()
				produce := func(name string, workers, seconds, sign int) *pipeline.Queue[int] {
					return pipeline.Feed(p, name, count(100)).Then(stage{Name: name, Workers: workers, Queue: 3,
						Work: func(_ *pipeline.Worker, i int) error {
							sleep(seconds)
							if sign > 0 && i == failsAt {
								return broken
							}
							return nil
						}})
				}
				cpu, gpu := produce("processor", 2, pace[0], -1), produce("device", 1, pace[1], 1)
				chosen := 0
				merged := merge(p, func() *pipeline.Queue[int] {
					if chosen++; chosen > 40 {
						return nil
					}
					if chosen%4 == 1 {
						return cpu
					}
					return gpu
				})
				var got []int
				var err error
				for i, e := range merged.Then(stage{Name: "train"}).All() {
					if err = e; e == nil {
						got = append(got, i)
					}
				}
				var want []int
				next := [2]int{}
				for k := range 40 {
					from := 1
					if k%4 == 0 {
						from = 0
					}
					if from == 1 && next[from] == failsAt {
						break
					}
					want = append(want, next[from])
					next[from]++
				}
				if !slices.Equal(got, want) || (err == broken) != (failsAt >= 0) {
					t.Errorf("paces %v, failing at %d: %v, then %v; want %v", pace, failsAt, got, err, want)
				}
			})
		}
	}
}

// Dual-buffer scheduling (MorphGL Algorithms 1 to 4) chooses by how full the two buffers are.
func TestAMergeCanChooseByWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline.New(t.Context())
		defer p.Close()
		produce := func(seconds, first int) *pipeline.Queue[int] {
			return pipeline.Feed(p, "", func(yield func(int) bool) {
				for i := first; yield(i); i++ {
				}
			}).Then(stage{Queue: 2, Work: func(*pipeline.Worker, int) error { sleep(seconds); return nil }})
		}
		slow, fast := produce(10, 0), produce(3, 100)
		merged := merge(p, func() *pipeline.Queue[int] {
			if slow.Len() > 0 { // the rarer ones first
				return slow
			}
			return fast
		})
		var got []int
		start := time.Now()
		for i, err := range merged.All() {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, i); len(got) == 12 {
				break
			}
		}
		// Of the slow producer's, which come after 10 and 20 seconds, each is next once a fast one
		// that was waited for has come: after 12 and 21.
		if want := []int{100, 101, 102, 103, 0, 104, 105, 106, 1, 107, 108, 109}; !slices.Equal(got, want) {
			t.Errorf("in %v: %v, want %v", time.Since(start), got, want)
		}
	})
}
