package report

import (
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/trainer"
)

// drawings is in how many widths a page has each figure.
const drawings = 3

// manyRuns are trainings with long names, several seeds, and epochs from milliseconds to minutes.
func manyRuns() (runs []Run) {
	for i, name := range []string{"runs/first", "a-very-long-folder/with-another-in-it/and-a-run-of-a-long-name", "x",
		"runs/y", "z"} {
		r := saved(name, 1+i%3)
		if i%2 == 1 {
			r.Spec = trainer.Spec{Model: "sage"}
		}
		for j := range r.Runs {
			test := 0.8 + float64(i)/100 + float64(j)/200
			r.Runs[j].TestMetric = &test
			r.Runs[j].EpochTraffic = loader.Traffic{Rows: 1000, CachedRows: 250, StorageBytes: 6<<20 + int64(i),
				CacheBytes: 3 << 20}
		}
		for j := range r.History {
			r.History[j].TrainSeconds = 0.003 * math.Pow(7, float64(i))
		}
		runs = append(runs, r)
	}
	return runs
}

func TestChartsAreDrawnForWideAndNarrowScreensLightAndDark(t *testing.T) {
	for i, runs := range [][]Run{{saved("one", 1)}, {saved("a", 1), saved("several", 3)}, manyRuns()} {
		page := pageOf(t, runs...)
		if n := strings.Count(page, "<figure>"); n < 4 || strings.Count(page, "<svg") != drawings*n {
			t.Errorf("page %d: %d charts in %d figures", i, strings.Count(page, "<svg"), n)
		}
		if !strings.Contains(page, "prefers-color-scheme: dark") || strings.Contains(page, "ZgotmplZ") {
			t.Errorf("page %d is for light screens alone, or its style was refused", i)
		}
	}
}

// TestNothingIsExplainedThatIsNotDrawn gives pages that lack each of the things that captions are about.
func TestNothingIsExplainedThatIsNotDrawn(t *testing.T) {
	begun := saved("begun", 1)
	begun.Runs[0], begun.History = checkpoint.Run{State: checkpoint.RunInProgress}, nil
	graph := saved("graph", 1)
	graph.Spec, graph.PredictedEpochSeconds = trainer.Spec{Model: "sage"}, 0
	for _, c := range []struct {
		name        string
		runs        []Run
		says, lacks []string
	}{
		{"without an epoch", []Run{begun}, nil, []string{"Learning curves", "A dot is", "Bytes of features", "<h2>Time",
			"pale bar", "<figure>", "A ring", "±"}},
		{"of one seed", []Run{saved("one", 1)}, []string{"A dot is", "pale bar", "Not known for one"},
			[]string{"With several seeds", "A ring", "A model that samples", "What a cache", ">storage</text>", "±"}},
		{"of several seeds", []Run{saved("several", 3)}, []string{"With several seeds", "A ring", "±"},
			[]string{"A dot is"}},
		{"on a graph", []Run{graph}, []string{"A model that samples"},
			[]string{"pale bar", "Preprocessing", "Not known for", "What a cache"}},
		{"of two on stores", []Run{saved("one", 1), saved("two", 1)},
			[]string{"Better is up", "The time leaves propagation out"}, []string{"A circle is", "Bars are",
				"dashed line"}},
		{"with one without an epoch", []Run{saved("one", 1), begun}, []string{"fewer than two trainings"},
			[]string{"Better is", "Figures 7"}},
		{"of many", manyRuns(), []string{"A circle is", "Bars are", "dashed line", "What a cache", "A ring"}, nil},
	} {
		page := pageOf(t, c.runs...)
		for _, text := range c.says {
			if !strings.Contains(page, text) {
				t.Errorf("%s: %q is missing", c.name, text)
			}
		}
		for _, text := range c.lacks {
			if strings.Contains(page, text) {
				t.Errorf("%s: says %q", c.name, text)
			}
		}
	}
}

func TestSeedsAreDrawnWithTheirMeanAndDeviation(t *testing.T) {
	r := saved("several", 3)
	for i := range r.Runs {
		test := 0.8 + float64(i)/100
		r.Runs[i].TestMetric = &test
	}
	draw := func(runs ...Run) string {
		if f := seeds(runs); f != nil {
			return string(f.HTML())
		}
		return ""
	}
	drawn := draw(r, saved("one", 1))
	if n := strings.Count(drawn, "<circle"); n != (3+1)*drawings || !strings.Contains(drawn, "81.00 ± 1.00 %") ||
		!strings.Contains(drawn, "Test accuracy of each seed") {
		t.Errorf("%d rings in %s", n, drawn)
	}
	for i := range r.Runs {
		r.Runs[i].TestMetric = nil
	}
	if drawn := draw(r); !strings.Contains(drawn, "Validation accuracy of each seed") ||
		!strings.Contains(drawn, "60.00 ± 10.00 %") {
		t.Errorf("without a test: %s", drawn)
	}
	other := saved("other", 2)
	other.Options.Metric = "mae"
	if drawn := draw(saved("one", 1)) + draw(saved("several", 3), other); drawn != "" {
		t.Errorf("one seed, or different metrics: %s", drawn)
	}
}
