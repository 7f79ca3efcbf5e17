package papers

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// ModeRun is a trial in one of a3gnn's modes, as measured and as the fitted equations have it.
type ModeRun struct {
	Trial           int     `json:"trial"`
	Mode            Mode    `json:"mode"`
	Workers         int     `json:"workers"`
	BatchRows       int     `json:"batch"`
	Seconds         float64 `json:"batch_seconds"` // of a batch: rows by the rows a second of training
	Predicted       float64 `json:"predicted_batch_seconds"`
	MemoryBytes     int64   `json:"memory_bytes"` // of the device, at most
	PredictedMemory int64   `json:"predicted_memory_bytes"`
}

// ModeFit is the equations of a3gnn's modes, fitted to trials.
type ModeFit struct {
	Model ModeModel `json:"model"` // of the time and memory of a batch by its rows
	Runs  []ModeRun `json:"runs"`
	// Mean errors, as shares of what was measured.
	TimeError   float64 `json:"time_error"`
	MemoryError float64 `json:"memory_error"`
}

// FitModes fits Equations 2 to 5 of a3gnn to the trials whose setting schedule is one of the modes. The time of a stage
// is proportional to the rows of a batch. The parts of memory are rows of the cache, rows of the batches in buffers,
// rows of the batch that is trained on, and a constant.
func FitModes(trials []tune.Trial) (*ModeFit, error) {
	fit := &ModeFit{}
	var runs []Training
	for _, t := range trials {
		mode := Mode(t.Settings["schedule"])
		if t.Valid == nil || t.RowsPerSecond <= 0 || !slices.Contains(Modes(), mode) {
			continue
		}
		number := func(name string, otherwise int) int {
			n, err := strconv.Atoi(t.Settings[name])
			if err != nil || n < 1 {
				return otherwise
			}
			return n
		}
		batch := number("batch", 0)
		if batch == 0 {
			return nil, fmt.Errorf("trial %d does not say how large its batches are: give --batch, or vary it",
				t.Number)
		}
		var cached float64
		if spec, err := cache.Parse(t.Settings["cache"]); err == nil {
			cached = float64(spec.Slots(math.MaxInt32, 1))
		}
		rows := float64(batch)
		r := Training{
			Mode: mode, Workers: number("workers", 1), Iterations: 1, Stages: Stages{Sample: rows, Batch: rows,
				Train: rows},
			Parts:   Parts{Cache: cached, Batch: rows * float64(number("buffers", 1)), Model: rows, Runtime: 1},
			Seconds: rows / t.RowsPerSecond, Bytes: float64(t.PeakDeviceBytes),
		}
		runs = append(runs, r)
		fit.Runs = append(fit.Runs, ModeRun{Trial: t.Number, Mode: mode, Workers: r.Workers, BatchRows: batch,
			Seconds: r.Seconds, MemoryBytes: t.PeakDeviceBytes})
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("no trial has a schedule of %v", Modes())
	}
	var err error
	if fit.Model, err = FitEquations(runs); err != nil {
		return nil, err
	}
	for i, r := range runs {
		f := &fit.Runs[i]
		f.Predicted, f.PredictedMemory = fit.Model.Seconds(r), int64(fit.Model.Bytes(r))
		fit.TimeError += math.Abs(f.Predicted/f.Seconds-1) / float64(len(runs))
		fit.MemoryError += math.Abs(float64(f.PredictedMemory)/math.Max(1, r.Bytes)-1) / float64(len(runs))
	}
	return fit, nil
}

// Text prints the fitted factors, and each trial beside its prediction.
func (f *ModeFit) Text(w io.Writer) {
	m := f.Model
	fmt.Fprintf(w, "a row\tsampling %.3g us, batch %.3g us, training %.3g us; contention of workers %.2f; %.3g ms a "+
		"batch beside\n",
		1e6*m.Sample, 1e6*m.Batch, 1e6*m.Train, m.Contention, 1e3*m.Overhead)
	for _, mode := range Modes() {
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
