package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/tools/chart"
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
	memory := scatterAxis{chart.Axis{Name: "memory (MiB)", Log: true}, func(o tune.Outcome) float64 { return float64(t.Goals.Memory(o)) / (1 << 20) }}
	rate := scatterAxis{chart.Axis{Name: "training rows a second", Log: true, Text: count}, t.Goals.Throughput}
	valid := scatterAxis{metricAxis("validation ", c.Metric), func(o tune.Outcome) float64 { return *o.Valid }}
	c.Charts = []template.HTML{
		t.scatter("Throughput against memory", memory, rate, front, roles),
		t.scatter("Validation "+c.Metric+" against throughput", rate, valid, front, roles),
	}
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

// outside tells that a measured trial is not within the limits.
func (t *Tuning) outside(trial tune.Trial) bool {
	return t.Goals.Measured(trial.Outcome) && !t.Goals.Meets(trial.Outcome)
}

// scatter draws the measured trials: filled on the front, crosses outside the limits, rings elsewhere.
func (t *Tuning) scatter(title string, x, y scatterAxis, front []tune.Trial, roles map[int]string) template.HTML {
	p := &chart.XY{X: x.Axis, Y: y.Axis}
	for _, trial := range t.Trials {
		if !t.Goals.Measured(trial.Outcome) {
			continue
		}
		mark := chart.Point{X: x.of(trial.Outcome), Y: y.of(trial.Outcome), Color: chart.Grey, Mark: chart.Ring, Name: roles[trial.Number]}
		mark.About = fmt.Sprintf("trial %d: %s rows/s, %s, %s", trial.Number, count(t.Goals.Throughput(trial.Outcome)),
			units.Bytes(t.Goals.Memory(trial.Outcome)), valueText(trial.Metric, &trainer.Spread{Mean: *trial.Valid}))
		if slices.ContainsFunc(front, func(f tune.Trial) bool { return f.Number == trial.Number }) {
			mark.Mark, mark.Color = chart.Dot, chart.Blue
		} else if t.outside(trial) {
			mark.Mark = chart.Cross
		}
		p.Points = append(p.Points, mark)
	}
	f := chart.Figure{Title: title, Plots: []chart.Plot{p}}
	return f.HTML()
}

// scatterAxis is one of the figures of trials.
type scatterAxis struct {
	chart.Axis
	of func(tune.Outcome) float64
}
