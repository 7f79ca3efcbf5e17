// Package report makes a page about trainings that were saved: one HTML file with charts in it, which
// needs nothing else to be read.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
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

// Page returns the page about at least one run.
func Page(runs []Run) []byte {
	title := fmt.Sprintf("%d trainings", len(runs))
	if len(runs) == 1 {
		title = "Training " + runs[0].Name
	}
	p := chart.NewPage(title)
	means := ""
	if slices.ContainsFunc(runs, func(r Run) bool { return len(r.Runs) > 1 }) {
		means = "Figures are means over the finished seeds of a training, ± their sample standard deviation."
	}
	p.Note("Written by hopfeed report, version "+version.Version+".", means)
	results(p, runs)
	settings(p, runs)
	curves(p, runs)
	if len(runs) > 1 {
		addTradeoff(p, runs)
	}
	matrices(p, runs)
	traffic(p, runs)
	times(p, runs)
	preprocessing(p, runs)
	for _, r := range runs {
		if len(r.Trials) > 0 {
			trials(p, r)
		}
	}
	return p.File()
}

// figures are the means over the runs that finished or, if none has, over all.
func (r *Run) figures() *checkpoint.Summary {
	finished := checkpoint.Finished(r.Runs)
	if len(finished) == 0 {
		finished = r.Runs
	}
	return checkpoint.Summarize(finished)
}

// seconds is the mean time of a run.
func (r *Run) seconds() (seconds float64) {
	for _, s := range r.figures().StageSeconds {
		seconds += s
	}
	return seconds
}

// metricOf is the metric of the trainings, "" if they have different ones.
func metricOf(runs []Run) string {
	metric := runs[0].Options.Metric
	if slices.ContainsFunc(runs, func(r Run) bool { return r.Options.Metric != metric }) {
		return ""
	}
	return metric
}

func results(p *chart.Page, runs []Run) {
	metric := cmp.Or(metricOf(runs), "metric")
	t := &chart.Table{Texts: 3, Columns: []string{"training", "model", "data", "validation " + metric, "test " + metric,
		"epochs", "selected", "epoch", "rows/s", "run", "device memory"}}
	p.Heading("Results")
	for i, r := range runs {
		s, data := r.figures(), r.Data.Name
		if r.Data.LabelHops > 0 {
			data += fmt.Sprintf(", labels over %s", units.Count(int64(r.Data.LabelHops), "hop"))
		}
		t.Rows = append(t.Rows, chart.TableRow{Color: chart.Color(i), Cells: []string{r.Name, r.Spec.Model, data,
			valueText(r.Options.Metric, s.ValidMetric, s.ValidMetricStd),
			valueText(r.Options.Metric, s.TestMetric, s.TestMetricStd), number(s.Epochs), number(s.BestEpoch),
			duration(*s.EpochSeconds), count(*s.RowsPerSecond), duration(r.seconds()),
			fmt.Sprintf("%.1f MiB", float64(s.PeakDeviceBytes)/(1<<20))}})
	}
	p.Table(t)
	for _, r := range runs {
		state := "complete"
		if lacks := r.Incomplete(); lacks != "" {
			state = lacks
		} else if len(r.Runs) > 1 {
			state = fmt.Sprintf("complete, %d seeds", len(r.Runs))
		}
		p.Note(r.Name + ": " + state)
	}
	if f := seeds(runs); f != nil {
		p.Figure(f)
		p.Note("A ring is one seed, the line is the mean of the seeds, the band one standard deviation to each side.")
	}
}

// preprocessing adds preprop-gnn Table 7, for the trainings that read a store.
func preprocessing(p *chart.Page, runs []Run) {
	t := &chart.Table{Texts: 1, Columns: []string{"training", "hops", "propagation", "epoch", "epochs", "one run",
		"propagation / run"}}
	var unknown []string
	atLeast := ""
	for _, r := range runs {
		if r.readsGraph() {
			continue
		}
		took := r.Propagation
		if took.Seconds == 0 {
			unknown = append(unknown, r.Name)
			continue
		}
		hops, sign := 0, ""
		for _, m := range r.Spec.Matrices {
			hops = max(hops, m.Hop)
		}
		if took.AtLeast {
			sign = "≥ "
			atLeast = "≥: propagation ran in several runs, and only the last one's time is known."
		}
		s, share := r.figures(), "–"
		if r.seconds() > 0 {
			share = fmt.Sprintf("%s%.0f %%", sign, 100*took.Seconds/r.seconds())
		}
		t.Add(r.Name, fmt.Sprint(hops), sign+duration(took.Seconds), duration(*s.EpochSeconds), number(s.Epochs),
			duration(r.seconds()), share)
	}
	if len(t.Rows)+len(unknown) > 0 {
		p.Heading("Preprocessing")
	}
	if len(t.Rows) > 0 {
		p.Table(t)
		p.Note("As preprop-gnn Table 7: the time of one propagation beside the time of one run of training.", atLeast)
	}
	if len(unknown) > 0 {
		p.Text("Not known for " + strings.Join(unknown, ", ") + ": the store of the training is gone, has more hops " +
			"now, or was copied without its folder's attributes. Give --propagation the output of hopfeed propagate " +
			"--json.")
	}
}

// settings adds what some training sets: of several trainings what differs, and all of it for readers who ask.
func settings(p *chart.Page, runs []Run) {
	names := map[string]bool{}
	columns := []string{"setting"}
	for _, r := range runs {
		columns = append(columns, r.Name)
		for name := range r.Config {
			names[name] = true
		}
	}
	all, differ := &chart.Table{Texts: 1, Columns: columns}, &chart.Table{Texts: 1, Columns: columns}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row, same := []string{name}, true
		for _, r := range runs {
			row = append(row, tune.Short(r.Config[name]))
			same = same && r.Config[name] == runs[0].Config[name]
		}
		all.Add(row...)
		if !same {
			differ.Add(row...)
		}
	}
	p.Heading("Settings")
	switch {
	case len(runs) == 1:
		p.Table(all)
		return
	case len(differ.Rows) > 0:
		p.Text("Settings that differ:")
		p.Table(differ)
	default:
		p.Text("All trainings have the same settings.")
	}
	p.Details("All settings", all)
}

// varied lists the settings that are not the same in all trials.
func varied(trials []tune.Trial) []string {
	names := map[string]bool{}
	for _, t := range trials {
		for _, name := range tune.Differing(t.Settings, trials[0].Settings) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// trials adds the trials of a run, the best first, with the settings that they vary.
func trials(p *chart.Page, r Run) {
	names := varied(r.Trials)
	t := &chart.Table{Columns: append([]string{"trial", "validation", "epoch", "time"}, names...)}
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
			result = valueText(trial.Metric, trial.Valid, nil)
		}
		row := []string{fmt.Sprint(trial.Number), result, fmt.Sprint(trial.BestEpoch), duration(trial.Seconds)}
		for _, name := range names {
			row = append(row, cmp.Or(tune.Short(trial.Settings[name]), "default"))
		}
		t.Add(row...)
	}
	chosen := 0
	if best := tune.Best(r.Trials); best != nil {
		chosen, t.Rows[0].Chosen = best.Number, true
	}
	p.Heading("Trials of " + r.Name)
	p.Text(fmt.Sprintf("%d trials, the best first. Trial %d was chosen, by its validation metric alone.", len(sorted),
		chosen))
	p.Table(t)
}

// valueText is a value of a metric and its deviation, if any: in percent, or in units of its own.
func valueText(metric string, v, std *float64) string {
	if v == nil {
		return "–"
	}
	value, deviation, per, unit := "%.2f", " ± %.2f", 100.0, " %"
	if trainer.LowerIsBetter(metric) {
		value, deviation, per, unit = "%.4g", " ± %.2g", 1, ""
	}
	text := fmt.Sprintf(value, per**v)
	if std != nil && *std > 0 {
		text += fmt.Sprintf(deviation, per**std)
	}
	return text + unit
}

func number(n *float64) string { return fmt.Sprintf("%.0f", *n) }

func duration(seconds float64) string {
	unit, per := chart.TimeUnit(seconds)
	return fmt.Sprintf("%.3g %s", seconds/per, unit)
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

// Load reads the trainings in some folders. seconds is how long propagations took, by the resolved folder of the
// store; otherwise the store says it.
func Load(fsys vfs.FS, dirs []string, seconds map[string]float64) (runs []Run, err error) {
	for _, dir := range dirs {
		r := Run{Name: filepath.Base(filepath.Clean(dir))}
		if len(dirs) > 1 {
			r.Name = filepath.Clean(dir)
		}
		if r.Checkpoint, err = checkpoint.LoadRun(fsys, dir); err != nil {
			return nil, err
		}
		text, err := checkpoint.ReadTrials(fsys, dir)
		if err != nil {
			return nil, err
		}
		if r.Trials, err = tune.Decode(text); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", filepath.Join(dir, checkpoint.TrialsFile), checkpoint.ErrInvalid, err)
		}
		if store := r.Config["store"]; store != "" {
			if store, err := fsys.Resolve(store); err == nil { // a store that is gone has no seconds
				if r.Propagation.Seconds = seconds[store]; r.Propagation.Seconds == 0 {
					r.Propagation = propagationOf(fsys, store, r.Data.Fingerprint)
				}
			}
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// propagationOf is how long it took to make the store that a training has read, if that is still there.
func propagationOf(fsys vfs.FS, store, fingerprint string) (t preprop.Took) {
	d, err := format.OpenAny(fsys, store)
	if err != nil {
		return t
	}
	defer d.Close()
	if d.Manifest.Kind != format.KindStore || d.Manifest.Fingerprint != fingerprint {
		return t
	}
	return preprop.TookOf(fsys, store)
}
