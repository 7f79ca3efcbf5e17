package trainer

import "math"

// How the epoch of a Result was selected.
const (
	SelectedByValidation = "best validation accuracy"
	SelectedLast         = "last epoch (no validation rows)"
)

// Epoch is the account of one epoch.
type Epoch struct {
	Number       int      // from 1
	TrainLoss    float64  // mean over the rows, dropout and changing parameters included
	Valid        *float64 // validation accuracy; nil where the epoch was not validated
	Best         bool     // the best validation so far
	Seconds      float64  // training and validation
	TrainSeconds float64
	// StepSeconds is what training waited for: "load" (until a batch is on the device),
	// "forward" (the loss included), "backward", "optimizer" and, of several devices,
	// "reduce" (their gradients are added up); nil unless Options.ProfileFrom asks. Each
	// device is then waited for after each step, so nothing but loading goes on beside
	// another step.
	StepSeconds map[string]float64
}

// Result is the outcome of Fit. A metric is nil where there were no labelled
// rows to compute it on. The JSON names are those of the train command.
type Result struct {
	Spec             Spec               `json:"-"`
	Options          Options            `json:"-"`
	Parameters       []float32          `json:"-"` // of the selected epoch, flat
	Scales           []float32          `json:"-"` // what the model multiplies each of its input matrices by
	History          []Epoch            `json:"-"`
	Epochs           int                `json:"epochs"` // that were run
	BestEpoch        int                `json:"best_epoch"`
	Selection        string             `json:"selection"`
	TrainLoss        float64            `json:"train_loss"` // of the selected epoch
	ValidMetric      *float64           `json:"valid_metric"`
	TestMetric       *float64           `json:"test_metric"`
	Metric           string             `json:"metric"`
	EpochSeconds     float64            `json:"epoch_seconds"` // median, validation included
	StageSeconds     map[string]float64 `json:"stage_seconds"` // load_wait, compute, validate, test: over the run
	LoadWaitSeconds  float64            `json:"load_wait_seconds"`
	RowsPerSecond    float64            `json:"rows_per_second"` // of training, by the median epoch
	ConvergenceEpoch *int               `json:"convergence_epoch"`
	PeakDeviceBytes  int64              `json:"peak_device_bytes"` // of the fullest device, whatever else it held included
}

// Spread is a mean and the sample standard deviation around it, 0 for one value.
type Spread struct {
	Mean, Std float64
	N         int
}

// NewSpread sums values up; nil if there are none.
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
	PeakDeviceBytes int64 // the largest
	// Best is the place of the run to keep: that with the best validation, or
	// else with the lowest training loss; the first of equals.
	Best int
}

// Summarize sums up at least one run.
func Summarize(runs []*Result) *Summary {
	s := &Summary{StageSeconds: map[string]float64{}}
	spread := func(value func(*Result) *float64) *Spread {
		var values []float64
		for _, r := range runs {
			if v := value(r); v != nil {
				values = append(values, *v)
			}
		}
		return NewSpread(values)
	}
	count := func(n int) *float64 { f := float64(n); return &f }
	for i, r := range runs {
		s.Seeds = append(s.Seeds, r.Options.Seed)
		s.PeakDeviceBytes = max(s.PeakDeviceBytes, r.PeakDeviceBytes)
		for stage, seconds := range r.StageSeconds {
			s.StageSeconds[stage] += seconds / float64(len(runs))
		}
		if r.better(runs[s.Best]) {
			s.Best = i
		}
	}
	s.TrainLoss = spread(func(r *Result) *float64 { return &r.TrainLoss })
	s.Valid = spread(func(r *Result) *float64 { return r.ValidMetric })
	s.Test = spread(func(r *Result) *float64 { return r.TestMetric })
	s.Epochs = spread(func(r *Result) *float64 { return count(r.Epochs) })
	s.BestEpoch = spread(func(r *Result) *float64 { return count(r.BestEpoch) })
	s.ConvergenceEpoch = spread(func(r *Result) *float64 {
		if r.ConvergenceEpoch == nil {
			return nil
		}
		return count(*r.ConvergenceEpoch)
	})
	s.EpochSeconds = spread(func(r *Result) *float64 { return &r.EpochSeconds })
	s.LoadWaitSeconds = spread(func(r *Result) *float64 { return &r.LoadWaitSeconds })
	s.RowsPerSecond = spread(func(r *Result) *float64 { return &r.RowsPerSecond })
	return s
}

// better tells whether r is the run to keep rather than other.
func (r *Result) better(other *Result) bool {
	if r.ValidMetric != nil && other.ValidMetric != nil {
		return *r.ValidMetric > *other.ValidMetric
	}
	return r.ValidMetric == nil && other.ValidMetric == nil && r.TrainLoss < other.TrainLoss
}
