package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/tools/chart"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Tuning is a search of settings, and what came of it.
type Tuning struct {
	Dataset      string  `json:"dataset"`
	Search       string  `json:"search"`
	Seed         uint64  `json:"seed"`
	Combinations int     `json:"combinations"`
	Trials       int     `json:"trials"`
	Failed       int     `json:"failed"`
	Seconds      float64 `json:"seconds"`    // of all trials
	Throughput   string  `json:"throughput"` // time of rows_per_second: wall or processor
	Memory       string  `json:"memory"`     // what memory_bytes counts: device or resident
	Metric       string  `json:"metric"`
	Front        []Point `json:"front"`              // by throughput
	Fastest      int     `json:"fastest,omitempty"`  // trial: T* of a3gnn
	Smallest     int     `json:"smallest,omitempty"` // M*
	Accurate     int     `json:"accurate,omitempty"`
	Balanced     int     `json:"balanced,omitempty"`
	// Surrogates is how well settings predict each figure.
	Surrogates   []tune.Fitted `json:"surrogates"`
	Reproducible string        `json:"reproducible"` // what is the same in another search
	Output       string        `json:"output"`

	Model  string       `json:"-"`
	Limits string       `json:"-"` // in words; "": none
	Goals  tune.Goals   `json:"-"`
	All    []tune.Trial `json:"-"`

	choice []tune.Trial // of each configuration of tune.Files
	front  []tune.Trial
}

// Point is a trial on the front.
type Point struct {
	Trial         int           `json:"trial"`
	RowsPerSecond float64       `json:"rows_per_second"`
	MemoryBytes   int64         `json:"memory_bytes"`
	Valid         float64       `json:"valid_metric"`
	Settings      tune.Settings `json:"settings"` // that differ from trial to trial
}

const reproducibleSearch = "the next trial is a function of the seed and of the trials before it, whose times are " +
	"measured"

// Sum fills in what follows from the trials. At least one must be measured.
func (t *Tuning) Sum(points *tune.Points) {
	g := t.Goals
	t.Combinations, t.Trials, t.Reproducible, t.Front = points.Len(), len(t.All), reproducibleSearch, []Point{}
	t.Memory, t.Throughput = "resident", "wall"
	if g.DeviceMemory {
		t.Memory = "device"
	}
	if g.ProcessorTime {
		t.Throughput = "processor"
	}
	for _, trial := range t.All {
		t.Seconds += trial.Seconds
		if trial.Failed != "" {
			t.Failed++
		} else {
			t.Metric = trial.Metric
		}
	}
	t.Surrogates = points.Fit(g, t.All, t.Seed, tune.Gaussian)
	t.front = g.Front(t.All)
	for _, trial := range t.front {
		t.Front = append(t.Front, Point{trial.Number, g.Throughput(trial.Outcome), g.Memory(trial.Outcome),
			*trial.Valid, trial.Settings.Without(points.Base)})
	}
	if len(t.front) > 0 {
		c := g.Choose(t.front)
		t.choice = []tune.Trial{c.Balanced, c.Fastest, c.Smallest, c.Accurate}
		t.Fastest, t.Smallest = c.Fastest.Number, c.Smallest.Number
		t.Accurate, t.Balanced = c.Accurate.Number, c.Balanced.Number
	}
}

// Files are the contents of tune.Files, nil if the front is empty. Configurations leave the epochs out where trials
// have fewer than trainings.
func (t *Tuning) Files(shortTrials bool) (files [][]byte, err error) {
	if len(t.front) == 0 {
		return nil, nil
	}
	for _, trial := range t.choice {
		settings := maps.Clone(trial.Settings)
		if shortTrials {
			delete(settings, "epochs")
		}
		config, err := checkpoint.EncodeConfig(settings)
		if err != nil {
			return nil, err
		}
		about := fmt.Appendf(nil,
			"# Trial %d of a search by hopfeed tune: %.0f rows/s (%s), %s of memory (%s), validation %s %s.\n",
			trial.Number, t.Goals.Throughput(trial.Outcome), t.Throughput, units.Bytes(t.Goals.Memory(trial.Outcome)),
			t.Memory, trial.Metric, t.valid(*trial.Valid))
		files = append(files, append(about, config...))
	}
	return append(files, t.Page()), nil
}

func (t *Tuning) valid(v float64) string {
	return valueText(t.Metric, &v, nil)
}

// Roles names the roles that a trial was chosen for, such as fastest; "": none.
func (t *Tuning) Roles(number int) string {
	var words []string
	for _, r := range []struct {
		trial int
		name  string
	}{{t.Fastest, "fastest"}, {t.Smallest, "smallest"}, {t.Accurate, "accurate"}, {t.Balanced, "balanced"}} {
		if r.trial == number {
			words = append(words, r.name)
		}
	}
	return strings.Join(words, ", ")
}

// Page returns the page about the search.
func (t *Tuning) Page() []byte {
	p := chart.NewPage("Tuning of " + t.Model + " on " + t.Dataset)
	memory, throughput := "that the process had resident", "rows by the time of the fastest training epoch"
	if t.Goals.DeviceMemory {
		memory = "of the device"
	}
	if t.Goals.ProcessorTime {
		throughput = "rows by the time of all processors together, in the epoch that took the least"
	}
	p.Note(fmt.Sprintf("Written by hopfeed tune, version %s: %d trials in %s, %d failed.", version.Version, t.Trials,
		duration(t.Seconds), t.Failed), only(t.Limits != "", "Limits: "+t.Limits+"."), "Memory is the peak "+memory+
		". Throughput is "+throughput+". Times are measured, so another search has other figures.")
	names := varied(t.All)
	table := func(trials []tune.Trial, roles bool) {
		rows := &chart.Table{Texts: 1, Columns: append([]string{"trial", "rows/s", "memory", t.Metric}, names...)}
		for _, trial := range trials {
			row := []string{fmt.Sprint(trial.Number), "–", "–", trial.Failed}
			role := t.Roles(trial.Number)
			if roles && role != "" {
				row[0] += ", " + role
			}
			if t.Goals.Measured(trial.Outcome) {
				row = []string{row[0], count(t.Goals.Throughput(trial.Outcome)),
					units.Bytes(t.Goals.Memory(trial.Outcome)).String(), t.valid(*trial.Valid)}
			}
			for _, name := range names {
				row = append(row, cmp.Or(tune.Short(trial.Settings[name]), "–"))
			}
			rows.Rows = append(rows.Rows, chart.TableRow{Cells: row, Chosen: roles && role != ""})
		}
		p.Table(rows)
	}
	p.Heading("Pareto front")
	if len(t.front) > 0 {
		crosses := only(slices.ContainsFunc(t.All, t.outside), " Crosses are outside the limits.")
		p.Text("Trials within the limits that no other beats in throughput, memory and " + t.Metric +
			"; dots in the charts." + crosses)
		table(t.front, true)
	} else {
		p.Text("No trial is within the limits.")
	}
	size := scatterAxis{chart.Axis{Name: "memory (MiB)", Log: true},
		func(o tune.Outcome) float64 { return float64(t.Goals.Memory(o)) / (1 << 20) }}
	rate := scatterAxis{chart.Axis{Name: "training rows a second", Log: true, Text: count}, t.Goals.Throughput}
	valid := scatterAxis{metricAxis("validation ", t.Metric), func(o tune.Outcome) float64 { return *o.Valid }}
	p.Figure(t.scatter("Throughput against memory", size, rate))
	p.Figure(t.scatter("Validation "+t.Metric+" against throughput", rate, valid))
	if len(t.Surrogates) > 0 {
		p.Heading("Predicting trials from settings")
		p.Text("R² of trials that a Gaussian process has not seen, in five folds.")
		fits := &chart.Table{Texts: 2, Columns: []string{"figure", "regression", "R²"}}
		for _, f := range t.Surrogates {
			r2 := "–"
			if f.R2 != nil {
				r2 = fmt.Sprintf("%.3f", *f.R2)
			}
			fits.Add(f.Figure, f.Regression, r2)
		}
		p.Table(fits)
	}
	p.Heading("All trials")
	table(t.All, false)
	return p.File()
}

// outside tells that a measured trial is not within the limits.
func (t *Tuning) outside(trial tune.Trial) bool {
	return t.Goals.Measured(trial.Outcome) && !t.Goals.Meets(trial.Outcome)
}

// scatter draws the measured trials: filled on the front, crosses outside the limits, rings elsewhere.
func (t *Tuning) scatter(title string, x, y scatterAxis) *chart.Figure {
	p := &chart.XY{X: x.Axis, Y: y.Axis}
	for _, trial := range t.All {
		if !t.Goals.Measured(trial.Outcome) {
			continue
		}
		mark := chart.Point{X: x.of(trial.Outcome), Y: y.of(trial.Outcome), Color: chart.Grey, Mark: chart.Ring,
			Name: t.Roles(trial.Number)}
		mark.About = fmt.Sprintf("trial %d: %s rows/s, %s, %s", trial.Number, count(t.Goals.Throughput(trial.Outcome)),
			units.Bytes(t.Goals.Memory(trial.Outcome)), t.valid(*trial.Valid))
		if slices.ContainsFunc(t.front, func(f tune.Trial) bool { return f.Number == trial.Number }) {
			mark.Mark, mark.Color = chart.Dot, chart.Blue
		} else if t.outside(trial) {
			mark.Mark = chart.Cross
		}
		p.Points = append(p.Points, mark)
	}
	return &chart.Figure{Title: title, Plots: []chart.Plot{p}}
}

type scatterAxis struct {
	chart.Axis
	of func(tune.Outcome) float64
}

// Text prints the front.
func (t *Tuning) Text(w io.Writer) {
	fmt.Fprintf(w, "input\t%s\n", units.Printable(t.Dataset))
	fmt.Fprintf(w, "trials\t%d of %d combinations, %d failed, %.0f s; search by %s with seed %d\n",
		t.Trials, t.Combinations, t.Failed, t.Seconds, t.Search, t.Seed)
	fmt.Fprintf(w, "reproducible\t%s\n", t.Reproducible)
	if len(t.Surrogates) > 0 {
		var words []string
		for _, f := range t.Surrogates {
			if f.R2 != nil {
				words = append(words, fmt.Sprintf("%s %.2f", f.Figure, *f.R2))
			}
		}
		fmt.Fprintf(w, "predictable\tR2 of trials that a Gaussian process has not seen: %s\n",
			cmp.Or(strings.Join(words, ", "), "too few trials"))
	}
	if len(t.Front) == 0 {
		return
	}
	fmt.Fprintf(w, "front\trows/s (%s)\tmemory (%s)\t%s\tsettings\n", t.Throughput, t.Memory, t.Metric)
	for _, p := range t.Front {
		name := fmt.Sprintf("trial %d", p.Trial)
		if roles := t.Roles(p.Trial); roles != "" {
			name += ", " + roles
		}
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\n", name, p.RowsPerSecond, units.Bytes(p.MemoryBytes), t.valid(p.Valid),
			p.Settings.Text())
	}
	fmt.Fprintf(w, "saved\t%s: %s (balanced), %s, %s, %s for train --config; %s\n", t.Output,
		tune.BalancedConfig, tune.FastestConfig, tune.SmallestConfig, tune.AccurateConfig, tune.PageFile)
}
