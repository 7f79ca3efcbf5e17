package papers

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/optimize"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Mode says what A3GNN runs beside what.
type Mode string

// The modes, in the order of the memory that they take.
const (
	Sequential Mode = "sequential" // one stage after another
	Parallel2  Mode = "mode-2"     // workers sample; batches are made and trained on one after another
	Parallel1  Mode = "mode-1"     // workers sample and make batches, beside training
)

var modes = []Mode{Sequential, Parallel2, Parallel1}

// Stages are the seconds that each stage takes for a mini-batch, on one worker with nothing beside it.
type Stages struct{ Sample, Batch, Train float64 }

// Parts are what peak memory consists of: cached features (num_GPU * Theta in the paper), a mini-batch (B), parameters
// and activations (|M|), and what does not depend on the training.
type Parts struct{ Cache, Batch, Model, Runtime float64 }

// seconds is the time from one mini-batch to the next (Equations 2 and 4; sequential: the sum of the stages). n workers
// beside each other do the work of n / (1 + contention*(n-1)).
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

// copies is how often peak memory holds each of the Parts (Equations 3 and 5; sequential: once).
func (m Mode) copies(workers int) [4]float64 {
	n := float64(workers)
	switch m {
	case Parallel1:
		return [4]float64{n, n, n, n}
	case Parallel2:
		return [4]float64{1, 1, 1, n}
	}
	return [4]float64{1, 1, 1, 1}
}

func (m Mode) bytes(p Parts, workers int) (bytes float64) {
	c := m.copies(workers)
	return c[0]*p.Cache + c[1]*p.Batch + c[2]*p.Model + c[3]*p.Runtime
}

// ModeModel predicts time and peak memory of a mini-batch from its rows, in the three modes in which A3GNN runs
// sampling, batch generation and training beside each other (a3gnn §III-B, Equations 2 to 5). What the paper calls
// throughput in Equations 2 and 4 is a time, the inverse of throughput. It writes time and memory as unknown functions
// of what decides them (f2 to f5). Here time is
//
//	overhead + rows * seconds of the mode with the stages' seconds of a row
//
// and memory the sum of the parts, each times its number of rows.
type ModeModel struct {
	Sample, Batch, Train float64        // seconds of a row in each stage
	Contention           float64        // of workers: 0: none, 1: more of them gain nothing
	Overhead             float64        // seconds of a batch
	Memory               map[Mode]Parts // bytes of a row; of modes that were measured
}

// ModeRun is a trial in one of a3gnn's modes, as measured and as the fitted equations have it.
type ModeRun struct {
	Trial           int     `json:"trial"`
	Mode            Mode    `json:"mode"`
	Workers         int     `json:"workers"`
	BatchRows       int     `json:"batch"`
	Seconds         float64 `json:"batch_seconds"` // of a batch: rows by the rows a second of training
	Predicted       float64 `json:"predicted_batch_seconds"`
	MemoryBytes     int64   `json:"memory_bytes"` // of the device, at most; 0: not measured
	PredictedMemory int64   `json:"predicted_memory_bytes"`

	rows Parts // of the cache, of the batches in buffers, of the batch that is trained on, and 1
}

func (m *ModeModel) seconds(r *ModeRun) float64 {
	s := Stages{m.Sample, m.Batch, m.Train}
	return m.Overhead + float64(r.BatchRows)*r.Mode.seconds(s, r.Workers, m.Contention)
}

func (m *ModeModel) bytes(r *ModeRun) float64 {
	f := m.Memory[r.Mode]
	p := Parts{f.Cache * r.rows.Cache, f.Batch * r.rows.Batch, f.Model * r.rows.Model, f.Runtime * r.rows.Runtime}
	return r.Mode.bytes(p, r.Workers)
}

// ModeFit is the equations of a3gnn's modes, fitted to trials.
type ModeFit struct {
	Model ModeModel `json:"model"`
	Runs  []ModeRun `json:"runs"`
	// Mean errors, as shares of what was measured.
	TimeError   float64 `json:"time_error"`
	MemoryError float64 `json:"memory_error"`
}

// FitModes fits a model to the trials whose setting schedule is one of the modes.
func FitModes(trials []tune.Trial) (*ModeFit, error) {
	fit := &ModeFit{}
	for _, t := range trials {
		mode := Mode(t.Settings["schedule"])
		if t.Valid == nil || t.RowsPerSecond <= 0 || !slices.Contains(modes, mode) {
			continue
		}
		number := func(name string, otherwise int) int {
			if n, err := strconv.Atoi(t.Settings[name]); err == nil && n >= 1 {
				return n
			}
			return otherwise
		}
		batch := number("batch", 0)
		if batch == 0 {
			return nil, fmt.Errorf("trial %d does not say how large its batches are: give --batch, or vary it",
				t.Number)
		}
		rows := Parts{Batch: float64(batch) * float64(number("buffers", 1)), Model: float64(batch), Runtime: 1}
		if spec, err := cache.Parse(t.Settings["cache"]); err == nil {
			rows.Cache = float64(spec.Slots(math.MaxInt32, 1))
		}
		fit.Runs = append(fit.Runs, ModeRun{Trial: t.Number, Mode: mode, Workers: number("workers", 1),
			BatchRows: batch, Seconds: float64(batch) / t.RowsPerSecond, MemoryBytes: t.PeakDeviceBytes, rows: rows})
	}
	if len(fit.Runs) == 0 {
		return nil, fmt.Errorf("no trial has a schedule of %v", modes)
	}
	fit.Model = fitModel(fit.Runs)
	n := float64(len(fit.Runs))
	for i := range fit.Runs {
		r := &fit.Runs[i]
		r.Predicted, r.PredictedMemory = fit.Model.seconds(r), int64(fit.Model.bytes(r))
		fit.TimeError += math.Abs(r.Predicted/r.Seconds-1) / n
		fit.MemoryError += math.Abs(float64(r.PredictedMemory)/max(1, float64(r.MemoryBytes))-1) / n
	}
	return fit, nil
}

// Text prints the fitted factors, and each trial beside its prediction.
func (f *ModeFit) Text(w io.Writer) {
	m := f.Model
	fmt.Fprintf(w, "a row\tsampling %.3g us, batch %.3g us, training %.3g us; contention of workers %.2f; %.3g ms a "+
		"batch beside\n",
		1e6*m.Sample, 1e6*m.Batch, 1e6*m.Train, m.Contention, 1e3*m.Overhead)
	for _, mode := range modes {
		if p, ok := m.Memory[mode]; ok {
			fmt.Fprintf(w,
				"memory, %s\t%.0f bytes a cached row, %.0f a row in buffers, %.0f a row trained on, %s beside\n",
				mode, p.Cache, p.Batch, p.Model, units.Bytes(p.Runtime))
		}
	}
	fmt.Fprintf(w, "mean error\ttime %.1f %%, memory %.1f %%, of %d trials\n", 100*f.TimeError, 100*f.MemoryError,
		len(f.Runs))
	fmt.Fprintln(w, "mode\tworkers\tbatch\ttime: measured, predicted\tmemory: measured, predicted")
	for _, r := range f.Runs {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.4g s, %.4g s\t%s, %s\n", r.Mode, r.Workers, r.BatchRows,
			r.Seconds, r.Predicted, units.Bytes(r.MemoryBytes), units.Bytes(r.PredictedMemory))
	}
}

// fitModel minimises, for time, the mean square of log(predicted / measured) over all modes together, which have the
// same stages; for memory the sum of squared relative errors in each measured mode, with factors >= 0.
func fitModel(runs []ModeRun) ModeModel {
	m := fitSeconds(runs)
	for _, mode := range modes {
		others := func(r ModeRun) bool { return r.Mode != mode || r.MemoryBytes == 0 }
		if of := slices.DeleteFunc(slices.Clone(runs), others); len(of) > 0 {
			m.Memory[mode] = fitParts(of)
		}
	}
	return m
}

// fitSeconds minimises by the simplex method of Nelder and Mead, from several starts: the maximum in the equations has
// no derivative where stages are as long as each other. There is contention only where a parallel run has several
// workers.
func fitSeconds(runs []ModeRun) ModeModel {
	one := ModeModel{Sample: 1, Batch: 1, Train: 1}
	scale, least := 0.0, math.Inf(1) // geometric mean of measured / predicted with stages of a second, least measured
	for _, r := range runs {
		scale += math.Log(r.Seconds/one.seconds(&r)) / float64(len(runs))
		least = min(least, r.Seconds)
	}
	scale = math.Exp(scale)
	contended := slices.ContainsFunc(runs, func(r ModeRun) bool { return r.Workers > 1 && r.Mode != Sequential })
	// Parameters above zero are searched by their logarithms.
	model := func(v []float64) ModeModel {
		m := ModeModel{Sample: scale * math.Exp(v[0]), Batch: scale * math.Exp(v[1]), Train: scale * math.Exp(v[2]),
			Overhead: least / (1 + math.Exp(-v[3])), // no more than the shortest run
			Memory:   map[Mode]Parts{}}
		if contended {
			m.Contention = math.Exp(v[4])
		}
		return m
	}
	loss := func(v []float64) (mean float64) {
		m := model(v)
		for _, r := range runs {
			d := math.Log(max(m.seconds(&r), 1e-300) / r.Seconds)
			mean += d * d / float64(len(runs))
		}
		return mean
	}
	var best []float64
	for _, start := range [][]float64{{0, 0, 0}, {1, 0, -1}, {-1, 0, 1}, {0, 1, -1}, {-1, 1, 1}, {2, -1, 0},
		{0, -2, 2}} {
		v := append(start, -3)
		if contended {
			v = append(v, -2)
		}
		for range 8 { // from where it ended, with a new simplex, as long as that helps
			result, err := optimize.Minimize(optimize.Problem{Func: loss}, v, &optimize.Settings{
				MajorIterations: 4000, Converger: &optimize.FunctionConverge{Absolute: 1e-14, Iterations: 200},
			}, &optimize.NelderMead{})
			if err != nil || !(result.F < loss(v)*(1-1e-6)) {
				break
			}
			v = result.X
		}
		if best == nil || loss(v) < loss(best) {
			best = v
		}
	}
	return model(best)
}

// fitParts are the bytes of a row of each part in one mode, none of them negative, by coordinate descent.
func fitParts(runs []ModeRun) Parts {
	columns := make([][4]float64, len(runs)) // predicted with a byte a row / measured
	left := make([]float64, len(runs))       // 1 - predicted / measured
	for i, r := range runs {
		columns[i], left[i] = r.Mode.copies(r.Workers), 1
		for k, rows := range [4]float64{r.rows.Cache, r.rows.Batch, r.rows.Model, r.rows.Runtime} {
			columns[i][k] *= rows / float64(r.MemoryBytes)
		}
	}
	var f [4]float64
	for moved, step := math.Inf(1), 0; moved >= 1e-12 && step < 20000; step++ {
		moved = 0
		for k := range f {
			up, down := 0.0, 0.0
			for i, c := range columns {
				up += c[k] * (left[i] + c[k]*f[k])
				down += c[k] * c[k]
			}
			if down == 0 {
				continue
			}
			next := max(0, up/down)
			for i := range left {
				left[i] -= columns[i][k] * (next - f[k])
			}
			moved = max(moved, math.Abs(next-f[k])*math.Sqrt(down))
			f[k] = next
		}
	}
	return Parts{f[0], f[1], f[2], f[3]}
}
