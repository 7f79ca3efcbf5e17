package checkpoint

import (
	"slices"

	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/trainer"
)

// States of a run.
const (
	RunInProgress  = "running" // when the checkpoint was saved
	RunFinished    = "finished"
	RunInterrupted = "interrupted"
	RunDiverged    = "diverged"
	RunFailed      = "failed"
)

// Run is one run of a training, and what it had reached when it was saved.
type Run struct {
	Seed   uint64 `json:"seed"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"` // why it has ended early
	trainer.Figures
}

// Finished are the runs that have finished.
func Finished(all []Run) []Run {
	return slices.DeleteFunc(slices.Clone(all), func(r Run) bool { return r.State != RunFinished })
}

// Summary is several runs of the same training with different seeds. Its figures are means over the runs; a metric
// is a mean over the runs that have it, nil where none has.
type Summary struct {
	Seeds []uint64

	TrainLoss, Valid, Test                       *trainer.Spread
	Epochs, BestEpoch, ConvergenceEpoch          *trainer.Spread
	EpochSeconds, LoadWaitSeconds, RowsPerSecond *trainer.Spread

	StageSeconds    map[string]float64 // means
	EpochTraffic    loader.Traffic     // mean
	PeakDeviceBytes int64              // the largest
}

// Summarize returns the means over at least one run.
func Summarize(runs []Run) *Summary {
	s := &Summary{StageSeconds: map[string]float64{}}
	for _, r := range runs {
		s.Seeds = append(s.Seeds, r.Seed)
		s.PeakDeviceBytes = max(s.PeakDeviceBytes, r.PeakDeviceBytes)
		s.EpochTraffic.Add(r.EpochTraffic)
		for stage, seconds := range r.StageSeconds {
			s.StageSeconds[stage] += seconds / float64(len(runs))
		}
	}
	s.EpochTraffic = s.EpochTraffic.Per(len(runs))
	s.TrainLoss = spreadOf(runs, func(r *trainer.Figures) *float64 { return &r.TrainLoss })
	s.Valid = spreadOf(runs, func(r *trainer.Figures) *float64 { return r.ValidMetric })
	s.Test = spreadOf(runs, func(r *trainer.Figures) *float64 { return r.TestMetric })
	s.Epochs = spreadOf(runs, func(r *trainer.Figures) *int { return &r.Epochs })
	s.BestEpoch = spreadOf(runs, func(r *trainer.Figures) *int { return &r.BestEpoch })
	s.ConvergenceEpoch = spreadOf(runs, func(r *trainer.Figures) *int { return r.ConvergenceEpoch })
	s.EpochSeconds = spreadOf(runs, func(r *trainer.Figures) *float64 { return &r.EpochSeconds })
	s.LoadWaitSeconds = spreadOf(runs, func(r *trainer.Figures) *float64 { return &r.LoadWaitSeconds })
	s.RowsPerSecond = spreadOf(runs, func(r *trainer.Figures) *float64 { return &r.RowsPerSecond })
	return s
}

// spreadOf is the spread of a figure over the runs that have it.
func spreadOf[T int | float64](runs []Run, value func(*trainer.Figures) *T) *trainer.Spread {
	var values []float64
	for i := range runs {
		if v := value(&runs[i].Figures); v != nil {
			values = append(values, float64(*v))
		}
	}
	return trainer.NewSpread(values)
}
