package multiqueue

import (
	"math"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/schedule"
)

const ms = time.Millisecond

func TestTheQueueSizeIsThatOfEquation24(t *testing.T) {
	const gib = 1 << 30
	// 24 GiB minus 2 GiB of training and a tenth of that: 21.8 GiB, 43 batches of 0.5 GiB.
	for _, c := range []struct{ device, peak, batch, want int64 }{
		{24 * gib, 2 * gib, gib / 2, 43}, {24 * gib, 20 * gib, gib, 2}, {24 * gib, 22 * gib, gib, 0},
		{24 * gib, 23 * gib, gib, 0}, {gib, 0, 0, 0},
	} {
		if got := Capacity(c.device, c.peak, c.batch); int64(got) != c.want {
			t.Errorf("a device of %d, peak %d, batches of %d: %d batches, want %d", c.device, c.peak, c.batch, got,
				c.want)
		}
	}
	for _, c := range []struct {
		prepare, compute time.Duration
		capacity, want   int
	}{
		{51 * ms, 12 * ms, 43, 5}, // Reddit in §V-C: 51 ms, and 5 batches
		{24 * ms, 8 * ms, 43, 3}, {25 * ms, 8 * ms, 43, 4}, {ms, 8 * ms, 43, 2}, {ms, 8 * ms, 1, 1},
		{51 * ms, 12 * ms, 3, 3},
	} {
		if got, err := Size(c.prepare, c.compute, c.capacity); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	for _, c := range []struct {
		prepare, compute time.Duration
		capacity         int
	}{{ms, 0, 1}, {-ms, ms, 1}, {ms, ms, 0}} {
		if got, err := Size(c.prepare, c.compute, c.capacity); err == nil {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// Equation 23 as printed is 1 for all graphs of Table 1, so that it says nothing.
func TestThePeriodNeedsItsK(t *testing.T) {
	for _, g := range []Graph{{132_534, 39_561_252, 4}, {160_343, 1_166_243, 1}, {232_965, 11_606_919, 2},
		{2_449_029, 61_859_140, 3}, {10, 10, 1}} {
		if p := g.Period(1); p != 1 {
			t.Errorf("%+v: %d", g, p)
		}
	}
	// 16 nodes, 4 edges, 1 device: sqrt(4) = 2; k = 1.5: 3; k = 1.6: 3.2, so 4.
	g := Graph{16, 4, 1}
	for k, want := range map[float64]int{1: 2, 1.5: 3, 1.6: 4, 0: 1, math.Inf(1): math.MaxInt32} {
		if p := g.Period(k); p != want {
			t.Errorf("k = %v: %d, want %d", k, p, want)
		}
	}
}

func TestKMakesThePeriodTheBestOfTheMeasuredCosts(t *testing.T) {
	for set := range uint64(200) {
		u := func(i uint64) float64 { return rng.Float64(rng.Hash(set, i)) }
		g := Graph{int64(1 + 1e6*u(0)), int64(1 + 1e7*u(1)), 1 + int(4*u(2))}
		c := Costs{Synchronize: 1e-3 * (0.01 + u(3)), Stale: 1e-5 * (0.01 + u(4))}
		cost := func(p int) float64 { return c.Stale*float64(p) + c.Synchronize/float64(p) }
		best := 1
		for p := range 10_000 {
			if cost(p+1) < cost(best) {
				best = p + 1
			}
		}
		// The best real number is rounded up, which may be one too many.
		if p := g.Period(g.K(c)); p != best && p != best+1 {
			t.Errorf("%+v, %+v: a period of %d, the best is %d", g, c, p, best)
		}
	}
	if g := (Graph{100, 1000, 2}); g.Period(g.K(Costs{0, 1})) != 1 || g.Period(g.K(Costs{})) != 1 ||
		g.Period(g.K(Costs{1, 0})) != math.MaxInt32 {
		t.Error("costs of 0")
	}
}

func TestCostsComeFromTwoTrainings(t *testing.T) {
	// 30 ms a batch with and 23 ms with an eighth of the synchronisations: 8 ms each. The loss fell by 1 and by
	// 1/1.07, so a batch is worth 7 % less: 1 % of 23 ms for each batch of the period.
	c, err := FitCosts([2]float64{0.030, 0.023}, [2]float64{1, 1 / 1.07}, 8)
	if err != nil || math.Abs(c.Synchronize-0.008) > 1e-9 || math.Abs(c.Stale-0.00023) > 1e-9 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := FitCosts([2]float64{0.02, 0.03}, [2]float64{1, 1.1}, 8); err != nil || c != (Costs{}) {
		t.Errorf("neither costs anything: %+v, %v", c, err)
	}
	if c, err := FitCosts([2]float64{0.03, 0.023}, [2]float64{1, -1}, 2); err != nil ||
		math.Abs(c.Stale-9*0.023) > 1e-9 {
		t.Errorf("no progress: %+v, %v", c, err)
	}
	if _, err := FitCosts([2]float64{0.03, 0.023}, [2]float64{1, 1}, 1); err == nil {
		t.Error("a period of 1")
	}
}

// constant is a machine whose times are the same for all batches and devices.
func constant(devices, workers int, sample, move, compute, share, update time.Duration) Machine {
	return Machine{devices, workers, func(_ int, s schedule.Step) time.Duration {
		return [...]time.Duration{schedule.Sample: sample, schedule.Move: move, schedule.Train: compute}[s.Stage]
	}, func(int) time.Duration { return share }, update}
}

func TestEpochsAreThoseOfAHandCalculation(t *testing.T) {
	straggling := constant(2, 1, 0, 0, 0, 0, 0)
	straggling.Length = func(d int, s schedule.Step) time.Duration {
		if s.Stage != schedule.Train {
			return 0
		}
		return []time.Duration{4 * ms, ms}[(d+s.Batch)%2]
	}
	apart := straggling // no two devices end at once
	apart.Length = func(d int, s schedule.Step) time.Duration {
		if s.Stage != schedule.Train {
			return 0
		}
		return [2][2]time.Duration{{4 * ms, ms}, {ms, 5 * ms}}[d][s.Batch%2]
	}
	for _, c := range []struct {
		name    string
		machine Machine
		plan    Plan
		batches int
		want    time.Duration
		stale   Staleness
	}{
		// Sampled 0-3, 3-6, 6-9; moved 3-5, 6-8, 11-13; computed 5-9, 11-15, 17-21, each with 2 ms after it.
		{"one device, one batch at a time", constant(1, 1, 3*ms, 2*ms, 4*ms, ms, ms), Synchronous, 3, 23 * ms,
			Staleness{}},
		// Each batch takes as long as its slowest share.
		{"stragglers in turn, synchronous", straggling, Synchronous, 4, 16 * ms, Staleness{}},
		// Computed 0-4, 4-5, 5-9, 9-10 and 0-1, 1-5, 5-6, 6-10.
		{"stragglers in turn, one gradient late", straggling, Plan{2, 2, 4, false}, 4, 10 * ms,
			Staleness{Mean: 0.75, Largest: 1}},
		// They meet after the second batch, at 5, and after the fourth.
		{"synchronized each second batch", straggling, Plan{8, 8, 2, false}, 4, 10 * ms, Staleness{Mean: 0.5, Largest: 1}},
		// Computed 0-4, 4-5, 5-9, 9-10 and 0-1, 1-6, 6-7, 7-12: a device that is last goes on with all steps made.
		{"on arrival", apart, Plan{8, 4, 4, true}, 4, 12 * ms, Staleness{Mean: 3. / 8, Largest: 1}},
		// The second ends its first batch at 1, and waits for the first device until 4: 0-4, 4-5, 9-13, 13-14 and 0-1,
		// 4-9, 9-10, 13-18.
		{"on arrival, one gradient at a time", apart, Plan{8, 1, 4, true}, 4, 18 * ms, Staleness{}},
		// Nothing waits but the first batch: 3 + 2 + 5 * 4, and the last share and update.
		{"two workers keep up with the device", constant(1, 2, 3*ms, 2*ms, 4*ms, 0, 0), Plan{2, 2, 4, false},
			5, 25 * ms, Staleness{Mean: 0.6, Largest: 1}},
	} {
		took, stale := Simulate(c.machine, c.plan, c.batches)
		if took != c.want || math.Abs(stale.Mean-c.stale.Mean) > 1e-12 || stale.Largest != c.stale.Largest {
			t.Errorf("%s: %v, %+v; want %v, %+v", c.name, took, stale, c.want, c.stale)
		}
	}
}

func TestTheQueueOfGradientsIsTheShortestThatIsFast(t *testing.T) {
	for _, c := range []struct {
		period int
		times  []float64 // by length
		stale  float64
		want   int
	}{
		// Mean staleness of an epoch of 4 batches is 0, 3/4, 5/4 and 6/4, which costs 0, 3, 5 and 6 here.
		{4, []float64{10, 6, 5.5, 5.4}, 0.5, 2},
		{4, []float64{10, 8, 7, 6}, 1, 1},
		{8, []float64{10, 8, 7, 6.1, 6, 6, 6, 6}, 0, 4},
		{2, []float64{10, 8, 7, 6.1, 6, 6, 6, 6}, 0, 2},
		{100, []float64{5, 5, 5, 5, 5, 5, 5, 4.95}, 0, 1},
		{1, []float64{5}, 0, 1},
	} {
		p := Plan{Queue: 3, Period: c.period}.WithGradients(4, Costs{Stale: c.stale},
			func(p Plan) (float64, Staleness) {
				var s Staleness
				for b := range 4 {
					s.Add(min(b%p.Period, p.Lag()))
				}
				return c.times[p.Gradients-1], s
			})
		if p != (Plan{3, c.want, c.period, false}) {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// TestEquation24IsNearTheBestOfAllSizes draws machines whose times vary by up to nine tenths around their means.
func TestEquation24IsNearTheBestOfAllSizes(t *testing.T) {
	const batches, largest = 120, 32
	worst := 1.0
	for set := range uint64(48) {
		u := func(i uint64) float64 { return rng.Float64(rng.Hash(set*31+7, i)) }
		of := func(x float64) time.Duration { return time.Duration(x * float64(ms)) }
		m := constant(1+int(4*u(5)), 1+int(8*u(6)), of(5+60*u(1)), of(1+20*u(2)), of(5+15*u(0)), of(2*u(3)), of(u(4)))
		means := m
		spread := []float64{0, 0.25, 0.5, 0.9}[set%4]
		spreads := func(mean time.Duration, stage, d, b int) time.Duration {
			draw := rng.Float64(rng.Hash(rng.Hash(set*9+uint64(stage), uint64(d)), uint64(b)))
			return time.Duration(float64(mean) * (1 + spread*(2*draw-1)))
		}
		m.Length = func(d int, s schedule.Step) time.Duration {
			return spreads(means.Length(d, s), [...]int{schedule.Move: 1, schedule.Train: 2}[s.Stage], d, s.Batch)
		}
		m.Share = func(b int) time.Duration { return spreads(means.Share(b), 3, 0, b) }
		var prepare, compute time.Duration // of the first 20 batches, as if profiled
		for d := range m.Devices {
			for b := range 20 {
				at := func(s schedule.Stage) time.Duration { return m.Length(d, schedule.Step{Stage: s, Batch: b}) }
				prepare = max(prepare, at(schedule.Sample)+at(schedule.Move))
				compute += at(schedule.Train) / time.Duration(20*m.Devices)
			}
		}
		q, err := Size(prepare, compute, largest)
		if err != nil {
			t.Fatal(err)
		}
		p := Plan{q, MostGradients, []int{8, 32}[set/4%2], false}
		took, stale := Simulate(m, p, batches)
		var planned Staleness
		for b := range batches {
			planned.Add(min(b%p.Period, p.Lag()))
		}
		if stale.Mean != planned.Mean || stale.Largest != planned.Largest {
			t.Errorf("machine %d: gradients are %+v stale, want %+v", set, stale, planned)
		}
		best := took
		for p.Queue = 1; p.Queue <= largest; p.Queue++ {
			took, _ := Simulate(m, p, batches)
			best = min(best, took)
		}
		ratio := float64(took) / float64(best)
		if worst = max(worst, ratio); ratio > 1.05 {
			t.Errorf("machine %d: queues of %d take %v, the best %v", set, q, took, best)
		}
	}
	t.Logf("at most %.3f times the best", worst)
}
