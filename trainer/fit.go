package trainer

import (
	"cmp"
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
	WeightDecay  float64 `json:"weight_decay"` // L2, added to the gradient of all but biases
	Seed         uint64  `json:"seed"`         // of initial values and dropout; the order of rows is the Epocher's
	EvalEvery    int     `json:"eval_every"`   // epochs between validations; 0: 1. The last epoch is always validated
	Patience     int     `json:"patience"`     // stop after so many epochs without a better validation; 0: never
	// ProfileFrom is the first epoch that has Epoch.StepSeconds, as all later ones; 0: none.
	ProfileFrom int `json:"-"`
}

// Adam's constants (Kingma and Ba 2015, Algorithm 1).
const (
	beta1   = 0.9
	beta2   = 0.999
	epsilon = 1e-8
)

func (o Options) validate() (Options, error) {
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

// Report is told of each epoch as it ends. Best gives the result so far, without a test, as
// Fit would return it if training ended here; it takes a copy of the parameters, so it is
// asked for only when it is used. It is valid until Report returns.
type Report func(e Epoch, best func() (*Result, error))

// Fit trains a model on one rank or more, from initial values that the seed
// determines, and returns the parameters of the selected epoch: of those with the best
// validation accuracy the one with the lowest validation loss, or the last epoch if there are
// no validation rows. All device memory is freed before it returns. Report may be nil.
//
// When training ends early (ctx ends, the loss diverges, a batch cannot be read), Fit returns
// the error and, if any epoch has ended, the result of those epochs, without a test.
func Fit(ctx context.Context, ranks []Rank, spec Spec, o Options, report Report) (result *Result, err error) {
	f, err := newFitting(ctx, ranks, spec, o)
	if err != nil {
		return nil, err
	}
	if err = f.epochs(ctx, report); err == nil {
		err = f.measureTest(ctx)
	}
	result, readErr := f.result(context.WithoutCancel(ctx))
	closeErr := f.close()
	if err == nil {
		err = cmp.Or(readErr, closeErr)
	}
	return result, err
}

// fitting is the state of a run of training.
type fitting struct {
	*group
	Options
	train, valid, test []Epocher // of each rank
	stepCount          int
	history            []Epoch
	bestIndex          int // of the selected epoch in history
	testMetric         *float64
	stageSeconds       map[string]float64
}

// newFitting prepares a run: memory, initial parameters, scales of the input.
func newFitting(ctx context.Context, ranks []Rank, spec Spec, o Options) (f *fitting, err error) {
	f = &fitting{stageSeconds: map[string]float64{}}
	if f.Options, err = o.validate(); err != nil {
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
		if !hasRows(f.train[0]) {
			return errors.New("there are no training rows: choose another split")
		}
		if err := errors.Join(f.checkSets("training", f.train), f.checkSets("validation", f.valid), f.checkSets("test", f.test)); err != nil {
			return err
		}
		if err := f.loadParameters(f.ranks[0].params.initial(f.Seed)); err != nil {
			return err
		}
		return f.measureScales(ctx, f.train)
	}
	if err := start(); err != nil {
		_ = f.close() // says no more than err
		return nil, err
	}
	return f, nil
}

func (f *fitting) epochs(ctx context.Context, report Report) error {
	validate := hasRows(f.valid[0])
	for epoch := 1; epoch <= f.Epochs; epoch++ {
		e := Epoch{Number: epoch}
		if err := f.trainEpoch(ctx, &e); err != nil {
			return err
		}
		if validate && (epoch%f.EvalEvery == 0 || epoch == f.Epochs) {
			start := time.Now()
			loss, accuracy, err := f.evaluate(ctx, f.valid)
			if err != nil {
				return fmt.Errorf("validation in epoch %d: %w", epoch, err)
			}
			if e.Valid = accuracy.Fraction(); e.Valid != nil {
				e.ValidLoss = loss / float64(accuracy.Rows)
			}
			e.Seconds += f.addStageTime("validate", start)
		}
		// Without validation, the newest.
		if epoch == 1 || e.better(f.history[f.bestIndex]) {
			e.Best = true
			f.bestIndex = epoch - 1
			for _, n := range f.ranks {
				n.stream.Copy(n.params.best, n.params.value)
			}
		}
		f.history = append(f.history, e)
		if report != nil {
			report(e, func() (*Result, error) { return f.result(ctx) })
		}
		if f.Patience > 0 && e.Valid != nil && epoch-1-f.bestIndex >= f.Patience {
			break
		}
	}
	return nil
}

// better tells whether an epoch is selected rather than an earlier one: if its validation
// accuracy is higher or, at the same accuracy, its validation loss is lower. As long as no
// epoch was validated, the later one is.
func (e Epoch) better(than Epoch) bool {
	switch {
	case than.Valid == nil:
		return true
	case e.Valid == nil:
		return false
	}
	return *e.Valid > *than.Valid || *e.Valid == *than.Valid && e.ValidLoss < than.ValidLoss
}

func (f *fitting) trainEpoch(ctx context.Context, e *Epoch) error {
	start := time.Now()
	f.resetMeters()
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
		if err := n.checkBatch(b); err != nil {
			return err
		}
		rows += int64(b.Rows)
		// A different seed for each step and rank, so that no two drop out the same elements.
		n.gradient(b, rng.Hash(dropoutSeed, uint64((f.stepCount+1)*len(f.ranks)+rank)))
		return nil
	}, func() error {
		f.stepCount++
		return f.adamStep(ctx, f.adamOptions(f.stepCount))
	})
	var loss float64
	if err == nil {
		loss, _, err = f.readMeters(ctx)
	}
	if err != nil {
		return fmt.Errorf("epoch %d: %w", e.Number, err)
	}
	e.TrainLoss = loss / float64(rows)
	e.Seconds = f.addStageTime("compute", start)
	e.TrainSeconds = e.Seconds
	f.stageSeconds["compute"] -= waited.Seconds()
	f.stageSeconds["load_wait"] += waited.Seconds()
	if math.IsNaN(e.TrainLoss) || math.IsInf(e.TrainLoss, 0) {
		return f.diverged(fmt.Sprintf("the loss is %v in epoch %d", e.TrainLoss, e.Number))
	}
	return nil
}

func (f *fitting) diverged(how string) error {
	return fmt.Errorf("%w: %s: try a learning rate below %v, and check that the features are finite and of moderate size", ErrDiverged, how, f.LearningRate)
}

// adamOptions are the settings of a step; the first step is 1.
func (o Options) adamOptions(step int) gds.AdamOptions {
	return gds.AdamOptions{
		LearningRate: float32(o.LearningRate), Beta1: beta1, Beta2: beta2, Epsilon: epsilon,
		WeightDecay: float32(o.WeightDecay), Step: step,
	}
}

func (f *fitting) addStageTime(stage string, start time.Time) float64 {
	seconds := time.Since(start).Seconds()
	f.stageSeconds[stage] += seconds
	return seconds
}

// measureTest evaluates the selected parameters on the test rows.
func (f *fitting) measureTest(ctx context.Context) error {
	for _, n := range f.ranks {
		n.stream.Copy(n.params.value, n.params.best)
	}
	if !hasRows(f.test[0]) {
		return nil
	}
	start := time.Now()
	_, accuracy, err := f.evaluate(ctx, f.test)
	if err != nil {
		return fmt.Errorf("test: %w", err)
	}
	f.testMetric = accuracy.Fraction()
	f.addStageTime("test", start)
	return nil
}

// result summarizes the epochs that have ended, and reads the selected parameters from the
// device. It is nil if no epoch has ended.
func (f *fitting) result(ctx context.Context) (*Result, error) {
	if len(f.history) == 0 {
		return nil, nil
	}
	best := f.history[f.bestIndex]
	r := &Result{
		Spec: f.ranks[0].spec, Options: f.Options, Scales: f.ranks[0].scales, Metric: MetricName,
		Epochs: len(f.history), BestEpoch: best.Number, Selection: SelectedLast,
		TrainLoss: best.TrainLoss, ValidMetric: best.Valid, TestMetric: f.testMetric,
		History: f.history, StageSeconds: f.stageSeconds,
	}
	if best.Valid != nil {
		r.Selection = SelectedByValidation
	}
	var err error
	if r.Parameters, err = f.ranks[0].params.read(f.ranks[0].mem.dev, f.ranks[0].stream, f.ranks[0].params.best); err != nil {
		return nil, f.rankError(0, err)
	}
	for _, v := range r.Parameters {
		// The loss does not show it: it was computed before the last step.
		if v := float64(v); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, f.diverged(fmt.Sprintf("parameters are %v after epoch %d", v, best.Number))
		}
	}
	whole, train := make([]float64, len(f.history)), make([]float64, len(f.history))
	for i, e := range f.history {
		whole[i], train[i] = e.Seconds, e.TrainSeconds
	}
	r.EpochSeconds = median(whole)
	r.RowsPerSecond = float64(f.train[0].Rows()) / max(median(train), 1e-9)
	r.LoadWaitSeconds = f.stageSeconds["load_wait"]
	r.ConvergenceEpoch = convergence(f.history)
	r.PeakDeviceBytes = f.peakBytes()
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
