package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/trainer"
)

var (
	svgPattern    = regexp.MustCompile(`(?s)<svg class="w\d+" width="(\d+)" viewBox="0 0 (\d+) (\d+)".*?</svg>`)
	textPattern   = regexp.MustCompile(`<text x="([^"]+)" y="([^"]+)" text-anchor="(\w+)" class="label">([^<]*)<`)
	circlePattern = regexp.MustCompile(`<circle cx="([^"]+)" cy="([^"]+)"`)
)

// checkCharts fails unless every chart of a page is drawn in each width, unscaled, with marks and text within it, and text
// that covers no other text.
func checkCharts(t *testing.T, page string) {
	t.Helper()
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	charts := svgPattern.FindAllStringSubmatch(page, -1)
	if n := strings.Count(page, "<figure>"); n == 0 || len(charts) != n*len(chartWidths) || strings.Count(page, "<svg") != len(charts) {
		t.Fatalf("%d charts in %d figures", len(charts), n)
	}
	for i, svg := range charts {
		width, height := number(svg[2]), number(svg[3])
		if want := chartWidths[i%len(chartWidths)]; width != want || number(svg[1]) != want {
			t.Errorf("chart %d is %v wide, want %v", i, width, want)
		}
		for _, c := range circlePattern.FindAllStringSubmatch(svg[0], -1) {
			if x, y := number(c[1]), number(c[2]); !(x >= 0 && x <= width && y >= 0 && y <= height) {
				t.Errorf("chart %d: %s is outside", i, c[0])
			}
		}
		var taken []box
		for _, label := range textPattern.FindAllStringSubmatch(svg[0], -1) {
			x, y, long := number(label[1]), number(label[2]), 5.5*float64(len([]rune(label[4]))) // a little less than it is
			switch label[3] {
			case "end":
				x -= long
			case "middle":
				x -= long / 2
			}
			b := box{x, y - 9, x + long, y}
			if b.left < -1 || b.right > width+1 || b.top < -1 || b.bottom > height {
				t.Errorf("chart %d, %v wide: %q reaches from %.0f to %.0f, and from %.0f to %.0f of %v", i, width, label[4], b.left, b.right, b.top, b.bottom, height)
			}
			for _, other := range taken {
				if b.left < other.right && b.right > other.left && b.top < other.bottom && b.bottom > other.top {
					t.Errorf("chart %d, %v wide: %q covers other text", i, width, label[4])
				}
			}
			taken = append(taken, b)
		}
	}
}

// manyRuns are trainings with long names, several seeds, and epochs from milliseconds to minutes.
func manyRuns() (runs []Run) {
	for i, name := range []string{"runs/first", "a-very-long-folder/with-another-in-it/and-a-run-of-a-long-name", "x", "runs/y", "z"} {
		r := saved(name, 1+i%3)
		if i%2 == 1 {
			r.Spec = trainer.Spec{Model: "sage"}
		}
		for j := range r.Runs {
			test := 0.8 + float64(i)/100 + float64(j)/200
			r.Runs[j].TestMetric = &test
			r.Runs[j].EpochTraffic = loader.Traffic{Rows: 1000, CachedRows: 250, StorageBytes: 6<<20 + int64(i), CacheBytes: 3 << 20}
		}
		for j := range r.History {
			r.History[j].TrainSeconds = 0.003 * math.Pow(7, float64(i))
		}
		runs = append(runs, r)
	}
	return runs
}

func TestChartsAreDrawnForWideAndNarrowScreens(t *testing.T) {
	for i, runs := range [][]Run{{saved("one", 1)}, {saved("a", 1), saved("several", 3)}, manyRuns()} {
		t.Run(fmt.Sprint(i), func(t *testing.T) { checkCharts(t, pageOf(t, runs...)) })
	}
	if page := pageOf(t, saved("one", 1)); !strings.Contains(page, "prefers-color-scheme: dark") || strings.Contains(page, "#000000") {
		t.Error("the page is for light screens alone")
	}
}

// TestNothingIsExplainedThatIsNotDrawn gives pages that lack each of the things that captions are about.
func TestNothingIsExplainedThatIsNotDrawn(t *testing.T) {
	begun := saved("begun", 1)
	begun.Runs[0], begun.History = trainer.Run{State: trainer.RunInProgress}, nil
	graph := saved("graph", 1)
	graph.Spec, graph.PredictedEpochSeconds = trainer.Spec{Model: "sage"}, 0
	for _, c := range []struct {
		name        string
		runs        []Run
		says, lacks []string
	}{
		{"without an epoch", []Run{begun}, nil, []string{"Learning curves", "A dot is", "Bytes of features", "<h2>Time", "pale bar", "<figure>", "A ring", "±"}},
		{"of one seed", []Run{saved("one", 1)}, []string{"A dot is", "pale bar", "Not known for one"}, []string{"Of several seeds", "A ring", "Of a model that samples", "What a cache", "storage</span>", "±"}},
		{"of several seeds", []Run{saved("several", 3)}, []string{"Of several seeds", "A ring", "±"}, []string{"A dot is"}},
		{"on a graph", []Run{graph}, []string{"Of a model that samples"}, []string{"pale bar", "Preprocessing", "Not known for", "What a cache"}},
		{"of two on stores", []Run{saved("one", 1), saved("two", 1)}, []string{"Better is up", "Propagation is not"}, []string{"A circle is", "Bars are", "dashed line"}},
		{"one of which has no epoch", []Run{saved("one", 1), begun}, []string{"Fewer than two trainings"}, []string{"Better is", "Figures 7"}},
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
	drawn := string(seeds([]Run{r, saved("one", 1)}))
	if n := strings.Count(drawn, "<circle"); n != (3+1)*len(chartWidths) || !strings.Contains(drawn, "81.00 ± 1.00 %") || !strings.Contains(drawn, "Test accuracy of each seed") {
		t.Errorf("%d rings in %s", n, drawn)
	}
	for i := range r.Runs {
		r.Runs[i].TestMetric = nil
	}
	if drawn := string(seeds([]Run{r})); !strings.Contains(drawn, "Validation accuracy of each seed") || !strings.Contains(drawn, "60.00 ± 10.00 %") {
		t.Errorf("without a test: %s", drawn)
	}
	other := saved("other", 2)
	other.Options.Metric = "mae"
	if drawn := seeds([]Run{saved("one", 1)}) + seeds([]Run{saved("several", 3), other}); drawn != "" {
		t.Errorf("one seed, or different metrics: %s", drawn)
	}
}

func TestNamesOfEastAsiaHaveRoom(t *testing.T) {
	for _, c := range []struct {
		text, short string
		width       float64
	}{
		{"short", "short", 5 * charWidth},
		{"a long name of a run", "… of a run", 10 * charWidth},
		{"图神经网络", "图神经网络", 10 * charWidth},
		{"图神经网络训练", "…网络训练", 9 * charWidth},
	} {
		if got := shorten(c.text, 10); got != c.short || textWidth(got) != c.width {
			t.Errorf("%s is shortened to %s, %.0f pixels wide; want %s, %.0f", c.text, got, textWidth(got), c.short, c.width)
		}
	}
}
