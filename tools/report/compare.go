package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/trainer"
)

// point is a training in the chart of accuracy against epoch time.
type point struct {
	name, color string
	sampled     bool    // its model reads a graph
	seconds     float64 // of an epoch of training
	trainer.Spread
}

// trainEpochSeconds is the median time of an epoch without validation, 0 if none has ended.
func (r *Run) trainEpochSeconds() float64 {
	var seconds []float64
	for _, e := range r.History {
		seconds = append(seconds, e.TrainSeconds)
	}
	if len(seconds) == 0 {
		return 0
	}
	slices.Sort(seconds)
	return (seconds[(len(seconds)-1)/2] + seconds[len(seconds)/2]) / 2
}

// points are the trainings that have a test metric and an epoch, by epoch time.
func points(runs []Run) (all []point) {
	for i, r := range runs {
		p := point{name: r.Name, color: color(i), seconds: r.trainEpochSeconds()}
		aggregation, err := trainer.AggregationOf(r.Spec.Model)
		p.sampled = err == nil && aggregation != ""
		if test := r.figures().Test; test != nil && p.seconds > 0 {
			p.Spread = *test
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b point) int { return cmp.Compare(a.seconds, b.seconds) })
	return all
}

// frontier are the points, of those in order of epoch time, that are better than all faster ones
// (preprop-gnn section 6.1).
func frontier(all []point, lower bool) (best []point) {
	for _, p := range all {
		n := len(best)
		switch {
		case n == 0 || (p.Mean > best[n-1].Mean) != lower && p.Mean != best[n-1].Mean:
			if n > 0 && p.seconds == best[n-1].seconds {
				best = best[:n-1]
			}
			best = append(best, p)
		}
	}
	return best
}

// tradeoff draws the test metric of trainings against the time of an epoch (preprop-gnn Figures 7, 11).
func tradeoff(runs []Run) template.HTML {
	metric := runs[0].Options.Metric
	title := "Test " + metric + " against the time of an epoch"
	var c canvas
	all := points(runs)
	same := !slices.ContainsFunc(runs, func(r Run) bool { return r.Options.Metric != metric })
	switch {
	case !same:
		title = "Test metric against the time of an epoch"
		c.text(left, top+20, "start", "label", "The trainings have different metrics.")
	case len(all) < 2:
		c.text(left, top+20, "start", "label", "Fewer than two trainings have been tested.")
	}
	c.text(0, 16, "start", "title", title)
	if !same || len(all) < 2 {
		return c.html(top+40, title)
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range all {
		low, high = min(low, p.Mean-p.Std), max(high, p.Mean+p.Std)
	}
	if low == high {
		low, high = low-0.005, high+0.005
	}
	yTicks := steps(low, high, 6)
	low, high = min(low, yTicks[0]), max(high, yTicks[len(yTicks)-1])
	margin := (high - low) / 20 // for the points
	low, high = low-margin, high+margin
	first, last := all[0].seconds/1.3, all[len(all)-1].seconds*1.3
	x := func(v float64) float64 {
		return left + (chartWidth-left-right)*(math.Log(v)-math.Log(first))/(math.Log(last)-math.Log(first))
	}
	y := func(v float64) float64 { return lineHeight - bottom - (lineHeight-top-bottom)*(v-low)/(high-low) }
	for _, t := range yTicks {
		c.add(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" class="grid"/>`, left, chartWidth-right, y(t), y(t))
		c.text(left-8, y(t)+4, "end", "label", fmt.Sprintf("%.4g", t))
	}
	for _, t := range powers(first, last) {
		if t >= first && t <= last {
			c.add(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="axis"/>`, x(t), x(t), lineHeight-bottom, lineHeight-bottom+4)
			c.text(x(t), lineHeight-bottom+18, "middle", "label", duration(t))
		}
	}
	c.add(`<line x1="%d" x2="%d" y1="%d" y2="%d" class="axis"/>`, left, chartWidth-right, lineHeight-bottom, lineHeight-bottom)
	c.text((left+chartWidth-right)/2, lineHeight-4, "middle", "label", "an epoch of training")
	var line strings.Builder
	for _, p := range frontier(all, trainer.LowerIsBetter(metric)) {
		fmt.Fprintf(&line, "%.1f,%.1f ", x(p.seconds), y(p.Mean))
	}
	c.add(`<polyline points="%s" stroke="#888" stroke-dasharray="5 4" class="curve"/>`, line.String())
	var taken []box
	for _, p := range all {
		taken = append(taken, box{x(p.seconds) - 8, y(p.Mean) - 8, x(p.seconds) + 8, y(p.Mean) + 8})
	}
	for _, p := range all {
		at, mid := x(p.seconds), y(p.Mean)
		if p.Std > 0 {
			c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s"/>`, at, at, y(p.Mean-p.Std), y(p.Mean+p.Std), p.color)
		}
		about := template.HTMLEscapeString(fmt.Sprintf("%s: %s, %s", p.name, valueText(metric, &p.Spread), duration(p.seconds)))
		if p.sampled {
			c.add(`<rect x="%.1f" y="%.1f" width="11" height="11" fill="%s"><title>%s</title></rect>`, at-5.5, mid-5.5, p.color, about)
		} else {
			c.add(`<circle cx="%.1f" cy="%.1f" r="6" fill="%s"><title>%s</title></circle>`, at, mid, p.color, about)
		}
		name := shorten(p.name, 24)
		if b := findRoom(at, mid, labelWidth*float64(len([]rune(name))), taken); b != (box{}) {
			taken = append(taken, b)
			c.text(b.left, b.bottom-3, "start", "label", name)
		}
	}
	return c.html(lineHeight, title)
}

// box is a rectangle of a chart.
type box struct{ left, top, right, bottom float64 }

const labelWidth = 7.0 // of a character, at most, in pixels

// findRoom is where a label of this width beside a point covers nothing; the zero box if nowhere. The
// legend and the point's title name it too.
func findRoom(x, y, width float64, taken []box) box {
	const height, gap = 14.0, 9.0
	for _, up := range []float64{height + 6, -6, height / 2, 2*height + 8, -height - 8} {
		for _, from := range []float64{x + gap, x - gap - width} {
			b := box{from, y - up, from + width, y - up + height}
			free := b.left >= left && b.right <= chartWidth && b.top >= top && b.bottom <= lineHeight-bottom
			for _, t := range taken {
				free = free && (b.right <= t.left || b.left >= t.right || b.bottom <= t.top || b.top >= t.bottom)
			}
			if free {
				return b
			}
		}
	}
	return box{}
}

// places are where feature rows come from, in the order in which they are drawn.
var places = []struct {
	Name, Color string
	bytes       func(t loader.Traffic) int64
}{
	{"storage", "#d55e00", func(t loader.Traffic) int64 { return t.StorageBytes }},
	{"host memory", "#e69f00", func(t loader.Traffic) int64 { return t.HostBytes }},
	{"device memory", "#0072b2", func(t loader.Traffic) int64 { return t.DeviceBytes }},
	{"a cache", "#56b4e9", func(t loader.Traffic) int64 { return t.CacheBytes }},
}

// traffic draws the bytes of features of an epoch (preprop-gnn Appendix I).
func traffic(runs []Run) template.HTML {
	var names, labels []string
	var pieces [][]part
	least := int64(math.MaxInt64)
	for _, r := range runs {
		if n := r.figures().EpochTraffic.Bytes(); n > 0 {
			least = min(least, n)
		}
	}
	for _, r := range runs {
		t := r.figures().EpochTraffic
		var b []part
		for _, p := range places {
			b = append(b, part{p.Color, float64(p.bytes(t)), false})
		}
		label := "unknown"
		if n := t.Bytes(); n > 0 {
			label = units.Bytes(n).String()
			if n > least {
				label += fmt.Sprintf(" (%.3g ×)", float64(n)/float64(least))
			}
			if t.CachedRows > 0 {
				label += fmt.Sprintf(", %.0f %% cached", 100*t.HitRate())
			}
		}
		names, pieces, labels = append(names, r.Name), append(pieces, b), append(labels, label)
	}
	return bars("Feature bytes of an epoch", names, pieces, labels)
}
