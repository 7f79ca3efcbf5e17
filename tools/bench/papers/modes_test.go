package papers

import (
	"fmt"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Parts of 100, 20, 30 and 7 bytes, by hand: as printed, and for threads with two buffers.
func TestPartsOfMemoryAreHeldAsOften(t *testing.T) {
	parts := Parts{100, 20, 30, 7}
	for _, c := range []struct {
		mode             collective.Mode
		workers          int
		printed, threads float64
	}{
		{collective.Sequential, 4, 157, 157},         // all parts once
		{collective.Parallel1, 1, 157, 157 + 3*20},   // four batches on the device
		{collective.Parallel1, 4, 628, 157 + 3*20},   // 4 * 157
		{collective.Parallel2, 4, 150 + 4*7, 157},    // 100 + 20 + 30 + 4*7
		{collective.Parallel1, 8, 8 * 157, 157 + 60}, //
	} {
		if got := parts.times(printedCopies(c.mode, c.workers)).sum(); got != c.printed {
			t.Errorf("%s with %d workers takes %v bytes as printed, want %v", c.mode, c.workers, got, c.printed)
		}
		if got := parts.times(threadCopies(c.mode, 2)).sum(); got != c.threads {
			t.Errorf("%s with %d workers takes %v bytes, want %v", c.mode, c.workers, got, c.threads)
		}
	}
}

// bytesOf is the memory of a run: as printed, if the model has that.
func (m *ModeModel) bytesOf(r *ModeRun) float64 {
	if m.Printed != nil {
		return m.Printed[r.Mode].bytes(r.printed())
	}
	return m.Memory.bytes(r.threads())
}

// runsOf are runs in all modes with up to 8 workers, as a model has them, with so much noise of their logarithms.
func runsOf(m ModeModel, noise float64) (runs []ModeRun) {
	for _, mode := range collective.Modes {
		for workers := 1; workers <= 8; workers++ {
			for _, batch := range []int{20, 90, 600} {
				i := uint64(len(runs))
				r := ModeRun{
					Mode: mode, Workers: workers, BatchRows: batch,
					rows: Parts{1e6 * float64(rng.Hash(1, i)%9), 1e5 * float64(1+rng.Hash(2, i)%9),
						2e5 * float64(1+rng.Hash(3, i)%5), 1},
					buffers: 1 + int(rng.Hash(6, i)%3),
				}
				r.Seconds = m.seconds(&r) * math.Exp(noise*rng.Normal(4, i))
				r.MemoryBytes = int64(m.bytesOf(&r) * math.Exp(noise*rng.Normal(5, i)))
				runs = append(runs, r)
			}
		}
	}
	return runs
}

func TestFittingFindsTheModelThatMadeTheRuns(t *testing.T) {
	truth := ModeModel{Sample: 0.05, Batch: 0.02, Train: 0.012, Contention: 0.2, Overhead: 0.1,
		Memory: Parts{1, 2, 3, 5e6}}
	printed := truth
	printed.Printed = map[collective.Mode]Parts{collective.Sequential: {1, 2, 3, 5e6},
		collective.Parallel2: {1, 1.5, 2, 3e6}, collective.Parallel1: {0.5, 1, 1, 4e6}}
	for noise, bound := range map[float64]float64{0: 0.01, 0.03: 0.25} {
		m := fitModel(runsOf(truth, noise))
		asPrinted := fitModel(runsOf(printed, noise))
		for _, r := range runsOf(printed, 0) {
			if got, want := asPrinted.bytesOf(&r), float64(r.MemoryBytes); math.Abs(got-want) > bound*want {
				t.Errorf("noise %v: %+v: %v bytes predicted as printed", noise, r, got)
			}
		}
		for name, v := range map[string][2]float64{
			"sample": {m.Sample, truth.Sample}, "batch": {m.Batch, truth.Batch}, "train": {m.Train, truth.Train},
			"contention": {m.Contention, truth.Contention}, "overhead": {m.Overhead, truth.Overhead},
		} {
			// noise hides the overhead
			if math.Abs(v[0]-v[1]) > bound*v[1] && !(name == "overhead" && noise > 0) {
				t.Errorf("noise %v: %s is %v, want %v", noise, name, v[0], v[1])
			}
		}
		for _, r := range runsOf(truth, 0) {
			if got, want := m.seconds(&r), r.Seconds; math.Abs(got-want) > bound*want {
				t.Errorf("noise %v: %+v: %v s predicted", noise, r, got)
			}
			if got, want := m.Memory.bytes(r.threads()), float64(r.MemoryBytes); math.Abs(got-want) > bound*want {
				t.Errorf("noise %v: %+v: %v bytes predicted", noise, r, got)
			}
		}
	}
}

func TestWhatRunsDoNotTellStaysAsInThePaper(t *testing.T) {
	var runs []ModeRun
	for _, r := range runsOf(ModeModel{Sample: 0.3, Batch: 0.2, Train: 0.1}, 0) {
		if r.Workers == 1 && r.Mode != collective.Parallel1 {
			runs = append(runs, r)
		}
	}
	m := fitModel(runs)
	if m.Contention != 0 || m.Memory != (Parts{}) || len(m.Printed) != 0 {
		t.Errorf("%+v", m)
	}
	for _, r := range runs {
		if got := m.seconds(&r); math.Abs(got-r.Seconds) > 0.01*r.Seconds {
			t.Errorf("%+v: %v s predicted", r, got)
		}
	}
}

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
				once := 50*100 + b*20 + b*30 + 1000
				add("sequential", workers, batch, buffers, 0.006*b, once)
				add("mode-1", workers, batch, buffers, b*math.Max(0.005/n, 0.001), once+b*20*math.Min(float64(buffers+1), 3))
				add("mode-2", workers, batch, buffers, b*math.Max(0.003/n, 0.003), once)
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
	if len(fit.Runs) != len(trials)-2 || fit.TimeError > 0.02 || fit.MemoryError > 0.02 || fit.PrintedMemoryError < 0.1 {
		t.Errorf("%d runs, errors of %v, %v and %v: %+v", len(fit.Runs), fit.TimeError, fit.MemoryError,
			fit.PrintedMemoryError, fit.Model)
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
	for _, without := range [][]tune.Trial{nil, trials[len(trials)-2:]} {
		if _, err := FitModes(without); err == nil {
			t.Errorf("%d trials without a mode are fitted", len(without))
		}
	}
}
