package collective

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
)

// bounded is the shortest epoch that there is (Definition 1) with buffers of limited sizes (Constraint 4), by trying
// all orders in which the stages of so few batches begin.
type bounded struct {
	d            Durations
	n, cbs, gbs  int
	cpu          int // batches of the processor
	best         time.Duration
	moves, train []time.Duration // when they began, in order
	sampled      []time.Duration // when the processor's batches are ready
}

func shortestBounded(d Durations, n, cbs, gbs int) time.Duration {
	o := bounded{d: d, n: n, cbs: cbs, gbs: gbs, best: time.Hour}
	for o.cpu = 0; o.cpu <= n; o.cpu++ {
		o.search(0, 0, 0, nil)
	}
	return o.best
}

// search goes on from where the GPU has prepared so many batches, and is free, like the link, from some times on; ready
// is when those on the GPU are there. The k-th arrival needs a place that the training k - gbs has left, and the k-th
// batch of the processor one that the move k - cbs has left.
func (o *bounded) search(prepared int, gpu, link time.Duration, ready []time.Duration) {
	if len(o.train) == o.n {
		o.best = min(o.best, gpu)
		return
	}
	if gpu+time.Duration(o.n-o.cpu-prepared)*o.d.GPUBatch+time.Duration(o.n-len(o.train))*o.d.Model >= o.best {
		return
	}
	freed := func(arrival, buffer int, begun []time.Duration) (time.Duration, bool) {
		at := arrival - buffer
		if at < 0 {
			return 0, true
		}
		if at >= len(begun) {
			return 0, false
		}
		return begun[at], true
	}
	for i, r := range ready {
		begin := max(gpu, r)
		o.train = append(o.train, begin)
		rest := append(append([]time.Duration(nil), ready[:i]...), ready[i+1:]...)
		o.search(prepared, begin+o.d.Model, link, rest)
		o.train = o.train[:len(o.train)-1]
	}
	place, free := freed(prepared+len(o.moves), o.gbs, o.train)
	if free && prepared < o.n-o.cpu {
		end := max(gpu, link, place) + o.d.GPUBatch
		o.search(prepared+1, end, end, append(append([]time.Duration(nil), ready...), end))
	}
	if k := len(o.moves); free && k < o.cpu {
		room, _ := freed(k, o.cbs, o.moves)
		before := time.Duration(0)
		if k > 0 {
			before = o.sampled[k-1]
		}
		o.sampled = append(o.sampled, max(room, before)+o.d.CPUBatch)
		begin := max(link, place, o.sampled[k])
		o.moves = append(o.moves, begin)
		o.search(prepared, gpu, begin+o.d.DMA, append(append([]time.Duration(nil), ready...), begin+o.d.DMA))
		o.moves, o.sampled = o.moves[:k], o.sampled[:k]
	}
}

// Buffers of one or two batches bind. Both dispatchers stay within the bound of Theorem 2 of the best that there is
// with such buffers, and ours is never longer than the printed one.
func TestPlansAreGoodWhereBuffersBind(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	var worst, gain float64
	bind := 0
	for range 150 {
		d, n, cbs, gbs := random(r), 3+r.IntN(4), 1+r.IntN(2), 1+r.IntN(2)
		best, free := shortestBounded(d, n, cbs, gbs), shortest(d, n, time.Hour)
		if best < free {
			t.Fatalf("%+v, %d batches: %v with buffers of %d and %d, %v without limits", d, n, best, cbs, gbs, free)
		}
		if best > free {
			bind++
		}
		var totals [2]time.Duration
		for i, name := range []string{"collective", "collective-paper"} {
			s, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Choose(Inputs{Durations: d, Batches: n, CPUBuffer: cbs, GPUBuffer: gbs})
			if err != nil {
				t.Fatal(err)
			}
			totals[i] = c.Predicted.Total
			if ratio := float64(totals[i]) / float64(best); ratio < 1 {
				t.Fatalf("%s, %d batches of %+v, buffers %d and %d: %v is less than the optimum %v", name, n, d, cbs, gbs,
					totals[i], best)
			} else if i == 0 {
				worst = max(worst, ratio)
			} else if ratio > 2+float64(d.GPUBatch)/float64(d.DMA) {
				t.Errorf("%s, %d batches of %+v: %.2f times the optimum", name, n, d, ratio)
			}
		}
		if totals[0] > totals[1] {
			t.Errorf("%d batches of %+v, buffers %d and %d: ours takes %v, the printed one %v", n, d, cbs, gbs, totals[0],
				totals[1])
		}
		gain = max(gain, float64(totals[1])/float64(totals[0]))
	}
	t.Logf("buffers bind in %d of 150 sets; ours is within %.2f of the optimum, the printed one up to %.2f x ours", bind,
		worst, gain)
	if bind < 30 || worst > 1.25 {
		t.Errorf("buffers bind in %d of 150 sets, and ours is up to %.2f times the optimum", bind, worst)
	}
}

// By hand: C 30, D 4, U 10, M 5 ms; buffers of 2 and 2, half of eight batches by each. While both buffers fill, the GPU
// has its two at 20 ms, and the processor its two at 60: the GPU trains one and prepares another until then (65). One
// batch moves beside each training of the flush, and none before it.
func TestPrintedPhasesByHand(t *testing.T) {
	ms := time.Millisecond
	d := Durations{CPUBatch: 30 * ms, DMA: 4 * ms, GPUBatch: 10 * ms, Model: 5 * ms}
	p := Plan{CPUBuffer: 2, GPUBuffer: 2, CPUBatches: 4, Cbs: 2}
	var got []string
	Simulate(d, p, 10, func(s schedule.Span) {
		if s.Stage != schedule.Sample {
			got = append(got, fmt.Sprintf("%v %d-%d", s.Stage, s.Start/ms, s.End/ms))
		}
	})
	want := "prepare 0-10 prepare 10-20 " +
		"train 20-25 prepare 25-35 train 35-40 prepare 40-50 train 50-55 prepare 55-65 " + // blocked
		"move 65-69 train 65-70 move 70-74 train 70-75 train 75-80 train 80-85"
	if text := strings.Join(got, " "); !strings.HasPrefix(text, want) {
		t.Errorf("stages are\n%s, want\n%s", text, want)
	}
}

// The paper says what the feedback ends with at both ends, and that it ends.
func TestFeedbackEnds(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name string
		d    Durations
		cpu  int // batches of 100; -1: some
	}{
		{"training is the longest", Durations{CPUBatch: 4 * ms, DMA: 2 * ms, GPUBatch: 3 * ms, Model: 9 * ms}, 100},
		{"the processor is far slower", Durations{CPUBatch: 900 * ms, DMA: 2 * ms, GPUBatch: 3 * ms, Model: 2 * ms}, 0},
		{"both", Durations{CPUBatch: 30 * ms, DMA: 4 * ms, GPUBatch: 10 * ms, Model: 5 * ms}, -1},
	} {
		got := dispatchAsPrinted(Inputs{Durations: c.d, Batches: 100, CPUBuffer: 64, GPUBuffer: 10})
		if n := got.Predicted.CPUBatches; c.cpu >= 0 && n != c.cpu || c.cpu < 0 && (n == 0 || n == 100 || got.Plan.Cbs == 0) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	r := rand.New(rand.NewPCG(13, 14))
	most := 0
	for range 1000 {
		in := Inputs{Durations: anyway(r), Batches: 1 + r.IntN(300), CPUBuffer: 1 + r.IntN(64), GPUBuffer: 1 + r.IntN(12)}
		in.Durations.Workers = r.IntN(5)
		got := dispatchAsPrinted(in)
		most = max(most, got.Rounds)
		if again := Simulate(in.Durations, got.Plan, in.Batches, nil); again != got.Predicted {
			t.Fatalf("%+v: the plan %+v takes %+v, %+v was predicted", in, got.Plan, again, got.Predicted)
		}
	}
	t.Logf("up to %d rounds of feedback; the paper has up to 53", most)
}
