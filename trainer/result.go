package trainer

import (
	"math"

	"github.com/hopfeed/hopfeed/loader"
)

// SelectedLast is the Selection of a Result without validation.
const SelectedLast = "last epoch (none was validated)"

// Epoch is the result of one epoch.
type Epoch struct {
	Number       int      `json:"number"`     // from 1
	TrainLoss    float64  `json:"train_loss"` // mean over the rows, dropout and changing parameters included
	Valid        *float64 `json:"valid"`      // the metric on the validation rows; nil where the epoch was not validated
	ValidLoss    float64  `json:"valid_loss"` // mean validation loss, where Valid is not nil
	Best         bool     `json:"best"`       // selected so far: see Fit
	Seconds      float64  `json:"seconds"`    // training and validation
	TrainSeconds float64  `json:"train_seconds"`
	// Traffic is what the batches of training had of features, over all devices.
	Traffic loader.Traffic `json:"traffic"`
	// StepSeconds is the time by step: "load" (until a batch is on the device), "forward"
	// (with the loss), "backward", "optimizer" and, with several devices, "reduce" (adding
	// their gradients); nil unless Options.ProfileFrom asks for it. The host then waits for
	// each device after each step, so that only loading overlaps with other steps.
	StepSeconds map[string]float64 `json:"step_seconds,omitempty"`
}

// Figures are what a run of training has come to. A metric is nil where there were no labelled
// rows to compute it on, or training ended before it was computed. The JSON names are those of the train command.
type Figures struct {
	Epochs           int                `json:"epochs"`     // that have ended
	BestEpoch        int                `json:"best_epoch"` // 0 if none has ended
	Selection        string             `json:"selection"`  // how the epoch was selected
	TrainLoss        float64            `json:"train_loss"` // of the selected epoch
	ValidMetric      *float64           `json:"valid_metric"`
	TestMetric       *float64           `json:"test_metric"`
	Metric           string             `json:"metric"`
	EpochSeconds     float64            `json:"epoch_seconds"` // median, validation included
	StageSeconds     map[string]float64 `json:"stage_seconds"` // load_wait, compute, validate, test: over the run
	LoadWaitSeconds  float64            `json:"load_wait_seconds"`
	RowsPerSecond    float64            `json:"rows_per_second"` // of training, by the median epoch
	ConvergenceEpoch *int               `json:"convergence_epoch"`
	EpochTraffic     loader.Traffic     `json:"epoch_traffic"`        // mean over the epochs
	PeakDeviceBytes  int64              `json:"peak_device_bytes"`    // of the fullest device, whatever else it held included
	Submission       string             `json:"submission,omitempty"` // how steps went to a device that takes graphs, and why
}

// Result is the result of Fit.
type Result struct {
	Figures
	Spec       Spec
	Options    Options
	Parameters []float32 // of the selected epoch, flat
	Scales     []float32 // what the model multiplies each of its input matrices by
	History    []Epoch
}

// Spread is a mean and the sample standard deviation around it, 0 for one value.
type Spread struct {
	Mean, Std float64
	N         int
}

// NewSpread returns mean and standard deviation of values; nil if there are none.
func NewSpread(values []float64) *Spread {
	if len(values) == 0 {
		return nil
	}
	s := &Spread{N: len(values)}
	for _, v := range values {
		s.Mean += v / float64(s.N)
	}
	if s.N > 1 {
		sum := 0.0
		for _, v := range values {
			sum += (v - s.Mean) * (v - s.Mean)
		}
		s.Std = math.Sqrt(sum / float64(s.N-1))
	}
	return s
}

// Summary is several runs of the same training under different seeds. Its
// figures are means over the runs; a metric is over the runs that have it, nil
// where none does.
type Summary struct {
	Seeds []uint64

	TrainLoss, Valid, Test                       *Spread
	Epochs, BestEpoch, ConvergenceEpoch          *Spread
	EpochSeconds, LoadWaitSeconds, RowsPerSecond *Spread

	StageSeconds    map[string]float64
	EpochTraffic    loader.Traffic // mean, as StageSeconds
	PeakDeviceBytes int64          // the largest
}

// Summarize returns the means over at least one run.
func Summarize(runs []Run) *Summary {
	s := &Summary{StageSeconds: map[string]float64{}}
	spread := func(value func(*Figures) *float64) *Spread {
		var values []float64
		for i := range runs {
			if v := value(&runs[i].Figures); v != nil {
				values = append(values, *v)
			}
		}
		return NewSpread(values)
	}
	count := func(n int) *float64 { f := float64(n); return &f }
	for _, r := range runs {
		s.Seeds = append(s.Seeds, r.Seed)
		s.PeakDeviceBytes = max(s.PeakDeviceBytes, r.PeakDeviceBytes)
		s.EpochTraffic.Add(r.EpochTraffic)
		for stage, seconds := range r.StageSeconds {
			s.StageSeconds[stage] += seconds / float64(len(runs))
		}
	}
	s.EpochTraffic = s.EpochTraffic.Per(len(runs))
	s.TrainLoss = spread(func(r *Figures) *float64 { return &r.TrainLoss })
	s.Valid = spread(func(r *Figures) *float64 { return r.ValidMetric })
	s.Test = spread(func(r *Figures) *float64 { return r.TestMetric })
	s.Epochs = spread(func(r *Figures) *float64 { return count(r.Epochs) })
	s.BestEpoch = spread(func(r *Figures) *float64 { return count(r.BestEpoch) })
	s.ConvergenceEpoch = spread(func(r *Figures) *float64 {
		if r.ConvergenceEpoch == nil {
			return nil
		}
		return count(*r.ConvergenceEpoch)
	})
	s.EpochSeconds = spread(func(r *Figures) *float64 { return &r.EpochSeconds })
	s.LoadWaitSeconds = spread(func(r *Figures) *float64 { return &r.LoadWaitSeconds })
	s.RowsPerSecond = spread(func(r *Figures) *float64 { return &r.RowsPerSecond })
	return s
}

// Better tells whether r is the run to save rather than other: the one with the better
// validation; where neither has one, the one with the lower training loss.
func (r *Figures) Better(other *Figures) bool {
	switch {
	case r.ValidMetric != nil && other.ValidMetric != nil:
		return gain(r.Metric, *r.ValidMetric) > gain(r.Metric, *other.ValidMetric)
	case r.ValidMetric == nil && other.ValidMetric == nil:
		return r.TrainLoss < other.TrainLoss
	}
	return r.ValidMetric != nil
}
