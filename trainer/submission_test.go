package trainer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/loader"
)

// pacedGrouper is a stream of a host device on which a step takes one time by itself and another in a group.
type pacedGrouper struct {
	gds.Stream
	alone, grouped time.Duration
	open           bool
	begun          int
	failing        error // of EndGroup
}

func (s *pacedGrouper) BeginGroup() error { s.open = true; s.begun++; return nil }
func (s *pacedGrouper) EndGroup() error   { s.open = false; return s.failing }

func (s *pacedGrouper) step() {
	if s.open {
		time.Sleep(s.grouped)
		return
	}
	time.Sleep(s.alone)
}

// The time is a synctest bubble's.
func TestStepsAreSubmittedInTheWayThatTakesLessTime(t *testing.T) {
	broken := errors.New("no graphs today")
	for _, c := range []struct {
		name           string
		alone, grouped time.Duration
		failing        error
		groups         int // of 1000 steps
		want           string
	}{
		{"groups are faster", 10 * time.Millisecond, 5 * time.Millisecond, nil,
			1000 - trialWarmUp - trialRounds*(trialSteps+1),
			"submitted as graphs: a step took 10 ms one by one, and 5 ms as a graph"},
		{"groups are hardly faster", 100 * time.Millisecond, 98 * time.Millisecond, nil, trialRounds * (trialSteps + 1),
			"submitted one by one: a step took 100 ms one by one, and 98 ms as a graph"},
		{"groups are slower", time.Millisecond, 2 * time.Millisecond, nil, trialRounds * (trialSteps + 1),
			"submitted one by one"},
		{"there are no groups after all", 10 * time.Millisecond, 5 * time.Millisecond, broken, 1,
			"one by one: no graphs today"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := host.New(host.Options{})
				if err != nil {
					t.Fatal(err)
				}
				stream, err := d.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				g := &pacedGrouper{Stream: stream, alone: c.alone, grouped: c.grouped, failing: c.failing}
				s, done := newSubmission(g), 0
				for range 1000 {
					if s.grouper == nil { // as trainBatch does
						done++
						continue
					}
					s.run(g, func() {
						g.step()
						if !g.open || g.failing == nil {
							done++
						}
					})
				}
				if done != 1000 || g.begun != c.groups || !strings.Contains(s.reason, c.want) {
					t.Errorf("%d steps, %d groups (want %d): %s", done, g.begun, c.groups, s.reason)
				}
				if err := errors.Join(stream.Close(), d.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Steps of batches of several sizes, one by one and all as groups.
func TestGroupsComputeTheSameBits(t *testing.T) {
	for _, c := range gradientCases {
		t.Run(c.name, func(t *testing.T) {
			const rows = 23
			c.spec.Features, c.spec.Classes = 3, 4
			var want [2][]float32
			for grouped := range 2 {
				dev := openDevice(t, host.Options{Threads: 2})
				n, err := newNetwork(dev, c.spec, rows, taskFor(t, true))
				if err != nil {
					t.Fatal(err)
				}
				if n.submission.grouper == nil {
					_ = n.close()
					t.Skip("for devices that take graphs")
				}
				if n.submission.reason = "the test wants groups"; grouped == 0 {
					n.submission.grouper = nil
				}
				if err := n.upload(n.params.value, n.params.initial(1)); err != nil {
					t.Fatal(err)
				}
				data := noiseFor(1, rows+n.blocks*toyMoreSources, c.spec)
				data.layers, data.labels = n.blocks, data.labels[:rows]
				step := 0
				for _, batchRows := range []int{rows, 5, 9} {
					alone := group{ranks: []*network{n}}
					_, err = alone.eachBatch(t.Context(), []Epocher{data.feed(dev, batchRows)}, 0, 0,
						func(n *network, b *loader.Batch) {
							step++
							n.trainBatch(b, uint64(step), stepOptions{number: step, learningRate: 0.01 / float64(step),
								clip: float64(step % 2)})
						}, nil)
					if err != nil {
						t.Fatal(err)
					}
				}
				var got [2][]float32
				for i, vector := range []gds.Tensor{n.params.value, n.lossSum} {
					if got[i], err = n.download(vector); err != nil {
						t.Fatal(err)
					}
				}
				if err := n.close(); err != nil {
					t.Error(err)
				}
				if grouped == 0 {
					want = got
				} else if !slices.Equal(got[0], want[0]) || !slices.Equal(got[1], want[1]) {
					t.Errorf("%d steps as groups end with the loss %v, one by one with %v", step, got[1], want[1])
				}
			}
		})
	}
}
