package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/hopfeed/hopfeed/trainer"
)

// colors tell runs apart, also for most who do not see all colours (Okabe and Ito).
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8a00"}

func color(run int) string { return colors[run%len(colors)] }

// Sizes of charts, in pixels.
const (
	chartWidth = 960
	lineHeight = 300
	left       = 64
	right      = 16
	top        = 30
	bottom     = 38
	barHeight  = 20
	barGap     = 8
	nameWidth  = 190
)

// canvas collects the elements of an SVG.
type canvas struct{ strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.Builder, format+"\n", args...) }

func (c *canvas) text(x, y float64, anchor, class, text string) {
	c.add(`<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, template.HTMLEscapeString(text))
}

func (c *canvas) html(height float64, title string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %.0f" role="img" aria-label="%s">`, chartWidth, height, template.HTMLEscapeString(title)) +
		"\n" + c.String() + "</svg>")
}

// curve is one line of a chart, with the range of the seeds that it is the mean of.
type curve struct {
	color          string
	x              []float64
	mean, min, max []float64
	best           int // place of the selected epoch; -1: none
}

// curves draws a value of each epoch, for each run.
func curves(title string, runs []Run, value func(trainer.EpochMetrics) *float64) template.HTML {
	var all []curve
	for i, r := range runs {
		if c := meanCurve(r, value); len(c.x) > 0 {
			c.color = color(i)
			all = append(all, c)
		}
	}
	var c canvas
	c.text(0, 16, "start", "title", title)
	if len(all) == 0 {
		c.text(left, top+20, "start", "label", "No epoch has one.")
		return c.html(top+40, title)
	}
	xMax, low, high := 1.0, math.Inf(1), math.Inf(-1)
	for _, k := range all {
		xMax = max(xMax, k.x[len(k.x)-1])
		for i := range k.x {
			low, high = min(low, k.min[i]), max(high, k.max[i])
		}
	}
	logarithmic := low > 0 && high > 10*low
	scale := func(v float64) float64 { return v }
	ticks := steps(low, high, 6)
	if logarithmic {
		scale, ticks = math.Log10, powers(low, high)
	}
	low, high = min(low, ticks[0]), max(high, ticks[len(ticks)-1])
	a, b := scale(low), scale(high)
	if a == b {
		a, b = a-0.5, b+0.5
	}
	x := func(v float64) float64 { return left + (chartWidth-left-right)*(v-1)/max(xMax-1, 1) }
	y := func(v float64) float64 { return lineHeight - bottom - (lineHeight-top-bottom)*(scale(v)-a)/(b-a) }
	for _, t := range ticks {
		c.add(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" class="grid"/>`, left, chartWidth-right, y(t), y(t))
		c.text(left-8, y(t)+4, "end", "label", fmt.Sprintf("%.4g", t))
	}
	for _, t := range steps(1, xMax, 10) {
		if t = math.Max(t, 1); t == math.Trunc(t) && t <= xMax {
			c.add(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="axis"/>`, x(t), x(t), lineHeight-bottom, lineHeight-bottom+4)
			c.text(x(t), lineHeight-bottom+18, "middle", "label", fmt.Sprint(t))
		}
	}
	c.add(`<line x1="%d" x2="%d" y1="%d" y2="%d" class="axis"/>`, left, chartWidth-right, lineHeight-bottom, lineHeight-bottom)
	c.text((left+chartWidth-right)/2, lineHeight-4, "middle", "label", "epoch")
	for _, k := range all {
		var band, line, back strings.Builder
		for i := range k.x {
			fmt.Fprintf(&band, "%.1f,%.1f ", x(k.x[i]), y(k.max[i]))
			j := len(k.x) - 1 - i
			fmt.Fprintf(&back, "%.1f,%.1f ", x(k.x[j]), y(k.min[j]))
			fmt.Fprintf(&line, "%.1f,%.1f ", x(k.x[i]), y(k.mean[i]))
		}
		c.add(`<polygon points="%s%s" fill="%s" fill-opacity="0.15"/>`, band.String(), back.String(), k.color)
		c.add(`<polyline points="%s" stroke="%s" class="curve"/>`, line.String(), k.color)
		if k.best >= 0 {
			c.add(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, x(k.x[k.best]), y(k.mean[k.best]), k.color)
		}
	}
	return c.html(lineHeight, title)
}

// meanCurve is the mean over the seeds of a run, as long as at least half of them go on.
func meanCurve(r Run, value func(trainer.EpochMetrics) *float64) (c curve) {
	byEpoch := map[int][]float64{}
	last := 0
	for _, e := range r.History {
		if v := value(e); v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
			byEpoch[e.Epoch] = append(byEpoch[e.Epoch], *v)
			last = max(last, e.Epoch)
		}
	}
	c.best = -1
	for epoch := 1; epoch <= last; epoch++ {
		values := byEpoch[epoch]
		if len(values) == 0 || 2*len(values) < len(r.Runs) {
			continue
		}
		mean, low, high := 0.0, values[0], values[0]
		for _, v := range values {
			mean, low, high = mean+v/float64(len(values)), min(low, v), max(high, v)
		}
		if len(r.Runs) == 1 && epoch == r.Runs[0].BestEpoch {
			c.best = len(c.x)
		}
		c.x, c.mean, c.min, c.max = append(c.x, float64(epoch)), append(c.mean, mean), append(c.min, low), append(c.max, high)
	}
	return c
}

// steps are round numbers around a range, about n.
func steps(low, high float64, n int) (ticks []float64) {
	raw := (high - low) / float64(n)
	if !(raw > 0) {
		return []float64{low}
	}
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= raw {
			step *= m
			break
		}
	}
	for i := math.Floor(low / step); i*step < high+step*0.999; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks
}

// powers are 1, 2 and 5 times powers of ten within a range, or around it.
func powers(low, high float64) (ticks []float64) {
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= low/2.5 && v <= high*2.5 {
				ticks = append(ticks, v)
			}
		}
	}
	if len(ticks) > 9 { // whole powers are enough
		whole := ticks[:0]
		for _, v := range ticks {
			if l := math.Log10(v); math.Abs(l-math.Round(l)) < 1e-9 {
				whole = append(whole, v)
			}
		}
		ticks = whole
	}
	return ticks
}

// part is a piece of a bar.
type part struct {
	color  string
	length float64
	hatch  bool
}

// bars draws horizontal bars of pieces, with a label behind each.
func bars(title string, names []string, pieces [][]part, labels []string) template.HTML {
	var c canvas
	c.text(0, 16, "start", "title", title)
	longest := 0.0
	for _, b := range pieces {
		sum := 0.0
		for _, p := range b {
			sum += p.length
		}
		longest = max(longest, sum)
	}
	y := float64(top)
	for i, b := range pieces {
		c.text(nameWidth-8, y+barHeight-6, "end", "label", shorten(names[i], 28))
		at := float64(nameWidth)
		for _, p := range b {
			width := (chartWidth - nameWidth - 190) * p.length / max(longest, 1e-12)
			opacity := 1.0
			if p.hatch {
				opacity = 0.4
			}
			c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s" fill-opacity="%.1f"/>`, at, y, width, barHeight, p.color, opacity)
			at += width
		}
		c.text(at+6, y+barHeight-6, "start", "label", labels[i])
		y += barHeight + barGap
	}
	return c.html(y, title)
}

func shorten(text string, length int) string {
	if r := []rune(text); len(r) > length {
		return "…" + string(r[len(r)-length+1:])
	}
	return text
}

// stageColors are in the order in which stages are drawn.
var stageColors = []struct{ stage, name, color string }{
	{"load_wait", "waiting for input", "#d55e00"},
	{"compute", "training", "#0072b2"},
	{"validate", "validation", "#56b4e9"},
	{"test", "test", "#bbbbbb"},
}

// stages draws the time of each stage of a run.
func stages(runs []Run) template.HTML {
	var names, labels []string
	var pieces [][]part
	for _, r := range runs {
		s := r.figures().StageSeconds
		var b []part
		var words []string
		for _, stage := range stageColors {
			b = append(b, part{stage.color, s[stage.stage], false})
		}
		total := r.trainSeconds()
		words = append(words, duration(total))
		if total > 0 {
			words = append(words, fmt.Sprintf("%.0f %% waiting", 100*s["load_wait"]/total))
		}
		names, pieces, labels = append(names, r.Name), append(pieces, b), append(labels, strings.Join(words, ", "))
	}
	return bars("Time of a run, by stage", names, pieces, labels)
}

// epochs draws the predicted time of an epoch beside the measured one.
func epochs(runs []Run) template.HTML {
	var names, labels []string
	var pieces [][]part
	for i, r := range runs {
		measured := r.figures().EpochSeconds.Mean
		names, pieces = append(names, r.Name), append(pieces, []part{{color(i), measured, false}})
		labels = append(labels, "measured "+duration(measured))
		if p := r.PredictedEpochSeconds; p > 0 {
			label := "predicted " + duration(p)
			if measured > 0 {
				label += fmt.Sprintf(" (%.2f ×)", p/measured)
			}
			names, pieces, labels = append(names, ""), append(pieces, []part{{color(i), p, true}}), append(labels, label)
		}
	}
	return bars("Time of an epoch", names, pieces, labels)
}
