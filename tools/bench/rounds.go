package bench

import (
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// interleave measures each of n things once a round, so that other work of the machine slows all of them alike. Each
// round begins with another one.
func interleave(p progress.Reporter, name string, rounds, n int, measure func(i, round int) error) error {
	task := p.Start(name, int64(rounds*n), progress.Items)
	defer task.Done()
	for round := range rounds {
		for i := range n {
			if err := measure((i+round*n/rounds)%n, round); err != nil {
				return err
			}
			task.Add(1)
		}
	}
	return nil
}

// meter measures clock and processor time from its start.
type meter struct {
	at  time.Time
	cpu time.Duration
}

func start() meter { return meter{time.Now(), machine.CPUTime()} }

// seconds is how long ago the start was, by the clock, and the time that all processor cores have worked since.
func (m meter) seconds() (clock, cores float64) {
	return time.Since(m.at).Seconds(), (machine.CPUTime() - m.cpu).Seconds()
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// withinNoise reports whether the ranges of two lists of times overlap, so that it may be chance which one is faster.
// Neither list may be empty.
func withinNoise(a, b []float64) bool {
	return slices.Min(a) <= slices.Max(b) && slices.Min(b) <= slices.Max(a)
}

// noiseMark follows a figure whose difference to another may be noise.
func noiseMark(withinNoise bool) string {
	if withinNoise {
		return " ~"
	}
	return ""
}
