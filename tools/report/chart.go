package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/trainer"
)

// colors tell runs apart, also for most who do not see all colours (Okabe and Ito, with grey for black), on a light page
// and on a dark one.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777", "#8a8a00"}

func color(run int) string { return colors[run%len(colors)] }

// chartWidths are the widths, in pixels, that each chart is drawn in. The page shows the one that fits, unscaled, so that
// text has the same size on all screens. Its style sheet has the widths too.
var chartWidths = []float64{960, 640, 320}

// Sizes of charts, in pixels.
const (
	lineHeight = 280.0
	left       = 64.0
	right      = 12.0
	top        = 10.0
	bottom     = 38.0
	barHeight  = 18.0
	barGap     = 8.0
	textHeight = 17.0 // of a line
	charWidth  = 7.0  // of a character, at most
)

// canvas collects the elements of an SVG.
type canvas struct {
	strings.Builder
	width float64
}

// chart draws in all widths; draw returns the height.
func chart(title string, draw func(c *canvas) (height float64)) template.HTML {
	var page strings.Builder
	title = template.HTMLEscapeString(title)
	fmt.Fprintf(&page, "<figure><figcaption>%s</figcaption>\n", title)
	for _, width := range chartWidths {
		c := canvas{width: width}
		height := draw(&c)
		fmt.Fprintf(&page, `<svg class="w%.0f" width="%.0f" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`+"\n%s</svg>\n", width, width, width, height, title, c.String())
	}
	page.WriteString("</figure>")
	return template.HTML(page.String())
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.Builder, format+"\n", args...) }

func (c *canvas) text(x, y float64, anchor, class, text string) {
	c.add(`<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, template.HTMLEscapeString(text))
}

func textWidth(text string) float64 { return charWidth * float64(columns(text)) }

// columns is the width of a text in characters: those of East Asia, and pictures, are as wide as two.
func columns(text string) (n int) {
	for _, r := range text {
		if n++; r >= 0x1100 && r < 0x1160 || r >= 0x2e80 {
			n++
		}
	}
	return n
}

// yAxis draws lines across the chart, and returns where.
func (c *canvas) yAxis(ticks []float64, y func(float64) float64, text func(float64) string) (lines []box) {
	for _, t := range ticks {
		c.add(`<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" class="grid"/>`, left, c.width-right, y(t), y(t))
		c.text(left-8, y(t)+4, "end", "label", text(t))
		lines = append(lines, box{left, y(t) - 1, c.width - right, y(t) + 1})
	}
	return lines
}

// xAxis draws the lower end of a chart at a height, with labels as far as they have room.
func (c *canvas) xAxis(at float64, name string, ticks []float64, x func(float64) float64, text func(float64) string) {
	free := 0.0
	for _, t := range ticks {
		label := text(t)
		half := textWidth(label) / 2
		if x(t)-half < free || x(t)+half > c.width {
			continue
		}
		free = x(t) + half + charWidth
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="axis"/>`, x(t), x(t), at, at+4)
		c.text(x(t), at+18, "middle", "label", label)
	}
	c.add(`<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" class="axis"/>`, left, c.width-right, at, at)
	c.text((left+c.width-right)/2, at+bottom-4, "middle", "label", name)
}

func tickText(v float64) string { return fmt.Sprintf("%.4g", v) }

// curve is one line of a chart, with the range of the seeds that it is the mean of.
type curve struct {
	color          string
	x              []float64
	mean, min, max []float64
	best           int // place of the selected epoch; -1: none
}

// curves draws a value of each epoch, for each run; nothing if no epoch has one. It tells whether there are dots of
// selected epochs, and bands of several seeds.
func curves(title string, runs []Run, value func(trainer.EpochMetrics) *float64) (drawn template.HTML, dots, bands bool) {
	var all []curve
	for i, r := range runs {
		if c := meanCurve(r, value); len(c.x) > 0 {
			c.color = color(i)
			all = append(all, c)
			dots, bands = dots || c.best >= 0, bands || len(r.Runs) > 1
		}
	}
	if len(all) == 0 {
		return "", false, false
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
	return chart(title, func(c *canvas) float64 {
		x := func(v float64) float64 { return left + (c.width-left-right)*(v-1)/max(xMax-1, 1) }
		y := func(v float64) float64 { return lineHeight - bottom - (lineHeight-top-bottom)*(scale(v)-a)/(b-a) }
		c.yAxis(ticks, y, tickText)
		var numbers []float64
		for _, t := range steps(1, xMax, 10) {
			if t = math.Max(t, 1); t == math.Trunc(t) && t <= xMax {
				numbers = append(numbers, t)
			}
		}
		c.xAxis(lineHeight-bottom, "epoch", numbers, x, func(v float64) string { return fmt.Sprint(v) })
		for _, k := range all {
			k.draw(c, x, y)
		}
		return lineHeight
	}), dots, bands
}

func (k *curve) draw(c *canvas, x, y func(float64) float64) {
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

// bars draws horizontal bars of pieces, with a label behind each. Names are beside them or, if that leaves too little
// room, above.
func bars(title string, names []string, pieces [][]part, labels []string) template.HTML {
	longest, labelRoom, nameRoom := 0.0, 0.0, 0.0
	for i, b := range pieces {
		sum := 0.0
		for _, p := range b {
			sum += p.length
		}
		longest = max(longest, sum)
		labelRoom, nameRoom = max(labelRoom, textWidth(labels[i])+6), max(nameRoom, textWidth(shorten(names[i], 28))+8)
	}
	return chart(title, func(c *canvas) float64 {
		from, y := nameRoom, 0.0
		above := c.width-nameRoom-labelRoom < c.width/3
		if above {
			from = 0
		}
		room := max(c.width-from-labelRoom, 40)
		for i, b := range pieces {
			switch {
			case !above:
				c.text(from-8, y+barHeight-5, "end", "label", shorten(names[i], 28))
			case names[i] != "":
				y += textHeight
				c.text(0, y-5, "start", "label", shorten(names[i], int(c.width/charWidth)))
			}
			at := from
			for _, p := range b {
				width := room * p.length / max(longest, 1e-12)
				opacity := 1.0
				if p.hatch {
					opacity = 0.4
				}
				c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="%s" fill-opacity="%.1f"/>`, at, y, width, barHeight, p.color, opacity)
				at += width
			}
			c.text(at+6, y+barHeight-5, "start", "label", labels[i])
			y += barHeight + barGap
		}
		return y
	})
}

// shorten leaves the end of a text that is wider than most columns (1 or more).
func shorten(text string, most int) string {
	if columns(text) <= most {
		return text
	}
	for columns(text) >= most {
		_, first := utf8.DecodeRuneInString(text)
		text = text[first:]
	}
	return "…" + text
}

// key is an entry of the legend of a chart.
type key struct{ Name, Color string }

// stageColors are in the order in which stages are drawn.
var stageColors = []struct{ stage, name, color string }{
	{"load_wait", "waiting for input", "#d55e00"},
	{"compute", "training", "#0072b2"},
	{"validate", "validation", "#56b4e9"},
	{"test", "test", "#bbbbbb"},
}

// stages draws the time of each stage of the runs that have any, with a legend.
func stages(runs []Run) (drawn template.HTML, legend []key) {
	var names, labels []string
	var pieces [][]part
	occurs := map[string]bool{}
	for _, r := range runs {
		total := r.trainSeconds()
		if !(total > 0) {
			continue
		}
		s := r.figures().StageSeconds
		var b []part
		for _, stage := range stageColors {
			b = append(b, part{stage.color, s[stage.stage], false})
			occurs[stage.stage] = occurs[stage.stage] || s[stage.stage] > 0
		}
		names, pieces = append(names, r.Name), append(pieces, b)
		labels = append(labels, fmt.Sprintf("%s, %.0f %% waiting", duration(total), 100*s["load_wait"]/total))
	}
	for _, stage := range stageColors {
		if occurs[stage.stage] {
			legend = append(legend, key{stage.name, stage.color})
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return bars("Time of a run, by stage", names, pieces, labels), legend
}

// epochs draws the predicted time of an epoch, where there is one, beside the measured one.
func epochs(runs []Run) (drawn template.HTML, predicted bool) {
	var names, labels []string
	var pieces [][]part
	for i, r := range runs {
		measured := r.figures().EpochSeconds.Mean
		if !(measured > 0) {
			continue
		}
		names, pieces = append(names, r.Name), append(pieces, []part{{color(i), measured, false}})
		labels = append(labels, "measured "+duration(measured))
		if p := r.PredictedEpochSeconds; p > 0 {
			predicted = true
			names, pieces = append(names, ""), append(pieces, []part{{color(i), p, true}})
			labels = append(labels, fmt.Sprintf("predicted %s (%.2f ×)", duration(p), p/measured))
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return bars("Time of an epoch", names, pieces, labels), predicted
}
