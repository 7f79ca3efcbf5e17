package papers

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// The equations worked by hand: 4 workers, sampling 6 s, batches 2 s, training 3 s.
func TestTheEquationsAsTheyStand(t *testing.T) {
	stages, parts := Stages{6, 2, 3}, Parts{100, 20, 30, 7}
	for _, c := range []struct {
		mode           Mode
		workers        int
		seconds, bytes float64
	}{
		{Sequential, 4, 11, 157},         // 6 + 2 + 3; all parts once
		{Parallel1, 1, 8, 157},           // max{8, 3}
		{Parallel1, 2, 4, 314},           // max{8/2, 3}
		{Parallel1, 4, 3, 628},           // max{8/4, 3}; 4 * 157
		{Parallel2, 1, 6, 157},           // max{6, 5}
		{Parallel2, 4, 5, 178},           // max{6/4, 2+3}; 100 + 20 + 30 + 4*7
		{Parallel2, 3, 5, 150 + 21},      // max{6/3, 5}
		{Parallel1, 8, 3, 8 * (150 + 7)}, // training is the longest
	} {
		if got := c.mode.seconds(stages, c.workers, 0); math.Abs(got-c.seconds) > 1e-12 {
			t.Errorf("%s with %d workers takes %v s, want %v", c.mode, c.workers, got, c.seconds)
		}
		if got := c.mode.bytes(parts, c.workers); got != c.bytes {
			t.Errorf("%s with %d workers takes %v bytes, want %v", c.mode, c.workers, got, c.bytes)
		}
	}
	// Contention of 0.5 lets 3 workers do the work of 1.5, so 10 rows take 5 + 10 * (6+2)/1.5 s.
	m := ModeModel{Sample: 6, Batch: 2, Train: 3, Contention: 0.5, Overhead: 5}
	if got := m.seconds(&ModeRun{Mode: Parallel1, Workers: 3, BatchRows: 10}); math.Abs(got-(5+10*8/1.5)) > 1e-9 {
		t.Errorf("with contention it takes %v s", got)
	}
}

// The schedules of the same names, simulated batch by batch, take as long as the equations say of long epochs.
func TestTheEquationsAgreeWithSimulatedSchedules(t *testing.T) {
	for i := range uint64(30) {
		draw := func(k uint64) time.Duration {
			return time.Millisecond + time.Duration(rng.Hash(i, k)%uint64(100*time.Millisecond))
		}
		const batches = 2000
		d := collective.Durations{Gather: draw(1), DMA: time.Nanosecond, GPUBatch: time.Millisecond, Model: draw(2),
			Workers: 1 + int(rng.Hash(i, 3)%8)}
		d.CPUBatch = draw(0) + d.Gather
		stages := Stages{(d.CPUBatch - d.Gather).Seconds(), d.Gather.Seconds(), d.Model.Seconds()}
		for _, mode := range modes {
			s, err := collective.Find(string(mode))
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Choose(collective.Inputs{Durations: d, Batches: batches, CPUBuffer: 100, GPUBuffer: 100})
			if err != nil {
				t.Fatal(err)
			}
			got, want := batches*mode.seconds(stages, d.Workers, 0), c.Predicted.Total.Seconds()
			if math.Abs(got-want) > 0.02*want {
				t.Errorf("%s of %+v: %v s, simulated %v s", mode, d, got, want)
			}
		}
	}
}

// runsOf are runs in all modes with up to 8 workers, as a model has them, with so much noise of their logarithms.
func runsOf(m ModeModel, noise float64) (runs []ModeRun) {
	for _, mode := range modes {
		for workers := 1; workers <= 8; workers++ {
			for _, batch := range []int{20, 90, 600} {
				i := uint64(len(runs))
				r := ModeRun{
					Mode: mode, Workers: workers, BatchRows: batch,
					rows: Parts{1e6 * float64(rng.Hash(1, i)%9), 1e5 * float64(1+rng.Hash(2, i)%9),
						2e5 * float64(1+rng.Hash(3, i)%5), 1},
				}
				r.Seconds = m.seconds(&r) * math.Exp(noise*rng.Normal(4, i))
				r.MemoryBytes = int64(m.bytes(&r) * math.Exp(noise*rng.Normal(5, i)))
				runs = append(runs, r)
			}
		}
	}
	return runs
}

func TestFittingFindsTheModelThatMadeTheRuns(t *testing.T) {
	truth := ModeModel{Sample: 0.05, Batch: 0.02, Train: 0.012, Contention: 0.2, Overhead: 0.1,
		Memory: map[Mode]Parts{
			Sequential: {1, 2, 3, 5e6}, Parallel2: {1, 1.5, 2, 3e6}, Parallel1: {0.5, 1, 1, 4e6},
		}}
	for noise, bound := range map[float64]float64{0: 0.01, 0.03: 0.25} {
		m := fitModel(runsOf(truth, noise))
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
			if got, want := m.bytes(&r), float64(r.MemoryBytes); math.Abs(got-want) > bound*want {
				t.Errorf("noise %v: %+v: %v bytes predicted", noise, r, got)
			}
		}
	}
}

func TestWhatRunsDoNotTellStaysAsInThePaper(t *testing.T) {
	var runs []ModeRun
	for _, r := range runsOf(ModeModel{Sample: 0.3, Batch: 0.2, Train: 0.1}, 0) {
		if r.Workers == 1 && r.Mode != Parallel1 {
			runs = append(runs, r)
		}
	}
	m := fitModel(runs)
	if m.Contention != 0 || len(m.Memory) != 0 || m.bytes(&runs[0]) != 0 {
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
	for _, without := range [][]tune.Trial{nil, trials[len(trials)-2:]} {
		if _, err := FitModes(without); err == nil {
			t.Errorf("%d trials without a mode are fitted", len(without))
		}
	}
}
