package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A pipeline of one worker follows from three equations: a stage begins when its batch has ended the stage before, the
// stage has ended the batch before, and there is room.
func TestAPipelineIsThatOfItsEquations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 500 {
		n := 1 + r.IntN(20)
		rules := Pipelined(n, 1, 2+r.IntN(6), 1+r.IntN(4))
		rules.Moving = 1
		length := [3][]time.Duration{make([]time.Duration, n), make([]time.Duration, n), make([]time.Duration, n)}
		place := map[Stage]int{Sample: 0, Move: 1, Train: 2}
		for s := range length {
			for i := range length[s] {
				length[s][i] = time.Duration(r.IntN(9))
			}
		}
		var start, end [3][]time.Duration
		at := func(list []time.Duration, i int) time.Duration {
			if i < 0 {
				return 0
			}
			return list[i]
		}
		for i := range n {
			room := max(at(start[1], i-rules.CPUBuffer), at(start[2], i-rules.CPUBuffer-rules.GPUBuffer))
			for s := range 3 {
				begin := max(at(end[s], i-1), room)
				if s > 0 {
					begin = max(begin, end[s-1][i])
				}
				start[s], end[s] = append(start[s], begin), append(end[s], begin+length[s][i])
				if room = 0; s == 0 {
					room = at(start[2], i-rules.GPUBuffer)
				}
			}
		}
		simulation := Simulation{
			Rules:  []Rules{rules},
			Length: func(_ int, s Step) time.Duration { return length[place[s.Stage]][s.Batch] },
			Trace: func(_ int, s Span) {
				if k := place[s.Stage]; s.Start != start[k][s.Batch] || s.End != end[k][s.Batch] {
					t.Fatalf("round %d: %+v, want %v to %v", round, s, start[k][s.Batch], end[k][s.Batch])
				}
			},
		}
		if total := simulation.Run(); total != end[2][n-1] {
			t.Fatalf("round %d: %v, want %v", round, total, end[2][n-1])
		}
	}
}

// Whatever order the stages of both routes end in, each batch is trained once, in order, and buffers have room.
func TestEachBatchTakesItsRouteOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		byGPU := make([]bool, 1+r.IntN(20))
		rules := Rules{Batches: len(byGPU), Workers: 1 + r.IntN(3), CPUBuffer: 1 + r.IntN(4), GPUBuffer: 1 + r.IntN(3),
			OnDemand: r.IntN(2) == 0, Serial: r.IntN(3) == 0, ByGPU: func(i int) bool { return byGPU[i] }}
		for i := range byGPU {
			if byGPU[i] = r.IntN(2) == 0; !byGPU[i] {
				rules.CPUBatches++
			}
		}
		c := New(rules)
		var running []Step
		var trained []int
		seen := map[Step]bool{}
		for !c.Finished() {
			for step, ok := c.Next(); ok; step, ok = c.Next() {
				if seen[step] || step.ByGPU != byGPU[step.Batch] {
					t.Fatalf("%+v again, or on the wrong route", step)
				}
				seen[step] = true
				running = append(running, step)
				if rules.Serial && len(running) > 1 {
					t.Fatalf("%+v at a time", running)
				}
			}
			if len(running) == 0 {
				t.Fatal("nothing goes on")
			}
			i := r.IntN(len(running))
			if running[i].Stage == Train {
				trained = append(trained, running[i].Batch)
			}
			c.Done(running[i])
			running = slices.Delete(running, i, i+1)
		}
		if len(trained) != len(byGPU) || !slices.IsSorted(trained) {
			t.Fatalf("trained %v of %d", trained, len(byGPU))
		}
	}
}
