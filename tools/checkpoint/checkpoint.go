// Package checkpoint saves trainings and the models that they find: the format of a run folder, writing and
// reading it, going on with a training that was stopped, and which rows a model was trained on.
//
// A run folder is written by one process, which locks it, and read by any number. Values that Load returns are the
// caller's. Saver may be used by one goroutine at a time; different run folders are independent.
package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// Version is the version of checkpoints that this package writes, and the only one that it reads.
const Version = 4

// ErrInvalid is returned when a folder holds no checkpoint that this version can read: it is damaged, incomplete or
// of another version.
var ErrInvalid = errors.New("no usable checkpoint")

// Checkpoint is the best model that a training has found so far, with its data, options and history. While the
// training is unfinished, State is all that it needs to go on. A training is one run or more with the same options
// and different seeds. The files of a checkpoint:
//
//	checkpoint.json                   all but the following; size and SHA-256 of the other files; its own CRC-32C,
//	                                  computed with these eight digits zeroed
//	parameters-<digest>.safetensors   the parameters, by name
//	split-<digest>.arrow              the columns of a Split: node uint32, split uint8, label int32
//	state-<digest>.safetensors        the State of the run that goes on, if there is one
//	metrics.jsonl                     an EpochMetrics a line; only the first lines may belong to the checkpoint
//	config.yaml                       Config, a line for each entry
//
// Parameters and split of a finished training are functions of its input, options and seed.
type Checkpoint struct {
	trainer.Trained       // the best model; no Scales and Parameters if Best is -1
	Data                  DataSet
	Split                 Split
	Batches               Batches
	Config                map[string]string // settings of the program that trains; they make it do the same again
	PredictedEpochSeconds float64           // 0: unknown
	Wanted                int               // number of runs that the training shall have
	Runs                  []Run             // begun so far, in order
	Best                  int               // index in Runs of the model's run; -1: no epoch has ended, see State

	History []EpochMetrics // of all runs, in order; Load leaves it out
	State   *trainer.State // of the last run, if it goes on; Load leaves it out
}

// Batches says how the batches of a training were formed.
type Batches struct {
	Rows      int    `json:"rows"`       // of a batch, over all devices
	Shuffle   string `json:"shuffle"`    // rr or chunk
	ChunkRows int    `json:"chunk_rows"` // rows that were shuffled together: 1 for rr
	Placement string `json:"placement"`
	Devices   int    `json:"devices"`
}

// Settings are the entries of a configuration that say how the rows of a store are shuffled.
func (b Batches) Settings() map[string]string {
	s := map[string]string{"shuffle": b.Shuffle}
	if b.Shuffle == placement.CR {
		s["chunk-rows"] = fmt.Sprint(b.ChunkRows)
	}
	return s
}

// EpochMetrics are the metrics of an epoch.
type EpochMetrics struct {
	Run          int      `json:"run"` // from 1
	Epoch        int      `json:"epoch"`
	TrainLoss    float64  `json:"train_loss"`
	ValidMetric  *float64 `json:"valid_metric"`
	ValidLoss    float64  `json:"valid_loss"` // where there is a ValidMetric
	Seconds      float64  `json:"seconds"`    // training and validation
	TrainSeconds float64  `json:"train_seconds"`

	Traffic loader.Traffic `json:"traffic"` // of training
}

// Incomplete says in words which runs of the training did not finish; "" if all did.
func (c *Checkpoint) Incomplete() string {
	var lacks []string
	for i, r := range c.Runs {
		run := "training "
		if c.Wanted > 1 {
			run = fmt.Sprintf("run %d of %d ", i+1, c.Wanted)
		}
		after := fmt.Sprintf("after epoch %d of %d", r.Epochs, c.Options.Epochs)
		switch r.State {
		case RunFinished:
		case RunInProgress:
			lacks = append(lacks, run+"was running "+after+", when it was saved last")
		case RunInterrupted:
			lacks = append(lacks, run+"was interrupted "+after)
		default:
			lacks = append(lacks, run+r.State+" "+after)
		}
	}
	if n := c.Wanted - len(c.Runs); n > 0 {
		lacks = append(lacks, fmt.Sprintf("%d of %d runs were not begun", n, c.Wanted))
	}
	return strings.Join(lacks, "; ")
}

// Settings are the settings that the checkpoint was trained with.
func (c *Checkpoint) Settings() trainer.Settings {
	return trainer.Settings{Values: c.Spec.Settings, Options: c.Options, BatchRows: c.Batches.Rows}
}

// CheckStore returns an error if the model cannot be evaluated on a store with these matrices, this layout, labels as
// features up to this hop, and labels of this target in this number of columns (classes, labels or values).
func (c *Checkpoint) CheckStore(stored []trainer.MatrixID, layout format.Layout, labelHops, columns int,
	target trainer.Target) error {
	now := trainer.Spec{Classes: columns, Target: target}
	if c.Spec.Features == layout.Features && (c.Spec.Classes != columns || c.Spec.Target != target) {
		return fmt.Errorf("the model was trained on %s (data %s), but the input has %s",
			c.Spec.Outputs(), c.Data.Name, now.Outputs())
	}
	return c.CheckInput(stored, layout, labelHops)
}

// CheckInput returns an error if the model cannot be applied to a store with these matrices and this layout, whatever
// its labels are.
func (c *Checkpoint) CheckInput(stored []trainer.MatrixID, layout format.Layout, labelHops int) error {
	if c.Data.LabelHops != labelHops {
		return fmt.Errorf("the model was trained on labels propagated over %s (data %s), and those of the input over "+
			"%d: propagate with --label-hops %d", units.Count(int64(c.Data.LabelHops), "hop"), c.Data.Name, labelHops,
			c.Data.LabelHops)
	}
	if c.Spec.Features != layout.Features {
		return fmt.Errorf("the model was trained on %d features (data %s), but the input has %d",
			c.Spec.Features, c.Data.Name, layout.Features)
	}
	var missing []string
	for i, id := range c.Spec.Matrices {
		if !slices.Contains(stored, id) {
			missing = append(missing, id.String())
		} else if now := layout.Of(id).Features; now != c.Spec.Width(i) && c.Spec.Nodes[id.Operator] == 0 {
			return fmt.Errorf("the model was trained on %d columns of %s (data %s), but the input has %d", c.Spec.Width(i), id,
				c.Data.Name, now)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the model reads %s, which the store lacks: propagate with that operator and as many hops",
			strings.Join(missing, ", "))
	}
	return nil
}

// States of a run.
const (
	RunInProgress  = "running" // when the checkpoint was saved
	RunFinished    = "finished"
	RunInterrupted = "interrupted"
	RunDiverged    = "diverged"
	RunFailed      = "failed"
)

// Run is one run of a training, and its figures when it was saved.
type Run struct {
	Seed   uint64 `json:"seed"`
	State  string `json:"state"`            // finished, interrupted, diverged, failed or running
	Reason string `json:"reason,omitempty"` // why it has ended early
	trainer.Figures
}

// Finished are the runs that have finished.
func Finished(all []Run) []Run {
	return slices.DeleteFunc(slices.Clone(all), func(r Run) bool { return r.State != RunFinished })
}

// Summary is several runs of the same training with different seeds: means over the runs, with sample standard
// deviations, 0 for one run. A metric is that of the runs that have it, nil where none has.
type Summary struct {
	Epochs             *float64           `json:"epochs"`
	BestEpoch          *float64           `json:"best_epoch"`
	Selection          string             `json:"selection"`
	Metric             string             `json:"metric"`
	TrainLoss          *float64           `json:"train_loss"`
	TrainLossStd       *float64           `json:"train_loss_std"`
	ValidMetric        *float64           `json:"valid_metric"`
	ValidMetricStd     *float64           `json:"valid_metric_std"`
	TestMetric         *float64           `json:"test_metric"`
	TestMetricStd      *float64           `json:"test_metric_std"`
	EpochSeconds       *float64           `json:"epoch_seconds"`
	EpochSecondsStd    *float64           `json:"epoch_seconds_std"`
	StageSeconds       map[string]float64 `json:"stage_seconds"`
	LoadWaitSeconds    *float64           `json:"load_wait_seconds"`
	LoadWaitSecondsStd *float64           `json:"load_wait_seconds_std"`
	RowsPerSecond      *float64           `json:"rows_per_second"`
	RowsPerSecondStd   *float64           `json:"rows_per_second_std"`
	EpochTraffic       loader.Traffic     `json:"epoch_traffic"` // of the features of an epoch's batches
	ConvergenceEpoch   *float64           `json:"convergence_epoch"`
	PeakDeviceBytes    int64              `json:"peak_device_bytes"` // the largest

	Importance []trainer.Importance `json:"importance,omitempty"`
	Seeds      []uint64             `json:"seeds"`
}

// Summarize sums up at least one run.
func Summarize(runs []Run) *Summary {
	s := &Summary{StageSeconds: map[string]float64{}, Selection: runs[0].Selection, Metric: runs[0].Metric}
	for _, r := range runs {
		s.Seeds = append(s.Seeds, r.Seed)
		s.PeakDeviceBytes = max(s.PeakDeviceBytes, r.PeakDeviceBytes)
		s.EpochTraffic.Add(r.EpochTraffic)
		for stage, seconds := range r.StageSeconds {
			s.StageSeconds[stage] += seconds / float64(len(runs))
		}
	}
	s.EpochTraffic = s.EpochTraffic.Per(len(runs))
	s.Epochs, _ = meanStd(runs, func(r *trainer.Figures) *int { return &r.Epochs })
	s.BestEpoch, _ = meanStd(runs, func(r *trainer.Figures) *int { return &r.BestEpoch })
	s.ConvergenceEpoch, _ = meanStd(runs, func(r *trainer.Figures) *int { return r.ConvergenceEpoch })
	s.TrainLoss, s.TrainLossStd = meanStd(runs, func(r *trainer.Figures) *float64 { return &r.TrainLoss })
	s.ValidMetric, s.ValidMetricStd = meanStd(runs, func(r *trainer.Figures) *float64 { return r.ValidMetric })
	s.TestMetric, s.TestMetricStd = meanStd(runs, func(r *trainer.Figures) *float64 { return r.TestMetric })
	s.EpochSeconds, s.EpochSecondsStd = meanStd(runs, func(r *trainer.Figures) *float64 { return &r.EpochSeconds })
	s.LoadWaitSeconds, s.LoadWaitSecondsStd = meanStd(runs, func(r *trainer.Figures) *float64 {
		return &r.LoadWaitSeconds
	})
	s.Importance = meanImportance(runs)
	s.RowsPerSecond, s.RowsPerSecondStd = meanStd(runs, func(r *trainer.Figures) *float64 { return &r.RowsPerSecond })
	return s
}

// meanStd is a figure of the runs that have it; nil if none has.
func meanStd[T int | float64](runs []Run, figure func(*trainer.Figures) *T) (mean, std *float64) {
	var values []float64
	for i := range runs {
		if v := figure(&runs[i].Figures); v != nil {
			values = append(values, float64(*v))
		}
	}
	switch len(values) {
	case 0:
		return nil, nil
	case 1:
		return &values[0], new(float64)
	}
	m, s := stat.MeanStdDev(values, nil)
	return &m, &s
}

// meanImportance is the mean importance of each matrix, over the runs that have it.
func meanImportance(runs []Run) (means []trainer.Importance) {
	measured := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Importance == nil })
	for _, r := range measured {
		if means == nil {
			means = make([]trainer.Importance, len(r.Importance))
		}
		for i, of := range r.Importance[:min(len(means), len(r.Importance))] {
			m := &means[i]
			m.Matrix = of.Matrix
			m.MetricLoss += of.MetricLoss / float64(len(measured))
			m.LossRise += of.LossRise / float64(len(measured))
		}
	}
	return means
}
