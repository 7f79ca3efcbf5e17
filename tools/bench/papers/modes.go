package papers

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Mode is what runs beside what.
type Mode string

// The modes, in the order of the memory that they take.
const (
	Sequential Mode = "sequential" // one stage after another
	Parallel2  Mode = "mode-2"     // workers sample; batches are made and trained on one after another
	Parallel1  Mode = "mode-1"     // workers sample and make batches, beside training
)

// Modes lists the modes.
func Modes() []Mode { return []Mode{Sequential, Parallel2, Parallel1} }

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

// seconds is the time from one mini-batch to the next (Equations 2 and 4; sequential: the sum of the stages).
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

// Training is one epoch or more in a mode, as planned or as measured.
type Training struct {
	Mode       Mode
	Workers    int     // 1 or more; sequential has one, whatever is said
	Iterations int     // mini-batches of an epoch
	Density    float64 // of the graph: edges by nodes; 0: the same in all runs
	Stages     Stages  // as profiled, or all 1 where they are not known: fitted factors then are the times
	Parts      Parts   // as planned; Runtime counts as 1 where it is not known

	Seconds float64 // of an epoch, measured; 0: not measured
	Bytes   float64 // peak memory, measured; 0: not measured
}

func (r Training) check() error {
	known := slices.Contains(Modes(), r.Mode)
	s, p := r.Stages, r.Parts
	for _, v := range []float64{r.Density, s.Sample, s.Batch, s.Train, p.Cache, p.Batch, p.Model, p.Runtime, r.Seconds,
		r.Bytes} {
		known = known && v >= 0 && v <= math.MaxFloat64
	}
	if !known || r.Workers < 1 || r.Iterations < 1 {
		return fmt.Errorf("%w: %+v: want a mode of %v, at least 1 worker and 1 iteration, and no negative figure",
			ErrRuns, r, Modes())
	}
	return nil
}

func (r Training) workers() int {
	if r.Mode == Sequential {
		return 1
	}
	return r.Workers
}

// ModeModel predicts epoch time and peak memory of the three modes in which A3GNN runs sampling, batch generation and
// training beside each other (a3gnn §III-B, Equations 2 to 5). The paper writes each figure as an unknown function of
// what decides it (f2 to f5). Here time is
//
//	overhead + iterations * density^p * stages(mode, workers)
//
// where n workers beside each other do the work of n / (1 + contention*(n-1)). What the paper calls throughput in
// Equations 2 and 4 is the time of an epoch, the inverse of throughput. Memory is the sum of the parts that the
// equations name, with a factor for each.
// The zero ModeModel with factors of 1 (Equations) is the paper's as
// they stand, with sums for the unknown functions.
type ModeModel struct {
	// Sample, Batch and Train are factors of the durations of stages.
	Sample, Batch, Train float64
	Contention           float64 // of workers: 0: none, 1: more of them gain nothing
	Overhead             float64 // seconds of an epoch
	DensityPower         float64
	// Memory has the factors of the parts, for each mode.
	Memory map[Mode]Parts
}

// Equations are those of the paper with factors of 1, without contention and overhead.
func Equations() ModeModel {
	m := ModeModel{Sample: 1, Batch: 1, Train: 1, Memory: map[Mode]Parts{}}
	for _, mode := range Modes() {
		m.Memory[mode] = Parts{1, 1, 1, 1}
	}
	return m
}

// Seconds predicts the time of an epoch.
func (m ModeModel) Seconds(r Training) float64 {
	density := 1.0
	if r.Density > 0 {
		density = math.Pow(r.Density, m.DensityPower)
	}
	s := Stages{m.Sample * r.Stages.Sample, m.Batch * r.Stages.Batch, m.Train * r.Stages.Train}
	return m.Overhead + float64(r.Iterations)*density*r.Mode.seconds(s, r.workers(), m.Contention)
}

// Bytes predicts peak memory; 0 for a mode without a measured run.
func (m ModeModel) Bytes(r Training) float64 {
	return r.Mode.bytes(r.Parts.times(m.Memory[r.Mode]), r.workers())
}

func (p Parts) times(f Parts) Parts {
	return Parts{f.Cache * p.Cache, f.Batch * p.Batch, f.Model * p.Model, f.Runtime * p.Runtime}
}
