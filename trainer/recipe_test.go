package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/loader"
)

// Every optimizer, every loss and every metric gives on several devices what it gives on one, with what
// else there is to choose; and the model learns.
func TestEveryRecipeLearnsTheSameOnAnyNumberOfDevices(t *testing.T) {
	for name, loss := range losses {
		for optimizer := range optimizers {
			for i, metric := range Choices("metric", loss.target) {
				spec := toySIGN(3)
				spec.Target, spec.Classes = loss.target, 2
				o := Options{Epochs: 4, LearningRate: 0.01, WeightDecay: 1e-4, Seed: 3, Optimizer: optimizer,
					Loss: name, Metric: metric,
					Schedule: "cosine", WarmUp: 1, ClipNorm: 0.5,
					Standardize: []string{"matrix", "column", "none"}[i%3]}
				if loss.target == ClassTarget {
					o.ClassWeights = []float64{0.5, 2}
				}
				sets := make([]*toy, 3)
				for i, rows := range []int{184, 65, 41} {
					sets[i] = clusters(uint64(i+1), rows, 3, 4, 2, 0.1).withTarget(loss.target, 2)
				}
				sets[0].shuffle = true
				what := fmt.Sprintf("%s, %s, %s", name, optimizer, metric)
				alone := mustFitRanks(t, deal(openDevices(t, 1), 20, sets[0], sets[1], sets[2]), spec, o)
				r := mustFitRanks(t, deal(openDevices(t, 3), 20, sets[0], sets[1], sets[2]), spec, o)
				for i, e := range r.History {
					if want := alone.History[i]; math.Abs(e.TrainLoss/want.TrainLoss-1) > 1e-3 ||
						math.Abs(*e.Valid-*want.Valid) > 1e-3*math.Abs(*want.Valid)+0.02 {
						t.Errorf("%s, epoch %d: loss %v, valid %v; on one device %v, %v", what, e.Number, e.TrainLoss,
							*e.Valid, want.TrainLoss, *want.Valid)
					}
				}
				if first, last := alone.History[0], alone.History[3]; !(last.TrainLoss < 0.98*first.TrainLoss) ||
					alone.Metric != metric || alone.TestMetric == nil {
					t.Errorf("%s: the loss goes from %v to %v, test %v", what, first.TrainLoss, last.TrainLoss,
						alone.TestMetric)
				}
			}
		}
	}
}

// The metric of a run is that of the outputs of its parameters.
func TestTheMetricOfARunIsThatOfItsPredictions(t *testing.T) {
	for target, about := range targets {
		spec := Spec{Model: "sgc", Matrices: hops("sym", 0), Features: 4, Classes: 2, Target: target}
		train, valid := clusters(1, 60, 1, 4, 2, 0.3).withTarget(target, 2),
			clusters(2, 50, 1, 4, 2, 0.3).withTarget(target, 2)
		for _, metric := range Choices("metric", target) {
			r := mustFitRanks(t, deal(openDevices(t, 2), 20, train, valid, nil), spec,
				Options{Epochs: 2, LearningRate: 0.1, Metric: metric})
			values := values64(widen(r.Parameters))
			x := make(rows64, 50)
			for i := range x {
				for _, v := range valid.x[0][i*4 : (i+1)*4] {
					x[i] = append(x[i], float64(r.Scales[0])*float64(v))
				}
			}
			out := logits64["sgc"](spec, values, []rows64{x}, 0)
			units := []float64{1, 1}
			if target == ValuesTarget {
				mean, unit := values[len(values)-4:], values[len(values)-2:]
				units = unit
				for _, row := range out {
					row[0], row[1] = mean[0]+unit[0]*row[0], mean[1]+unit[1]*row[1]
				}
			}
			var labels []byte
			for i := range 50 {
				labels = append(labels, valid.labelsOf(i)...)
			}
			want := 0.0
			if metric == lossMetric {
				names := map[Target]string{ClassTarget: "macro-f1", LabelsTarget: "macro-f1", ValuesTarget: "mae"}
				rows := scoreOf(names[target], spec, out.flat(), labels, 9).Rows
				want = loss64(about.loss, out, valid, units) / float64(rows)
			} else {
				name := metric
				if name == "accuracy" { // which the device counts
					name = "micro-f1"
				}
				want = *scoreOf(name, spec, out.flat(), labels, 9).Value
			}
			if math.Abs(*r.ValidMetric-want) > 1e-5*math.Abs(want) {
				t.Errorf("%s %s: %v, want %v", targets[target].several, metric, *r.ValidMetric, want)
			}
		}
	}
}

// Values in another unit, around another mean, give the same run: its outputs are in that unit.
func TestModelsAreIndifferentToUnitAndOriginOfValues(t *testing.T) {
	dev := openDevice(t, host.Options{})
	spec := toySIGN(2)
	spec.Target, spec.Classes = ValuesTarget, 2
	train := clusters(1, 60, 2, 4, 3, 0.1).withTarget(ValuesTarget, 2)
	fit := func() *Result {
		fed := train.feed(dev, 20)
		return mustFit(t, dev, spec, Data{Train: fed, Valid: fed, BatchRows: 20},
			Options{Epochs: 5, LearningRate: 0.01, WeightDecay: 0.01})
	}
	first := fit()
	inner := len(first.Parameters) - 4 // the rest are means and units
	for i := range train.values {
		train.values[i] *= 1024 // exact
	}
	r := fit()
	if !sameBits(r.Parameters[:inner], first.Parameters[:inner]) || r.TrainLoss != first.TrainLoss ||
		math.Abs(*r.ValidMetric/(1024*1024**first.ValidMetric)-1) > 1e-6 {
		t.Errorf("in another unit the run is another: loss %v, %v; valid %v, %v", r.TrainLoss, first.TrainLoss,
			*r.ValidMetric, *first.ValidMetric)
	}
	for j := range 2 {
		if r.Parameters[inner+j] != 1024*first.Parameters[inner+j] ||
			r.Parameters[inner+2+j] != 1024*first.Parameters[inner+2+j] {
			t.Errorf("mean and unit %v, before %v", r.Parameters[inner:], first.Parameters[inner:])
		}
	}
}

func TestClassWeightsMultiplyTheLossOfTheirRows(t *testing.T) {
	dev := openDevice(t, host.Options{})
	data := clusters(1, 60, 1, 4, 3, 0.2)
	fit := func(weights []float64) *Result {
		fed := data.feed(dev, 60)
		return mustFit(t, dev, toySGC, Data{Train: fed, BatchRows: 60},
			Options{Epochs: 1, LearningRate: 0.1, ClassWeights: weights})
	}
	sum := 0.0
	for class := range 3 {
		weights := make([]float64, 3)
		weights[class] = 1
		sum += fit(weights).TrainLoss
	}
	if want := fit(nil).TrainLoss; math.Abs(sum/want-1) > 1e-6 ||
		math.Abs(fit([]float64{2, 2, 2}).TrainLoss/want-2) > 1e-6 {
		t.Errorf("the losses of the classes add up to %v, want %v", sum, want)
	}
}

func TestColumnsAreStandardizedIfAskedFor(t *testing.T) {
	dev := openDevice(t, host.Options{})
	data := noise(1, 64, 1, 4, 3)
	for i := range data.x[0] {
		data.x[0][i] *= []float32{1, 4, 0.25, 0}[i%4]
	}
	for name, want := range map[string][]float32{"matrix": {1, 1, 1, 1}, "column": {1, 0.25, 4, 1},
		"none": {1, 1, 1, 1}} {
		f, err := Start(t.Context(), []Rank{{dev, Data{Train: data.feed(dev, 64), BatchRows: 64}}}, toySGC,
			Options{Epochs: 1, LearningRate: 0.1, Standardize: name})
		if err != nil {
			t.Fatal(err)
		}
		in := f.state.Inputs[0]
		untouched := in.Scale == 1 && slices.Equal(in.Mean, make([]float32, 4))
		if !slices.Equal(in.Factor, want) || untouched != (name == "none") {
			t.Errorf("%s: %+v, want the factors %v", name, in, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A loss that is no number stops the run within two batches, and the error says in which it was.
func TestDivergenceIsFoundInItsBatch(t *testing.T) {
	for _, world := range []int{1, 3} {
		for _, bad := range []int{0, 3, 4, 5} { // of 6 batches
			ranks := deal(openDevices(t, world), 10, clusters(1, 60, 1, 4, 3, 0), nil, nil)
			asked := 0
			ranks[world-1].Train.(*toy).spoils = func(epoch, batch int) bool {
				if epoch == 1 {
					asked = batch
				}
				return epoch == 1 && batch == bad
			}
			r, err := Fit(t.Context(), ranks, toySGC, Options{Epochs: 3, LearningRate: 0.01}, nil)
			var d *DivergedError
			if !errors.As(err, &d) || !errors.Is(err, ErrDiverged) || d.Epoch != 2 || d.Batch != bad || asked > bad+3 {
				t.Errorf("%d devices: %v, want batch %d; the last that was asked for is %d", world, err, bad, asked)
			}
			if r == nil || r.Epochs != 1 {
				t.Errorf("%d devices: the first epoch is lost: %+v", world, r)
			}
		}
	}
}

// However training is paused or resumed, a loss that is no number gets into no history, and where training is
// only paused, the error says in which batch it was.
func TestDivergenceIsFoundAcrossPauses(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		for bad := range 3 {
			train := clusters(1, 30, 1, 4, 3, 0)
			train.x[0] = slices.Clone(train.x[0])
			ranks := deal(openDevices(t, 1), 10, train, nil, nil)
			f, err := Start(t.Context(), ranks, toySGC, Options{Epochs: 1, LearningRate: 0.01})
			if err != nil {
				t.Fatal(err)
			}
			train.x[0][bad*40] = float32(math.NaN())
			pause := func() bool { return !resumed }
			for err = ErrPaused; errors.Is(err, ErrPaused); {
				err = f.TrainUntil(t.Context(), pause, nil)
			}
			if resumed { // as after an interruption when the last batch had just begun
				var s *State
				s, err = f.State()
				if err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				if f, err = Resume(ranks, s); err != nil {
					t.Fatal(err)
				}
				err = f.Train(t.Context(), nil)
			}
			var d *DivergedError
			if !errors.As(err, &d) || d.Epoch != 1 || !resumed && d.Batch != bad || len(f.state.History) > 0 {
				t.Errorf("resumed %t: %v, want batch %d", resumed, err, bad)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// What a step allocates are the events by which the loop stays two batches ahead of the device.
func TestStepsAllocateNothingButEvents(t *testing.T) {
	for _, optimizer := range []string{"adam", "adamw", "sgd"} {
		dev := openDevice(t, host.Options{Threads: 2})
		data := clusters(1, 40, 3, 4, 3, 0).feed(dev, 40)
		o := Options{Epochs: 1, LearningRate: 0.01, Optimizer: optimizer, ClipNorm: 1}
		f, err := Start(t.Context(), []Rank{{dev, Data{Train: data, BatchRows: 40}}}, toySIGN(3), o)
		if err != nil {
			t.Fatal(err)
		}
		before := dev.Usage()
		err = f.firstBatch(t.Context(), f.train, func(shares []*loader.Batch) error {
			run := func(batches int) float64 {
				return testing.AllocsPerRun(5, func() {
					_, err := f.eachBatch(t.Context(), []Epocher{repeated{shares[0], batches}}, 0, 0,
						func(n *network, b *loader.Batch) {
							n.trainBatch(b, 1, stepOptions{number: 1, learningRate: 0.01, clip: 1})
							n.watchLoss(b.Index)
						}, nil)
					if err == nil {
						err = f.synchronize(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
				})
			}
			run(3)
			most := 2.0 // for an event and its channel
			if testdevice.GPU {
				most = 14 // with what the driver calls when it is reached
			}
			if few, many := run(10), run(110); many-few > most*100+5 {
				t.Errorf("%s: %v allocations by 100 batches", optimizer, many-few)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if after := dev.Usage(); after.InUse != before.InUse || after.PinnedInUse != before.PinnedInUse {
			t.Errorf("%s: memory grows from %+v to %+v", optimizer, before, after)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
