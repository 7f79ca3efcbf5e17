package trainer

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/loader"
)

func TestStepsAllocateNothing(t *testing.T) {
	steps := 10
	if testdevice.GPU { // which is software in tests: a step takes long
		steps = 3
	}
	for _, c := range gradientCases {
		t.Run(c.name, func(t *testing.T) {
			const rows = 40
			c.spec.Features, c.spec.Classes = 3, 4
			dev := openDevice(t, host.Options{Threads: 2})
			n, err := newNetwork(dev, c.spec, rows, taskFor(t, true))
			if err != nil {
				t.Fatal(err)
			}
			defer n.close()
			n.submission.grouper = nil // a group is of a closure
			data := noiseFor(1, rows+n.blocks*toyMoreSources, c.spec)
			data.layers, data.labels = n.blocks, data.labels[:rows]
			alone := group{ranks: []*network{n}}
			_, err = alone.eachBatch(t.Context(), []Epocher{data.feed(dev, rows)}, 0, 0,
				func(n *network, b *loader.Batch) {
					step := 0
					// The queue of the stream grows until it has room for what is behind: see that it ends.
					count := 1.0
					for range 5 {
						if count = testing.AllocsPerRun(steps, func() {
							step++
							n.trainBatch(b, uint64(step), stepOptions{number: step, learningRate: 0.01})
							n.evaluateBatch(b)
						}); count == 0 {
							break
						}
					}
					if err := n.stream.Synchronize(t.Context()); err != nil {
						t.Error(err)
					}
					if count > 0 {
						t.Errorf("%v allocations in a step", count)
					}
				}, nil)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
