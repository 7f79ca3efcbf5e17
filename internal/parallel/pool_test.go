package parallel

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestAPoolRunsEveryRangeOfEveryLoop(t *testing.T) {
	for _, threads := range []int{0, 1, 3} {
		c := NewPool(threads)
		for _, n := range []int64{0, 1, 7, 1000} {
			for _, grain := range []int64{0, 1, 3, 5000} {
				covered := make([]atomic.Int32, n)
				c.For(n, grain, func(lo, hi int64) {
					if hi-lo > max(grain, 1) {
						t.Errorf("a range of %d, want at most %d", hi-lo, grain)
					}
					for i := lo; i < hi; i++ {
						covered[i].Add(1)
					}
				}).Wait()
				for i := range covered {
					if covered[i].Load() != 1 {
						t.Fatalf("%d threads, n %d, grain %d: %d was in %d ranges", threads, n, grain, i,
							covered[i].Load())
					}
				}
			}
		}
		c.Close()
	}
}

func TestAPoolBeginsALoopBeforeTheOneBeforeHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewPool(2)
		blocked, second := make(chan struct{}), make(chan struct{})
		first := c.For(2, 1, func(lo, _ int64) {
			if lo == 1 {
				<-blocked
			}
		})
		c.For(1, 1, func(int64, int64) { close(second) })
		<-second
		close(blocked)
		first.Wait()
		c.Close()
	})
}
