package host

import (
	"math"

	"github.com/hopfeed/hopfeed/gds/internal/ops"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

func adam(c *ops.Call, _ int, x operands) {
	o := c.Adam
	// The bias corrections of Algorithm 1, in the order of its section 2.
	step := float64(o.Step)
	rate := float32(float64(o.LearningRate) / (1 - math.Pow(float64(o.Beta1), step)))
	root := float32(1 / math.Sqrt(1-math.Pow(float64(o.Beta2), step)))
	rest1, rest2 := 1-o.Beta1, 1-o.Beta2
	param, grad, m, v := x[0], x[1][:len(x[0])], x[2][:len(x[0])], x[3][:len(x[0])]
	for i, w := range param {
		g := grad[i] + float32(o.WeightDecay*w)
		m[i] = float32(o.Beta1*m[i]) + float32(rest1*g)
		v[i] = float32(o.Beta2*v[i]) + float32(rest2*float32(g*g))
		spread := float32(float32(math.Sqrt(float64(v[i]))) * root)
		param[i] = w - float32(rate*m[i])/(spread+o.Epsilon)
	}
}

// clipGrain is how many squares ClipNorm adds up before it adds sums.
const clipGrain = 1 << 14

func (s *stream) clipNorm() error {
	n := s.views.floats[0].cols
	sums := room(&s.scratch.losses, (n+clipGrain-1)/clipGrain)
	_ = s.loop(n, clipGrain, func(s *stream, p part) error {
		sum := 0.0
		for _, value := range s.views.floats[0].row(0, p.lo, p.hi) {
			sum += float64(value) * float64(value) // exact
		}
		s.scratch.losses[p.lo/clipGrain] = sum
		return nil
	})
	squares := 0.0
	for _, sum := range sums {
		squares += sum
	}
	if norm := math.Sqrt(squares); norm > float64(s.call.Alpha) {
		s.call.Beta = float32(float64(s.call.Alpha) / norm)
		s.each(1, n, func(s *stream, _, lo, hi int) {
			x := s.views.floats[0].row(0, lo, hi)
			kernel.Scale(x, s.call.Beta, x)
		})
	}
	return nil
}
