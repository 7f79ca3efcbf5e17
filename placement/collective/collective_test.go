package collective

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
)

// optimum is the shortest epoch that there is (Definition 1) without limits of buffers, by trying all
// orders in which stages begin on GPU and link, for each number of batches of the processor.
type optimum struct {
	d    Durations
	n    int
	cpu  int // batches of the processor
	best time.Duration
	seen map[[3]int][]point
}

type point struct {
	gpu, link time.Duration
	ready     [8]time.Duration // when untrained batches are on the GPU, in order
}

func shortest(d Durations, n int, atMost time.Duration) time.Duration {
	o := optimum{d: d, n: n, best: atMost}
	for o.cpu = 0; o.cpu <= n; o.cpu++ {
		o.seen = make(map[[3]int][]point)
		o.search(0, 0, 0, point{})
	}
	return o.best
}

// search goes on from where so many batches have been prepared by the GPU, moved and trained.
func (o *optimum) search(prepared, moved, trained int, p point) {
	if trained == o.n {
		o.best = min(o.best, p.gpu)
		return
	}
	// The GPU has all this left to do, and trains the processor's last batch after it has come.
	least := p.gpu + time.Duration(o.n-o.cpu-prepared)*o.d.GPUBatch + time.Duration(o.n-trained)*o.d.Model
	if moved < o.cpu {
		least = max(least, time.Duration(o.cpu)*o.d.CPUBatch+o.d.DMA+o.d.Model)
	}
	if least >= o.best {
		return
	}
	at := [3]int{prepared, moved, trained}
	waiting := prepared + moved - trained
	for _, q := range o.seen[at] {
		worse := q.gpu <= p.gpu && q.link <= p.link
		for i := range waiting {
			worse = worse && q.ready[i] <= p.ready[i]
		}
		if worse {
			return
		}
	}
	o.seen[at] = append(o.seen[at], p)
	insert := func(q point, ready time.Duration) point {
		i := waiting
		for ; i > 0 && q.ready[i-1] > ready; i-- {
			q.ready[i] = q.ready[i-1]
		}
		q.ready[i] = ready
		return q
	}
	if waiting > 0 {
		q := p
		q.gpu = max(p.gpu, p.ready[0]) + o.d.Model
		copy(q.ready[:], p.ready[1:])
		q.ready[7] = 0
		o.search(prepared, moved, trained+1, q)
	}
	if moved < o.cpu {
		q := p
		q.link = max(p.link, time.Duration(moved+1)*o.d.CPUBatch) + o.d.DMA
		o.search(prepared, moved+1, trained, insert(q, q.link))
	}
	if prepared < o.n-o.cpu {
		q := p
		q.gpu = max(p.gpu, p.link) + o.d.GPUBatch
		q.link = q.gpu
		o.search(prepared+1, moved, trained, insert(q, q.gpu))
	}
}

// random are durations as the paper finds them: batching by the processor takes longer than moving and
// training (assumption of Theorem 2), and UVA moves what DMA moves and more.
func random(r *rand.Rand) Durations {
	between := func(lo, hi float64) time.Duration {
		return time.Duration(math.Exp(math.Log(lo)+r.Float64()*math.Log(hi/lo)) * float64(time.Millisecond))
	}
	d := Durations{DMA: between(1, 20), Model: between(1, 40)}
	d.GPUBatch = time.Duration(float64(d.DMA) * (1 + 2*r.Float64()))
	d.CPUBatch = max(d.DMA, d.Model) + between(1, 200)
	return d
}

// anyway are unknown durations.
func anyway(r *rand.Rand) Durations {
	one := func() time.Duration { return time.Duration(math.Exp(4*r.Float64()) * float64(time.Millisecond)) }
	return Durations{CPUBatch: one(), DMA: one(), GPUBatch: one(), Model: one()}
}

func TestPlansAreAsGoodAsAnyOrderOfStages(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	within := 0
	for i := range 500 {
		for n := 1; n <= 8; n++ {
			d := random(r)
			got, err := dispatched(d, n, 10, 10)
			if err != nil {
				t.Fatal(err)
			}
			best := shortest(d, n, time.Hour)
			ratio := float64(got.Predicted.Total) / float64(best)
			if ratio < 1 {
				t.Fatalf("%d batches of %+v: %v is less than the optimum %v", n, d, got.Predicted.Total, best)
			}
			// Equation 9 of the technical report: A < 2 + t_uva / t_dma.
			if ratio > 2+float64(d.GPUBatch)/float64(d.DMA) {
				t.Errorf("%d batches of %+v: %.2f times the optimum, above the bound of Theorem 2", n, d, ratio)
			}
			if ratio > 1.05 {
				t.Errorf("set %d, %d batches of %+v: %.3f times the optimum by %+v", i, n, d, ratio, got.Plan)
			}
			d = anyway(r)
			if got, err = dispatched(d, n, 10, 10); err != nil {
				t.Fatal(err)
			}
			if float64(got.Predicted.Total) <= 1.05*float64(shortest(d, n, time.Hour)) {
				within++
			}
		}
	}
	if within < 4000 {
		t.Errorf("of 4000 sets without the assumptions of Theorem 2, %d are within 5 %% of the optimum, want all", within)
	}
}

// The relaxed model against a fine grid of ratios.
func TestTheRatioIsTheMinimumOfTheRelaxedModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		d := anyway(r)
		x := d.Ratio()
		at := d.relaxed(x)
		if at > d.relaxed(math.Inf(1)) {
			t.Fatalf("%+v: %v at %v, and less at infinity", d, at, x)
		}
		for y := 0.0; y < 100; y += 0.01 + y/50 {
			if d.relaxed(y) < at*(1-1e-12) {
				t.Fatalf("%+v: %v at %v, and %v at %v", d, at, x, d.relaxed(y), y)
			}
		}
	}
}

// Figure 6 by hand: C 30, D 4, U 10, M 5 ms. With one batch of the GPU for each of the processor, the GPU
// prepares for 10 ms, then the processor goes on for 20 while two are trained for 10: 30 ms for two. With
// x = 5/3, the rest of the processor's batch, 30 - 50/3 = 40/3, takes as long as training 8/3 batches.
func TestTheRelaxedModelByHand(t *testing.T) {
	d := Durations{CPUBatch: 30 * time.Millisecond, DMA: 4 * time.Millisecond, GPUBatch: 10 * time.Millisecond,
		Model: 5 * time.Millisecond}
	if got := d.relaxed(1); math.Abs(got-0.015) > 1e-12 {
		t.Errorf("C'(1)/n = %v s, want 0.015", got)
	}
	if got := d.Ratio(); math.Abs(got-5./3) > 1e-12 {
		t.Errorf("x = %v, want 5/3", got)
	}
}

// All that a run promises, from what it says it did.
func TestASimulatedRunKeepsTheConstraints(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 600 {
		d, n := anyway(r), 1+r.IntN(60)
		d.Workers = r.IntN(5)
		d.Gather = time.Duration(r.Float64() * float64(d.CPUBatch))
		p := Plan{CPUBuffer: 1 + r.IntN(12), GPUBuffer: 1 + r.IntN(12), CPUBatches: r.IntN(n + 1)}
		switch round % 5 {
		case 4:
			p.Cbs = 1 + r.IntN(p.CPUBuffer)
		case 1:
			p.OnDemand, p.Mixed, p.Share, p.Seed = true, true, r.Float64(), r.Uint64()
		case 2:
			p.Serial = true
		case 3:
			p.OnDemand, p.LateGather = true, true
		}
		workers := p.Workers(d)
		stages := make([]map[schedule.Stage]schedule.Span, n)
		busy := make(map[string][]schedule.Span)
		run := Simulate(d, p, n, func(s schedule.Span) {
			if stages[s.Batch] == nil {
				stages[s.Batch] = make(map[schedule.Stage]schedule.Span)
			}
			if _, twice := stages[s.Batch][s.Stage]; twice {
				t.Fatalf("%+v %+v: batch %d has two stages %s", d, p, s.Batch, s.Stage)
			}
			stages[s.Batch][s.Stage] = s
			on := s.Stage.On()
			if s.Stage == schedule.Sample {
				on += string(rune('0' + s.Worker))
				if s.Worker >= workers {
					t.Fatalf("%+v: worker %d", d, s.Worker)
				}
			}
			busy[on] = append(busy[on], s)
			if s.Stage == schedule.Prepare {
				busy["link"] = append(busy["link"], s)
			}
		})
		var all []schedule.Span
		for on, spans := range busy {
			slices.SortFunc(spans, func(a, b schedule.Span) int { return cmp.Compare(a.Start, b.Start) })
			for i := 1; i < len(spans); i++ {
				if spans[i].Start < spans[i-1].End {
					t.Fatalf("%+v %+v: the %s does two things at once: %+v, %+v", d, p, on, spans[i-1], spans[i])
				}
			}
			all = append(all, spans...)
		}
		slices.SortFunc(all, func(a, b schedule.Span) int { return cmp.Compare(a.Start, b.Start) })
		cpu := 0
		for b, s := range stages {
			sample, onCPU := s[schedule.Sample]
			move, moved := s[schedule.Move]
			prepare, onGPU := s[schedule.Prepare]
			train, trained := s[schedule.Train]
			if !trained || onCPU == onGPU || moved != onCPU {
				t.Fatalf("%+v %+v: batch %d has the stages %v", d, p, b, s)
			}
			if onCPU {
				cpu++
			}
			if onCPU && (move.Start < sample.End || train.Start < move.End) || onGPU && train.Start < prepare.End {
				t.Fatalf("%+v %+v: batch %d: %v", d, p, b, s)
			}
			// Constraint 4: batches of the processor that have begun and have not begun to move; and those that are on
			// the GPU, or on their way, and have not begun to be trained.
			held, onDevice := 0, 0
			for _, other := range stages {
				if o, ok := other[schedule.Sample]; ok && o.Start <= sample.Start &&
					other[schedule.Move].Start > sample.Start {
					held++
				}
				begun := other[schedule.Move].Start
				if o, ok := other[schedule.Prepare]; ok {
					begun = o.Start
				}
				if begun <= train.Start && other[schedule.Train].Start > train.Start {
					onDevice++
				}
			}
			if onCPU && held > p.CPUBuffer {
				t.Fatalf("%+v %+v: %d batches are held for a buffer of %d", d, p, held, p.CPUBuffer)
			}
			if onDevice > p.GPUBuffer {
				t.Fatalf("%+v %+v: %d batches are on the GPU for a buffer of %d", d, p, onDevice, p.GPUBuffer)
			}
			if train.End > run.Total {
				t.Fatalf("%+v %+v: batch %d ends after the run", d, p, b)
			}
		}
		if run.CPUBatches != cpu || run.GPUBatches != n-cpu || !p.Mixed && cpu != p.CPUBatches {
			t.Fatalf("%+v: %d batches of the processor, %d and %d by the result", p, cpu, run.CPUBatches,
				run.GPUBatches)
		}
		if p.OnDemand { // no training beside a move
			for _, m := range busy["link"] {
				for _, s := range busy["device"] {
					if m.Stage == schedule.Move && s.Start < m.End && m.Start < s.End {
						t.Fatalf("%+v: %+v beside %+v", p, m, s)
					}
				}
			}
		}
		for i := 1; p.Serial && i < len(all); i++ {
			if all[i].Start < all[i-1].End && all[i].Stage != schedule.Prepare { // which is there twice
				t.Fatalf("%+v: %+v beside %+v", p, all[i-1], all[i])
			}
		}
	}
}

// Epochs without overlap, by hand.
func TestPlansOnDemandByHand(t *testing.T) {
	ms := time.Millisecond
	d := Durations{CPUBatch: 30 * ms, Workers: 3, Gather: 6 * ms, DMA: 4 * ms, GPUBatch: 10 * ms, Model: 5 * ms}
	in := Inputs{Durations: d, Batches: 10, CPUBuffer: 20, GPUBuffer: 10, Share: -1}
	for name, want := range map[string]time.Duration{
		"sequential": 10 * (30 + 4 + 5) * ms,
		"gpu":        10 * (10 + 5) * ms,
		// Three at a time for 30 ms; the tenth is ready at 120, moves and trains.
		"cpu": 129 * ms, "mode-1": 129 * ms,
		// Three samples at a time, in 24 ms; then 15 ms for each batch.
		"mode-2": (24 + 10*15) * ms,
	} {
		s, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Choose(in)
		if err != nil || c.Predicted.Total != want {
			t.Errorf("%s: %v, %v; want %v", name, c.Predicted.Total, err, want)
		}
	}
	// A share of 1 is the processor's without overlap, of 0 the GPU's.
	for share, want := range map[float64]time.Duration{0: 150 * ms, 1: (30 + 10*9 + 0) * ms} {
		in.Share = share
		s, _ := Find("mixed")
		if c, err := s.Choose(in); err != nil || c.Predicted.Total < want || share == 0 && c.Predicted.Total > want {
			t.Errorf("share %v: %v, %v; want %v or more", share, c.Predicted.Total, err, want)
		}
	}
	if _, err := Find("quick"); err == nil {
		t.Error("there is a schedule quick")
	}
}

// An epoch whose batches have numbers takes as long as the simulation that they come from, and so does
// what is left of it, but for the batches that were prepared ahead.
func TestAnEpochInAGivenOrderIsTheSimulatedOne(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		d, n := anyway(r), 1+r.IntN(60)
		d.Workers = 1 + r.IntN(4)
		p := Plan{CPUBuffer: 1 + r.IntN(12), GPUBuffer: 1 + r.IntN(12), CPUBatches: r.IntN(n + 1)}
		if n%2 == 0 {
			p.Cbs = 1 + r.IntN(p.CPUBuffer)
		}
		free := Simulate(d, p, n, nil)
		next := 0
		given := simulate(d, p, p.Given(d, n, 0), func(s schedule.Span) {
			if s.Stage == schedule.Train {
				if s.Batch != next {
					t.Fatalf("%+v: batch %d is trained after %d", p, s.Batch, next-1)
				}
				next++
			}
		})
		if given != free {
			t.Fatalf("%+v %+v, %d batches: %+v in the given order, %+v without", d, p, n, given, free)
		}
		first := r.IntN(n)
		if rest := simulate(d, p, p.Given(d, n, first), nil); rest.CPUBatches+rest.GPUBatches != n-first {
			t.Fatalf("%+v: %d and %d batches after %d of %d", p, rest.CPUBatches, rest.GPUBatches, first, n)
		}
	}
}

// Whatever the stages take, other than was planned: every batch is trained once, in order, and buffers have
// room for it.
func TestAnEpochOfAnyTimingTrainsEachBatchOnceInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for round := range 1000 {
		d, n := anyway(r), 1+r.IntN(60)
		d.Workers = 1 + r.IntN(4)
		p := Plan{CPUBuffer: 1 + r.IntN(8), GPUBuffer: 1 + r.IntN(8), CPUBatches: r.IntN(n + 1)}
		if round%3 == 1 {
			p.OnDemand, p.Mixed, p.Share = true, true, r.Float64()
		} else if round%3 == 2 {
			p.Cbs = 1 + r.IntN(p.CPUBuffer)
		}
		first := r.IntN(n)
		course := schedule.New(p.Given(d, n, first))
		type stage struct {
			schedule.Step
			end float64
		}
		var now float64
		var underWay []stage
		samples, trained, held, onDevice := 0.0, 0, 0, 0
		for !course.Finished() {
			for step, ok := course.Next(); ok; step, ok = course.Next() {
				end := now + math.Exp(4*r.Float64())
				switch step.Stage {
				case schedule.Sample:
					end = max(end, samples) // in order
					samples = end
					held++
				case schedule.Move:
					held--
					onDevice++
				case schedule.Prepare:
					onDevice++
				case schedule.Train:
					if step.Batch != trained {
						t.Fatalf("%+v: batch %d is trained instead of %d", p, step.Batch, trained)
					}
					trained++
					onDevice--
				}
				if held > p.CPUBuffer || onDevice > p.GPUBuffer+1 {
					t.Fatalf("%+v: %d batches on the host, %d on the device", p, held, onDevice)
				}
				underWay = append(underWay, stage{step, end})
			}
			if len(underWay) == 0 {
				t.Fatalf("%+v %+v: nothing can begin after %d of %d batches", d, p, trained, n-first)
			}
			next := slices.MinFunc(underWay, func(a, b stage) int { return cmp.Compare(a.end, b.end) })
			underWay = slices.DeleteFunc(underWay, func(s stage) bool { return s == next })
			now = next.end
			course.Done(next.Step)
		}
		if trained != n-first {
			t.Fatalf("%+v: %d batches are trained of %d", p, trained, n-first)
		}
	}
}

func TestWhatCannotBePlannedIsAnError(t *testing.T) {
	ms := time.Millisecond
	one := Durations{CPUBatch: ms, DMA: ms, GPUBatch: ms, Model: ms}
	for _, c := range []struct {
		d           Durations
		n, cpu, gpu int
	}{
		{Durations{CPUBatch: ms, DMA: ms, GPUBatch: ms}, 1, 1, 1},
		{Durations{CPUBatch: ms, DMA: ms, GPUBatch: -ms, Model: ms}, 1, 1, 1},
		{Durations{CPUBatch: ms, DMA: ms, GPUBatch: ms, Model: ms, Gather: 2 * ms}, 1, 1, 1},
		{Durations{CPUBatch: ms, DMA: ms, GPUBatch: ms, Model: ms, Workers: -1}, 1, 1, 1},
		{one, 0, 1, 1}, {one, 1, 0, 1}, {one, 1, 1, 0},
	} {
		if _, err := dispatched(c.d, c.n, c.cpu, c.gpu); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

// dispatched is the choice of MorphGL's schedule.
func dispatched(d Durations, batches, cpuBuffer, gpuBuffer int) (Choice, error) {
	s, err := Find("collective")
	if err != nil {
		return Choice{}, err
	}
	return s.Choose(Inputs{Durations: d, Batches: batches, CPUBuffer: cpuBuffer, GPUBuffer: gpuBuffer})
}
