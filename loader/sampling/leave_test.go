package sampling

import (
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Epochs that end early leave their pinned memory and their jobs to the next epoch: a loader has no more of them than
// batches on their way.
func TestEpochsThatAreLeftEarlyReuseTheirMemory(t *testing.T) {
	rules := schedule.Rules{Workers: 3, CPUBuffer: 9, GPUBuffer: 3, ByGPU: func(int) bool { return false }}
	most := Buffers(rules.CPUBuffer, rules.GPUBuffer)
	for _, scheduled := range []bool{false, true} {
		t.Run(fmt.Sprintf("scheduled=%t", scheduled), func(t *testing.T) {
			b := newBench(t, toy, true, false)
			m := b.method("neighbor", Options{Fanouts: []int{3, 2}})
			l := b.open(LoaderOptions{Labels: b.labels, Buffers: most})
			s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 2, Order: chunk.Shuffled})
			b.must(err)
			if rules.Batches, rules.CPUBatches = s.Batches(), s.Batches(); scheduled {
				s.SetSchedule(&Schedule{Rules: func(int, int) schedule.Rules { return rules }})
			}
			stream, taken := b.stream(), 2
			for e := range 12 {
				batches := 0
				for _, err := range s.EpochFrom(t.Context(), stream, e, 0) {
					b.must(err)
					if batches++; batches == taken {
						break
					}
				}
				if len(l.pinned.free) != len(l.pinned.all) || len(l.jobs.free) != len(l.jobs.all) {
					t.Fatalf("epoch %d: %d of %d pinned buffers and %d of %d jobs are free", e, len(l.pinned.free),
						len(l.pinned.all), len(l.jobs.free), len(l.jobs.all))
				}
			}
			if len(l.pinned.all) > most || len(l.jobs.all) > MostSamples(rules.Workers, most) {
				t.Errorf("%d pinned buffers and %d jobs for %d buffers", len(l.pinned.all), len(l.jobs.all), most)
			}
		})
	}
}
