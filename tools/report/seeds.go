package report

import (
	"html/template"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/trainer"
)

// seeds draws the test metric of each seed of each training, or the validation metric if no seed was tested, with mean and
// standard deviation; nothing if no training has several seeds, or metrics differ.
func seeds(runs []Run) template.HTML {
	metric := runs[0].Options.Metric
	if slices.ContainsFunc(runs, func(r Run) bool { return r.Options.Metric != metric }) {
		return ""
	}
	what, of := "Test ", func(r trainer.Run) *float64 { return r.TestMetric }
	if !slices.ContainsFunc(runs, func(r Run) bool { return r.figures().Test != nil }) {
		what, of = "Validation ", func(r trainer.Run) *float64 { return r.ValidMetric }
	}
	type row struct {
		name, color string
		values      []float64
		trainer.Spread
	}
	var rows []row
	low, high, several := math.Inf(1), math.Inf(-1), false
	for i, r := range runs {
		mean := r.figures().Test
		if what == "Validation " {
			mean = r.figures().Valid
		}
		if mean == nil {
			continue
		}
		one := row{name: r.Name, color: color(i), Spread: *mean}
		for _, run := range r.Runs {
			if v := of(run); v != nil && run.State == trainer.RunFinished {
				one.values = append(one.values, *v)
				low, high = min(low, *v), max(high, *v)
			}
		}
		low, high, several = min(low, one.Mean-one.Std), max(high, one.Mean+one.Std), several || len(one.values) > 1
		rows = append(rows, one)
	}
	if !several {
		return ""
	}
	if low == high {
		low, high = low-0.005, high+0.005
	}
	return chart(what+metric+" of each seed", func(c *canvas) float64 {
		const from, each = 8.0, textHeight + barHeight
		x := func(v float64) float64 { return from + (c.width-2*from)*(v-low)/(high-low) }
		y := 0.0
		for _, r := range rows {
			c.text(0, y+12, "start", "label", shorten(r.name, int(c.width/charWidth)-22))
			c.text(c.width, y+12, "end", "label", valueText(metric, &r.Spread))
			mid := y + textHeight + barHeight/2
			c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="grid"/>`, from, c.width-from, mid, mid)
			if r.Std > 0 {
				c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="8" fill="%s" fill-opacity="0.3"/>`, x(r.Mean-r.Std), mid-4, x(r.Mean+r.Std)-x(r.Mean-r.Std), r.color)
			}
			for _, v := range r.values {
				c.add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="none" stroke="%s"/>`, x(v), mid, r.color)
			}
			c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="2.5"/>`, x(r.Mean), x(r.Mean), mid-8, mid+8, r.color)
			y += each + 4
		}
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="axis"/>`, from, c.width-from, y, y)
		c.text(0, y+14, "start", "label", valueText(metric, &trainer.Spread{Mean: low}))
		c.text(c.width, y+14, "end", "label", valueText(metric, &trainer.Spread{Mean: high}))
		return y + 20
	})
}
