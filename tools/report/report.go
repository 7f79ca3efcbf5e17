// Package report makes a page about trainings that were saved: one HTML file with charts in it, which
// needs nothing else to be read.
package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/chart"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// Run is a training in a directory, which may be unfinished.
type Run struct {
	Name string // of the directory
	*checkpoint.Checkpoint
	Trials      []tune.Trial
	Propagation preprop.Took // of its store
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"rows": tuningRows,
	"style": func() template.CSS { return chart.Style }}).Parse(pageText))

// content is what the page is filled with.
type content struct {
	Version string
	Runs    []runRow
	Metric  string
	Several bool // runs
	Differ  settingsTable
	All     settingsTable
	Seeds   template.HTML   // test metric of each
	Charts  []template.HTML // learning curves
	Dots    bool            // of selected epochs
	Bands   bool            // of several seeds
	Stages  template.HTML
	Epochs  template.HTML // predicted beside measured
	Trade   template.HTML // accuracy against epoch time
	Traffic template.HTML

	Predicted       bool     // some epoch
	Marks           []string // of Trade, explained
	NoTrade         string   // why there is no Trade
	Sampled, Cached bool     // rows of Traffic
	Spread          bool     // some training has several seeds

	Table7  []preprocessing
	AtLeast bool     // some propagation took longer than is known
	Unknown []string // runs whose propagation seconds are not known
	Trials  []trialsTable
}

// runRow is a row of the table of runs, as text.
type runRow struct {
	Color, Name, Model, Data, State                                    string
	Valid, Test, Epochs, Best, Epoch, Predicted, Rate, Memory, Seconds string
}

// settingsTable has a row for each setting.
type settingsTable struct {
	Columns []string
	Rows    [][]string // the setting's name first
}

// preprocessing is a row of preprop-gnn Table 7.
type preprocessing struct{ Name, Hops, Propagate, Epoch, Epochs, Training, Share string }

type trialsTable struct {
	Run     string
	Columns []string
	Rows    [][]string // best first
	Chosen  int        // trial
}

// Page returns the page about at least one run.
func Page(runs []Run) ([]byte, error) {
	c := content{Version: version.Version, Several: len(runs) > 1, Metric: runs[0].Options.Metric}
	for i, r := range runs {
		if r.Options.Metric != c.Metric {
			c.Metric = "metric"
		}
		c.Runs = append(c.Runs, r.row(chart.Color(i)))
		t := r.figures().EpochTraffic
		c.Sampled, c.Cached, c.Spread = c.Sampled || r.readsGraph() && t.Rows > 0, c.Cached ||
			t.CachedRows > 0, c.Spread || len(r.Runs) > 1
		if !r.readsGraph() { // which is not propagated
			c.addPreprocessing(r)
		}
		if len(r.Trials) > 0 {
			c.Trials = append(c.Trials, trials(r))
		}
	}
	c.All, c.Differ = settings(runs)
	for _, each := range []struct {
		title string
		axis  chart.Axis
		value func(e checkpoint.EpochMetrics) *float64
	}{
		{"Validation " + c.Metric, metricAxis("", c.Metric),
			func(e checkpoint.EpochMetrics) *float64 { return e.ValidMetric }},
		{"Training loss", chart.Axis{Name: "loss"}, func(e checkpoint.EpochMetrics) *float64 { return &e.TrainLoss }},
	} {
		if drawn, dots, bands := curves(each.title, runs, each.axis, each.value); drawn != "" {
			c.Charts, c.Dots, c.Bands = append(c.Charts, drawn), c.Dots || dots, c.Bands || bands
		}
	}
	c.Seeds = seeds(runs)
	c.Stages, c.Traffic = stages(runs), traffic(runs)
	c.Epochs, c.Predicted = epochs(runs)
	if c.Several {
		c.Trade, c.Marks, c.NoTrade = tradeoff(runs)
	}
	var b bytes.Buffer
	err := page.Execute(&b, c)
	return b.Bytes(), err
}

// figures are the means over the runs that finished or, if none has, over all.
func (r *Run) figures() *checkpoint.Summary {
	finished := slices.DeleteFunc(slices.Clone(r.Runs),
		func(run checkpoint.Run) bool { return run.State != checkpoint.RunFinished })
	if len(finished) == 0 {
		finished = r.Runs
	}
	return checkpoint.Summarize(finished)
}

// trainSeconds is the mean time of a run.
func (r *Run) trainSeconds() (seconds float64) {
	for _, s := range r.figures().StageSeconds {
		seconds += s
	}
	return seconds
}

func (r *Run) row(color string) runRow {
	s := r.figures()
	row := runRow{
		Color: color, Name: r.Name, Model: r.Spec.Model, Data: r.Data.Name, State: "complete",
		Valid: valueText(r.Options.Metric, s.Valid), Test: valueText(r.Options.Metric,
			s.Test), Epochs: number(s.Epochs), Best: number(s.BestEpoch),
		Epoch: duration(s.EpochSeconds.Mean), Predicted: "–", Rate: count(s.RowsPerSecond.Mean),
		Memory: fmt.Sprintf("%.1f MiB", float64(s.PeakDeviceBytes)/(1<<20)), Seconds: duration(r.trainSeconds()),
	}
	if r.PredictedEpochSeconds > 0 {
		row.Predicted = duration(r.PredictedEpochSeconds)
	}
	if lacks := r.Incomplete(); lacks != "" {
		row.State = lacks
	} else if len(r.Runs) > 1 {
		row.State = fmt.Sprintf("complete, %d seeds", len(r.Runs))
	}
	return row
}

func (c *content) addPreprocessing(r Run) {
	if r.Propagation.Seconds == 0 {
		c.Unknown = append(c.Unknown, r.Name)
		return
	}
	hops := 0
	for _, m := range r.Spec.Matrices {
		hops = max(hops, m.Hop)
	}
	s, train := r.figures(), r.trainSeconds()
	row := preprocessing{
		Name: r.Name, Hops: fmt.Sprint(hops), Propagate: duration(r.Propagation.Seconds),
		Epoch:  duration(s.EpochSeconds.Mean),
		Epochs: number(s.Epochs), Training: duration(train), Share: "–",
	}
	if train > 0 {
		row.Share = fmt.Sprintf("%.0f %%", 100*r.Propagation.Seconds/train)
	}
	if r.Propagation.AtLeast {
		row.Propagate, c.AtLeast = "≥ "+row.Propagate, true
		if train > 0 {
			row.Share = "≥ " + row.Share
		}
	}
	c.Table7 = append(c.Table7, row)
}

// settings are all that some run has, and those that differ.
func settings(runs []Run) (all, differ settingsTable) {
	names := map[string]bool{}
	for _, r := range runs {
		all.Columns = append(all.Columns, r.Name)
		for name := range r.Config {
			names[name] = true
		}
	}
	differ.Columns = all.Columns
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row, same := []string{name}, true
		for _, r := range runs {
			row = append(row, short(r.Config[name]))
			same = same && r.Config[name] == runs[0].Config[name]
		}
		all.Rows = append(all.Rows, row)
		if !same {
			differ.Rows = append(differ.Rows, row)
		}
	}
	return all, differ
}

// short is a setting with at most four digits, if it is a number of many, and the first 16 digits of a fingerprint.
func short(value string) string {
	if _, err := hex.DecodeString(value); err == nil && len(value) == 2*sha256.Size {
		return value[:16]
	}
	if v, err := strconv.ParseFloat(value, 64); err == nil && strings.Contains(value, ".") && len(value) > 8 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return value
}

// trials are those of a run, with the settings that they vary.
func trials(r Run) trialsTable {
	t := trialsTable{Run: r.Name}
	names := map[string]bool{}
	for _, trial := range r.Trials {
		for name := range trial.Settings {
			names[name] = names[name] || trial.Settings[name] != r.Trials[0].Settings[name]
		}
	}
	maps.DeleteFunc(names, func(_ string, varies bool) bool { return !varies })
	varied := slices.Sorted(maps.Keys(names))
	t.Columns = varied
	if best := tune.Best(r.Trials); best != nil {
		t.Chosen = best.Number
	}
	sorted := slices.Clone(r.Trials)
	slices.SortStableFunc(sorted, func(a, b tune.Trial) int {
		switch {
		case a.Better(b.Outcome):
			return -1
		case b.Better(a.Outcome):
			return 1
		}
		return 0
	})
	for _, trial := range sorted {
		result := trial.Failed
		if trial.Valid != nil {
			result = valueText(trial.Metric, &trainer.Spread{Mean: *trial.Valid})
		}
		row := []string{fmt.Sprint(trial.Number), result, fmt.Sprint(trial.BestEpoch), duration(trial.Seconds)}
		for _, name := range varied {
			value := short(trial.Settings[name])
			if value == "" {
				value = "default"
			}
			row = append(row, value)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// valueText is a value of a metric: in percent, or in units of its own.
func valueText(metric string, s *trainer.Spread) string {
	own := trainer.LowerIsBetter(metric)
	switch {
	case s == nil:
		return "–"
	case own && s.N > 1:
		return fmt.Sprintf("%.4g ± %.2g", s.Mean, s.Std)
	case own:
		return fmt.Sprintf("%.4g", s.Mean)
	case s.N > 1:
		return fmt.Sprintf("%.2f ± %.2f %%", 100*s.Mean, 100*s.Std)
	}
	return fmt.Sprintf("%.2f %%", 100*s.Mean)
}

func number(s *trainer.Spread) string { return fmt.Sprintf("%.0f", s.Mean) }

// duration is a time with three digits.
func duration(seconds float64) string {
	switch {
	case seconds >= 7200:
		return fmt.Sprintf("%.3g h", seconds/3600)
	case seconds >= 120:
		return fmt.Sprintf("%.3g min", seconds/60)
	case seconds >= 1:
		return fmt.Sprintf("%.3g s", seconds)
	}
	return fmt.Sprintf("%.3g ms", 1000*seconds)
}

// count is a large number, with spaces between groups of three digits.
func count(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	var groups []string
	for len(text) > 3 {
		groups, text = append([]string{text[len(text)-3:]}, groups...), text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, groups...), " ")
}
