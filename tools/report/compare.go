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

// readsGraph tells that the model reads a graph, not a hop store.
func (r *Run) readsGraph() bool {
	aggregation, err := trainer.AggregationOf(r.Spec.Model)
	return err == nil && aggregation != ""
}

// points are the trainings that have a test metric and an epoch, by epoch time.
func points(runs []Run) (all []point) {
	for i, r := range runs {
		p := point{name: r.Name, color: color(i), seconds: r.trainEpochSeconds(), sampled: r.readsGraph()}
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

// tradeoff draws the test metric of trainings against the time of an epoch (preprop-gnn Figures 7, 11), and lists what the
// marks mean. If it cannot, why says so.
func tradeoff(runs []Run) (drawn template.HTML, marks []string, why string) {
	metric := runs[0].Options.Metric
	if slices.ContainsFunc(runs, func(r Run) bool { return r.Options.Metric != metric }) {
		return "", nil, "The trainings have different metrics."
	}
	all := points(runs)
	if len(all) < 2 {
		return "", nil, "Fewer than two trainings have been tested."
	}
	low, high := math.Inf(1), math.Inf(-1)
	var stores, graphs, spread bool
	for _, p := range all {
		low, high = min(low, p.Mean-p.Std), max(high, p.Mean+p.Std)
		stores, graphs, spread = stores || !p.sampled, graphs || p.sampled, spread || p.Std > 0
	}
	if low == high {
		low, high = low-0.005, high+0.005
	}
	yTicks := steps(low, high, 6)
	low, high = min(low, yTicks[0]), max(high, yTicks[len(yTicks)-1])
	margin := (high - low) / 20 // for the points
	low, high = low-margin, high+margin
	first, last := all[0].seconds/1.3, all[len(all)-1].seconds*1.3
	best := frontier(all, trainer.LowerIsBetter(metric))
	better := "up"
	if trainer.LowerIsBetter(metric) {
		better = "down"
	}
	marks = append(marks, "Better is "+better+" and to the left.")
	if stores && graphs {
		marks = append(marks, "A circle is a model that reads a hop store, a square one that reads a graph.")
	}
	if len(best) > 1 {
		marks = append(marks, "The dashed line joins the trainings that no other beats in both.")
	}
	if spread {
		marks = append(marks, "Bars are standard deviations over seeds.")
	}
	if stores {
		marks = append(marks, "Propagation is not in the time.")
	}
	return chart("Test "+metric+" against the time of an epoch", func(c *canvas) float64 {
		x := func(v float64) float64 {
			return left + (c.width-left-right)*(math.Log(v)-math.Log(first))/(math.Log(last)-math.Log(first))
		}
		y := func(v float64) float64 { return lineHeight - bottom - (lineHeight-top-bottom)*(v-low)/(high-low) }
		taken := c.yAxis(yTicks, y, tickText)
		ticks := powers(first, last)
		ticks = slices.DeleteFunc(ticks, func(t float64) bool { return t < first || t > last })
		c.xAxis(lineHeight-bottom, "an epoch of training", ticks, x, duration)
		var line strings.Builder
		for i, p := range best {
			fmt.Fprintf(&line, "%.1f,%.1f ", x(p.seconds), y(p.Mean))
			if i > 0 {
				taken = append(taken, alongLine(x(best[i-1].seconds), y(best[i-1].Mean), x(p.seconds), y(p.Mean))...)
			}
		}
		c.add(`<polyline points="%s" stroke="#888" stroke-dasharray="5 4" class="curve"/>`, line.String())
		for _, p := range all {
			at := x(p.seconds)
			taken = append(taken, box{at - 8, min(y(p.Mean)-8, y(p.Mean+p.Std)), at + 8, max(y(p.Mean)+8, y(p.Mean-p.Std))})
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
			if b := c.findRoom(at, mid, textWidth(name), taken); b != (box{}) {
				taken = append(taken, b)
				c.text(b.left, b.bottom-3, "start", "label", name)
			}
		}
		return lineHeight
	}), marks, ""
}

// box is a rectangle of a chart.
type box struct{ left, top, right, bottom float64 }

// alongLine are small boxes that cover a line.
func alongLine(x0, y0, x1, y1 float64) (boxes []box) {
	const step = 4.0
	n := math.Ceil(math.Hypot(x1-x0, y1-y0) / step)
	for i := 0.0; i <= n; i++ {
		x, y := x0+(x1-x0)*i/max(n, 1), y0+(y1-y0)*i/max(n, 1)
		boxes = append(boxes, box{x - 2, y - 2, x + 2, y + 2})
	}
	return boxes
}

// findRoom is where a label of this width beside a point covers nothing; the zero box if nowhere. The
// legend and the point's title name it too.
func (c *canvas) findRoom(x, y, width float64, taken []box) box {
	const height, gap = 14.0, 9.0
	for _, up := range []float64{height + 6, -6, height / 2, 2*height + 8, -height - 8} {
		for _, from := range []float64{x + gap, x - gap - width} {
			b := box{from, y - up, from + width, y - up + height}
			free := b.left >= left && b.right <= c.width && b.top >= top && b.bottom <= lineHeight-bottom
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

// traffic draws the bytes of features of an epoch (preprop-gnn Appendix I) of the runs that counted them, with a legend.
func traffic(runs []Run) (drawn template.HTML, legend []key) {
	var names, labels []string
	var pieces [][]part
	var all loader.Traffic
	least := int64(math.MaxInt64)
	for _, r := range runs {
		if n := r.figures().EpochTraffic.Bytes(); n > 0 {
			least = min(least, n)
		}
	}
	for _, r := range runs {
		t := r.figures().EpochTraffic
		n := t.Bytes()
		if n == 0 {
			continue
		}
		all.Add(t)
		var b []part
		for _, p := range places {
			b = append(b, part{p.Color, float64(p.bytes(t)), false})
		}
		label := units.Bytes(n).String()
		if n > least {
			label += fmt.Sprintf(" (%.3g ×)", float64(n)/float64(least))
		}
		if t.CachedRows > 0 {
			label += fmt.Sprintf(", %.0f %% cached", 100*t.HitRate())
		}
		names, pieces, labels = append(names, r.Name), append(pieces, b), append(labels, label)
	}
	for _, p := range places {
		if p.bytes(all) > 0 {
			legend = append(legend, key{p.Name, p.Color})
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return bars("Feature bytes of an epoch", names, pieces, labels), legend
}
