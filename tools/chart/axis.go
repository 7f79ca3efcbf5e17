package chart

import (
	"fmt"
	"math"
)

// Axis says how numbers are placed and written.
type Axis struct {
	Name  string // with the unit
	Log   bool
	Whole bool                 // ticks are whole numbers
	Text  func(float64) string // nil: four digits
}

func (a *Axis) text(v float64) string {
	if a.Text != nil {
		return a.Text(v)
	}
	return fmt.Sprintf("%.4g", v)
}

// extent is the range of some numbers.
type extent struct{ low, high float64 }

func nothing() extent { return extent{math.Inf(1), math.Inf(-1)} }

func (e *extent) include(values ...float64) {
	for _, v := range values {
		e.low, e.high = min(e.low, v), max(e.high, v)
	}
}

// place returns the pixel of a value, where e.low is at from and e.high at to.
func (a *Axis) place(e extent, from, to float64) func(v float64) float64 {
	scale := func(v float64) float64 { return v }
	if a.Log {
		scale = math.Log
	}
	p, q := scale(e.low), scale(e.high)
	if p == q {
		p, q = p-0.5, q+0.5
	}
	return func(v float64) float64 { return from + (to-from)*(scale(v)-p)/(q-p) }
}

// ticks are round numbers within a range, about n.
func (a *Axis) ticks(e extent, n int) (within []float64) {
	all := steps(e.low, e.high, n)
	if a.Log && e.high > 10*e.low {
		all = powers(e.low, e.high)
	}
	slack := (e.high - e.low) * 1e-9
	for _, v := range all {
		if v >= e.low-slack && v <= e.high+slack && (!a.Whole || v == math.Trunc(v)) {
			within = append(within, v)
		}
	}
	if len(within) == 0 {
		within = []float64{e.low}
	}
	return within
}

// steps are multiples of 1, 2 or 5 times a power of ten, at most n of them within the range.
func steps(low, high float64, n int) (ticks []float64) {
	raw := (high - low) / float64(n)
	if !(raw > 0) {
		return []float64{low}
	}
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= raw*(1-1e-9) {
			step *= m
			break
		}
	}
	for i := math.Floor(low / step); i*step < high+step; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks
}

// powers are 1, 2 and 5 times powers of ten within a range, or whole powers where these are many.
func powers(low, high float64) (ticks []float64) {
	factors := []float64{1, 2, 5}
	if high > 1000*low {
		factors = factors[:1]
	}
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range factors {
			if v := m * math.Pow(10, e); v >= low && v <= high {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

// ticksIn is how many ticks an axis of this width has at most.
func ticksIn(width float64) int { return max(4, min(10, int(width/40))) }

const axisHeight = 38.0

// drawXAxis draws an axis from left to right at y, with the labels that have room, and its name below.
func (c *canvas) drawXAxis(a *Axis, y, left, right float64, ticks []float64, x func(float64) float64) {
	free := 0.0
	for _, t := range ticks {
		label := a.text(t)
		half := textWidth(label) / 2
		if x(t)-half < free || x(t)+half > c.width {
			continue
		}
		free = x(t) + half + charWidth
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="axis"/>`, x(t), x(t), y, y+tickLength)
		c.text(x(t), y+17, "middle", "", label)
	}
	c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="axis"/>`, left, right, y, y)
	half := textWidth(a.Name) / 2
	c.text(max(half, min((left+right)/2, c.width-half)), y+axisHeight-5, "middle", "note", a.Name)
}
