package papers

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/placement/collective"
)

// The equations worked by hand: 10 iterations, 4 workers, sampling 6 s, batches 2 s, training 3 s.
func TestTheEquationsAsTheyStand(t *testing.T) {
	stages, parts := Stages{6, 2, 3}, Parts{100, 20, 30, 7}
	for _, c := range []struct {
		mode           Mode
		workers        int
		seconds, bytes float64
	}{
		{Sequential, 4, 110, 157},         // 6 + 2 + 3; all parts once
		{Parallel1, 1, 80, 157},           // max{8, 3}
		{Parallel1, 2, 40, 314},           // max{8/2, 3}
		{Parallel1, 4, 30, 628},           // max{8/4, 3}; 4 * 157
		{Parallel2, 1, 60, 157},           // max{6, 5}
		{Parallel2, 4, 50, 178},           // max{6/4, 2+3}; 100 + 20 + 30 + 4*7
		{Parallel2, 3, 50, 150 + 21},      // max{6/3, 5}
		{Parallel1, 8, 30, 8 * (150 + 7)}, // training is the longest
	} {
		r := Training{Mode: c.mode, Workers: c.workers, Iterations: 10, Stages: stages, Parts: parts}
		if got := Equations().Seconds(r); math.Abs(got-c.seconds) > 1e-12 {
			t.Errorf("%s with %d workers takes %v s, want %v", c.mode, c.workers, got, c.seconds)
		}
		if got := Equations().Bytes(r); got != c.bytes {
			t.Errorf("%s with %d workers takes %v bytes, want %v", c.mode, c.workers, got, c.bytes)
		}
	}
	// Contention of 0.5 lets 3 workers do the work of 1.5: (6+2)/1.5 s. Overhead and density: 5 + 4^0.5 * 10 * that.
	m := Equations()
	m.Contention, m.Overhead, m.DensityPower = 0.5, 5, 0.5
	r := Training{Mode: Parallel1, Workers: 3, Iterations: 10, Density: 4, Stages: stages}
	if got := m.Seconds(r); math.Abs(got-(5+2*10*8/1.5)) > 1e-9 {
		t.Errorf("with contention it takes %v s", got)
	}
}

// The schedules of the same names, simulated batch by batch, take as long as the equations say of long epochs.
func TestTheEquationsAgreeWithSimulatedSchedules(t *testing.T) {
	for i := range uint64(60) {
		draw := func(k uint64) time.Duration {
			return time.Millisecond + time.Duration(rng.Hash(i, k)%uint64(100*time.Millisecond))
		}
		const batches = 2000
		workers := 1 + int(rng.Hash(i, 3)%8)
		d := collective.Durations{Gather: draw(1), DMA: time.Nanosecond, GPUBatch: time.Millisecond, Model: draw(2),
			Workers: workers}
		d.CPUBatch = draw(0) + d.Gather
		r := Training{Workers: workers, Iterations: batches,
			Stages: Stages{(d.CPUBatch - d.Gather).Seconds(), d.Gather.Seconds(), d.Model.Seconds()}}
		for _, r.Mode = range Modes() {
			s, err := collective.Find(string(r.Mode))
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Choose(collective.Inputs{Durations: d, Batches: batches, CPUBuffer: 100, GPUBuffer: 100})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := Equations().Seconds(r), c.Predicted.Total.Seconds(); math.Abs(got-want) > 0.02*want {
				t.Errorf("%s of %+v: %v s, simulated %v s", r.Mode, d, got, want)
			}
		}
	}
}

// runsOf are runs in all modes with up to 8 workers, of graphs of several densities, as a model has them, with so
// much noise of their logarithms.
func runsOf(m ModeModel, noise float64, densities ...float64) (runs []Training) {
	for _, mode := range Modes() {
		for workers := 1; workers <= 8; workers++ {
			for _, iterations := range []int{20, 90} {
				for _, density := range densities {
					i := uint64(len(runs))
					r := Training{
						Mode: mode, Workers: workers, Iterations: iterations, Density: density, Stages: Stages{1, 1, 1},
						Parts: Parts{1e6 * float64(rng.Hash(1, i)%9), 1e5 * float64(1+rng.Hash(2, i)%9),
							2e5 * float64(1+rng.Hash(3, i)%5), 1},
					}
					r.Seconds = m.Seconds(r) * math.Exp(noise*rng.Normal(4, i))
					r.Bytes = m.Bytes(r) * math.Exp(noise*rng.Normal(5, i))
					runs = append(runs, r)
				}
			}
		}
	}
	return runs
}

func TestFittingFindsTheModelThatMadeTheRuns(t *testing.T) {
	truth := ModeModel{Sample: 0.05, Batch: 0.02, Train: 0.012, Contention: 0.2, Overhead: 0.1, DensityPower: 0.4,
		Memory: map[Mode]Parts{
			Sequential: {1, 2, 3, 5e6}, Parallel2: {1, 1.5, 2, 3e6}, Parallel1: {0.5, 1, 1, 4e6},
		}}
	within := func(noise, bound float64, densities ...float64) {
		t.Helper()
		m, err := FitEquations(runsOf(truth, noise, densities...))
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string][2]float64{
			"sample": {m.Sample, truth.Sample}, "batch": {m.Batch, truth.Batch}, "train": {m.Train,
				truth.Train}, "contention": {m.Contention, truth.Contention},
			"density": {m.DensityPower, truth.DensityPower}, "overhead": {m.Overhead, truth.Overhead},
		} {
			// noise hides the overhead
			if math.Abs(v[0]-v[1]) > bound*v[1] && !(name == "overhead" && noise > 0) {
				t.Errorf("noise %v: %s is %v, want %v", noise, name, v[0], v[1])
			}
		}
		for _, r := range runsOf(truth, 0, densities...) { // without noise
			if got, want := m.Seconds(r), r.Seconds; math.Abs(got-want) > bound*want {
				t.Errorf("noise %v: %+v: %v s predicted", noise, r, got)
			}
			if got, want := m.Bytes(r), r.Bytes; math.Abs(got-want) > bound*want {
				t.Errorf("noise %v: %+v: %v bytes predicted", noise, r, got)
			}
		}
	}
	within(0, 0.01, 2, 15)
	within(0.03, 0.25, 2, 5, 15)
}

func TestWhatRunsDoNotTellStaysAsInThePaper(t *testing.T) {
	truth := Equations()
	truth.Sample, truth.Batch, truth.Train = 0.3, 0.2, 0.1
	runs := []Training{}
	for _, r := range runsOf(truth, 0, 3) {
		if r.Workers == 1 && r.Mode != Parallel1 {
			r.Bytes = 0
			runs = append(runs, r)
		}
	}
	m, err := FitEquations(runs)
	if err != nil {
		t.Fatal(err)
	}
	if m.Contention != 0 || m.DensityPower != 0 || len(m.Memory) != 0 || m.Bytes(runs[0]) != 0 {
		t.Errorf("%+v", m)
	}
	for _, r := range runs {
		if got := m.Seconds(r); math.Abs(got-r.Seconds) > 0.01*r.Seconds {
			t.Errorf("%+v: %v s predicted", r, got)
		}
	}
}

func TestRunsThatCannotBeAreRefused(t *testing.T) {
	good := Training{Mode: Parallel1, Workers: 1, Iterations: 1, Stages: Stages{1, 1, 1}, Seconds: 1}
	for _, change := range []func(*Training){
		func(r *Training) { r.Mode = "mode-3" }, func(r *Training) { r.Workers = 0 },
		func(r *Training) { r.Iterations = 0 },
		func(r *Training) { r.Seconds = math.NaN() }, func(r *Training) { r.Bytes = -1 },
		func(r *Training) { r.Stages.Train = math.Inf(1) }, func(r *Training) { r.Seconds = 0 },
	} {
		r := good
		change(&r)
		if _, err := FitEquations([]Training{r}); !errors.Is(err, ErrRuns) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := FitEquations(nil); !errors.Is(err, ErrRuns) {
		t.Errorf("no runs: %v", err)
	}
}
