package report

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/chart"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/trainer"
)

// runKeys is the legend of charts with a colour for each run; nil for a single run.
func runKeys(runs []Run) (keys []chart.Key) {
	if len(runs) == 1 {
		return nil
	}
	for i, r := range runs {
		keys = append(keys, chart.Key{Name: r.Name, Color: chart.Color(i)})
	}
	return keys
}

// metricAxis is the axis of a metric: in percent, or in its own units.
func metricAxis(what, metric string) chart.Axis {
	if trainer.LowerIsBetter(metric) {
		return chart.Axis{Name: what + metric}
	}
	return chart.Axis{Name: what + metric + " (%)", Text: func(v float64) string { return fmt.Sprintf("%.4g", 100*v) }}
}

// curves adds metric and loss of each epoch for each run, if some epoch has ended.
func curves(p *chart.Page, runs []Run) {
	metric := cmp.Or(metricOf(runs), "metric")
	dots, bands := "", ""
	heading := sync.OnceFunc(func() { p.Heading("Learning curves") })
	for _, of := range []struct {
		title string
		axis  chart.Axis
		value func(e checkpoint.EpochMetrics) *float64
	}{
		{"Validation " + metric, metricAxis("", metric),
			func(e checkpoint.EpochMetrics) *float64 { return e.ValidMetric }},
		{"Training loss", chart.Axis{Name: "loss"}, func(e checkpoint.EpochMetrics) *float64 { return &e.TrainLoss }},
	} {
		xy := &chart.XY{X: chart.Axis{Name: "epoch", Whole: true}, Y: of.axis}
		low, high := math.Inf(1), math.Inf(-1)
		for i, r := range runs {
			line, best := meanCurve(r, of.value)
			if len(line.X) == 0 {
				continue
			}
			line.Color = chart.Color(i)
			xy.Lines = append(xy.Lines, line)
			low, high = min(low, slices.Min(line.Low)), max(high, slices.Max(line.High))
			if len(r.Runs) > 1 {
				bands = "With several seeds, the line is their mean while at least half of them go on, and the band " +
					"is their range."
			}
			if best >= 0 {
				dots = "A dot is the selected epoch."
				xy.Points = append(xy.Points, chart.Point{X: line.X[best], Y: line.Y[best], Color: line.Color})
			}
		}
		if len(xy.Lines) > 0 {
			xy.Y.Log = low > 0 && high > 10*low
			heading()
			p.Figure(&chart.Figure{Title: of.title, Keys: runKeys(runs), Plots: []chart.Plot{xy}})
		}
	}
	p.Note(dots, bands)
}

// meanCurve is the mean over the seeds of a run, as long as at least half of them go on, with their range as band.
// best is the place of the selected epoch, -1 if there are several seeds or none is selected.
func meanCurve(r Run, value func(checkpoint.EpochMetrics) *float64) (c chart.Line, best int) {
	byEpoch := map[int][]float64{}
	last := 0
	for _, e := range r.History {
		if v := value(e); v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
			byEpoch[e.Epoch] = append(byEpoch[e.Epoch], *v)
			last = max(last, e.Epoch)
		}
	}
	best = -1
	for epoch := 1; epoch <= last; epoch++ {
		values := byEpoch[epoch]
		if len(values) == 0 || 2*len(values) < len(r.Runs) {
			continue
		}
		mean := 0.0
		for _, v := range values {
			mean += v / float64(len(values))
		}
		if len(r.Runs) == 1 && epoch == r.Runs[0].BestEpoch {
			best = len(c.X)
		}
		c.X, c.Y = append(c.X, float64(epoch)), append(c.Y, mean)
		c.Low, c.High = append(c.Low, slices.Min(values)), append(c.High, slices.Max(values))
	}
	return c, best
}

// seeds draws the test metric of each seed of each training, or the validation metric if no seed was tested, with
// mean and standard deviation; nil if no training has several seeds, or metrics differ.
func seeds(runs []Run) *chart.Figure {
	metric := metricOf(runs)
	if metric == "" {
		return nil
	}
	what, of := "Test ", func(r checkpoint.Run) *float64 { return r.TestMetric }
	figure := func(s *checkpoint.Summary) (mean, std *float64) { return s.TestMetric, s.TestMetricStd }
	if !slices.ContainsFunc(runs, func(r Run) bool { return r.figures().TestMetric != nil }) {
		what, of = "Validation ", func(r checkpoint.Run) *float64 { return r.ValidMetric }
		figure = func(s *checkpoint.Summary) (mean, std *float64) { return s.ValidMetric, s.ValidMetricStd }
	}
	p := &chart.Rows{X: metricAxis("", metric), From: math.Inf(1), To: math.Inf(-1)}
	several := false
	for i, r := range runs {
		mean, std := figure(r.figures())
		if mean == nil {
			continue
		}
		row := chart.Row{Name: r.Name, Label: valueText(metric, mean, std), Color: chart.Color(i), Mean: mean}
		for _, run := range r.Runs {
			if v := of(run); v != nil && run.State == checkpoint.RunFinished {
				row.Rings = append(row.Rings, *v)
				p.From, p.To = min(p.From, *v), max(p.To, *v)
			}
		}
		low, high := *mean-*std, *mean+*std
		if *std > 0 {
			row.Bars = []chart.Bar{{From: low, To: high, Color: row.Color, Pale: true}}
		}
		p.From, p.To, several = min(p.From, low), max(p.To, high), several || len(row.Rings) > 1
		p.Rows = append(p.Rows, row)
	}
	if !several {
		return nil
	}
	margin := (p.To - p.From) / 20
	p.From, p.To = p.From-margin, p.To+margin
	return &chart.Figure{Title: what + metric + " of each seed", Plots: []chart.Plot{p}}
}

// point is a training in the chart of accuracy against epoch time.
type point struct {
	name, color string
	sampled     bool    // its model reads a graph
	seconds     float64 // of an epoch of training
	test, std   float64
}

// trainEpochSeconds is the median time of an epoch without validation, 0 if none has ended.
func (r *Run) trainEpochSeconds() float64 {
	n := len(r.History)
	if n == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(r.History),
		func(a, b checkpoint.EpochMetrics) int { return cmp.Compare(a.TrainSeconds, b.TrainSeconds) })
	return (sorted[(n-1)/2].TrainSeconds + sorted[n/2].TrainSeconds) / 2
}

func (r *Run) readsGraph() bool {
	aggregation, err := trainer.AggregationOf(r.Spec.Model)
	return err == nil && aggregation != ""
}

// points are the trainings that have a test metric and an epoch, by epoch time.
func points(runs []Run) (all []point) {
	for i, r := range runs {
		p := point{name: r.Name, color: chart.Color(i), seconds: r.trainEpochSeconds(), sampled: r.readsGraph()}
		if s := r.figures(); s.TestMetric != nil && p.seconds > 0 {
			p.test, p.std = *s.TestMetric, *s.TestMetricStd
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b point) int { return cmp.Compare(a.seconds, b.seconds) })
	return all
}

// frontier are the points that are better than all faster ones (preprop-gnn section 6.1). all is by epoch time.
func frontier(all []point, lower bool) (best []point) {
	for _, p := range all {
		n := len(best)
		if n > 0 && ((p.test > best[n-1].test) == lower || p.test == best[n-1].test) {
			continue
		}
		if n > 0 && p.seconds == best[n-1].seconds {
			best = best[:n-1]
		}
		best = append(best, p)
	}
	return best
}

// Chart returns the chart of the test metric against the time of an epoch, as a file.
func Chart(runs []Run) ([]byte, error) {
	f, notes, err := tradeoff(runs)
	if err != nil {
		return nil, err
	}
	f.Notes = notes
	return f.File(), nil
}

// addTradeoff adds the chart of the test metric against the time of an epoch, or why there is none.
func addTradeoff(p *chart.Page, runs []Run) {
	p.Heading("Comparison")
	f, notes, err := tradeoff(runs)
	if err != nil {
		p.Text("No chart: " + err.Error() + ".")
		return
	}
	p.Figure(f)
	p.Note(notes...)
}

// tradeoff draws the test metric of trainings against the time of an epoch (preprop-gnn Figures 7 and 11).
func tradeoff(runs []Run) (f *chart.Figure, notes []string, err error) {
	metric, all := metricOf(runs), points(runs)
	switch {
	case metric == "":
		return nil, nil, errors.New("the trainings have different metrics")
	case len(all) < 2:
		return nil, nil, errors.New("fewer than two trainings have been tested")
	}
	unit, per := chart.TimeUnit(all[len(all)-1].seconds)
	xy := &chart.XY{X: chart.Axis{Name: "an epoch of training (" + unit + ")", Log: true},
		Y: metricAxis("test ", metric)}
	best := frontier(all, trainer.LowerIsBetter(metric))
	dashed := chart.Line{Color: chart.Grey, Dashed: true}
	for _, b := range best {
		dashed.X, dashed.Y = append(dashed.X, b.seconds/per), append(dashed.Y, b.test)
	}
	xy.Lines = []chart.Line{dashed}
	var stores, graphs, spread bool
	for _, t := range all {
		stores, graphs, spread = stores || !t.sampled, graphs || t.sampled, spread || t.std > 0
		mark := chart.Point{X: t.seconds / per, Y: t.test, Spread: t.std, Color: t.color, Name: t.name,
			About: fmt.Sprintf("%s: %s, %s", t.name, valueText(metric, &t.test, &t.std), duration(t.seconds))}
		if t.sampled {
			mark.Mark = chart.Square
		}
		xy.Points = append(xy.Points, mark)
	}
	lower := trainer.LowerIsBetter(metric)
	notes = []string{"As preprop-gnn Figures 7 and 11. The epoch is the median, without validation.",
		only(!lower, "Better is up and to the left."), only(lower, "Better is down and to the left."),
		only(stores && graphs, "A circle is a model that reads a hop store, a square one that reads a graph."),
		only(len(best) > 1, "The dashed line joins the trainings that no other beats in both."),
		only(spread, "Bars are standard deviations over seeds."),
		only(stores, "The time leaves propagation out.")}
	return &chart.Figure{Title: "Test " + metric + " against the time of an epoch", Keys: runKeys(runs),
		Plots: []chart.Plot{xy}}, notes, nil
}

// only is a text where something holds.
func only(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

// matrices adds what the trainings that measured it lose without each of their matrices, the most first.
func matrices(p *chart.Page, runs []Run) {
	drawn, rings := false, false
	for i, r := range runs {
		metric, all := r.Options.Metric, r.figures().Importance
		if len(all) == 0 {
			continue
		}
		order := make([]int, len(all))
		for m := range order {
			order[m] = m
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[b].MetricLoss, all[a].MetricLoss) })
		rows := &chart.Rows{X: metricAxis("lost ", metric)}
		for _, m := range order {
			lost := all[m].MetricLoss
			row := chart.Row{Name: matrixName(all[m].Matrix), Color: chart.Color(i),
				Label: fmt.Sprintf("%s, loss %+.2g", valueText(metric, &lost, nil), all[m].LossRise),
				Bars: []chart.Bar{{From: min(0, lost), To: max(0, lost), Color: chart.Color(i), Pale: len(r.Runs) > 1,
					About: all[m].Matrix}}}
			rows.From, rows.To = min(rows.From, lost), max(rows.To, lost)
			for _, run := range checkpoint.Finished(r.Runs) {
				if len(r.Runs) > 1 && m < len(run.Importance) {
					row.Rings, rings = append(row.Rings, run.Importance[m].MetricLoss), true
					rows.From = min(rows.From, run.Importance[m].MetricLoss)
					rows.To = max(rows.To, run.Importance[m].MetricLoss)
				}
			}
			rows.Rows = append(rows.Rows, row)
		}
		if rows.From < 0 { // room for a ring
			rows.From -= (rows.To - rows.From) / 30
		}
		if !drawn {
			p.Heading("Importance of matrices")
		}
		drawn = true
		p.Figure(&chart.Figure{Title: fmt.Sprintf("What %s (%s) loses without a matrix", r.Name, r.Spec.Model),
			Plots: []chart.Plot{rows}})
	}
	if drawn {
		p.Note("How much worse the selected epoch predicts the validation rows, in metric and loss, if each row of the "+
			"matrix is replaced by their mean. What several matrices tell is not lost with one of them.",
			only(rings, "A ring is one seed, the bar their mean."))
	}
}

// matrixName is the name of a matrix for a chart: of a typed graph's store, whose operators have one hop and are of one
// kind, the metapath.
func matrixName(matrix string) string {
	if strings.Contains(matrix, "<") {
		matrix = strings.TrimSuffix(matrix[strings.Index(matrix, ":")+1:], "/hop-1")
	}
	return matrix
}

// stageKeys are the stages of a run, in the order in which they are drawn.
var stageKeys = []struct{ stage, name, color string }{
	{"load_wait", "waiting for input", chart.Red},
	{"compute", "training", chart.Blue},
	{"validate", "validation", chart.Sky},
	{"test", "test", chart.Grey},
}

// times adds the time of each stage of the runs, and of their epochs beside the predicted ones.
func times(p *chart.Page, runs []Run) {
	longestRun, longestEpoch := 0.0, 0.0
	for _, r := range runs {
		longestRun = max(longestRun, r.seconds())
		longestEpoch = max(longestEpoch, *r.figures().EpochSeconds, r.PredictedEpochSeconds)
	}
	if longestRun+longestEpoch == 0 {
		return
	}
	unit, per := chart.TimeUnit(longestRun)
	stages := &chart.Rows{X: chart.Axis{Name: "time (" + unit + ")"}}
	unit, perEpoch := chart.TimeUnit(longestEpoch)
	epochs := &chart.Rows{X: chart.Axis{Name: "time (" + unit + ")"}}
	occurs, predicted := map[string]bool{}, false
	for i, r := range runs {
		s := r.figures().StageSeconds
		if total := r.seconds(); total > 0 {
			row := chart.Row{Name: r.Name,
				Label: fmt.Sprintf("%s, %.0f %% waiting", duration(total), 100*s["load_wait"]/total)}
			for _, k := range stageKeys {
				row.Bars = chart.Stack(row.Bars, s[k.stage]/per, k.color)
				occurs[k.stage] = occurs[k.stage] || s[k.stage] > 0
			}
			stages.Rows = append(stages.Rows, row)
		}
		measured := *r.figures().EpochSeconds
		if !(measured > 0) {
			continue
		}
		bar := chart.Bar{To: measured / perEpoch, Color: chart.Color(i)}
		epochs.Rows = append(epochs.Rows, chart.Row{Name: r.Name, Label: "measured " + duration(measured),
			Bars: []chart.Bar{bar}, Apart: true})
		if seconds := r.PredictedEpochSeconds; seconds > 0 {
			predicted = true
			bar.To, bar.Pale = seconds/perEpoch, true
			label := fmt.Sprintf("predicted %s (%.2f ×)", duration(seconds), seconds/measured)
			epochs.Rows = append(epochs.Rows, chart.Row{Label: label, Bars: []chart.Bar{bar}})
		}
	}
	if len(stages.Rows)+len(epochs.Rows) == 0 {
		return
	}
	p.Heading("Time")
	if len(stages.Rows) > 0 {
		f := &chart.Figure{Title: "Time of a run, by stage", Plots: []chart.Plot{stages}}
		for _, k := range stageKeys {
			if occurs[k.stage] {
				f.Keys = append(f.Keys, chart.Key{Name: k.name, Color: k.color})
			}
		}
		p.Figure(f)
	}
	if len(epochs.Rows) > 0 {
		p.Figure(&chart.Figure{Title: "Time of an epoch", Plots: []chart.Plot{epochs}})
		p.Note("The median epoch, validation included.",
			only(predicted, "The pale bar is the plan's prediction from before the training."))
	}
}

// places are where feature rows come from, in the order in which they are drawn.
var places = []struct {
	name, color string
	bytes       func(t loader.Traffic) int64
}{
	{"storage", chart.Red, func(t loader.Traffic) int64 { return t.StorageBytes }},
	{"host memory", chart.Orange, func(t loader.Traffic) int64 { return t.HostBytes }},
	{"device memory", chart.Blue, func(t loader.Traffic) int64 { return t.DeviceBytes }},
	{"a cache", chart.Sky, func(t loader.Traffic) int64 { return t.CacheBytes }},
}

// traffic adds the bytes of features of an epoch (preprop-gnn Appendix I) of the runs that counted them.
func traffic(p *chart.Page, runs []Run) {
	rows := &chart.Rows{X: chart.Axis{Name: "feature bytes (MiB)"}}
	var all loader.Traffic
	least := int64(math.MaxInt64)
	for _, r := range runs {
		if n := r.figures().EpochTraffic.Bytes(); n > 0 {
			least = min(least, n)
		}
	}
	sampled := false
	for _, r := range runs {
		t := r.figures().EpochTraffic
		n := t.Bytes()
		if n == 0 {
			continue
		}
		all.Add(t)
		sampled = sampled || r.readsGraph() && t.Rows > 0
		row := chart.Row{Name: r.Name, Label: units.Bytes(n).String()}
		for _, p := range places {
			row.Bars = chart.Stack(row.Bars, float64(p.bytes(t))/(1<<20), p.color)
		}
		if n > least {
			row.Label += fmt.Sprintf(" (%.3g ×)", float64(n)/float64(least))
		}
		if t.CachedRows > 0 {
			row.Label += fmt.Sprintf(", %.0f %% cached", 100*t.HitRate())
		}
		rows.Rows = append(rows.Rows, row)
	}
	if len(rows.Rows) == 0 {
		return
	}
	f := &chart.Figure{Title: "Feature bytes of an epoch", Plots: []chart.Plot{rows}}
	for _, p := range places {
		if p.bytes(all) > 0 {
			f.Keys = append(f.Keys, chart.Key{Name: p.name, Color: p.color})
		}
	}
	p.Heading("Bytes of features in an epoch")
	p.Figure(f)
	p.Note("As preprop-gnn Appendix I: bytes of the feature rows of all training batches, as stored, by the place "+
		"they came from. Loading before the first epoch and bytes read beyond rows do not count.",
		only(sampled, "A model that samples a graph counts a row in each batch that needs it."),
		only(all.CachedRows > 0, "What a cache had was not moved; a row that entered the cache during training counts "+
			"where it came from."))
}
