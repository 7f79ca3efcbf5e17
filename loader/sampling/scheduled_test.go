package sampling

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/paced"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
)

// anyDecider decides by chance, among what is possible.
type anyDecider struct{ r *rand.Rand }

func (d anyDecider) Next(now schedule.State) schedule.Action {
	var can []schedule.Action
	if now.GPU > 0 {
		can = append(can, schedule.TrainNext)
	}
	if now.Left > 0 && now.GPU < 3 {
		can = append(can, schedule.PrepareNext)
	}
	if now.CPU > 0 && now.GPU < 3 {
		can = append(can, schedule.MoveNext)
	}
	if len(can) == 0 {
		return schedule.Await
	}
	return can[d.r.IntN(len(can))]
}

// byChance are rules by which the device prepares a share of the batches of a plan.
func byChance(batches int, share float64, seed uint64) func(epoch, first int) schedule.Rules {
	byGPU := func(batch int) bool { return rng.Float64(rng.Hash(seed, uint64(batch))) < share }
	return func(_, first int) schedule.Rules {
		r := schedule.Rules{
			Batches: batches - first, Workers: 1 + int(seed%4), CPUBuffer: 1 + int(seed%5), GPUBuffer: 3,
			OnDemand: seed%2 == 0, LateGather: seed%3 == 0,
			ByGPU:  func(batch int) bool { return byGPU(first + batch) },
			Decide: anyDecider{rand.New(rand.NewPCG(seed, 1))},
		}
		for i := range r.Batches {
			if !r.ByGPU(i) {
				r.CPUBatches++
			}
		}
		return r
	}
}

func TestBatchesAreTheSameByAnySchedule(t *testing.T) {
	for _, discrete := range []bool{false, true} {
		for _, storage := range []bool{false, true} {
			b := newBench(t, toy, discrete, storage)
			prepares := discrete && !storage // the device, by itself
			if prepares {
				b = newUnifiedBench(t, toy)
			}
			nodes := everyThird(toy.Nodes)
			plan := chunk.Plan{BatchRows: 8, Order: chunk.Shuffled, Seed: 9}
			for _, policy := range []string{"", "degree", "gns", "ducati"} {
				m := b.method("neighbor", Options{Fanouts: []int{3, 2}})
				o := LoaderOptions{Labels: b.labels, NodeIDs: true, Workers: 2, Buffers: Buffers(5, 3)}
				o.Types = []TypeRows{{Cache: b.cache(policy, toy, m, nodes, plan)}}
				l := b.open(o)
				s, err := l.Set(nodes, m, plan)
				b.must(err)
				want := b.batchesOf(s, 1, 0)
				if prepares {
					b.must(l.PrepareOnDevice(m, nil))
				}
				for seed := range uint64(15) {
					name := fmt.Sprintf("discrete %t, storage %t, cache %q, seed %d", discrete, storage, policy, seed)
					share := float64(seed%5) / 4
					if !prepares {
						share = 0
					}
					var trained []int
					s.SetSchedule(&Schedule{
						Rules: byChance(s.Batches(), share, seed),
						Trace: func(span schedule.Span) {
							if span.End < span.Start || span.Stage == schedule.Sample && span.Worker > int(seed%4) {
								t.Errorf("%s: %+v", name, span)
							}
							if span.Stage == schedule.Train {
								trained = append(trained, span.Batch)
							}
						},
					})
					first := int(seed) % (s.Batches() / 2)
					if got := b.batchesOf(s, 1, first); !slices.Equal(got, want[first:]) {
						t.Fatalf("%s: other batches than by the pipeline", name)
					}
					if rest := b.batchesOf(s, 1, s.Batches()); len(rest) > 0 {
						t.Errorf("%s: %d batches after the last", name, len(rest))
					}
					if len(trained) != len(want)-first || !slices.IsSorted(trained) {
						t.Errorf("%s: trained %v", name, trained)
					}
				}
				if c := l.Stats().Cache; c != nil &&
					(c.Lookups != l.Stats().Traffic.Rows || c.Hits != l.Stats().Traffic.CachedRows) {
					t.Errorf("cache %q: %+v, %+v", policy, c, l.Stats().Traffic)
				}
				s.SetSchedule(nil)
				if got := b.batchesOf(s, 1, 0); !slices.Equal(got, want) {
					t.Error("after schedules, the pipeline has other batches")
				}
			}
		}
	}
}

func TestSchedulesEndWithTheLoopTheContextOrAFailure(t *testing.T) {
	broken := errors.New("broken")
	b := newUnifiedBench(t, toy)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	l := b.open(LoaderOptions{Buffers: Buffers(5, 3), NodeIDs: true})
	s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 4, Order: chunk.Shuffled})
	b.must(err)
	b.must(l.PrepareOnDevice(m, nil))
	want := b.batchesOf(s, 0, 0)
	before := runtime.NumGoroutine()
	for seed := range uint64(40) {
		s.SetSchedule(&Schedule{Rules: byChance(s.Batches(), float64(seed%5)/4, seed)})
		stream, err := b.device.NewStream()
		b.must(err)
		ctx, cancel := context.WithCancelCause(t.Context())
		at, seen := int(seed)%s.Batches(), 0
		var last error
		for batch, err := range s.EpochFrom(ctx, stream, 0, 0) {
			if last = err; err != nil {
				break
			}
			if batch.Index != seen {
				t.Fatalf("batch %d after %d others", batch.Index, seen)
			}
			if seen++; batch.Index != at {
				continue
			}
			switch seed % 3 {
			case 0:
				cancel(broken)
			case 1: // the device fails
				stream.Fill(gds.Tensor{Rows: 1, Cols: 1, Stride: 1, DType: gds.Float32}, 1)
			}
			if seed%3 == 2 {
				break
			}
		}
		cancel(nil)
		_ = stream.Close() // of the failed device
		switch {
		case seed%3 == 0 && at < s.Batches()-1 && last != broken:
			t.Errorf("seed %d: the epoch ends with %v", seed, last)
		case seed%3 == 1 && last == nil:
			t.Errorf("seed %d: the device failed in batch %d, and %d were trained", seed, at, seen)
		case seed%3 == 2 && (last != nil || seen != at+1):
			t.Errorf("seed %d: %d batches, %v", seed, seen, last)
		}
		if l.buffers.Free() != len(l.buffers.All()) {
			t.Fatalf("seed %d: %d of %d buffers are free", seed, l.buffers.Free(), len(l.buffers.All()))
		}
	}
	for wait := 0; runtime.NumGoroutine() > before && wait < 60_000; wait++ { // a minute, where the machine is busy
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	if got := b.batchesOf(s, 0, 0); !slices.Equal(got, want) {
		t.Error("other batches afterwards")
	}
}

// In time that passes only while all wait, an epoch takes what its stages take, by hand.
func TestPacedStagesTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnifiedBench(t, toy)
		const ms = time.Millisecond
		b.device = paced.New(b.device, host.Stages{CPU: 30 * ms, DMA: 4 * ms, Sampling: 10 * ms, Compute: 5 * ms})
		m := b.method("neighbor", Options{Fanouts: []int{2}})
		l := b.open(LoaderOptions{Buffers: Buffers(6, 3), NodeIDs: true})
		s, err := l.Set(everyThird(toy.Nodes)[:40], m, chunk.Plan{BatchRows: 4, Order: chunk.Shuffled})
		b.must(err)
		b.must(l.PrepareOnDevice(m, nil))
		rules := schedule.Rules{Batches: 10, CPUBatches: 10, Workers: 3, CPUBuffer: 6, GPUBuffer: 3,
			ByGPU: func(int) bool { return false }}
		o := &Schedule{Rules: func(int, int) schedule.Rules { return rules }}
		for _, c := range []struct {
			change func()
			want   time.Duration
		}{
			{func() {}, (120 + 4 + 5) * ms}, // the tenth comes with the fourth turn of three workers
			{func() { rules.OnDemand, rules.Serial, rules.Workers = true, true, 1 }, 10 * (30 + 4 + 5) * ms},
			{func() { rules.CPUBatches, rules.ByGPU = 0, func(int) bool { return true } }, 10 * (10 + 5) * ms},
		} {
			c.change()
			s.SetSchedule(o)
			var last time.Duration
			o.Trace = func(s schedule.Span) { last = s.End }
			start := time.Now()
			if got := len(b.batchesOf(s, 0, 0)); got != 10 {
				t.Errorf("%d batches", got)
			}
			if took := time.Since(start); took != c.want || last != c.want {
				t.Errorf("%v, traced %v; want %v", took, last, c.want)
			}
		}
	})
}

func TestSchedulesThatCannotBeAreErrors(t *testing.T) {
	b := newBench(t, toy, true, false)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	c, err := cache.Spec{Policy: "lru", Rows: 50}.Open(cache.Inputs{Nodes: int64(toy.Nodes), RowBytes: 1})
	b.must(err)
	plan, share := chunk.Plan{BatchRows: 4, Order: chunk.Shuffled}, 0.0
	l := b.open(LoaderOptions{Types: []TypeRows{{Cache: c.Cache}}, Buffers: Buffers(5, 3)})
	s, err := l.Set(everyThird(toy.Nodes), m, plan)
	b.must(err)
	refuses := func(want string) {
		t.Helper()
		s.SetSchedule(&Schedule{Rules: byChance(s.Batches(), share, 2)})
		for _, err := range s.EpochFrom(t.Context(), b.stream(), 0, 0) {
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	refuses("cache lru changes")
	share = 0.5
	s, err = b.open(LoaderOptions{Buffers: Buffers(5, 3)}).Set(everyThird(toy.Nodes), m, plan)
	b.must(err)
	refuses("was not told how")
	s, err = b.open(LoaderOptions{Buffers: 2}).Set(everyThird(toy.Nodes), m, plan)
	b.must(err)
	refuses("8 batches at a time for a loader of 2")
}

// Batches that wait in memory of the host take none of the device. A batch that is held keeps what it has.
func TestOnlyBatchesOnTheDeviceTakeItsMemory(t *testing.T) {
	b := newBench(t, toy, true, false)
	m := b.method("neighbor", Options{Fanouts: []int{3, 2}})
	l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true, Buffers: Buffers(9, 3)})
	s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 5, Order: chunk.Shuffled})
	b.must(err)
	want := b.batchesOf(s, 0, 0) // each with memory of its own
	stream := b.stream()
	for _, gpuBuffer := range []int{1, 3, 1} {
		rules := schedule.Rules{Batches: len(want), CPUBatches: len(want), Workers: 3, CPUBuffer: 9,
			GPUBuffer: gpuBuffer, ByGPU: func(int) bool { return false }}
		s.SetSchedule(&Schedule{Rules: func(int, int) schedule.Rules { return rules }})
		var held *loader.Batch
		seen := 0
		for batch, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
			b.must(err)
			if seen++; batch.Index == 2 {
				held = batch
				held.Hold()
			}
		}
		inUse := 0
		for _, of := range l.buffers.All() {
			if of.device.Buffer != nil {
				inUse++
			}
		}
		if seen != len(want) || inUse > gpuBuffer+2+1 {
			t.Errorf("buffer of %d: %d batches, %d with device memory", gpuBuffer, seen, inUse)
		}
		b.check(s, stream, held, 0, toy)
		held.Release(stream.Record())
		if got := b.batchesOf(s, 0, 0); !slices.Equal(got, want) {
			t.Error("other batches afterwards")
		}
	}
	s.SetSchedule(nil)
	if got := b.batchesOf(s, 0, 0); !slices.Equal(got, want) {
		t.Error("other batches without a schedule")
	}
}
