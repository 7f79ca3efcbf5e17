package tune

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// outcome has these figures; memory is the device's.
func outcome(rows float64, memory int64, valid float64) Outcome {
	return Outcome{Metric: "accuracy", Valid: &valid, RowsPerSecond: rows, PeakDeviceBytes: memory, PeakRSSBytes: 7}
}

func trialsWith(outcomes ...Outcome) (all []Trial) {
	for i, o := range outcomes {
		all = append(all, Trial{Number: i + 1, Outcome: o})
	}
	return all
}

func numbers(trials []Trial) (all []int) {
	for _, t := range trials {
		all = append(all, t.Number)
	}
	return all
}

func TestTheFrontIsWhatNothingDominatesWithinTheLimits(t *testing.T) {
	least := 0.5
	trials := trialsWith(
		outcome(100, 50, 0.9),
		outcome(100, 60, 0.9),  // more memory than 1
		outcome(200, 80, 0.8),  // faster
		outcome(50, 20, 0.7),   // smaller
		outcome(50, 20, 0.7),   // the same
		outcome(10, 90, 0.95),  // the most accurate
		outcome(900, 10, 0.4),  // too inaccurate
		outcome(900, 500, 0.9), // too large
		Outcome{Failed: "so it is"},
	)
	g := Goals{DeviceMemory: true, MaxMemory: 90, MinValid: &least}
	front := g.Front(trials)
	if got := numbers(front); !reflect.DeepEqual(got, []int{3, 1, 4, 6}) {
		t.Fatalf("front %v", got)
	}
	c := g.Choose(front)
	// Balanced by hand: logarithms of rows over [10,200], of memory over [20,90], metric over [0.7,0.95]. Trial 1 has
	// (0.77, 0.39, 0.8): the others have a goal at 0.
	if c.Fastest.Number != 3 || c.Smallest.Number != 4 || c.Balanced.Number != 1 || c.Accurate.Number != 6 {
		t.Errorf("fastest %d, smallest %d, balanced %d, accurate %d", c.Fastest.Number, c.Smallest.Number,
			c.Balanced.Number, c.Accurate.Number)
	}
	if got := numbers(Goals{DeviceMemory: true}.Front(trials)); !reflect.DeepEqual(got, []int{7, 8, 3, 1, 4, 6}) {
		t.Errorf("without limits the front is %v", got)
	}
	// By hand: trial 3 has (1, 0.08, 0.4), trial 1 (0.77, 0.39, 0.8), 4 (0.54, 1, 0), 6 (0, 0, 1).
	for want, w := range map[int]Score{3: {1, 0, 0}, 4: {0.2, 0.8, 0}, 6: {0, 0, 1}, 1: {0.4, 0.1, 0.5}} {
		if c := (Goals{DeviceMemory: true, Weights: &w}).Choose(front); c.Balanced.Number != want {
			t.Errorf("weights %v choose trial %d, want %d", w, c.Balanced.Number, want)
		}
	}
	floor := Goals{DeviceMemory: true, MinThroughput: 100}
	if got := numbers(floor.Front(trials)); !reflect.DeepEqual(got, []int{7, 8, 3, 1}) {
		t.Errorf("with 100 rows a second at least the front is %v", got)
	}
	trials[2].RowsPerProcessorSecond, trials[3].RowsPerProcessorSecond = 7, 9
	g.ProcessorTime = true
	if got := numbers(g.Front(trials)); !reflect.DeepEqual(got, []int{4, 3}) {
		t.Errorf("by the time of processors the front is %v", got)
	}
	errors := trialsWith(outcome(100, 50, 0.9))
	if errors[0].Metric, errors[0].Lower = "mse", true; g.Meets(errors[0].Outcome) {
		t.Error("an error of 0.9 is at least an accuracy of 0.5")
	}
	if one := g.Choose(front[1:2]); one.Fastest.Number != 1 || one.Smallest.Number != 1 || one.Balanced.Number != 1 {
		t.Errorf("of one trial: %+v", one)
	}
}

func TestWhatIsUnmetIsSaidWithTheNearest(t *testing.T) {
	high, higher := 0.85, 0.99
	trials := trialsWith(outcome(100, 50, 0.9), outcome(10, 30, 0.5), Outcome{Failed: "so it is"})
	const nearest = "the least memory is 30 B (trial 2, accuracy 0.5000), the best accuracy 0.9000 (trial 1, 50 B)"
	for _, g := range []Goals{
		{MaxMemory: 20}, {MinValid: &higher}, {MaxMemory: 20, MinValid: &higher}, {MaxMemory: 40, MinValid: &high},
	} {
		g.DeviceMemory = true
		if len(g.Front(trials)) != 0 || !strings.Contains(g.Unmet(trials), nearest) {
			t.Errorf("%+v: %s", g, g.Unmet(trials))
		}
	}
	fast := Goals{DeviceMemory: true, MinThroughput: 200}
	if got := fast.Unmet(trials); len(fast.Front(trials)) != 0 || !strings.Contains(got,
		"the most rows a second 100 (trial 1)") {
		t.Error(got)
	}
	if got := (Goals{}).Unmet(trials[2:]); !strings.Contains(got, "no trial has throughput") {
		t.Error(got)
	}
}

// The volume by counting cells of a grid, on which all points lie.
func TestTheHypervolumeIsThatOfTheCellsBelowPoints(t *testing.T) {
	const side = 8
	for seed := range uint64(50) {
		n := int(rng.Hash(seed, 1000)%12) + 1
		var points []Score
		for i := range n {
			var p Score
			for k := range p {
				p[k] = float64(rng.Hash(seed, uint64(3*i+k)) % (side + 1)) // 0: not above the reference
			}
			points = append(points, p)
		}
		want := 0.0
		for x := range side {
			for y := range side {
				for z := range side {
					for _, p := range points {
						if float64(x) < p[0] && float64(y) < p[1] && float64(z) < p[2] {
							want++
							break
						}
					}
				}
			}
		}
		if got := Hypervolume(points, Score{}); math.Abs(got-want) > 1e-9 {
			t.Errorf("seed %d: %v, want %v of %v", seed, got, want, points)
		}
	}
}
