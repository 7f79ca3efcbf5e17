package command

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// trained is the result of train; evaluate fills in the fields that apply to it.
type trained struct {
	training.Report
	checkpoint.Summary
	Model      string           `json:"model"`
	Dataset    string           `json:"dataset"`
	Matrices   []string         `json:"matrices"`
	Settings   trainer.Settings `json:"settings"`
	RemoteRows float64          `json:"remote_rows"`      // share of the training rows that another device held
	Splits     []int            `json:"splits,omitempty"` // if several were trained on
	Seconds    float64          `json:"seconds"`
	Runs       []checkpoint.Run `json:"runs,omitempty"`
	Resumed    bool             `json:"resumed,omitempty"` // parts of the runs were made before
	Output     string           `json:"output,omitempty"`

	rows  [3]int64    // train, valid, test
	graph *tune.Graph // nil: a store
	// The least of all epochs: seconds of training without validation, and seconds of all processors together.
	fastestSeconds, processorSeconds float64
}

func (t *trained) Text(w io.Writer) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	spread := func(mean, std *float64) string {
		switch {
		case mean == nil || len(t.Seeds) == 1:
			return trainer.MetricText(t.Metric, mean)
		case trainer.LowerIsBetter(t.Metric):
			return fmt.Sprintf("%s +- %s", trainer.LossText(*mean), trainer.LossText(*std))
		}
		return fmt.Sprintf("%.2f +- %.2f %%", 100**mean, 100**std)
	}
	line("model", "%s on %s, %s of %s", t.Model, units.Printable(t.Dataset), units.Count(t.rows[0], "row"),
		listText(t.Matrices))
	gather := ""
	if t.Load.Gather != "" && t.Shuffle == placement.RR {
		gather = ", gathered by the " + t.Load.Gather
	}
	if c := t.EpochTraffic; c.CachedRows > 0 {
		gather += fmt.Sprintf("; %.3g %% of rows from the cache", 100*float64(c.CachedRows)/float64(c.Rows))
	}
	line("input", "from %s%s%s; read: %s", t.Placement, shuffleText(t.Shuffle), gather, readsText(t.Load))
	if t.Devices > 1 {
		moved := ""
		if t.Sharded {
			moved = fmt.Sprintf("; %.2g %% of the training rows moved (predicted %.2g %%), %s in all",
				100*t.RemoteRows, 100*t.PredictedRemoteRows, units.Bytes(t.RemoteBytes))
		}
		line("devices", "%d, which share each batch%s", t.Devices, moved)
	}
	line("epochs", "%.0f, selected %.0f: %s", *t.Epochs, *t.BestEpoch, t.Selection)
	line("loss", "%s", trainer.LossText(*t.TrainLoss))
	line("valid", "%s %s (epoch %.0f of %.0f, %s)", t.Metric, spread(t.ValidMetric, t.ValidMetricStd),
		*t.BestEpoch, *t.Epochs, units.Count(t.rows[1], "row"))
	line("test", "%s %s (%s)", t.Metric, spread(t.TestMetric, t.TestMetricStd), units.Count(t.rows[2], "row"))
	for _, i := range mostImportant(t.Importance) {
		change := fmt.Sprintf("%+.2f %%", -100*i.MetricLoss)
		if trainer.LowerIsBetter(t.Metric) {
			change = fmt.Sprintf("%+.4g", i.MetricLoss)
		}
		line("without", "%s: %s %s, loss %+.3g", i.Matrix, t.Metric, change, i.LossRise)
	}
	predicted := ""
	if t.PredictedEpochSeconds != nil {
		predicted = fmt.Sprintf(" (predicted %.4f s)", *t.PredictedEpochSeconds)
	}
	for _, run := range t.Runs {
		if run.Submission != "" {
			line("steps", "%s", run.Submission)
			break
		}
	}
	line("time", "%.1f s in all; %.4f s an epoch%s, %.0f rows/s; %.2f s waiting for input", t.Seconds, *t.EpochSeconds,
		predicted, *t.RowsPerSecond, *t.LoadWaitSeconds)
	if t.Schedule != nil {
		t.Schedule.WriteText(w)
	}
	if t.Queues != nil {
		t.Queues.WriteText(w, float64(t.rows[0])/(*t.RowsPerSecond))
	}
	splits := ""
	if len(t.Splits) > 0 {
		splits = ", splits " + (*splitNumbers)(&t.Splits).String()
	}
	if n := len(t.Seeds); n > 1 {
		line("runs", "%d%s, seeds %d to %d", n, splits, t.Seeds[0], t.Seeds[n-1])
	}
	if unfinished := len(t.Runs) - len(t.Seeds); unfinished > 0 {
		line("not counted", "%s that did not finish", units.Count(int64(unfinished), "run"))
	}
	if t.Output != "" {
		line("saved", "%s", t.Output)
	}
}

// mostImportant are up to ten matrices, the one that a model loses most without first.
func mostImportant(all []trainer.Importance) []trainer.Importance {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b trainer.Importance) int { return cmp.Compare(b.MetricLoss, a.MetricLoss) })
	return all[:min(10, len(all))]
}

// reportEpochs prints an epoch every two seconds, and the last.
func (a *app) reportEpochs(metric string, epochs int) func(string, trainer.Epoch) {
	const gap = 2 * time.Second
	last := time.Now()
	return func(label string, e trainer.Epoch) {
		if now := time.Now(); now.Sub(last) >= gap || e.Number == epochs {
			last = now
			a.note("%sepoch %d of %d: loss %s, valid %s, %.4f s", label, e.Number, epochs, trainer.LossText(e.TrainLoss),
				trainer.MetricText(metric, e.Valid), e.Seconds)
		}
	}
}

// result reports the runs that finished.
func (o *trainOptions) result(t *training.Runs) *trained {
	r := &trained{
		Report: t.Input.Report(), Summary: *checkpoint.Summarize(checkpoint.Finished(t.Saver.Runs)),
		Model: o.Model, Dataset: t.Dir.Manifest.Name, Matrices: matrixNames(t.Spec), Settings: o.Settings,
		RemoteRows: float64(t.Remote) / float64(max(t.Read, 1)), Runs: t.Saver.Runs, Resumed: t.Saver.Resumed,
		rows: t.Rows, graph: graphOf(&t.Dir.Manifest), processorSeconds: t.Saver.LeastCPU.Seconds(),
	}
	for i, e := range t.Saver.History {
		if i == 0 || e.TrainSeconds < r.fastestSeconds {
			r.fastestSeconds = e.TrainSeconds
		}
	}
	if t.Saver.LastSaved != nil {
		r.Output = o.run
	}
	return r
}

// listText lists the names of matrices, or says how many they are.
func listText(names []string) string {
	if len(names) > 10 {
		return matricesText(len(names))
	}
	return strings.Join(names, ", ")
}

// matrixNames are the names of the matrices that a model reads.
func matrixNames(spec trainer.Spec) (names []string) {
	for _, id := range spec.Matrices {
		name := id.String()
		if len(spec.Relations) > 0 {
			name = id.Operator
		}
		names = append(names, name)
	}
	return names
}

// shuffleText follows "input from storage" in messages.
func shuffleText(shuffle string) string {
	switch shuffle {
	case placement.RR:
		return ", rows reshuffled"
	case placement.CR:
		return ", chunks reshuffled"
	}
	return ""
}

// readsText says how many bytes were read from storage, and by which paths.
func readsText(stats loader.Stats) string {
	var parts []string
	for _, r := range stats.Reads {
		part := fmt.Sprintf("%s by %s reads", units.Bytes(r.Bytes), r.Path)
		if r.Reason != "" {
			part += " (" + r.Reason + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "nothing read"
	}
	return strings.Join(parts, ", ")
}
