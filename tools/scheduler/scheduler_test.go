package scheduler

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/collective"
)

const ms = time.Millisecond

// spans are those of six batches, one stage after another: three of each route.
func spans() (all []schedule.Span) {
	at := time.Duration(0)
	add := func(stage schedule.Stage, batch int, length, gather time.Duration) {
		all = append(all, schedule.Span{Stage: stage, Batch: batch, Start: at, End: at + length, Gather: gather})
		at += length
	}
	for batch := range 6 {
		if batch%2 == 0 {
			add(schedule.Sample, batch, time.Duration(30+batch)*ms, 6*ms)
			add(schedule.Move, batch, 4*ms, 0)
		} else {
			add(schedule.Prepare, batch, 10*ms, 7*ms)
		}
		add(schedule.Train, batch, 5*ms, 0)
	}
	return all
}

func TestAProfileIsMeanAndSpreadOfEachOperation(t *testing.T) {
	rows, prepares := Operations.For("emulated")
	if !prepares {
		t.Fatal("an emulated device prepares no batches")
	}
	p := rows.Measure(spans(), 4)
	for _, want := range []struct {
		name      string
		batches   int
		mean, std float64
	}{{"T_CBT", 3, 0.032, 0.002}, {"T_DMA", 3, 0.004, 0}, {"T_GBT", 3, 0.003, 0}, {"T_UVA", 3, 0.007, 0},
		{"T_Model", 6, 0.005, 0}} {
		i := slices.IndexFunc(p.Measured, func(m Measured) bool { return m.Name == want.name })
		if i < 0 {
			t.Errorf("no %s", want.name)
			continue
		}
		if m := p.Measured[i]; m.Batches != want.batches || math.Abs(m.Mean-want.mean) > 1e-9 ||
			math.Abs(m.Std-want.std) > 1e-6 {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
	d := p.Durations
	for name, pair := range map[string][2]time.Duration{
		"CPUBatch": {d.CPUBatch, 32 * ms}, "Gather": {d.Gather, 6 * ms}, "DMA": {d.DMA, 4 * ms},
		"GPUBatch": {d.GPUBatch, 10 * ms}, "Model": {d.Model, 5 * ms},
	} {
		if got, want := pair[0], pair[1]; max(got-want, want-got) > time.Microsecond {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if d.Workers != 4 {
		t.Errorf("%d workers", d.Workers)
	}
}

// A new kind of device is a row for each phase (an NPU, as in MorphGL's technical report).
func TestANewKindOfDeviceIsARow(t *testing.T) {
	in := collective.Inputs{Batches: 60, CPUBuffer: 20, GPUBuffer: 10, Share: -1}
	if rows, prepares := Operations.For("npu"); prepares || len(rows) != 2 {
		t.Errorf("without its rows, an NPU has %+v, %t", rows, prepares)
	}
	table := append(slices.Clone(Operations), OnDevice("npu", "NPU")...)
	rows, prepares := table.For("npu")
	if !prepares || len(rows) != 5 || rows[2].Hardware != "NPU+link" {
		t.Fatalf("%+v, %t", rows, prepares)
	}
	s, err := New(Auto, rows.Measure(spans(), 1), in, Room{})
	if err != nil || s.Choice.Name != "collective" {
		t.Errorf("%+v, %v", s, err)
	}
	// One that only trains.
	table = append(slices.Clone(Operations), OnDevice("npu", "NPU")[2:]...)
	rows, prepares = table.For("npu")
	if prepares || len(rows) != 3 {
		t.Errorf("%+v, %t", rows, prepares)
	}
	onlyCPU := slices.DeleteFunc(spans(), func(s schedule.Span) bool { return s.Stage == schedule.Prepare })
	p := rows.Measure(onlyCPU, 1)
	if s, err := New(Auto, p, in, Room{}); err != nil || s.Choice.Name != "mode-2" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := New("collective", p, in, Room{}); !errors.Is(err, sampling.ErrOptions) ||
		!strings.Contains(err.Error(), "the device prepares batches") {
		t.Errorf("a device that prepares no batches: %v", err)
	}
}

// After an epoch whose stages took other times than before, the next is planned by these.
func TestEpochsArePlannedByTheOneBefore(t *testing.T) {
	rows, _ := Operations.For("emulated")
	in := collective.Inputs{Batches: 6, CPUBuffer: 20, GPUBuffer: 10, Share: -1}
	s, err := New("collective", rows.Measure(spans(), 1), in, Room{})
	if err != nil {
		t.Fatal(err)
	}
	planned := s.Schedule()
	var kept int
	s.Keep(func(all []schedule.Span) { kept = len(all) })
	planned.Rules(0, 0)
	before := s.Choice.Plan
	for _, span := range spans() {
		if span.Stage == schedule.Prepare { // the device is slow
			span.End += time.Second
		}
		planned.Trace(span)
	}
	if r := s.Report(); r.MeasuredSeconds == nil || r.Epochs != 1 || kept != len(spans()) {
		t.Errorf("%+v, %d spans", r, kept)
	}
	rules := planned.Rules(1, 0)
	if after := s.Choice.Plan; after == before || after.CPUBatches != 6 || rules.CPUBatches != 6 ||
		s.Report().Refined != 1 {
		t.Errorf("%+v after %+v, %+v", after, before, s.Report())
	}
	if rest := planned.Rules(2, 4); rest.Batches != 2 {
		t.Errorf("%+v is left", rest)
	}
}

// On the device there is room for so many batches of 10 bytes, on the host for so many bytes. A worker takes 5 bytes,
// and a batch 2 to be sampled and 10 to be gathered.
func TestSchedulesFitTheMemory(t *testing.T) {
	rows, _ := Operations.For("npu") // which prepares none
	onlyCPU := slices.DeleteFunc(spans(), func(s schedule.Span) bool { return s.Stage == schedule.Prepare })
	p := rows.Measure(onlyCPU, 8) // 26 ms sampling, 6 gathering, 4 moving, 5 training
	in := collective.Inputs{Batches: 200, CPUBuffer: 40, GPUBuffer: 10, Share: -1}
	for _, c := range []struct {
		device, host   int64
		name           string
		least, workers int
		says           string
	}{
		{1000, 1000, "mode-1", 6, 7, "7 of 8 workers, max{(26 sampling + 6 gathering) / 7, 4 moving, 5 training} = 5 ms"},
		{29, 1000, "mode-2", 2, 2, "max{26 sampling / 2, 6 gathering + 4 moving + 5 training} = 15 ms"},
		{10, 20, "sequential", 1, 1, "26 sampling + 6 gathering + 4 moving + 5 training = 41 ms"},
	} {
		s, err := New(Auto, p, in, Room{Device: c.device, Host: c.host, Worker: 5, Sample: 2, Pinned: 10, Batch: 10})
		if err != nil {
			t.Errorf("room for %d and %d: %v", c.device, c.host, err)
			continue
		}
		workers := s.Choice.Plan.Workers(s.in.Durations)
		if s.Choice.Name != c.name || workers < c.least || workers > c.workers ||
			!strings.Contains(s.Choice.Reason, c.says) || int64(s.Held().OnDevice)*10 > c.device {
			t.Errorf("room for %d and %d: %s, %d workers, %+v: %s", c.device, c.host, s.Choice.Name, workers, s.Held(),
				s.Choice.Reason)
		}
		if c.name != "mode-1" && !strings.Contains(s.Choice.Reason, "not mode-1: ") {
			t.Error(s.Choice.Reason)
		}
	}
	if _, err := New("mode-1", p, in, Room{Device: 20, Host: 1000, Batch: 10}); !errors.Is(err, machine.ErrDoesNotFit) {
		t.Errorf("mode 1 with room for two batches: %v", err)
	}
}

// While contention is measured, there are no more samples than are planned, however long batches are trained.
func TestContentionHoldsWhatIsPlanned(t *testing.T) {
	for workers := 2; workers <= 16; workers++ {
		p := contentionPlan(workers)
		p.CPUBatches = 5 * p.CPUBuffer
		d := collective.Durations{CPUBatch: ms, DMA: ms, Model: time.Hour, GPUBatch: ms, Workers: workers}
		var begun, trained []time.Duration
		collective.Simulate(d, p, p.CPUBatches, func(s schedule.Span) {
			switch s.Stage {
			case schedule.Sample:
				begun = append(begun, s.Start)
			case schedule.Train:
				trained = append(trained, s.End)
			}
		})
		most := 0
		for _, at := range begun {
			most = max(most, before(begun, at+1)-before(trained, at+1))
		}
		if planned := LeastHeld(Auto, workers, false).Samples; most < p.CPUBuffer || most > planned {
			t.Errorf("%d workers: %d samples at a time, planned are %d", workers, most, planned)
		}
	}
}

// before is how many of the times are before another.
func before(times []time.Duration, other time.Duration) (n int) {
	for _, at := range times {
		if at < other {
			n++
		}
	}
	return n
}

// Workers that take 1.5 times as long beside a second one are counted back to one alone.
func TestDurationsAreThoseOfAWorkerAlone(t *testing.T) {
	before := collective.Durations{CPUBatch: ms, Gather: ms, DMA: ms, GPUBatch: ms, Model: ms, Workers: 2, Contention: 0.5}
	at := func(stage schedule.Stage, length, gather time.Duration) schedule.Span {
		return schedule.Span{Stage: stage, End: length, Gather: gather}
	}
	for _, c := range []struct {
		plan  collective.Plan
		spans []schedule.Span
	}{
		{collective.Plan{}, []schedule.Span{at(schedule.Sample, 48*ms, 9*ms), at(schedule.Move, 4*ms, 0)}},
		{collective.Plan{LateGather: true}, []schedule.Span{at(schedule.Sample, 39*ms, 0), at(schedule.Move, 10*ms, 6*ms)}},
		{collective.Plan{Serial: true}, []schedule.Span{at(schedule.Sample, 32*ms, 6*ms), at(schedule.Move, 4*ms, 0)}},
	} {
		d := meanDurations(c.spans, before, c.plan)
		if d.CPUBatch.Round(ms/100) != 32*ms || d.Gather.Round(ms/100) != 6*ms || d.DMA != 4*ms || d.Model != ms {
			t.Errorf("%+v: %+v", c.plan, d)
		}
	}
}
