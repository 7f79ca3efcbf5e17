package scheduler

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

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
	s, err := New(Auto, rows.Measure(spans(), 1), in)
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
	if s, err := New(Auto, p, in); err != nil || s.Choice.Name != "cpu" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := New("collective", p, in); !errors.Is(err, sampling.ErrOptions) ||
		!strings.Contains(err.Error(), "the device prepares batches") {
		t.Errorf("a device that prepares no batches: %v", err)
	}
}

// After an epoch whose stages took other times than before, the next is planned by these.
func TestEpochsArePlannedByTheOneBefore(t *testing.T) {
	rows, _ := Operations.For("emulated")
	in := collective.Inputs{Batches: 6, CPUBuffer: 20, GPUBuffer: 10, Share: -1}
	s, err := New("collective", rows.Measure(spans(), 1), in)
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
