package collective

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/machine"
)

// Mode says which stages A3GNN runs at the same time (a3gnn §III-B); its text is the name of the schedule.
type Mode string

// The modes.
const (
	Sequential Mode = "sequential" // one stage after another
	Parallel2  Mode = "mode-2"     // workers sample; batches are made and trained on one after another
	Parallel1  Mode = "mode-1"     // workers sample and gather, beside training
)

// Modes are all modes, in the order of the memory that they take.
var Modes = []Mode{Sequential, Parallel2, Parallel1}

// Stages are the seconds that each stage takes for a mini-batch, on one worker with nothing beside it. Gather and Move
// are what the paper calls batch generation.
type Stages struct{ Sample, Gather, Move, Train float64 }

// Stages are the stages of batches of the processor.
func (d Durations) Stages() Stages {
	return Stages{(d.CPUBatch - d.Gather).Seconds(), d.Gather.Seconds(), d.DMA.Seconds(), d.Model.Seconds()}
}

// Seconds is the time from one mini-batch to the next (a3gnn Eq. 2, 4, which the paper calls throughput; sequential:
// the sum of the stages). n workers beside each other do the work of n / (1 + contention*(n-1)). In mode 1 a batch
// moves beside workers and training: they are threads, and the link is neither.
func (m Mode) Seconds(s Stages, workers int, contention float64) float64 {
	share := (1 + contention*float64(workers-1)) / float64(workers)
	switch m {
	case Parallel1:
		return max(share*(s.Sample+s.Gather), s.Move, s.Train)
	case Parallel2:
		return max(share*s.Sample, s.Gather+s.Move+s.Train)
	}
	return s.Sample + s.Gather + s.Move + s.Train
}

// near is how much longer than the shortest time counts as the same: then the plan that takes less memory is chosen.
const near = 1.01

// Workers is the least number of workers, up to most, with which a mini-batch takes about as long as with the best.
func (m Mode) Workers(s Stages, most int, contention float64) int {
	least := m.Seconds(s, 1, contention)
	for n := 2; n <= most; n++ {
		least = min(least, m.Seconds(s, n, contention))
	}
	n := 1
	for m.Seconds(s, n, contention) > near*least {
		n++
	}
	return n
}

// About is the equation with its numbers.
func (m Mode) About(s Stages, workers int, contention float64) string {
	ms := func(seconds float64) string { return fmt.Sprintf("%.4g", 1e3*seconds) }
	share := fmt.Sprintf("/ %d", workers)
	if contention >= 0.005 && workers > 1 {
		share = fmt.Sprintf("* (1 + %.2f * %d) / %d", contention, workers-1, workers)
	}
	total := ms(m.Seconds(s, workers, contention)) + " ms a batch"
	switch m {
	case Parallel1:
		return fmt.Sprintf("max{(%s sampling + %s gathering) %s, %s moving, %s training} = %s (a3gnn Eq. 2)", ms(s.Sample),
			ms(s.Gather), share, ms(s.Move), ms(s.Train), total)
	case Parallel2:
		return fmt.Sprintf("max{%s sampling %s, %s gathering + %s moving + %s training} = %s (a3gnn Eq. 4)", ms(s.Sample),
			share, ms(s.Gather), ms(s.Move), ms(s.Train), total)
	}
	return fmt.Sprintf("%s sampling + %s gathering + %s moving + %s training = %s", ms(s.Sample), ms(s.Gather),
		ms(s.Move), ms(s.Train), total)
}

// withFewer chooses the plan of a schedule for workers, or for the fewer that give the shortest epoch where memory
// leaves too few buffers.
func (s Schedule) withFewer(in Inputs, workers int) (best Choice, with Inputs, err error) {
	for n := workers; n > 0; n-- {
		in.Durations.Workers = n
		c, failed := s.Choose(in)
		if failed == nil && (best.Rounds == 0 || c.Predicted.Total < best.Predicted.Total) {
			best, with = c, in
		}
		if err = failed; err == nil && n == workers && (c.Plan.Serial || c.Plan.CPUBuffer >= min(in.CPUBuffer, 2*n)) {
			break
		}
	}
	if best.Rounds > 0 {
		err = nil
	}
	return best, with, err
}

// Auto chooses the schedule with the shortest predicted epoch that memory has room for: among the modes, each with
// the fewest workers that give about its shortest time, or fewer if these do not fit; and gpu and collective, if
// prepares tells that the GPU can prepare batches. Among epochs that are about as short it takes the schedule that
// needs the least memory. It returns the inputs with the number of workers that the choice is for.
func Auto(in Inputs, prepares bool) (best Choice, with Inputs, err error) {
	d, most := in.Durations, max(in.Durations.Workers, 1)
	var names []string
	for _, m := range Modes {
		names = append(names, string(m))
	}
	if prepares {
		names = append(names, "gpu", "collective")
	}
	var found []Choice
	var inputs []Inputs
	var considered, refused string
	for _, name := range names {
		s, err := Find(name)
		if err != nil {
			return best, in, err
		}
		workers := most
		if m := Mode(name); slices.Contains(Modes, m) {
			workers = m.Workers(d.Stages(), most, d.Contention)
		}
		best, with, err := s.withFewer(in, workers)
		if err != nil {
			refused += fmt.Sprintf("; not %s: %s", name, err)
			continue
		}
		found, inputs = append(found, best), append(inputs, with)
		considered += fmt.Sprintf(", %s %.3g s", name, best.Predicted.Total.Seconds())
	}
	if len(found) == 0 {
		return best, in, fmt.Errorf("%w: no schedule fits%s", machine.ErrDoesNotFit, refused)
	}
	least := slices.MinFunc(found, func(a, b Choice) int { return cmp.Compare(a.Predicted.Total, b.Predicted.Total) })
	at := slices.IndexFunc(found, func(c Choice) bool {
		return float64(c.Predicted.Total) <= near*float64(least.Predicted.Total)
	})
	best, with = found[at], inputs[at]
	if m := Mode(best.Name); slices.Contains(Modes, m) {
		n := with.Durations.Workers
		best.Reason = fmt.Sprintf("%d of %d workers, %s", n, most, m.About(d.Stages(), n, d.Contention))
	}
	best.Reason = fmt.Sprintf("of the predicted epochs (%s) the shortest, or within 1 %% of it in less memory; %s%s",
		strings.TrimPrefix(considered, ", "), best.Reason, refused)
	return best, with, nil
}
