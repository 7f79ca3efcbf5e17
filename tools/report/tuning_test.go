package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// tuningOf has ten trials, each with more memory than the one before, and one that failed.
func tuningOf(t *testing.T, limit int64, trials int) *Tuning {
	all := &Tuning{Dataset: "<graph>", Model: "sage", Goals: tune.Goals{DeviceMemory: true, MaxMemory: limit}}
	values := []string{"99"}
	for i := range 10 {
		valid := 0.5 + 0.04*float64(i%7)
		values = append(values, fmt.Sprint(i))
		all.All = append(all.All, tune.Trial{Number: i + 1,
			Settings: tune.Settings{"batch": fmt.Sprint(i), "model": "sage"}, Outcome: tune.Outcome{
				Metric: "accuracy", Valid: &valid, RowsPerSecond: float64(100 * (i +
					1)), PeakDeviceBytes: int64(i+1) << 20, Seconds: 2,
			}})
	}
	all.All = append(all.All, tune.Trial{Number: 11, Settings: tune.Settings{"batch": "99", "model": "sage"},
		Outcome: tune.Outcome{Failed: "does <not> fit"}})
	all.All = all.All[:trials]
	points, err := tune.Space{Base: tune.Settings{"model": "sage"},
		Dimensions: []tune.Dimension{{Name: "batch", Values: values}}}.List()
	if err != nil {
		t.Fatal(err)
	}
	all.Sum(points)
	return all
}

func TestAPageAboutASearchHasFrontAndAllTrials(t *testing.T) {
	r2 := 0.875
	search := tuningOf(t, 8<<20, 11)
	search.Limits, search.Surrogates = "--max-memory 8 MiB", []tune.Fitted{{Figure: "memory", Regression: "ridge",
		R2: &r2}, {Figure: "accuracy", Regression: "forest"}}
	page := string(search.Page())
	// Trial 8 is the fastest within the limits, trial 1 the smallest; trials 9 and 10 are outside.
	for _, says := range []string{
		"Tuning of sage on &lt;graph&gt;", "11 trials in 20 s, 1 failed", "--max-memory 8 MiB", "8, fastest",
		"1, smallest", ", balanced", "does &lt;not&gt; fit", "0.875", "of the device"} {
		if !strings.Contains(page, says) {
			t.Errorf("%q is missing", says)
		}
	}
	if strings.Contains(page, "<th class=\"n\">model") || strings.Contains(page, "ZgotmplZ") {
		t.Error("a setting that does not vary has a column, or something was refused by the template")
	}
	if crosses := strings.Count(page, "<path"); crosses != 2*2*drawings {
		t.Errorf("%d crosses in two charts", crosses)
	}
	if strings.Count(page, "<svg") != 2*drawings {
		t.Errorf("%d drawings", strings.Count(page, "<svg"))
	}
	without := tuningOf(t, 0, 11)
	if strings.Contains(string(without.Page()), "Crosses are") {
		t.Error("crosses are explained, and there are none")
	}
	if page := tuningOf(t, 1, 11).Page(); !strings.Contains(string(page), "No trial is within the limits") {
		t.Errorf("%s", page)
	}
	if page := string(tuningOf(t, 0, 1).Page()); !strings.Contains(page, "1, fastest, smallest, accurate, balanced") ||
		strings.Contains(page, "NaN") {
		t.Errorf("of one trial: %s", page)
	}
}
