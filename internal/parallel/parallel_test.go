package parallel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// span is a range that the body was called with.
type span struct{ lo, hi int64 }

func TestRangesCoverExactlyAndDoNotDependOnThreads(t *testing.T) {
	for _, c := range []struct {
		n, grain int64
		want     []span
	}{
		{0, 3, nil},
		{-1, 3, nil},
		{1, 3, []span{{0, 1}}},
		{3, 3, []span{{0, 3}}},
		{7, 3, []span{{0, 3}, {3, 6}, {6, 7}}},
		{3, 1, []span{{0, 1}, {1, 2}, {2, 3}}},
		{2, 0, []span{{0, 1}, {1, 2}}},
		{2, -5, []span{{0, 1}, {1, 2}}},
		{5, math.MaxInt64, []span{{0, 5}}},
	} {
		for _, threads := range []int{0, 1, 2, 3, 16} {
			t.Run(fmt.Sprintf("n=%d/grain=%d/threads=%d", c.n, c.grain, threads), func(t *testing.T) {
				var mu sync.Mutex
				var got []span
				if err := For(t.Context(), threads, c.n, c.grain, func(lo, hi int64) error {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, span{lo, hi})
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				slices.SortFunc(got, func(a, b span) int { return int(a.lo - b.lo) })
				if !slices.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		}
	}
}

func TestAsManyRangesRunAtOnceAsThereAreThreads(t *testing.T) {
	const threads = 4
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		release := make(chan struct{})
		go func() {
			synctest.Wait() // until all threads are blocked
			most.Store(running.Load())
			close(release)
		}()
		if err := For(t.Context(), threads, 100, 1, func(int64, int64) error {
			if now := running.Add(1); now > threads {
				t.Errorf("%d ranges run at once", now)
			}
			<-release
			running.Add(-1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if most.Load() != threads {
			t.Errorf("%d ranges ran at once, want %d", most.Load(), threads)
		}
	})
}

// There are more ranges than could ever run, so returning shows that no further
// one was started; synctest fails where a goroutine stays behind.
func TestTheFirstErrorStopsTheLoopAndWaitsForTheOthers(t *testing.T) {
	want := errors.New("broken")
	for _, threads := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running, calls atomic.Int64
				err := For(t.Context(), threads, 1<<62, 1, func(lo, _ int64) error {
					running.Add(1)
					defer running.Add(-1)
					calls.Add(1)
					if lo == 100 {
						return want
					}
					return nil
				})
				if err != want {
					t.Errorf("got the error %v", err)
				}
				if running.Load() != 0 {
					t.Error("a range is still running")
				}
				if calls.Load() < 101 || threads == 1 && calls.Load() != 101 {
					t.Errorf("%d ranges were started", calls.Load())
				}
			})
		})
	}
}

func TestOfSeveralErrorsTheFirstIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		go func() {
			synctest.Wait() // until the first error is returned, and the others wait
			close(release)
		}()
		err := For(t.Context(), 3, 3, 1, func(lo, _ int64) error {
			if lo != 1 {
				<-release
			}
			return fmt.Errorf("range %d", lo)
		})
		if err == nil || err.Error() != "range 1" {
			t.Errorf("got the error %v", err)
		}
	})
}

func TestTheEndOfTheContextStopsTheLoop(t *testing.T) {
	cause := errors.New("the user has had enough")
	for _, threads := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				var running atomic.Int64
				if err := For(ctx, threads, 1<<62, 1, func(lo, _ int64) error {
					running.Add(1)
					defer running.Add(-1)
					if lo == 100 {
						cancel(cause)
					}
					return nil
				}); err != cause {
					t.Errorf("got the error %v", err)
				}
				if running.Load() != 0 {
					t.Error("a range is still running")
				}
				if err := For(ctx, threads, 10, 1, func(int64, int64) error {
					t.Error("a range was started after the end")
					return nil
				}); err != cause {
					t.Errorf("got the error %v", err)
				}
			})
		})
	}
}
