// Package modes predicts epoch time and peak memory of the three modes in which A3GNN runs sampling, batch
// generation and training of a mini-batch beside each other (a3gnn §III-B, Equations 2 to 5). All functions are
// pure; Fit makes their parameters from measured runs.
//
// The paper writes each figure as an unknown function of what decides it (f2 to f5). Here time is
//
//	overhead + iterations * density^p * stages(mode, workers)
//
// where workers that run beside each other slow each other down: n of them do the work of
// n / (1 + contention*(n-1)). What the paper calls throughput in Equations 2 and 4 is the time of an epoch,
// of which throughput is the inverse. Memory is the sum of the parts that the equations name, with
// a factor for each.
package modes

import (
	"errors"
	"fmt"
	"math"
)

// Mode is what runs beside what.
type Mode string

// The modes, in the order of the memory that they take.
const (
	Sequential Mode = "sequential" // one stage after another
	Parallel2  Mode = "mode-2"     // workers sample; batches are made and trained on one after another
	Parallel1  Mode = "mode-1"     // workers sample and make batches, beside training
)

// All lists the modes.
func All() []Mode { return []Mode{Sequential, Parallel2, Parallel1} }

// ErrRuns is returned when runs cannot be used: of an unknown mode, or with impossible figures.
var ErrRuns = errors.New("unusable runs")

// Stages are the seconds that each stage takes for a mini-batch, on one worker with nothing beside it.
type Stages struct{ Sample, Batch, Train float64 }

// Parts are what peak memory consists of, in bytes.
type Parts struct {
	Cache   float64 // of features, on all devices together (num_GPU * Theta)
	Batch   float64 // a mini-batch (B)
	Model   float64 // parameters and activations (|M|)
	Runtime float64 // what does not depend on the training
}

// seconds is the time between two mini-batches (Equations 2 and 4; sequential: the sum of the stages).
func (m Mode) seconds(s Stages, workers int, contention float64) float64 {
	share := (1 + contention*float64(workers-1)) / float64(workers)
	switch m {
	case Parallel1:
		return max(share*(s.Sample+s.Batch), s.Train)
	case Parallel2:
		return max(share*s.Sample, s.Batch+s.Train)
	}
	return s.Sample + s.Batch + s.Train
}

// bytes is the peak (Equations 3 and 5; sequential: the sum of the parts).
func (m Mode) bytes(p Parts, workers int) float64 {
	n := float64(workers)
	switch m {
	case Parallel1:
		return n * (p.Cache + p.Batch + p.Model + p.Runtime)
	case Parallel2:
		return p.Cache + p.Batch + p.Model + n*p.Runtime
	}
	return p.Cache + p.Batch + p.Model + p.Runtime
}

// Run is a training of one epoch or more, as it is or as it was measured.
type Run struct {
	Mode       Mode
	Workers    int     // 1 or more; sequential has one, whatever is said
	Iterations int     // mini-batches of an epoch
	Density    float64 // of the graph: edges by nodes; 0: the same in all runs
	Stages     Stages  // as profiled, or all 1 where they are not known: fitted factors then are the times
	Parts      Parts   // as planned; Runtime counts as 1 where it is not known

	Seconds float64 // of an epoch, measured; 0: not measured
	Bytes   float64 // peak memory, measured; 0: not measured
}

func (r Run) check() error {
	known := false
	for _, m := range All() {
		known = known || m == r.Mode
	}
	numbers := []float64{r.Density, r.Stages.Sample, r.Stages.Batch, r.Stages.Train, r.Parts.Cache, r.Parts.Batch, r.Parts.Model, r.Parts.Runtime, r.Seconds, r.Bytes}
	for _, v := range numbers {
		known = known && v >= 0 && v <= math.MaxFloat64
	}
	if !known || r.Workers < 1 || r.Iterations < 1 {
		return fmt.Errorf("%w: %+v: want a mode of %v, a worker and an iteration or more, and figures that are not negative", ErrRuns, r, All())
	}
	return nil
}

// workers of a run.
func (r Run) workers() int {
	if r.Mode == Sequential {
		return 1
	}
	return r.Workers
}

// Model is the parameters of both predictions. The zero Model with factors of 1 (Paper) is the equations as
// they stand, with sums for the unknown functions.
type Model struct {
	// Sample, Batch and Train are factors of the durations of stages.
	Sample, Batch, Train float64
	Contention           float64 // of workers: 0: none, 1: more of them gain nothing
	Overhead             float64 // seconds of an epoch
	DensityPower         float64
	// Memory has the factors of the parts, for each mode.
	Memory map[Mode]Parts
}

// Paper is the equations with factors of 1, without contention and overhead.
func Paper() Model {
	m := Model{Sample: 1, Batch: 1, Train: 1, Memory: map[Mode]Parts{}}
	for _, mode := range All() {
		m.Memory[mode] = Parts{1, 1, 1, 1}
	}
	return m
}

// Seconds predicts the time of an epoch.
func (m Model) Seconds(r Run) float64 {
	density := 1.0
	if r.Density > 0 {
		density = math.Pow(r.Density, m.DensityPower)
	}
	s := Stages{m.Sample * r.Stages.Sample, m.Batch * r.Stages.Batch, m.Train * r.Stages.Train}
	return m.Overhead + float64(r.Iterations)*density*r.Mode.seconds(s, r.workers(), m.Contention)
}

// Bytes predicts peak memory; 0 for a mode of which no run was measured.
func (m Model) Bytes(r Run) float64 {
	f, p := m.Memory[r.Mode], r.Parts
	return r.Mode.bytes(Parts{f.Cache * p.Cache, f.Batch * p.Batch, f.Model * p.Model, f.Runtime * p.Runtime}, r.workers())
}
