package papers

import (
	"fmt"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// Trials of 3, 2 and 1 ms a row for the stages, made by the equations written out.
func TestModesAreFittedToTrials(t *testing.T) {
	var trials []tune.Trial
	add := func(schedule string, workers, batch, buffers int, seconds, bytes float64) {
		valid := 0.5
		trials = append(trials, tune.Trial{
			Number: len(trials) + 1,
			Settings: tune.Settings{"schedule": schedule, "workers": fmt.Sprint(workers), "batch": fmt.Sprint(batch),
				"buffers": fmt.Sprint(buffers), "cache": "degree:50rows"},
			Outcome: tune.Outcome{Valid: &valid, RowsPerSecond: float64(batch) / seconds,
				PeakDeviceBytes: int64(bytes)},
		})
	}
	for workers := 1; workers <= 6; workers++ {
		for _, batch := range []int{10, 40} {
			for _, buffers := range []int{1, 4} {
				b, n := float64(batch), float64(workers)
				parts := 50*100 + b*float64(buffers)*20 + b*30
				add("sequential", workers, batch, buffers, 0.006*b, parts+1000)
				add("mode-1", workers, batch, buffers, b*math.Max(0.005/n, 0.001), n*(parts+1000))
				add("mode-2", workers, batch, buffers, b*math.Max(0.003/n, 0.003), parts+n*1000)
			}
		}
	}
	trials = append(trials, tune.Trial{Number: len(trials) + 1,
		Settings: tune.Settings{"schedule": "collective", "batch": "7"}, Outcome: trials[0].Outcome},
		tune.Trial{Number: len(trials) + 2, Settings: trials[0].Settings, Outcome: tune.Outcome{Failed: "so it is"}})
	fit, err := FitModes(trials)
	if err != nil {
		t.Fatal(err)
	}
	if len(fit.Runs) != len(trials)-2 || fit.TimeError > 0.02 || fit.MemoryError > 0.02 {
		t.Errorf("%d runs, errors of %v and %v: %+v", len(fit.Runs), fit.TimeError, fit.MemoryError, fit.Model)
	}
	for _, r := range fit.Runs {
		if math.Abs(r.Predicted-r.Seconds) > 0.1*r.Seconds ||
			math.Abs(float64(r.PredictedMemory-r.MemoryBytes)) > 0.1*float64(r.MemoryBytes) {
			t.Errorf("%+v", r)
		}
	}
	delete(trials[0].Settings, "batch")
	if _, err := FitModes(trials); err == nil {
		t.Error("a trial without a batch is fitted")
	}
	if _, err := FitModes(nil); err == nil {
		t.Error("no trials are fitted")
	}
}
