package collective

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/machine"
)

// The equations worked by hand: 4 workers, sampling 6 s, gathering 1.5 s, moving 0.5 s, training 3 s.
func TestTheEquationsAsTheyStand(t *testing.T) {
	s := Stages{6, 1.5, 0.5, 3}
	for _, c := range []struct {
		mode       Mode
		workers    int
		contention float64
		seconds    float64
	}{
		{Sequential, 4, 0, 11},     // 6 + 1.5 + 0.5 + 3
		{Parallel1, 1, 0, 7.5},     // max{7.5, 0.5, 3}
		{Parallel1, 2, 0, 3.75},    // max{7.5/2, 0.5, 3}
		{Parallel1, 4, 0, 3},       // training is the longest
		{Parallel1, 3, 0.5, 5},     // 3 workers do the work of 1.5
		{Parallel2, 1, 0, 6},       // max{6, 5}
		{Parallel2, 4, 0, 5},       // max{6/4, 1.5+0.5+3}
		{Parallel2, 2, 0.95, 5.85}, // 2 workers do the work of 2/1.95
	} {
		if got := c.mode.Seconds(s, c.workers, c.contention); math.Abs(got-c.seconds) > 1e-12 {
			t.Errorf("%s with %d workers takes %v s, want %v", c.mode, c.workers, got, c.seconds)
		}
	}
	for mode, want := range map[Mode]int{Sequential: 1, Parallel1: 3, Parallel2: 2} {
		if got := mode.Workers(s, 8, 0); got != want {
			t.Errorf("%s has %d workers, want %d", mode, got, want)
		}
	}
	if got := Parallel1.About(s, 3, 0.5); !strings.HasPrefix(got, "max{(6000 sampling + 1500 gathering) "+
		"* (1 + 0.50 * 2) / 3, 500 moving, 3000 training} = 5000 ms a batch") {
		t.Error(got)
	}
}

// drawn are durations of 1 to 100 ms and up to 8 workers, with contention or not.
func drawn(r *rand.Rand) Durations {
	draw := func() time.Duration { return time.Duration(1e6 + r.Int64N(99e6)) }
	d := Durations{Gather: draw(), DMA: draw() / 4, GPUBatch: draw(), Model: draw() / 2, Workers: 1 + r.IntN(8)}
	d.CPUBatch = d.Gather + draw()
	if r.IntN(2) == 0 {
		d.Contention = r.Float64() / 2
	}
	return d
}

// The schedules of the same names, simulated batch by batch, take as long as the equations say of long epochs.
func TestTheEquationsAgreeWithSimulatedSchedules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 40 {
		const batches = 2000
		d := drawn(r)
		for _, mode := range Modes {
			s, err := Find(string(mode))
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Choose(Inputs{Durations: d, Batches: batches, CPUBuffer: 100, GPUBuffer: 100})
			if err != nil {
				t.Fatal(err)
			}
			got, want := batches*mode.Seconds(d.Stages(), d.Workers, d.Contention), c.Predicted.Total.Seconds()
			if math.Abs(got-want) > 0.02*want {
				t.Errorf("%s of %+v: %v s, simulated %v s", mode, d, got, want)
			}
		}
	}
}

// Of all schedules with all numbers of workers that fit the memory, Auto chooses one that is as short as the shortest,
// to 3 %: it looks at the fewest workers with which the equations are within 1 %.
func TestAutoIsAsShortAsAnyScheduleThatFits(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 4))
	chosen := map[string]int{}
	for range 400 {
		in := Inputs{Durations: drawn(r), Batches: 20 + r.IntN(300), CPUBuffer: 32, GPUBuffer: 10}
		prepares := r.IntN(3) == 0
		onDevice, onHost := 1+r.IntN(6), 1+r.IntN(20) // batches that there is room for
		in.Fits = func(p Plan, workers, waiting int) error {
			device, host := p.GPUBuffer+2, workers+min(p.CPUBuffer, waiting)
			if p.InOrder() {
				device = 1
			}
			if p.LateGather {
				host = workers + 1
			} else if p.Serial {
				host = 1
			}
			if device > onDevice || host > onHost {
				return machine.ErrDoesNotFit
			}
			return nil
		}
		best, with, err := Auto(in, prepares)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Fits(best.Plan, best.Plan.Workers(with.Durations), best.Plan.CPUBuffer); err != nil {
			t.Errorf("%+v does not fit %d and %d batches", best, onDevice, onHost)
		}
		chosen[best.Name]++
		for _, name := range []string{"sequential", "mode-1", "mode-2", "cpu", "gpu", "collective"} {
			s, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			other := in
			for other.Durations.Workers = 1; other.Durations.Workers <= in.Durations.Workers; other.Durations.Workers++ {
				if s.OnGPU && (!prepares || other.Durations.Workers < in.Durations.Workers) {
					continue
				}
				c, err := s.Choose(other)
				if err == nil && float64(best.Predicted.Total) > 1.03*float64(c.Predicted.Total) {
					t.Errorf("%+v, room for %d and %d: %s of %v is chosen, and %s with %d workers takes %v", in.Durations,
						onDevice, onHost, best.Name, best.Predicted.Total, name, other.Durations.Workers,
						c.Predicted.Total)
				}
			}
		}
	}
	for _, name := range []string{"sequential", "mode-1", "mode-2", "collective"} {
		if chosen[name] < 10 {
			t.Errorf("chosen are %v: hardly any %s", chosen, name)
		}
	}
	in := Inputs{Durations: drawn(r), Batches: 9, CPUBuffer: 3, GPUBuffer: 3,
		Fits: func(Plan, int, int) error { return machine.ErrDoesNotFit }}
	if _, _, err := Auto(in, true); !errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(), "mode-2") {
		t.Errorf("without any room: %v", err)
	}
}
