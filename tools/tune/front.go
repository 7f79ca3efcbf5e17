package tune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Goals say what a search is for: much throughput, little memory and a good validation metric, within limits.
type Goals struct {
	// ProcessorTime: throughput is rows by the time of processors, which other work on the machine changes
	// little; but waiting for a link or a disk does not count, nor what runs beside what.
	ProcessorTime bool
	DeviceMemory  bool     // memory is the device's peak, not the process's resident peak
	MaxMemory     int64    // bytes; 0: any
	MinValid      *float64 // least validation metric; nil: any. No metric meets it where less is better
	MinThroughput float64  // least training rows a second; 0: any
	// Weights are how much throughput, memory and metric count (a3gnn §III-C, w); nil: a search looks for the whole front.
	Weights *Score
}

// Throughput is the training rows a second that count.
func (g Goals) Throughput(o Outcome) float64 {
	if g.ProcessorTime {
		return o.RowsPerProcessorSecond
	}
	return o.RowsPerSecond
}

// Memory is the peak that counts, in bytes.
func (g Goals) Memory(o Outcome) int64 {
	if g.DeviceMemory {
		return o.PeakDeviceBytes
	}
	return o.PeakRSSBytes
}

// Measured tells whether an outcome has all three figures.
func (g Goals) Measured(o Outcome) bool {
	return o.Valid != nil && g.Throughput(o) > 0 && g.Memory(o) > 0
}

// Meets tells whether an outcome has all three figures, within the limits (a3gnn §III-C).
func (g Goals) Meets(o Outcome) bool {
	return g.Measured(o) && (g.MaxMemory == 0 || g.Memory(o) <= g.MaxMemory) &&
		(g.MinValid == nil || !o.Lower && *o.Valid >= *g.MinValid) && g.Throughput(o) >= g.MinThroughput
}

// Score is an outcome as three numbers, where more is better: log(rows a second), -log(memory), and the metric, negated
// where less of it is better.
type Score [3]float64

// Score is the score of an outcome that is Measured.
func (g Goals) Score(o Outcome) Score {
	valid := *o.Valid
	if o.Lower {
		valid = -valid
	}
	return Score{math.Log(g.Throughput(o)), -math.Log(float64(g.Memory(o))), valid}
}

// dominates tells whether a is nowhere worse than b, and somewhere better.
func (a Score) dominates(b Score) bool {
	return a != b && a[0] >= b[0] && a[1] >= b[1] && a[2] >= b[2]
}

// Front is the Pareto front of trials: no other trial within the limits dominates them. They are within the limits, by
// falling throughput. Among equals it has the first.
func (g Goals) Front(trials []Trial) (front []Trial) {
	within := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return !g.Meets(t.Outcome) })
	for _, t := range within {
		s := g.Score(t.Outcome)
		if !slices.ContainsFunc(within, func(u Trial) bool {
			other := g.Score(u.Outcome)
			return other.dominates(s) || other == s && u.Number < t.Number
		}) {
			front = append(front, t)
		}
	}
	slices.SortStableFunc(front, func(a, b Trial) int {
		return cmp.Compare(g.Throughput(b.Outcome), g.Throughput(a.Outcome))
	})
	return front
}

// Choice is the ends of a front and a point between them (a3gnn §IV-B).
type Choice struct {
	Fastest  Trial // T*: of the most throughput
	Smallest Trial // M*: of the least memory
	Accurate Trial // of the best metric
	// Balanced is the trial nearest the point with the best of each number, scaled from 0 to 1 over the front; with
	// weights, the trial with the largest weighted sum of these.
	Balanced Trial
}

// Choose picks from a front with at least one trial.
func (g Goals) Choose(front []Trial) Choice {
	var scores []Score
	for _, t := range front {
		scores = append(scores, g.Score(t.Outcome))
	}
	scale := scaleOf(scores)
	distance := func(t Trial) (square float64) {
		unit := scale.unit(g.Score(t.Outcome))
		if g.Weights != nil {
			return -unit.weighted(*g.Weights)
		}
		for _, v := range unit {
			square += (1 - v) * (1 - v)
		}
		return square
	}
	memory := func(a, b Trial) int { return cmp.Compare(g.Memory(a.Outcome), g.Memory(b.Outcome)) }
	balance := func(a, b Trial) int { return cmp.Compare(distance(a), distance(b)) }
	return Choice{front[0], slices.MinFunc(front, memory), *Best(front), slices.MinFunc(front, balance)}
}

// Unmet says why no trial is within the limits: how near trials have come to each.
func (g Goals) Unmet(trials []Trial) string {
	measured := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return !g.Measured(t.Outcome) })
	if len(measured) == 0 {
		return "no trial has throughput, memory and a validation metric"
	}
	c := g.Choose(measured)
	least, best := c.Smallest, c.Accurate
	text := fmt.Sprintf("no trial is within the limits: the least memory is %s (trial %d, %s %.4f), the best %s %.4f "+
		"(trial %d, %s)", units.Bytes(g.Memory(least.Outcome)), least.Number, least.Metric, *least.Valid, best.Metric,
		*best.Valid, best.Number, units.Bytes(g.Memory(best.Outcome)))
	if g.MinThroughput > 0 {
		fastest := slices.MaxFunc(measured, func(a, b Trial) int {
			return cmp.Compare(g.Throughput(a.Outcome), g.Throughput(b.Outcome))
		})
		text += fmt.Sprintf(", the most rows a second %.0f (trial %d)", g.Throughput(fastest.Outcome), fastest.Number)
	}
	return text
}

// weighted is the sum of the numbers, each times its weight.
func (a Score) weighted(weights Score) (sum float64) {
	for k, v := range a {
		sum += weights[k] * v
	}
	return sum
}

type scale struct{ low, high Score }

func scaleOf(scores []Score) scale {
	s := scale{scores[0], scores[0]}
	for _, v := range scores {
		for k := range v {
			s.low[k], s.high[k] = min(s.low[k], v[k]), max(s.high[k], v[k])
		}
	}
	return s
}

// unit brings the range of each number to [0,1]; a number that is always the same is 1.
func (s scale) unit(v Score) (u Score) {
	for k := range v {
		u[k] = 1
		if s.high[k] > s.low[k] {
			u[k] = (v[k] - s.low[k]) / (s.high[k] - s.low[k])
		}
	}
	return u
}

// Hypervolume is the volume that points dominate above a reference point, where more is better in all three numbers.
// A point that is not above the reference counts nothing.
func Hypervolume(points []Score, reference Score) (volume float64) {
	above := slices.DeleteFunc(slices.Clone(points), func(p Score) bool {
		return p[0] <= reference[0] || p[1] <= reference[1] || p[2] <= reference[2]
	})
	slices.SortFunc(above, func(a, b Score) int { return cmp.Compare(b[2], a[2]) })
	// From the top, slice by slice: between two values of the last number, the area that the points above dominate
	// in the other two.
	var staircase []Score // not dominated in the first two; the first falls, the second grows
	for i, p := range above {
		staircase = append(staircase, p)
		slices.SortFunc(staircase, func(a, b Score) int {
			return cmp.Or(cmp.Compare(b[0], a[0]), cmp.Compare(b[1], a[1]))
		})
		top, area := reference[1], 0.0
		kept := staircase[:0]
		for _, q := range staircase {
			if q[1] > top {
				area += (q[0] - reference[0]) * (q[1] - top)
				top = q[1]
				kept = append(kept, q)
			}
		}
		staircase = kept
		below := reference[2]
		if i+1 < len(above) {
			below = above[i+1][2]
		}
		volume += area * (p[2] - below)
	}
	return volume
}

// reference is the reference point of hypervolumes, on the scale of a front.
var reference = Score{-0.1, -0.1, -0.1}

// VolumeOn returns a function for the hypervolume of trials within the limits, on the scale of a front: each number of
// its scores goes from 0 to 1, and the reference point is at -0.1.
func (g Goals) VolumeOn(front []Trial) func(trials []Trial) float64 {
	scores := func(trials []Trial) (all []Score) {
		for _, t := range trials {
			if g.Meets(t.Outcome) {
				all = append(all, g.Score(t.Outcome))
			}
		}
		return all
	}
	s := scaleOf(scores(front))
	return func(trials []Trial) float64 {
		points := scores(trials)
		for i, p := range points {
			points[i] = s.unit(p)
		}
		return Hypervolume(points, reference)
	}
}
