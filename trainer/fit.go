package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
)

// ErrDiverged is returned when the loss is no longer a finite number.
var ErrDiverged = errors.New("training diverged")

// ErrPaused is returned when training stops because it was asked to.
var ErrPaused = errors.New("training is paused")

// Report is called as each epoch ends. best returns the result so far, without a test, as Fit would if training ended
// here. It copies the parameters from the device, so call it only for a result that is used. It is valid until Report
// returns.
type Report func(e Epoch, best func() (*Result, error))

// Fit trains a model on one rank or more, from initial values that the seed determines, and returns the parameters of
// the selected epoch: the epoch with the best validation metric and, among equals, the lowest validation loss; without
// validation rows, the last epoch. It frees all device memory before it returns. Report may be nil.
//
// If training ends early (ctx ends, the loss diverges, a batch cannot be read), Fit returns the error and, if any epoch
// has ended, the result of those epochs, without a test.
func Fit(ctx context.Context, ranks []Rank, spec Spec, o Options, report Report) (result *Result, err error) {
	f, err := Start(ctx, ranks, spec, o)
	if err != nil {
		return nil, err
	}
	err = f.Train(ctx, report)
	result, readErr := f.Result()
	closeErr := f.Close()
	if err == nil {
		err = cmp.Or(readErr, closeErr)
	}
	return result, err
}

// Fitting is a run of training that can be stopped between any two batches, by the end of the
// context of Train, and be continued: by Train again, or elsewhere, from its State. However often
// it was stopped, a run gives the same parameters, history and result, bit for bit.
type Fitting struct {
	*group
	task               task
	train, valid, test []Epocher // of each rank
	state              State     // without the vectors, which are on the devices
	testMetric         *float64
	importance         []Importance    // of each matrix, if it was measured
	queues             *gradientQueues // nil: ranks meet at each batch
	times              QueueTimes
}

// Start prepares a run: memory, initial parameters, scales of the input.
func Start(ctx context.Context, ranks []Rank, spec Spec, o Options) (*Fitting, error) {
	f, err := newFitting(ranks, spec, o)
	if err != nil {
		return nil, err
	}
	f.state.Epoch.Number = 1
	initial := f.ranks[0].params.initial(o.Seed)
	err = f.firstBatch(ctx, f.train, func(shares []*loader.Batch) (err error) {
		f.state.Inputs, err = f.measureInputs(ctx, shares, f.task.standardize)
		if r := f.ranks[0].rescaled; err == nil && r != nil {
			err = r.measure(f.group, shares, initial)
		}
		return err
	})
	if err == nil {
		err = f.eachRank(func(n *network) error {
			if err := n.upload(n.params.value, initial); err != nil {
				return err
			}
			err := n.setInputs(f.state.Inputs)
			n.restore()
			return err
		})
	}
	if err != nil {
		return f.failed(err)
	}
	return f, nil
}

// failed is a run that cannot begin.
func (f *Fitting) failed(err error) (*Fitting, error) {
	_ = f.Close() // says no more than err
	return nil, err
}

// newFitting gets the memory of a run, and checks its rows.
func newFitting(ranks []Rank, spec Spec, o Options) (f *Fitting, err error) {
	o, t, err := o.validate(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	f = &Fitting{task: t}
	var devices []gds.Device
	batchRows := 0
	for _, r := range ranks {
		devices, batchRows = append(devices, r.Device), max(batchRows, r.BatchRows)
		f.train, f.valid, f.test = append(f.train, r.Train), append(f.valid, r.Valid), append(f.test, r.Test)
	}
	if f.group, err = newGroup(devices, spec, batchRows, t); err != nil {
		return nil, err
	}
	err = errors.Join(f.checkSets("training", f.train), f.checkSets("validation", f.valid), f.checkSets("test", f.test))
	if !hasRows(f.train[0]) {
		err = errors.New("there are no training rows: choose another split")
	}
	if err == nil && o.Queues != nil {
		f.queues, err = f.newGradientQueues(o.Queues.Lag + 1)
	}
	if err != nil {
		return f.failed(err)
	}
	rows := f.train[0].Rows()
	labelled := cmp.Or(ranks[0].TrainLabelled, rows)
	if labelled < 0 || labelled > rows {
		return f.failed(fmt.Errorf("%w: %d of %d training rows have a label", ErrOptions, labelled, rows))
	}
	for _, n := range f.ranks {
		n.trainRows, n.labelledPart = rows, float32(float64(labelled)/float64(rows))
	}
	f.state = State{Spec: f.ranks[0].spec, Options: o, TrainRows: rows, TrainLabelled: labelled,
		StageSeconds: map[string]float64{}}
	return f, nil
}

// Close waits for all work, and frees all memory.
func (f *Fitting) Close() error {
	err := f.group.close()
	if f.queues != nil {
		err = errors.Join(err, f.queues.mem.Free())
	}
	return err
}

// Time says how long gradients take, and gets how long they took, if ranks train by queues. It is called before Train.
func (f *Fitting) Time(t QueueTimes) { f.times = t }

// Show tells of validations and tests that take long. It is called before Train.
func (f *Fitting) Show(to progress.Reporter) { f.progress = to }

// Train trains until the run is finished, and tests the selected parameters. An error stops it
// between two batches; unless a device has failed or the loss has diverged, Train can then be called
// again, and State be taken. Report may be nil.
func (f *Fitting) Train(ctx context.Context, report Report) error {
	return f.TrainUntil(ctx, func() bool { return false }, report)
}

// TrainUntil is Train that asks pause after each batch of training, and before validation: if it is true,
// it returns ErrPaused. Validation and test are not paused, since they would begin anew.
func (f *Fitting) TrainUntil(ctx context.Context, pause func() bool, report Report) error {
	s := &f.state
	for !s.finished() {
		if !s.Trained {
			if err := f.trainEpoch(ctx, pause); err != nil {
				return err
			}
			if pause() {
				return ErrPaused
			}
		}
		if err := f.validate(ctx); err != nil {
			return fmt.Errorf("validation in epoch %d: %w", s.Epoch.Number, err)
		}
		e := f.endEpoch()
		if report != nil {
			report(e, f.Result)
		}
	}
	if err := f.measureTest(ctx); err != nil {
		return fmt.Errorf("test: %w", err)
	}
	return nil
}

// trainEpoch trains on the remaining batches of the epoch.
func (f *Fitting) trainEpoch(ctx context.Context, pause func() bool) error {
	s := &f.state
	e, start := &s.Epoch, time.Now()
	if s.Batch == 0 {
		f.resetLoss()
	}
	first := s.Batch
	train := f.trainTogether
	if s.Options.Queues != nil {
		train = f.trainQueued
	}
	waited, err := train(ctx, first, pause)
	var loss float64
	if err == nil || errors.Is(err, ErrPaused) {
		var lossErr error
		if loss, lossErr = f.readLoss(ctx); lossErr == nil {
			lossErr = f.checkLoss(loss, first)
		}
		err = cmp.Or(lossErr, err)
	}
	seconds := s.addStageTime("compute", start)
	e.Seconds, e.TrainSeconds = e.Seconds+seconds, e.TrainSeconds+seconds
	s.StageSeconds["compute"] -= waited.Seconds()
	s.StageSeconds["load_wait"] += waited.Seconds()
	switch {
	case errors.Is(err, ErrDiverged): // it says when
		return err
	case err != nil:
		return fmt.Errorf("epoch %d: %w", e.Number, err)
	}
	e.TrainLoss = loss / (float64(max(1, s.Rows)) * float64(f.ranks[0].labelledPart))
	s.Trained = true
	return nil
}

// trainTogether trains on the batches of an epoch from first on; after each, all ranks add up their gradients. It
// returns how long it waited for batches.
func (f *Fitting) trainTogether(ctx context.Context, first int, pause func() bool) (waited time.Duration, err error) {
	s := &f.state
	e := &s.Epoch
	if from := s.Options.ProfileFrom; from > 0 && e.Number >= from {
		if e.StepSeconds == nil {
			e.StepSeconds = map[string]float64{}
		}
		p := &profile{since: time.Now(), seconds: e.StepSeconds}
		for _, n := range f.ranks {
			n.profile = p
		}
	}
	dropoutSeed := rng.Derive(s.Options.Seed, "dropout")
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var begun time.Time // the batch, on all ranks
	return f.eachBatch(watched, f.train, e.Number-1, first, func(n *network, b *loader.Batch) {
		if n.rank == 0 {
			begun = time.Now()
		}
		// eachBatch has waited for the batch before the last one.
		if done := b.Index - 2; done >= first && !n.lossIsFinite(done) {
			stop(f.divergedAt(done))
		}
		// A different seed for each step and rank, so that no two drop out the same elements.
		step := s.Steps + 1
		n.trainBatch(b, rng.Hash(dropoutSeed, uint64(step*len(f.ranks)+n.rank)), f.stepOptions(step, s.Rows))
		e.Traffic.Add(b.Traffic)
		n.watchLoss(b.Index)
	}, func(b *loader.Batch) error {
		// The step is made, even if the time that it takes is cut short.
		s.Steps++
		s.Batch = b.Index + 1
		s.Rows += int64(b.GlobalRows)
		if err := f.awaitPace(ctx, begun, e.Number-1, b.Index); err != nil {
			return err
		}
		if s.Rows < s.TrainRows && pause() {
			return ErrPaused
		}
		return nil
	})
}

// awaitPace waits until all ranks, whose devices may be emulated, have had the time that a batch takes them.
func (f *Fitting) awaitPace(ctx context.Context, begun time.Time, epoch, batch int) error {
	if f.times.Pace == nil {
		return nil
	}
	longest := time.Duration(0)
	for rank := range f.ranks {
		longest = max(longest, f.times.Pace(rank, epoch, batch))
	}
	return pipeline.Until(begun.Add(longest)).Wait(ctx)
}

// checkLoss returns an error if the sum of losses, now that the devices are done, is no finite number.
// It names the batch, if that was trained on since batch first.
func (f *Fitting) checkLoss(sum float64, first int) error {
	if isFinite(sum) {
		return nil
	}
	batch := max(first, f.state.Batch-watchedBatches)
	found := func() bool {
		return slices.ContainsFunc(f.ranks, func(n *network) bool { return !n.lossIsFinite(batch) })
	}
	for batch < f.state.Batch-1 && !found() {
		batch++
	}
	return f.divergedAt(max(0, min(batch, f.state.Batch-1)))
}

// stepOptions are the settings of a step of this epoch; rows of the epoch were trained on before it.
func (f *Fitting) stepOptions(step int, rows int64) stepOptions {
	s := &f.state
	passed := float64(s.Epoch.Number-1) + min(1, float64(rows)/float64(s.TrainRows)) // samplers may choose more rows
	rate := s.Options.LearningRate * f.task.schedule(passed, s.Options.Epochs) * warmUp(passed, s.Options.WarmUp)
	return stepOptions{number: step, learningRate: rate, weightDecay: s.Options.WeightDecay, clip: s.Options.ClipNorm}
}

// DivergedError is ErrDiverged, found after a step of training.
type DivergedError struct {
	Epoch int // from 1
	Batch int // of the epoch, from 0: the first after which the sum of losses was no finite number
	text  string
}

func (e *DivergedError) Error() string { return e.text }
func (e *DivergedError) Unwrap() error { return ErrDiverged }

func (f *Fitting) divergedAt(batch int) error {
	epoch := f.state.Epoch.Number
	text := f.diverged(fmt.Sprintf("the loss is no finite number in epoch %d, batch %d", epoch, batch+1)).Error()
	return &DivergedError{epoch, batch, text}
}

func (f *Fitting) diverged(how string) error {
	return fmt.Errorf("%w: %s: try a learning rate below %v, "+
		"and check that the features are finite and of moderate size", ErrDiverged, how, f.state.Options.LearningRate)
}

// validate evaluates the epoch, if it is one to be validated.
func (f *Fitting) validate(ctx context.Context) error {
	s := &f.state
	e, start := &s.Epoch, time.Now()
	if !hasRows(f.valid[0]) || e.Number%s.Options.EvalEvery != 0 && e.Number != s.Options.Epochs {
		return nil
	}
	found, err := f.evaluate(ctx, "validation rows", f.valid)
	e.Seconds += s.addStageTime("validate", start)
	if err != nil {
		return err
	}
	if e.Valid = found.score(f.task.metric).Value; e.Valid != nil {
		e.ValidLoss = found.meanLoss()
	}
	return nil
}

// endEpoch adds the epoch to the history, and selects it if it is the best so far or, without validation, the newest.
func (f *Fitting) endEpoch() Epoch {
	s := &f.state
	e := s.Epoch
	if len(s.History) == 0 || e.better(s.History[s.Best], s.Options.Metric) {
		e.Best = true
		s.Best = len(s.History)
		for _, n := range f.ranks {
			n.stream.Copy(n.params.best, n.params.value)
		}
	}
	s.History = append(s.History, e)
	s.Epoch, s.Batch, s.Rows, s.Trained = Epoch{Number: e.Number + 1}, 0, 0, false
	return e
}

// better tells whether an epoch is selected rather than an earlier one: if its validation metric is better or, where it
// is the same, its validation loss is lower. As long as no epoch was validated, the later one is.
func (e Epoch) better(than Epoch, metric string) bool {
	switch {
	case than.Valid == nil:
		return true
	case e.Valid == nil:
		return false
	}
	return gain(metric, *e.Valid) > gain(metric, *than.Valid) || *e.Valid == *than.Valid && e.ValidLoss < than.ValidLoss
}

// measureTest evaluates the selected parameters on the test rows.
func (f *Fitting) measureTest(ctx context.Context) error {
	for _, n := range f.ranks {
		n.stream.Copy(n.params.value, n.params.best)
	}
	if !hasRows(f.test[0]) {
		return nil
	}
	start := time.Now()
	found, err := f.evaluate(ctx, "test rows", f.test)
	if err != nil {
		return err
	}
	f.testMetric = found.score(f.task.metric).Value
	f.state.addStageTime("test", start)
	return nil
}

// Result summarizes the epochs that have ended, and reads the selected parameters from the device. It is nil if no
// epoch has ended. It must not be called while Train trains, but by its report.
func (f *Fitting) Result() (*Result, error) {
	s := &f.state
	if len(s.History) == 0 {
		return nil, nil
	}
	best := s.History[s.Best]
	r := &Result{
		Trained: Trained{Spec: s.Spec, Options: s.Options, Scales: f.ranks[0].scales}, History: s.History,
		Figures: Figures{
			Epochs: len(s.History), BestEpoch: best.Number, Selection: SelectedLast, Metric: s.Options.Metric,
			TrainLoss: best.TrainLoss, ValidMetric: best.Valid, TestMetric: f.testMetric,
			StageSeconds: maps.Clone(s.StageSeconds), Submission: f.ranks[0].submission.reason,
			Importance: f.importance,
		},
	}
	if best.Valid != nil {
		r.Selection = "best validation " + s.Options.Metric
	}
	var err error
	if r.Parameters, err = f.ranks[0].download(f.ranks[0].params.best); err != nil {
		return nil, f.rankError(0, err)
	}
	for _, v := range r.Parameters {
		// The loss does not show it: it was computed before the last step.
		if !isFinite(v) {
			return nil, f.diverged(fmt.Sprintf("parameters are %v after epoch %d", v, best.Number))
		}
	}
	whole, train := make([]float64, len(s.History)), make([]float64, len(s.History))
	for i, e := range s.History {
		whole[i], train[i] = e.Seconds, e.TrainSeconds
		r.EpochTraffic.Add(e.Traffic)
	}
	r.EpochTraffic = r.EpochTraffic.Per(len(s.History))
	r.EpochSeconds = median(whole)
	r.RowsPerSecond = float64(s.TrainRows) / max(median(train), 1e-9)
	r.LoadWaitSeconds = s.StageSeconds["load_wait"]
	r.ConvergenceEpoch = convergence(s.History, s.Options.Metric)
	r.PeakDeviceBytes = f.peakBytes()
	return r, nil
}

// convergence is the first epoch that reached 99 % of the peak validation accuracy (preprop-gnn section 3.3 and
// Appendix B) or other metric; for an error or a loss, the first that reached the lowest value divided by 0.99. It is
// nil without validation.
func convergence(history []Epoch, metric string) *int {
	best := math.Inf(-1)
	for _, e := range history {
		if e.Valid != nil {
			best = max(best, gain(metric, *e.Valid))
		}
	}
	least := 0.99 * best
	if best < 0 {
		least = best / 0.99
	}
	for _, e := range history {
		if e.Valid != nil && gain(metric, *e.Valid) >= least {
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
