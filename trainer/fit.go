package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
)

// ErrDiverged is returned when the loss is no longer a finite number.
var ErrDiverged = errors.New("training diverged")

// Options govern a run of training.
type Options struct {
	Epochs       int     `json:"epochs"`
	LearningRate float64 `json:"learning_rate"`
	WeightDecay  float64 `json:"weight_decay"` // L2, added to the gradient, biases included
	Seed         uint64  `json:"seed"`         // of initial values and dropout; the order of rows is the Epocher's
	EvalEvery    int     `json:"eval_every"`   // epochs between validations; 0: 1. The last epoch is always validated
	Patience     int     `json:"patience"`     // stop after so many epochs without a better validation; 0: never
	// ProfileFrom is the first epoch to have Epoch.StepSeconds, as all after it; 0: none.
	ProfileFrom int `json:"-"`
}

// Adam's constants (Kingma and Ba 2015, Algorithm 1).
const (
	beta1   = 0.9
	beta2   = 0.999
	epsilon = 1e-8
)

func (o Options) checked() (Options, error) {
	if o.EvalEvery == 0 {
		o.EvalEvery = 1
	}
	switch {
	case o.Epochs < 1:
		return o, fmt.Errorf("%d epochs: must be at least 1", o.Epochs)
	case !(o.LearningRate > 0) || math.IsInf(o.LearningRate, 0):
		return o, fmt.Errorf("learning rate %v: must be above 0", o.LearningRate)
	case !(o.WeightDecay >= 0) || math.IsInf(o.WeightDecay, 0):
		return o, fmt.Errorf("weight decay %v: must not be negative", o.WeightDecay)
	case o.EvalEvery < 0 || o.Patience < 0:
		return o, fmt.Errorf("validation every %d epochs with patience %d: must not be negative", o.EvalEvery, o.Patience)
	}
	return o, nil
}

// Fit trains a model on one rank or more, from initial values that the seed
// determines, and returns the parameters of the selected epoch: the first of those
// with the best validation accuracy, or the last where there is nothing to validate
// on. All device memory that it took is free again when it returns. Report, if not
// nil, is told of each epoch.
func Fit(ctx context.Context, ranks []Rank, spec Spec, o Options, report func(Epoch)) (result *Result, err error) {
	f, err := newFitting(ctx, ranks, spec, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := f.close(); err == nil && closeErr != nil {
			result, err = nil, closeErr
		}
	}()
	if err := f.epochs(ctx, report); err != nil {
		return nil, err
	}
	return f.finish(ctx)
}

// fitting is a run of training under way.
type fitting struct {
	*group
	Options
	train, valid, test []Epocher // of each rank
	steps              int
	history            []Epoch
	chosen             int // the best epoch's place in history
	stages             map[string]float64
}

// newFitting is a run with its initial values in place.
func newFitting(ctx context.Context, ranks []Rank, spec Spec, o Options) (f *fitting, err error) {
	f = &fitting{stages: map[string]float64{}}
	if f.Options, err = o.checked(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	var devices []gds.Device
	batchRows := 0
	for _, r := range ranks {
		devices, batchRows = append(devices, r.Device), max(batchRows, r.BatchRows)
		f.train, f.valid, f.test = append(f.train, r.Train), append(f.valid, r.Valid), append(f.test, r.Test)
	}
	if f.group, err = newGroup(devices, spec, batchRows, true); err != nil {
		return nil, err
	}
	start := func() error {
		if !present(f.train[0]) {
			return errors.New("there are no training rows: choose another split")
		}
		if err := errors.Join(f.checkSets("training", f.train), f.checkSets("validation", f.valid), f.checkSets("test", f.test)); err != nil {
			return err
		}
		if err := f.load(ctx, f.ranks[0].params.initial(f.Seed)); err != nil {
			return err
		}
		return f.measure(ctx, f.train)
	}
	if err := start(); err != nil {
		_ = f.close() // says no more than err
		return nil, err
	}
	return f, nil
}

func (f *fitting) epochs(ctx context.Context, report func(Epoch)) error {
	validate := present(f.valid[0])
	for epoch := 1; epoch <= f.Epochs; epoch++ {
		e := Epoch{Number: epoch}
		if err := f.trainEpoch(ctx, &e); err != nil {
			return err
		}
		if validate && (epoch%f.EvalEvery == 0 || epoch == f.Epochs) {
			start := time.Now()
			accuracy, err := f.evaluate(ctx, f.valid)
			if err != nil {
				return fmt.Errorf("validation in epoch %d: %w", epoch, err)
			}
			e.Valid = accuracy.Fraction()
			e.Seconds += f.took("validate", start)
		}
		if so := f.chosenMetric(); e.Valid == nil && so == nil {
			f.chosen = epoch - 1 // the newest, as long as there is nothing to judge by
		} else if e.Valid != nil && (so == nil || *e.Valid > *so) {
			e.Best = true
			f.chosen = epoch - 1
			for _, n := range f.ranks {
				n.stream.Copy(n.params.best, n.params.value)
			}
		}
		f.history = append(f.history, e)
		if report != nil {
			report(e)
		}
		if f.Patience > 0 && e.Valid != nil && epoch-1-f.chosen >= f.Patience {
			break
		}
	}
	return nil
}

// chosenMetric is the validation metric of the best epoch so far, if any.
func (f *fitting) chosenMetric() *float64 {
	if len(f.history) == 0 {
		return nil
	}
	return f.history[f.chosen].Valid
}

func (f *fitting) trainEpoch(ctx context.Context, e *Epoch) error {
	start := time.Now()
	f.reset()
	if f.ProfileFrom > 0 && e.Number >= f.ProfileFrom {
		p := newProfile()
		e.StepSeconds = p.seconds
		for _, n := range f.ranks {
			n.profile = p
		}
	}
	rows := int64(0)
	dropoutSeed := rng.Derive(f.Seed, "dropout")
	waited, err := f.eachBatch(ctx, f.train, e.Number-1, func(rank int, b *loader.Batch) error {
		n := f.ranks[rank]
		n.profile.lap(n.stream, "load")
		if err := n.check(b); err != nil {
			return err
		}
		rows += int64(b.Rows)
		// Of every step and rank another number, so that no two drop out the same.
		n.gradient(b, rng.Hash(dropoutSeed, uint64((f.steps+1)*len(f.ranks)+rank)))
		return nil
	}, func() error {
		f.steps++
		return f.step(ctx, f.adam(f.steps))
	})
	var loss float64
	if err == nil {
		loss, _, err = f.read(ctx)
	}
	if err != nil {
		return fmt.Errorf("epoch %d: %w", e.Number, err)
	}
	e.TrainLoss = loss / float64(rows)
	e.Seconds = f.took("compute", start)
	e.TrainSeconds = e.Seconds
	f.stages["compute"] -= waited.Seconds()
	f.stages["load_wait"] += waited.Seconds()
	if math.IsNaN(e.TrainLoss) || math.IsInf(e.TrainLoss, 0) {
		return fmt.Errorf("%w: the loss is %v in epoch %d: try a learning rate below %v, and check that the features are finite and of moderate size",
			ErrDiverged, e.TrainLoss, e.Number, f.LearningRate)
	}
	return nil
}

// adam is the settings of a step, the first being 1.
func (o Options) adam(step int) gds.AdamOptions {
	return gds.AdamOptions{
		LearningRate: float32(o.LearningRate), Beta1: beta1, Beta2: beta2, Epsilon: epsilon,
		WeightDecay: float32(o.WeightDecay), Step: step,
	}
}

func (f *fitting) took(stage string, start time.Time) float64 {
	seconds := time.Since(start).Seconds()
	f.stages[stage] += seconds
	return seconds
}

// finish brings back the selected parameters, tests them, and sums up.
func (f *fitting) finish(ctx context.Context) (*Result, error) {
	chosen := f.history[f.chosen]
	r := &Result{
		Spec: f.ranks[0].spec, Options: f.Options, Scales: f.ranks[0].scales, Metric: MetricName,
		Epochs: len(f.history), BestEpoch: chosen.Number, Selection: SelectedLast,
		TrainLoss: chosen.TrainLoss, ValidMetric: chosen.Valid,
		History: f.history, StageSeconds: f.stages,
	}
	if chosen.Valid != nil {
		r.Selection = SelectedByValidation
		for _, n := range f.ranks {
			n.stream.Copy(n.params.value, n.params.best)
		}
	}
	if present(f.test[0]) {
		start := time.Now()
		accuracy, err := f.evaluate(ctx, f.test)
		if err != nil {
			return nil, fmt.Errorf("test: %w", err)
		}
		r.TestMetric = accuracy.Fraction()
		f.took("test", start)
	}
	var err error
	if r.Parameters, err = f.ranks[0].params.read(ctx, f.ranks[0].stream); err != nil {
		return nil, f.of(0, err)
	}
	whole, train := make([]float64, len(f.history)), make([]float64, len(f.history))
	for i, e := range f.history {
		whole[i], train[i] = e.Seconds, e.TrainSeconds
	}
	r.EpochSeconds = median(whole)
	r.RowsPerSecond = float64(f.train[0].Rows()) / max(median(train), 1e-9)
	r.LoadWaitSeconds = f.stages["load_wait"]
	r.ConvergenceEpoch = convergence(f.history)
	r.PeakDeviceBytes = f.peak()
	return r, nil
}

// convergence is the first epoch that reached 99 % of the peak validation
// accuracy (preprop-gnn section 3.3 and Appendix B); nil without validation.
func convergence(history []Epoch) *int {
	peak := math.Inf(-1)
	for _, e := range history {
		if e.Valid != nil {
			peak = max(peak, *e.Valid)
		}
	}
	for _, e := range history {
		if e.Valid != nil && *e.Valid >= 0.99*peak {
			return &e.Number
		}
	}
	return nil
}

// median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
