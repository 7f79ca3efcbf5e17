package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// Tuning is a search of settings.
type Tuning struct {
	Title  string
	Limits string // in words; "": none
	Memory string // what memory is counted: device or resident
	// What time throughput is by: wall or processor.
	Throughput string
	Goals      tune.Goals
	Trials     []tune.Trial // of which at least one is measured
	Fits       []tune.Fitted
}

//go:embed tuning.html
var tuningText string

var tuningPage = template.Must(template.Must(page.Clone()).New("tuning").Parse(tuningText))

// tuningContent is what the page is filled with.
type tuningContent struct {
	Version, Title, Limits, Memory, Throughput, Metric string
	Seconds                                            string
	Trials, Failed                                     int
	Crosses                                            bool // in the charts
	Charts                                             []template.HTML
	Columns                                            []string
	Front, All                                         []tuningRow
	Fits                                               []fitRow
}

type tuningRow struct {
	Name, Rate, Memory, Valid string
	Settings                  []string
	Chosen                    bool
}

type fitRow struct{ Figure, Regression, R2 string }

// tuningTable is what a table of trials is filled with.
type tuningTable struct {
	Rows    []tuningRow
	Columns []string
	Metric  string
}

func tuningRows(rows []tuningRow, columns []string, metric string) tuningTable {
	return tuningTable{rows, columns, metric}
}

// Page returns the page about the search.
func (t *Tuning) Page() ([]byte, error) {
	c := tuningContent{Version: version.Version, Title: t.Title, Limits: t.Limits, Memory: t.Memory, Throughput: t.Throughput, Trials: len(t.Trials)}
	names := map[string]bool{}
	seconds := 0.0
	for _, trial := range t.Trials {
		seconds += trial.Seconds
		if trial.Failed != "" {
			c.Failed++
		} else {
			c.Metric = trial.Metric
		}
		for name := range trial.Settings {
			names[name] = true
		}
	}
	c.Seconds = duration(seconds)
	maps.DeleteFunc(names, func(name string, _ bool) bool {
		return !slices.ContainsFunc(t.Trials, func(trial tune.Trial) bool { return trial.Settings[name] != t.Trials[0].Settings[name] })
	})
	c.Columns = slices.Sorted(maps.Keys(names))
	front := t.Goals.Front(t.Trials)
	c.Crosses = slices.ContainsFunc(t.Trials, t.outside)
	roles := map[int]string{}
	if len(front) > 0 {
		choice := t.Goals.Choose(front)
		for _, r := range []struct {
			number int
			name   string
		}{{choice.Fastest.Number, "fastest"}, {choice.Smallest.Number, "smallest"}, {choice.Accurate.Number, "accurate"}, {choice.Balanced.Number, "balanced"}} {
			if roles[r.number] != "" {
				r.name = roles[r.number] + ", " + r.name
			}
			roles[r.number] = r.name
		}
	}
	for _, trial := range front {
		c.Front = append(c.Front, t.row(trial, c.Columns, roles[trial.Number]))
	}
	for _, trial := range t.Trials {
		c.All = append(c.All, t.row(trial, c.Columns, ""))
	}
	for _, f := range t.Fits {
		row := fitRow{f.Figure, f.Regression, "–"}
		if f.R2 != nil {
			row.R2 = fmt.Sprintf("%.3f", *f.R2)
		}
		c.Fits = append(c.Fits, row)
	}
	memory := scatterAxis{"memory, MiB", func(o tune.Outcome) float64 { return float64(t.Goals.Memory(o)) / (1 << 20) }, tickText, true}
	rate := scatterAxis{"training rows a second", t.Goals.Throughput, count, true}
	valid := scatterAxis{"validation " + c.Metric, func(o tune.Outcome) float64 { return *o.Valid }, tickText, false}
	c.Charts = []template.HTML{t.scatter("Throughput against memory", memory, rate, front, roles), t.scatter("Validation "+c.Metric+" against throughput", rate, valid, front, roles)}
	var b bytes.Buffer
	err := tuningPage.Execute(&b, c)
	return b.Bytes(), err
}

// row is a trial as text.
func (t *Tuning) row(trial tune.Trial, columns []string, role string) tuningRow {
	r := tuningRow{Name: fmt.Sprint(trial.Number), Rate: "–", Memory: "–", Valid: trial.Failed, Chosen: role != ""}
	if role != "" {
		r.Name += ", " + role
	}
	if t.Goals.Measured(trial.Outcome) {
		r.Rate, r.Memory = count(t.Goals.Throughput(trial.Outcome)), units.Bytes(t.Goals.Memory(trial.Outcome)).String()
		r.Valid = valueText(trial.Metric, &trainer.Spread{Mean: *trial.Valid})
	}
	for _, name := range columns {
		value := short(trial.Settings[name])
		if value == "" {
			value = "–"
		}
		r.Settings = append(r.Settings, value)
	}
	return r
}

// scatterAxis is one of the figures of trials.
type scatterAxis struct {
	name        string
	of          func(tune.Outcome) float64
	text        func(float64) string
	logarithmic bool
}

// ticks are round numbers within a range.
func (a *scatterAxis) ticks(low, high float64) (ticks []float64) {
	all := steps(low, high, 6)
	if a.logarithmic && high > 4*low {
		all = powers(low, high)
	}
	for _, v := range all {
		if v >= low && v <= high {
			ticks = append(ticks, v)
		}
	}
	return ticks
}

// place returns where a value of an axis lies between two pixels, with a margin for the points, and the range of values.
func (a *scatterAxis) place(all []tune.Trial, from, to float64) (at func(v float64) float64, low, high float64) {
	scale := func(v float64) float64 { return v }
	if a.logarithmic {
		scale = math.Log
	}
	low, high = math.Inf(1), math.Inf(-1)
	for _, trial := range all {
		v := a.of(trial.Outcome)
		low, high = min(low, v), max(high, v)
	}
	p, q := scale(low), scale(high)
	if p == q {
		p, q = p-0.5, q+0.5
	}
	p, q = p-(q-p)/20, q+(q-p)/20
	return func(v float64) float64 { return from + (to-from)*(scale(v)-p)/(q-p) }, low, high
}

// outside tells that a measured trial is not within the limits.
func (t *Tuning) outside(trial tune.Trial) bool {
	return t.Goals.Measured(trial.Outcome) && !t.Goals.Meets(trial.Outcome)
}

// scatter draws the measured trials. Those of the front are filled, those outside the limits are crosses.
func (t *Tuning) scatter(title string, xAxis, yAxis scatterAxis, front []tune.Trial, roles map[int]string) template.HTML {
	var all []tune.Trial
	for _, trial := range t.Trials {
		if t.Goals.Measured(trial.Outcome) {
			all = append(all, trial)
		}
	}
	return chart(title, func(c *canvas) float64 {
		const from = top + textHeight // below the name of the axis
		x, low, high := xAxis.place(all, left, c.width-right)
		c.xAxis(lineHeight-bottom, xAxis.name, xAxis.ticks(low, high), x, xAxis.text)
		y, low, high := yAxis.place(all, lineHeight-bottom, from)
		taken := append(c.yAxis(yAxis.ticks(low, high), y, yAxis.text), box{0, 0, textWidth(yAxis.name), textHeight})
		c.text(0, 12, "start", "label", yAxis.name)
		for _, trial := range all {
			px, py := x(xAxis.of(trial.Outcome)), y(yAxis.of(trial.Outcome))
			taken = append(taken, box{px - 5, py - 5, px + 5, py + 5})
			about := template.HTMLEscapeString(fmt.Sprintf("trial %d: %s rows/s, %s, %s", trial.Number, count(t.Goals.Throughput(trial.Outcome)), units.Bytes(t.Goals.Memory(trial.Outcome)),
				valueText(trial.Metric, &trainer.Spread{Mean: *trial.Valid})))
			switch on := slices.ContainsFunc(front, func(f tune.Trial) bool { return f.Number == trial.Number }); {
			case on:
				c.add(`<circle cx="%.1f" cy="%.1f" r="5" fill="%s"><title>%s</title></circle>`, px, py, colors[0], about)
			case t.outside(trial):
				c.add(`<path d="M%.1f %.1f l6 6 m0 -6 l-6 6" stroke="#999" fill="none"><title>%s</title></path>`, px-3, py-3, about)
			default:
				c.add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="none" stroke="#777"><title>%s</title></circle>`, px, py, about)
			}
		}
		for _, trial := range front {
			if name := roles[trial.Number]; name != "" {
				px, py := x(xAxis.of(trial.Outcome)), y(yAxis.of(trial.Outcome))
				if b := c.findRoom(px, py, textWidth(name), taken); b != (box{}) {
					taken = append(taken, b)
					c.text(b.left, b.bottom-3, "start", "label", name)
				}
			}
		}
		return lineHeight
	})
}
