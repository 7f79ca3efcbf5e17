package report

import (
	"encoding/xml"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// saved is a training of several seeds, each of three epochs.
func saved(name string, seeds int) Run {
	at := func(v float64) *float64 { return &v }
	c := &checkpoint.Checkpoint{
		Data: checkpoint.DataSet{Name: "<b>cora</b>"}, Wanted: seeds, PredictedEpochSeconds: 2.5,
		Config: map[string]string{"lr": "0.123456789", "name": name},
	}
	c.Spec = trainer.Spec{Model: "sign", Matrices: []trainer.MatrixID{{Operator: "x"}, {Operator: "sym", Hop: 3}}}
	c.Options = trainer.Options{Metric: "accuracy", Epochs: 3}
	for i := range seeds {
		c.Runs = append(c.Runs, checkpoint.Run{Seed: uint64(i), State: checkpoint.RunFinished, Figures: trainer.Figures{
			Epochs: 3, BestEpoch: 2, ValidMetric: at(0.5 + float64(i)/10), TestMetric: at(0.25), EpochSeconds: 2,
			RowsPerSecond: 1234567, StageSeconds: map[string]float64{"compute": 5, "load_wait": 1},
			EpochTraffic: loader.Traffic{Rows: 300, HostBytes: 3 << 20},
		}})
		for e := range 3 {
			c.History = append(c.History, checkpoint.EpochMetrics{Run: i + 1, Epoch: e + 1,
				TrainLoss: math.Pow(10, float64(-e)), TrainSeconds: 1.5, ValidMetric: at(float64(e+i) / 10)})
		}
	}
	return Run{Name: name, Checkpoint: c}
}

func pageOf(t *testing.T, runs ...Run) string {
	t.Helper()
	return string(Page(runs))
}

func TestAPageNeedsNothingElseAndIsWellFormed(t *testing.T) {
	running := saved("running", 1)
	running.Runs[0] = checkpoint.Run{State: checkpoint.RunInProgress}
	running.History, running.Best = nil, -1
	for _, runs := range [][]Run{{saved("one", 1)}, {saved("a & b", 1), saved("several", 3), running}, {running}} {
		text := pageOf(t, runs...)
		unwanted := regexp.MustCompile(`https?:|src=|@import|url\(|<script|NaN|Inf|%!|<b>`)
		if found := unwanted.FindString(text); found != "" {
			t.Errorf("the page has %q", found)
		}
		for i, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1) {
			for d := xml.NewDecoder(strings.NewReader(svg)); ; {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("chart %d: %v in %s", i, err, svg)
				}
			}
		}
	}
}

func TestThePageHasTheFigures(t *testing.T) {
	one, several := saved("one", 1), saved("several", 3)
	one.Propagation.Seconds = 3
	at := func(v float64) *float64 { return &v }
	one.Trials = []tune.Trial{
		{Number: 1, Settings: tune.Settings{"store": "s"}, Outcome: tune.Outcome{Valid: at(0.5)}},
		{Number: 2, Settings: tune.Settings{"store": "s", "lr": "9"}, Outcome: tune.Outcome{Failed: "diverged"}},
		{Number: 3, Settings: tune.Settings{"store": "s", "lr": "0.5"}, Outcome: tune.Outcome{Valid: at(0.75)}},
	}
	text := pageOf(t, one, several)
	for _, want := range []string{
		"60.00 ± 10.00 %",          // validation of several seeds
		"1 234 567",                // rows a second
		"predicted 2.5 s (1.25 ×)", // beside 2 s
		"6 s, 17 % waiting",
		"3 s</td>", "50 %</td>", // 3 s of propagation for a run of 6 s
		"Not known for several: the store of the training is gone, has more hops now,",
		"Trial 3 was chosen",
		`<tr class="chosen"><td class="n">3</td><td class="n">75.00 %</td>`,
		`<td class="n">diverged</td>`,
		"<td>name</td>", // differs
		"<td>lr</td>",
		"0.1235",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if differ, _, _ := strings.Cut(text, "<details>"); strings.Contains(differ, "<td>lr</td>") {
		t.Error("a setting that is the same is listed as different")
	}
	if strings.Index(text, ">75.00 %<") > strings.Index(text, ">diverged<") {
		t.Error("trials are not in order")
	}
}

func TestErrorsAreInUnitsOfTheirOwnAndLowerIsBetter(t *testing.T) {
	r := saved("x", 1)
	r.Options.Metric = "mae"
	at := func(v float64) *float64 { return &v }
	for i, v := range []float64{0.75, 0.125} {
		r.Trials = append(r.Trials, tune.Trial{Number: i + 1,
			Outcome: tune.Outcome{Metric: "mae", Valid: at(v), Lower: true}})
	}
	text := pageOf(t, r)
	if strings.Index(text, ">0.125<") > strings.Index(text, ">0.75<") ||
		!strings.Contains(text, "Trial 2 was chosen") ||
		!strings.Contains(text, `<td class="n">0.5</td><td class="n">0.25</td>`) {
		t.Errorf("%s", text)
	}
}

// TestACurveIsTheMeanOfTheSeeds compares with means by hand.
func TestACurveIsTheMeanOfTheSeeds(t *testing.T) {
	r := saved("x", 3)
	r.History = r.History[:len(r.History)-1] // the last seed stops earlier
	r.History = append(r.History, checkpoint.EpochMetrics{Run: 1, Epoch: 4, ValidMetric: r.Runs[0].ValidMetric})
	c, best := meanCurve(r, func(e checkpoint.EpochMetrics) *float64 { return e.ValidMetric })
	if len(c.X) != 3 || best != -1 { // one of three seeds goes on to the fourth epoch
		t.Fatalf("%+v", c)
	}
	for i, want := range []float64{0.1, 0.2, 0.25} {
		if math.Abs(c.Y[i]-want) > 1e-12 {
			t.Errorf("epoch %d: %v, want %v", i+1, c.Y[i], want)
		}
	}
	if c.Low[0] != 0 || c.High[0] != 0.2 || c.High[2] != 0.3 {
		t.Errorf("from %v to %v", c.Low, c.High)
	}
}

// TestTrainingsOnStoresAndGraphsAreCompared draws three trainings of the same metric: the points, who is on the
// frontier, and what
// their epochs moved.
func TestTrainingsOnStoresAndGraphsAreCompared(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	sign, sage, slow := saved("sign", 1), saved("sage", 3), saved("slow", 1)
	sage.Spec = trainer.Spec{Model: "sage"}
	for i := range sage.Runs {
		sage.Runs[i].TestMetric = at(0.25 + float64(i)/100)
		sage.Runs[i].EpochTraffic = loader.Traffic{Rows: 1000, CachedRows: 250, StorageBytes: 6 << 20,
			CacheBytes: 3 << 20}
	}
	for i := range sage.History {
		sage.History[i].TrainSeconds = 15
	}
	for i := range slow.History {
		slow.History[i].TrainSeconds = 30
	}
	slow.Runs[0].EpochTraffic = loader.Traffic{}
	text := pageOf(t, sign, sage, slow)
	for _, want := range []string{
		"<title>sign: 25.00 %, 1.5 s</title></circle>", "<title>sage: 26.00 ± 1.00 %, 15 s</title></rect>",
		"<title>slow: 25.00 %, 30 s</title></circle>",
		">3 MiB<", ">9 MiB (3 ×), 25 % cached<",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	var on []string
	for _, p := range frontier(points([]Run{slow, sage, sign}), false) {
		on = append(on, p.name)
	}
	if got := strings.Join(on, " "); got != "sign sage" {
		t.Errorf("on the frontier are %q", got)
	}
	if got := frontier(points([]Run{slow, sage, sign}), true); len(got) != 1 || got[0].name != "sign" {
		t.Errorf("where lower is better, %+v", got)
	}
	slow.Options.Metric = "mae"
	if text := pageOf(t, sign, slow); !strings.Contains(text, "the trainings have different metrics.") {
		t.Error("trainings of different metrics are compared")
	}
	slow.Options.Metric, slow.History = sign.Options.Metric, nil
	if text := pageOf(t, sign, slow); !strings.Contains(text, "fewer than two trainings have been tested.") {
		t.Error("a training without an epoch is compared")
	}
}
