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
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/chart"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Parts are what peak memory consists of: cached features (num_GPU * Theta in the paper), a mini-batch (B), parameters
// and activations (|M|), and what does not depend on the training.
type Parts struct{ Cache, Batch, Model, Runtime float64 }

func (p Parts) times(copies [4]float64) Parts {
	return Parts{p.Cache * copies[0], p.Batch * copies[1], p.Model * copies[2], p.Runtime * copies[3]}
}

func (p Parts) sum() float64 { return p.Cache + p.Batch + p.Model + p.Runtime }

// printedCopies is how often peak memory holds each of the Parts in the paper, where workers are processes (a3gnn
// Eq. 3, 5; sequential: once).
func printedCopies(m collective.Mode, workers int) [4]float64 {
	n := float64(workers)
	switch m {
	case collective.Parallel1:
		return [4]float64{n, n, n, n}
	case collective.Parallel2:
		return [4]float64{1, 1, 1, n}
	}
	return [4]float64{1, 1, 1, 1}
}

// threadCopies is printedCopies of device memory where workers are threads: they share cache, model and runtime, and
// only the batches in buffers of the device count.
func threadCopies(m collective.Mode, buffers int) [4]float64 {
	if m == collective.Parallel1 {
		return [4]float64{1, float64(min(buffers, 2) + 2), 1, 1}
	}
	return [4]float64{1, 1, 1, 1}
}

// ModeModel predicts time and peak memory of a mini-batch from its rows, in the three modes in which A3GNN runs
// sampling, batch generation and training beside each other (a3gnn §III-B, Equations 2 to 5). It writes time and memory
// as unknown functions of what decides them (f2 to f5). Here time is
//
//	overhead + rows * collective.Mode.Seconds of the stages' seconds of a row
//
// and memory the sum of the parts, each times its number of rows.
type ModeModel struct {
	Sample, Batch, Train float64 // seconds of a row in each stage
	Contention           float64 // of workers: 0: none, 1: more of them gain nothing
	Overhead             float64 // seconds of a batch
	Memory               Parts   // bytes of a row in all modes, for workers that are threads
	// Printed are bytes of a row by Equations 3 and 5 as they stand, fitted to each measured mode by itself.
	Printed map[collective.Mode]Parts
}

// ModeRun is a trial in one of a3gnn's modes, as measured and as the fitted equations have it.
type ModeRun struct {
	Trial           int             `json:"trial"`
	Mode            collective.Mode `json:"mode"`
	Workers         int             `json:"workers"`
	BatchRows       int             `json:"batch"`
	Seconds         float64         `json:"batch_seconds"` // of a batch: rows by the rows a second of training
	Predicted       float64         `json:"predicted_batch_seconds"`
	MemoryBytes     int64           `json:"memory_bytes"` // of the device, at most; 0: not measured
	PredictedMemory int64           `json:"predicted_memory_bytes"`
	PrintedMemory   int64           `json:"predicted_memory_bytes_as_printed"`

	rows    Parts // of the cache, of a batch, of the batch that is trained on, and 1
	buffers int   // of batches on the device
}

func (m *ModeModel) seconds(r *ModeRun) float64 {
	s := collective.Stages{Sample: m.Sample, Gather: m.Batch, Train: m.Train}
	return m.Overhead + float64(r.BatchRows)*r.Mode.Seconds(s, r.Workers, m.Contention)
}

// printed and threads are the rows of each part that peak memory holds.
func (r *ModeRun) printed() Parts { return r.rows.times(printedCopies(r.Mode, r.Workers)) }
func (r *ModeRun) threads() Parts { return r.rows.times(threadCopies(r.Mode, r.buffers)) }

// bytes are the factors of a row times the rows of each part.
func (p Parts) bytes(rows Parts) float64 {
	return p.times([4]float64{rows.Cache, rows.Batch, rows.Model, rows.Runtime}).sum()
}

// ModeFit is the equations of a3gnn's modes, fitted to trials.
type ModeFit struct {
	Model ModeModel `json:"model"`
	Runs  []ModeRun `json:"runs"`
	// Mean errors, as shares of what was measured.
	TimeError          float64 `json:"time_error"`
	MemoryError        float64 `json:"memory_error"`
	PrintedMemoryError float64 `json:"memory_error_as_printed"`
}

// FitModes fits a model to the trials whose setting schedule is one of the modes.
func FitModes(trials []tune.Trial) (*ModeFit, error) {
	fit := &ModeFit{}
	for _, t := range trials {
		mode := collective.Mode(t.Settings["schedule"])
		if t.Valid == nil || t.RowsPerSecond <= 0 || !slices.Contains(collective.Modes, mode) {
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
		rows := Parts{Batch: float64(batch), Model: float64(batch), Runtime: 1}
		if spec, err := cache.Parse(t.Settings["cache"]); err == nil {
			rows.Cache = float64(spec.Slots(math.MaxInt32, 1))
		}
		fit.Runs = append(fit.Runs, ModeRun{Trial: t.Number, Mode: mode, Workers: number("workers", 1),
			BatchRows: batch, Seconds: float64(batch) / t.RowsPerSecond, MemoryBytes: t.PeakDeviceBytes, rows: rows,
			buffers: number("buffers", 2)})
	}
	if len(fit.Runs) == 0 {
		return nil, fmt.Errorf("no trial has a schedule of %v", collective.Modes)
	}
	fit.Model = fitModel(fit.Runs)
	n := float64(len(fit.Runs))
	for i := range fit.Runs {
		r := &fit.Runs[i]
		r.Predicted, r.PredictedMemory = fit.Model.seconds(r), int64(fit.Model.Memory.bytes(r.threads()))
		r.PrintedMemory = int64(fit.Model.Printed[r.Mode].bytes(r.printed()))
		fit.TimeError += math.Abs(r.Predicted/r.Seconds-1) / n
		measured := max(1, float64(r.MemoryBytes))
		fit.MemoryError += math.Abs(float64(r.PredictedMemory)/measured-1) / n
		fit.PrintedMemoryError += math.Abs(float64(r.PrintedMemory)/measured-1) / n
	}
	return fit, nil
}

// Text prints the fitted factors, and each trial beside its prediction.
func (f *ModeFit) Text(w io.Writer) {
	m := f.Model
	fmt.Fprintf(w, "a row\tsampling %.3g us, batch %.3g us, training %.3g us; contention of workers %.2f; %.3g ms a "+
		"batch beside\n",
		1e6*m.Sample, 1e6*m.Batch, 1e6*m.Train, m.Contention, 1e3*m.Overhead)
	fmt.Fprintf(w, "memory\t%.0f bytes a cached row, %.0f a row of a batch on the device, %.0f a row trained on, %s "+
		"beside\n", m.Memory.Cache, m.Memory.Batch, m.Memory.Model, units.Bytes(m.Memory.Runtime))
	fmt.Fprintf(w, "mean error\ttime %.1f %%, memory %.1f %% (%.1f %% by Equations 3 and 5 as printed), of %d trials\n",
		100*f.TimeError, 100*f.MemoryError, 100*f.PrintedMemoryError, len(f.Runs))
	fmt.Fprintln(w, "mode\tworkers\tbatch\ttime: measured, predicted\tmemory: measured, predicted, as printed")
	for _, r := range f.Runs {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.4g s, %.4g s\t%s, %s, %s\n", r.Mode, r.Workers, r.BatchRows, r.Seconds,
			r.Predicted, units.Bytes(r.MemoryBytes), units.Bytes(r.PredictedMemory), units.Bytes(r.PrintedMemory))
	}
}

// Figure draws throughput against memory (a3gnn Figure 8): dots are runs that no other beats in both, of any mode.
func (f *ModeFit) Figure() *chart.Figure {
	colors := map[collective.Mode]string{collective.Sequential: chart.Grey, collective.Parallel2: chart.Green,
		collective.Parallel1: chart.Blue}
	p := &chart.XY{X: chart.Axis{Name: "memory (MiB)", Log: true},
		Y: chart.Axis{Name: "training rows a second", Log: true}}
	figure := &chart.Figure{Title: "Parallel modes (a3gnn Figure 8)", Plots: []chart.Plot{p}}
	for _, mode := range collective.Modes {
		figure.Keys = append(figure.Keys, chart.Key{Name: string(mode), Color: colors[mode]})
	}
	rate := func(r ModeRun) float64 { return float64(r.BatchRows) / r.Seconds }
	for _, r := range f.Runs {
		if r.MemoryBytes == 0 {
			continue
		}
		mark := chart.Dot
		if slices.ContainsFunc(f.Runs, func(o ModeRun) bool {
			return rate(o) >= rate(r) && o.MemoryBytes <= r.MemoryBytes &&
				(rate(o) > rate(r) || o.MemoryBytes < r.MemoryBytes)
		}) {
			mark = chart.Ring
		}
		p.Points = append(p.Points, chart.Point{X: float64(r.MemoryBytes) / (1 << 20), Y: rate(r), Color: colors[r.Mode],
			Mark: mark, About: fmt.Sprintf("trial %d: %s, %d workers, batches of %d", r.Trial, r.Mode, r.Workers, r.BatchRows)})
	}
	return figure
}

// fitModel minimises, for time, the mean square of log(predicted / measured) over all modes together, which have the
// same stages; for memory the sum of squared relative errors, with factors >= 0: of all modes together or, as printed,
// of each by itself.
func fitModel(runs []ModeRun) ModeModel {
	m := fitSeconds(runs)
	runs = slices.DeleteFunc(slices.Clone(runs), func(r ModeRun) bool { return r.MemoryBytes == 0 })
	m.Memory = fitParts(runs, (*ModeRun).threads)
	for _, mode := range collective.Modes {
		of := slices.DeleteFunc(slices.Clone(runs), func(r ModeRun) bool { return r.Mode != mode })
		if len(of) > 0 {
			m.Printed[mode] = fitParts(of, (*ModeRun).printed)
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
	contended := slices.ContainsFunc(runs, func(r ModeRun) bool {
		return r.Workers > 1 && r.Mode != collective.Sequential
	})
	// Parameters above zero are searched by their logarithms.
	model := func(v []float64) ModeModel {
		m := ModeModel{Sample: scale * math.Exp(v[0]), Batch: scale * math.Exp(v[1]), Train: scale * math.Exp(v[2]),
			Overhead: least / (1 + math.Exp(-v[3])), // no more than the shortest run
			Printed:  map[collective.Mode]Parts{}}
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

// fitParts are the bytes of a row of each part, none of them negative, by coordinate descent.
func fitParts(runs []ModeRun, rows func(*ModeRun) Parts) Parts {
	columns := make([][4]float64, len(runs)) // predicted with a byte a row / measured
	left := make([]float64, len(runs))       // 1 - predicted / measured
	for i, r := range runs {
		p, bytes := rows(&r), float64(r.MemoryBytes)
		columns[i], left[i] = [4]float64{p.Cache / bytes, p.Batch / bytes, p.Model / bytes, p.Runtime / bytes}, 1
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
