package trainer

import "github.com/hopfeed/hopfeed/loader"

// SelectedLast is the Selection of a Result without validation.
const SelectedLast = "last epoch (none was validated)"

// Epoch is the result of one epoch.
type Epoch struct {
	Number       int      `json:"number"`     // from 1
	TrainLoss    float64  `json:"train_loss"` // mean over the rows, dropout and changing parameters included
	Valid        *float64 `json:"valid"`      // the metric on the validation rows; nil: not validated
	ValidLoss    float64  `json:"valid_loss"` // mean validation loss, where Valid is not nil
	Best         bool     `json:"best"`       // selected so far: see Fit
	Seconds      float64  `json:"seconds"`    // training and validation
	TrainSeconds float64  `json:"train_seconds"`
	// Traffic is the features of the batches of training, over all devices.
	Traffic loader.Traffic `json:"traffic"`
	// StepSeconds is the time by step: "load" (until a batch is on the device), "forward" (with the loss), "backward",
	// "optimizer" and, with several devices, "reduce" (adding their gradients); nil unless Options.ProfileFrom asks for
	// it. The host then waits for each device after each step, so that only loading overlaps with other steps.
	StepSeconds map[string]float64 `json:"step_seconds,omitempty"`
}

// Figures are the results of a run of training. A metric is nil if there were no labelled rows for it, or training
// ended before it. The train command prints them by their JSON names.
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
	PeakDeviceBytes  int64              `json:"peak_device_bytes"`    // of the fullest device, other contents included
	Importance       []Importance       `json:"importance,omitempty"` // of each matrix, if asked for
	Submission       string             `json:"submission,omitempty"` // how steps were submitted, and why
}

// Trained is a model with its parameters: all that Evaluate and Predict need.
type Trained struct {
	Spec       Spec
	Options    Options   // of the training
	Scales     []float32 // what each of Spec.Matrices is multiplied by
	Parameters []float32 // flat, in the order of the model's declarations
}

// Outputs is the meaning of the model's predictions.
func (t *Trained) Outputs() Outputs { return targets[t.Spec.Target].outputs }

// Result is the result of Fit: the model of the selected epoch, and how it was found.
type Result struct {
	Figures
	Trained
	History []Epoch
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
