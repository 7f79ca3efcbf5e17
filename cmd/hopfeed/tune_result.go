package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/report"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// tuned is the result of tune.
type tuned struct {
	Dataset      string       `json:"dataset"`
	Search       string       `json:"search"`
	Seed         uint64       `json:"seed"`
	Combinations int          `json:"combinations"`
	Trials       int          `json:"trials"`
	Failed       int          `json:"failed"`
	Seconds      float64      `json:"seconds"`    // of all trials
	Throughput   string       `json:"throughput"` // what seconds rows_per_second counts: wall or processor
	Memory       string       `json:"memory"`     // what memory_bytes counts: device or resident
	Metric       string       `json:"metric"`
	Front        []tunedPoint `json:"front"`              // by throughput
	Fastest      int          `json:"fastest,omitempty"`  // trial: T* of a3gnn
	Smallest     int          `json:"smallest,omitempty"` // M*
	Accurate     int          `json:"accurate,omitempty"`
	Balanced     int          `json:"balanced,omitempty"`
	// Surrogates is how well the three figures are predicted from settings, over all trials.
	Surrogates   []tune.Fitted `json:"surrogates"`
	Reproducible string        `json:"reproducible"` // what of the search is
	Output       string        `json:"output"`
}

// tunedPoint is a trial on the front.
type tunedPoint struct {
	Trial         int           `json:"trial"`
	RowsPerSecond float64       `json:"rows_per_second"` // see tuned.Throughput
	MemoryBytes   int64         `json:"memory_bytes"`
	Valid         float64       `json:"valid_metric"`
	Settings      tune.Settings `json:"settings"` // that differ from trial to trial
}

const reproducibleSearch = "the next trial is a function of the seed and of the trials before it, whose times are measured"

// result sums up trials of which at least one was measured. It has the content of tunedFiles; nil if the front is empty.
func (o *searchOptions) result(seed uint64, points *tune.Points, g tune.Goals, trials []tune.Trial) (r *tuned, files [][]byte, err error) {
	r = &tuned{Dataset: o.dataset, Search: o.search, Seed: seed, Combinations: points.Len(), Trials: len(trials), Memory: "resident", Throughput: o.throughput, Front: []tunedPoint{}, Reproducible: reproducibleSearch, Output: o.output}
	if g.DeviceMemory {
		r.Memory = "device"
	}
	for _, t := range trials {
		r.Seconds += t.Seconds
		if t.Failed != "" {
			r.Failed++
		} else {
			r.Metric = t.Metric
		}
	}
	r.Surrogates = points.Fit(g, trials, seed)
	front := g.Front(trials)
	for _, t := range front {
		p := tunedPoint{t.Number, g.Throughput(t.Outcome), g.Memory(t.Outcome), *t.Valid, without(t.Settings, points.Base)}
		r.Front = append(r.Front, p)
	}
	if len(front) == 0 {
		return r, nil, nil
	}
	page := report.Tuning{
		Title: fmt.Sprintf("Tuning of %s on %s", o.Model, o.dataset), Limits: o.limits(), Memory: r.Memory, Throughput: r.Throughput, Goals: g, Trials: trials, Fits: r.Surrogates,
	}
	html, err := page.Page()
	if err != nil {
		return nil, nil, err
	}
	c := g.Choose(front)
	r.Fastest, r.Smallest, r.Accurate, r.Balanced = c.Fastest.Number, c.Smallest.Number, c.Accurate.Number, c.Balanced.Number
	for _, t := range []tune.Trial{c.Balanced, c.Fastest, c.Smallest, c.Accurate} { // tunedFiles
		settings := maps.Clone(t.Settings)
		if o.trialEpochs > 0 {
			delete(settings, "epochs") // which trials alone are so few of
		}
		config, err := checkpoint.EncodeConfig(settings)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, append(fmt.Appendf(nil, "# Trial %d of a search by hopfeed tune: %.0f rows/s (%s), %s of memory (%s), validation %s %s.\n",
			t.Number, g.Throughput(t.Outcome), r.Throughput, units.Bytes(g.Memory(t.Outcome)), r.Memory, t.Metric, metricText(t.Metric, t.Valid)), config...))
	}
	return r, append(files, html), nil
}

func (r *tuned) text(w io.Writer) {
	fmt.Fprintf(w, "input\t%s\n", units.Printable(r.Dataset))
	fmt.Fprintf(w, "trials\t%d of %d combinations, %d failed, %.0f s; search by %s with seed %d\n", r.Trials, r.Combinations, r.Failed, r.Seconds, r.Search, r.Seed)
	fmt.Fprintf(w, "reproducible\t%s\n", r.Reproducible)
	if len(r.Surrogates) > 0 {
		var words []string
		for _, f := range r.Surrogates {
			if f.R2 != nil {
				words = append(words, fmt.Sprintf("%s %.2f by %s", f.Figure, *f.R2, f.Regression))
			}
		}
		fmt.Fprintf(w, "predictable\tR2 of trials that a regression has not seen: %s\n", cmp.Or(strings.Join(words, ", "), "too few trials"))
	}
	if len(r.Front) == 0 {
		return
	}
	fmt.Fprintf(w, "front\trows/s (%s)\tmemory (%s)\t%s\tsettings\n", r.Throughput, r.Memory, r.Metric)
	for _, p := range r.Front {
		mark := ""
		for _, m := range []struct {
			trial int
			name  string
		}{{r.Fastest, "fastest"}, {r.Smallest, "smallest"}, {r.Accurate, "accurate"}, {r.Balanced, "balanced"}} {
			if m.trial == p.Trial {
				mark += ", " + m.name
			}
		}
		fmt.Fprintf(w, "trial %d%s\t%.0f\t%s\t%s\t%s\n", p.Trial, mark, p.RowsPerSecond, units.Bytes(p.MemoryBytes), metricText(r.Metric, &p.Valid), settingsText(p.Settings))
	}
	fmt.Fprintf(w, "saved\t%s: %s (balanced), %s, %s, %s for train --config; %s\n", r.Output, tunedConfig, fastestConfig, smallestConfig, accurateConfig, tunedPage)
}
