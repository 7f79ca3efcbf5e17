package collective

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Plan is how the batches of an epoch are prepared.
type Plan struct {
	// CPUBuffer is how many batches of the processor there may be that it has begun and that have not
	// begun to move, and GPUBuffer how many on the GPU that have not begun to be trained.
	CPUBuffer, GPUBuffer int
	// CPUBatches is how many batches of an epoch the processor prepares; the GPU prepares the others.
	CPUBatches int

	// Mixed: each batch is the processor's with the probability Share, whatever CPUBatches is. Seed says which are.
	Mixed bool
	Share float64
	Seed  uint64

	OnDemand   bool // nothing moves while the GPU trains, and nothing is prepared on it ahead
	Serial     bool // OnDemand, and one worker of the processor samples nothing ahead either
	LateGather bool // rows are gathered when a batch moves, not when it is sampled
	// Cbs is not 0 where Printed decides: the batches that are prepared and have not begun to move. CPUBuffer counts
	// those that workers have in hand too.
	Cbs int
}

// Workers is how many workers of the processor prepare batches.
func (p Plan) Workers(d Durations) int {
	if p.Serial {
		return 1
	}
	return max(d.Workers, 1)
}

// PreparedBuffer is how many batches of the processor there may be that are prepared and have not begun to move.
func (p Plan) PreparedBuffer() int { return cmp.Or(p.Cbs, p.CPUBuffer) }

// InOrder tells that the GPU brings the batch that is trained next, and trains it: it never has another.
func (p Plan) InOrder() bool { return p.OnDemand || p.Serial }

// Rules are the rules of an epoch by the plan. Its batches are in the order in which they come to the GPU,
// unless the plan says who prepares which.
func (p Plan) Rules(d Durations, batches int) schedule.Rules {
	r := schedule.Rules{
		Batches: batches, CPUBatches: p.CPUBatches, Workers: p.Workers(d), CPUBuffer: p.CPUBuffer,
		GPUBuffer: p.GPUBuffer, OnDemand: p.InOrder(), Serial: p.Serial, LateGather: p.LateGather,
	}
	if p.InOrder() {
		return give(r, 0, p.drawn(batches))
	}
	if p.Cbs > 0 {
		r.Decide = &Printed{Plan: p}
	} else {
		r.Decide = &Scheduler{Plan: p}
	}
	return r
}

// give returns the rules for the rest of an epoch, from batch first on; the GPU prepares the batches as byGPU says.
func give(r schedule.Rules, first int, byGPU []bool) schedule.Rules {
	byGPU = byGPU[first:]
	r.Batches, r.CPUBatches = len(byGPU), 0
	for _, gpu := range byGPU {
		if !gpu {
			r.CPUBatches++
		}
	}
	r.ByGPU = func(batch int) bool { return byGPU[batch] }
	return r
}

// drawn says which batches the GPU prepares, if that does not follow from a simulation.
func (p Plan) drawn(batches int) []bool {
	byGPU := make([]bool, batches)
	for i := range byGPU {
		if p.Mixed {
			byGPU[i] = rng.Float64(rng.Hash(p.Seed, uint64(i))) >= p.Share
		} else {
			byGPU[i] = i >= p.CPUBatches
		}
	}
	return byGPU
}

// Given are the rules of an epoch by the plan whose batches have numbers: who prepares which follows from
// plan and durations alone, so that an epoch has the same batches in the same order whatever its timing.
// The first batches, which are trained already, are left out.
func (p Plan) Given(d Durations, batches, first int) schedule.Rules {
	var byGPU []bool
	if p.InOrder() {
		byGPU = p.drawn(batches)
	} else {
		prepared := make([]bool, batches) // by the GPU; numbered as they begin
		Simulate(d, p, batches, func(s schedule.Span) {
			switch s.Stage {
			case schedule.Prepare:
				prepared[s.Batch] = true
			case schedule.Train:
				byGPU = append(byGPU, prepared[s.Batch])
			}
		})
	}
	return give(p.Rules(d, batches), first, byGPU)
}

// Alternating are rules for the batches from first on by which one stage follows another, so that each stage can be
// measured by itself. byGPU says which batches the GPU prepares.
func Alternating(batches, first int, byGPU func(batch int) bool) schedule.Rules {
	p := Plan{CPUBuffer: 1, GPUBuffer: 1, Serial: true}
	routes := make([]bool, batches)
	for i := first; i < batches; i++ {
		routes[i] = byGPU(i)
	}
	return give(p.Rules(Durations{}, 0), first, routes)
}

// Inputs are what a schedule is chosen for.
type Inputs struct {
	Durations            Durations
	Batches              int     // of an epoch
	CPUBuffer, GPUBuffer int     // batches that memory of the host, and of the GPU, has room for
	Share                float64 // of batches that the processor prepares in mixed; < 0: the best
	Seed                 uint64
	// Fits is an error unless memory has room for the batches and workers of a plan while waiting batches wait to move.
	// nil: any plan fits.
	Fits func(p Plan, workers, waiting int) error
}

// Choice is a plan, and the prediction that it was chosen by.
type Choice struct {
	Name      string
	Plan      Plan
	Predicted Run
	Rounds    int // of simulation until it was found
	Reason    string
}

// Schedule is a way to prepare the batches of an epoch.
type Schedule struct {
	Name, About string
	OnGPU       bool // the GPU has to prepare batches
	Least       Plan // its plan with the smallest buffers, without batches
	plan        func(in Inputs) Choice
}

// smallest are the least buffers.
var smallest = Plan{CPUBuffer: 1, GPUBuffer: 1}

func fixed(reason string, plan func(Inputs) Plan) func(Inputs) Choice {
	return func(in Inputs) Choice { return Choice{Plan: plan(in), Rounds: 1, Reason: reason} }
}

// pipelined: the buffers suffice that no worker, and neither link nor GPU, waits for room.
func pipelined(in Inputs) Plan {
	return Plan{CPUBuffer: min(in.CPUBuffer, 2*max(in.Durations.Workers, 1)), GPUBuffer: min(in.GPUBuffer, 2),
		CPUBatches: in.Batches}
}

// Schedules are all schedules. A new one is a row; unless Scheduler decides it or the device brings what
// it trains next, it brings a schedule.Decider.
var Schedules = []Schedule{
	{"cpu", "the processor samples and gathers, DMA moves, the GPU trains, all at once (Category I, as SALIENT)", false,
		smallest, fixed("all batches by the processor", pipelined)},
	{"gpu", "the GPU samples and gathers from memory of the host, then trains (Category II, as DUCATI)", true,
		smallest, fixed("all batches by the GPU", func(Inputs) Plan { return smallest })},
	{"mixed", "each batch by the processor with a probability, else by the GPU", true,
		Plan{CPUBuffer: 1, GPUBuffer: 1, OnDemand: true, Mixed: true}, bestMixture},
	{"collective", "both, in the shares and with the buffers that give the shortest epoch (MorphGL)", true, smallest,
		dispatch},
	{"collective-paper", "the same as MorphGL's paper prints it", true, smallest, dispatchAsPrinted},
	{string(Sequential), "one stage after another, by one worker of the processor", false,
		Plan{CPUBuffer: 1, GPUBuffer: 1, Serial: true},
		fixed("one stage after another", func(in Inputs) Plan {
			return Plan{CPUBuffer: 1, GPUBuffer: 1, CPUBatches: in.Batches, Serial: true}
		})},
	{string(Parallel1), "workers sample and gather side by side, beside training (A3GNN's parallel mode 1)", false,
		smallest, fixed("workers sample and gather", pipelined)},
	{string(Parallel2), "workers sample side by side; rows are gathered and moved between two trainings (A3GNN's " +
		"parallel mode 2)", false, Plan{CPUBuffer: 1, GPUBuffer: 1, OnDemand: true, LateGather: true},
		fixed("workers sample, and nothing is gathered beside training", func(in Inputs) Plan {
			p := pipelined(in)
			p.OnDemand, p.LateGather = true, true
			return p
		})},
}

// Find finds a schedule by its name.
func Find(name string) (Schedule, error) {
	var names []string
	for _, s := range Schedules {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Schedule{}, fmt.Errorf("there is no schedule %q: want one of %s", name, strings.Join(names, ", "))
}

// Choose makes the plan of the schedule, and predicts an epoch. While the buffers do not fit in memory, it makes the
// larger one smaller. If the smallest do not fit, it returns the error of Inputs.Fits.
func (s Schedule) Choose(in Inputs) (Choice, error) {
	if err := in.check(); err != nil {
		return Choice{}, err
	}
	for in.Fits != nil {
		p := s.Least
		if !p.Serial {
			p.CPUBuffer, p.GPUBuffer = in.CPUBuffer, in.GPUBuffer
		}
		p.CPUBatches = in.Batches
		err := in.Fits(p, p.Workers(in.Durations), p.CPUBuffer)
		if err == nil {
			break
		}
		if in.CPUBuffer > in.GPUBuffer && !p.Serial {
			in.CPUBuffer--
		} else if in.GPUBuffer > 1 && !p.Serial {
			in.GPUBuffer--
		} else {
			return Choice{}, err
		}
	}
	c := s.plan(in)
	c.Name, c.Predicted = s.Name, Simulate(in.Durations, c.Plan, in.Batches, nil)
	return c, nil
}

func (in Inputs) check() error {
	switch err := in.Durations.Check(); {
	case err != nil:
		return err
	case in.Batches < 1 || in.CPUBuffer < 1 || in.GPUBuffer < 1:
		return fmt.Errorf("%d batches, and room for %d and %d of them: want 1 or more", in.Batches, in.CPUBuffer,
			in.GPUBuffer)
	case in.Share > 1 || math.IsNaN(in.Share):
		return fmt.Errorf("a share of %v of the batches by the processor: want 0 to 1", in.Share)
	}
	return nil
}

// bestMixture is the best share in steps of 0.05 (MorphGL §5.1), or the one that is given.
func bestMixture(in Inputs) (best Choice) {
	p := pipelined(in)
	p.GPUBuffer, p.CPUBatches, p.OnDemand, p.Mixed, p.Share, p.Seed = 1, 0, true, true, in.Share, in.Seed
	if in.Share >= 0 {
		return Choice{Plan: p, Rounds: 1, Reason: fmt.Sprintf("a share of %v by the processor was asked for", in.Share)}
	}
	for i := 0; i <= 20; i++ {
		p.Share = float64(i) / 20
		if run := Simulate(in.Durations, p, in.Batches, nil); i == 0 || run.Total < best.Predicted.Total {
			best.Plan, best.Predicted = p, run
		}
		best.Rounds++
	}
	best.Reason = fmt.Sprintf("of shares in steps of 0.05, %.2f by the processor is the best", best.Plan.Share)
	return best
}
