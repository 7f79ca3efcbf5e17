package parallel

import (
	"runtime"
	"testing"
)

func TestThreadsThatComputeAreAsManyBesideOthers(t *testing.T) {
	at := runtime.GOMAXPROCS(0)
	defer func() { processors.computing = 0; runtime.GOMAXPROCS(at) }()
	for _, set := range []int{0, 3} {
		n := at
		if set > 0 {
			SetThreads(set)
			n = set
		}
		first, second := Beside(), Beside()
		for _, step := range []struct {
			allowed int
			end     func()
		}{{n + spare, first}, {n + spare, second}, {n, func() {}}} {
			if Threads() != n || runtime.GOMAXPROCS(0) != step.allowed {
				t.Errorf("%d threads compute of %d: want %d of %d", Threads(), runtime.GOMAXPROCS(0), n, step.allowed)
			}
			step.end()
		}
	}
	end := Beside()
	if SetThreads(2); Threads() != 2 || runtime.GOMAXPROCS(0) != 2+spare {
		t.Errorf("%d threads of %d", Threads(), runtime.GOMAXPROCS(0))
	}
	end()
}
