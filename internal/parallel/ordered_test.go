package parallel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

func TestWhatIsFilledInParallelComesInOrder(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 1000} {
		for _, threads := range []int{0, 1, 3, 50} {
			var made, at atomic.Int64
			var got, want []int64
			err := Ordered(context.Background(), threads, n,
				func() *int64 { made.Add(1); return new(int64) },
				func(k int64, b *int64) (*int64, error) {
					if at.Add(1) > int64(max(threads, 1)) {
						t.Errorf("more than %d at a time", threads)
					}
					*b = k * k
					at.Add(-1)
					return b, nil
				},
				func(b *int64) error { got = append(got, *b); return nil })
			for k := range n {
				want = append(want, k*k)
			}
			if err != nil || !slices.Equal(got, want) || made.Load() > int64(max(threads, 1))+1 {
				t.Errorf("%d by %d threads, %d buffers: %v, %v", n, threads, made.Load(), got, err)
			}
		}
	}
}

func TestOrderedEndsWithTheFirstErrorInOrder(t *testing.T) {
	for _, threads := range []int{1, 4} {
		emitted := 0
		err := Ordered(context.Background(), threads, 1000, func() struct{} { return struct{}{} },
			func(k int64, _ struct{}) (int64, error) {
				if k >= 20 {
					return 0, fmt.Errorf("fill %d", k)
				}
				return k, nil
			},
			func(int64) error { emitted++; return nil })
		if err == nil || err.Error() != "fill 20" || emitted != 20 {
			t.Errorf("%d threads: %v after %d", threads, err, emitted)
		}
	}
	stop := errors.New("no more")
	err := Ordered(context.Background(), 2, 1000, func() struct{} { return struct{}{} },
		func(k int64, _ struct{}) (int64, error) { return k, nil },
		func(k int64) error {
			if k == 10 {
				return stop
			}
			return nil
		})
	if err != stop {
		t.Errorf("emit: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	err = Ordered(ctx, 2, 1_000_000, func() struct{} { return struct{}{} },
		func(k int64, _ struct{}) (int64, error) { return k, nil },
		func(k int64) error {
			if k == 10 {
				cancel(stop)
			}
			return nil
		})
	if err != stop {
		t.Errorf("cancelled: %v", err)
	}
}

func TestOrderedUsesNoOtherBuffersThanItIsGiven(t *testing.T) {
	for _, buffers := range [][]*atomic.Int64{{{}}, {{}, {}, {}}} {
		next := int64(0)
		err := OrderedIn(context.Background(), 4, 100, buffers,
			func(k int64, b *atomic.Int64) (*atomic.Int64, error) {
				if b.Swap(k+1) != 0 {
					t.Error("a buffer is filled before what it held is emitted")
				}
				return b, nil
			},
			func(b *atomic.Int64) error {
				if next++; b.Swap(0) != next {
					t.Errorf("item %d came as another", next-1)
				}
				return nil
			})
		if err != nil || next != 100 {
			t.Errorf("%d buffers: %d items, %v", len(buffers), next, err)
		}
	}
}
