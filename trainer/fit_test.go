package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/loader"
)

var toySGC = Spec{Model: "sgc", Matrices: hops("sym", 0), Features: 4, Classes: 3}

func toySIGN(matrices int) Spec {
	return Spec{Model: "sign", Matrices: hops("sym", matrices-1), Features: 4, Classes: 3, Settings: signOf(16, 3, 0)}
}

func TestSGCLearnsSeparableClasses(t *testing.T) {
	dev := openDevice(t, host.Options{})
	train, valid, test := clusters(1, 60, 1, 4, 3, 0), clusters(2, 40, 1, 4, 3, 0), clusters(3, 50, 1, 4, 3, 0)
	train.shuffle = true
	r := mustFit(t, dev, toySGC, Data{Train: train.feed(dev, 16), Valid: valid.feed(dev, 16), Test: test.feed(dev, 16),
		BatchRows: 16}, Options{Epochs: 30, LearningRate: 0.05, Seed: 1})
	if *r.ValidMetric != 1 || *r.TestMetric != 1 {
		t.Errorf("validation %v, test %v", *r.ValidMetric, *r.TestMetric)
	}
	if r.Selection != "best validation accuracy" || r.Epochs != 30 || r.ConvergenceEpoch == nil ||
		*r.ConvergenceEpoch > r.BestEpoch {
		t.Errorf("%+v", r)
	}
}

func TestSIGNLearnsLabelsByHeart(t *testing.T) {
	dev := openDevice(t, host.Options{})
	data := noise(1, 40, 3, 4, 3)
	fed := data.feed(dev, 40)
	r := mustFit(t, dev, toySIGN(3), Data{Train: fed, Valid: fed, BatchRows: 40},
		Options{Epochs: 150, LearningRate: 0.02, Seed: 1})
	if *r.ValidMetric != 1 {
		t.Errorf("accuracy on the training rows %v", *r.ValidMetric)
	}
}

// TestOneLayerAndAdamFollowTheirDefinitions compares full-batch training of a linear classifier with the same written
// out in float64, on features that are centred and scaled beforehand.
func TestOneLayerAndAdamFollowTheirDefinitions(t *testing.T) {
	const rows, features, classes, epochs = 12, 4, 3, 4
	const rate, decay = 0.1, 0.01
	dev := openDevice(t, host.Options{})
	data := noise(3, rows, 1, features, classes)
	r := mustFit(t, dev, toySGC, Data{Train: data.feed(dev, rows), BatchRows: rows},
		Options{Epochs: epochs, LearningRate: rate, WeightDecay: decay, Seed: 9})

	_, declared, err := toySGC.normalized()
	if err != nil {
		t.Fatal(err)
	}
	var mean [features]float64
	squares := 0.0
	for i, x := range data.x[0] {
		mean[i%features] += float64(x) / rows
	}
	for i, x := range data.x[0] {
		squares += math.Pow(float64(x)-mean[i%features], 2)
	}
	scale := 1 / math.Sqrt(squares/rows) // the root mean square length of a centred row becomes one
	if math.Abs(float64(r.Scales[0])/scale-1) > 1e-6 {
		t.Errorf("scale %v, want %v", r.Scales[0], scale)
	}
	var w [classes*features + classes]float64 // weights [classes, features], then biases
	for i, v := range declared.params.initial(9) {
		w[i] = float64(v)
	}
	var m, v [len(w)]float64
	for step := 1; step <= epochs; step++ {
		var grad [len(w)]float64
		loss := 0.0
		for i := range rows {
			var x [features]float64
			for j, v := range data.x[0][i*features : (i+1)*features] {
				x[j] = scale * (float64(v) - mean[j])
			}
			var p [classes]float64
			sum := 0.0
			for c := range p {
				z := w[classes*features+c]
				for j := range x {
					z += w[c*features+j] * x[j]
				}
				p[c] = math.Exp(z)
				sum += p[c]
			}
			loss -= math.Log(p[data.labels[i]]/sum) / rows
			for c := range p {
				d := p[c] / sum
				if int32(c) == data.labels[i] {
					d--
				}
				for j := range x {
					grad[c*features+j] += d * x[j] / rows
				}
				grad[classes*features+c] += d / rows
			}
		}
		if got := r.History[step-1].TrainLoss; math.Abs(got-loss) > 1e-5 {
			t.Errorf("epoch %d: loss %v, want %v", step, got, loss)
		}
		for i := range w {
			g := grad[i]
			if i < classes*features { // biases do not decay
				g += decay * w[i]
			}
			m[i] = 0.9*m[i] + 0.1*g
			v[i] = 0.999*v[i] + 0.001*g*g
			w[i] -= rate * (m[i] / (1 - math.Pow(0.9, float64(step)))) / (math.Sqrt(v[i]/(1-math.Pow(0.999,
				float64(step)))) + 1e-8)
		}
	}
	// What is kept is a layer of the features as they are, but for the scale.
	for c := range classes {
		for j, m := range mean {
			w[classes*features+c] -= scale * w[c*features+j] * m
		}
	}
	for i, got := range r.Parameters {
		if math.Abs(float64(got)-w[i]) > 1e-4 {
			t.Errorf("parameter %d: %v, want %v", i, got, w[i])
		}
	}
}

func TestARunIsAFunctionOfItsSeed(t *testing.T) {
	with := func(matrices int, settings Values, model string) Spec {
		return Spec{Model: model, Matrices: hops("sym", matrices-1), Features: 4, Classes: 3, Settings: settings}
	}
	for _, spec := range []Spec{with(2, signOf(16, 3, 0.3), "sign"), with(3, signOf(40, 3, 0.3), "gamlp"),
		with(4, hogaOf(40, 1, 2, 0.3), "hoga"), with(3, nil, "ssgc"),
		with(3, signOf(16, 3, 0.3), "nars")} {
		run := func(device host.Options, seed uint64) *Result {
			dev, matrices := openDevice(t, device), len(spec.Matrices)
			train, valid, test := clusters(1, 300, matrices, 4, 3, 0.2), clusters(2, 100, matrices, 4, 3, 0.2),
				clusters(3, 90, matrices, 4, 3, 0.2)
			train.shuffle = true
			return mustFit(t, dev, spec, Data{Train: train.feed(dev, 128), Valid: valid.feed(dev, 64),
				Test: test.feed(dev, 64), BatchRows: 128}, Options{Epochs: 2, LearningRate: 0.01, Seed: seed})
		}
		first := run(host.Options{Threads: 1}, 1)
		devices := []host.Options{{Threads: 1}, {Threads: 2}, {Threads: 5}, {Threads: 2, Discrete: true}}
		if testdevice.GPU { // which has one kind
			devices = devices[:1]
		}
		for _, device := range devices {
			again := run(device, 1)
			if !sameBits(first.Parameters, again.Parameters) || first.TrainLoss != again.TrainLoss ||
				*first.ValidMetric != *again.ValidMetric || *first.TestMetric != *again.TestMetric {
				t.Errorf("%s: on the device %+v the same seed gave another run", spec.Model, device)
			}
		}
		if sameBits(first.Parameters, run(host.Options{Threads: 1}, 2).Parameters) {
			t.Errorf("%s: another seed gave the same run", spec.Model)
		}
	}
}

func TestTheEpochWithTheBestValidationIsKept(t *testing.T) {
	dev := openDevice(t, host.Options{})
	// Few rows with wrong labels: the model overfits, and validation falls again.
	train, valid, test := clusters(1, 40, 2, 4, 3, 0.5), clusters(2, 200, 2, 4, 3, 0.3), clusters(3, 200, 2, 4, 3, 0.3)
	data := Data{Train: train.feed(dev, 40), Valid: valid.feed(dev, 100), Test: test.feed(dev, 100), BatchRows: 100}
	o := Options{Epochs: 60, LearningRate: 0.01, Seed: 4}
	r := mustFit(t, dev, toySIGN(2), data, o)

	best := 0
	for i, e := range r.History {
		if e.Number != i+1 || e.Valid == nil {
			t.Fatalf("epoch %d: %+v", i+1, e)
		}
		if so := r.History[best]; *e.Valid > *so.Valid || *e.Valid == *so.Valid && e.ValidLoss < so.ValidLoss {
			best = i
		}
		if e.Best != (best == i) {
			t.Errorf("epoch %d says best %t", i+1, e.Best)
		}
	}
	if best == len(r.History)-1 || *r.History[len(r.History)-1].Valid == *r.History[best].Valid {
		t.Fatal("validation did not fall: the test could not tell")
	}
	if r.BestEpoch != best+1 || *r.ValidMetric != *r.History[best].Valid || r.TrainLoss != r.History[best].TrainLoss {
		t.Errorf("selected epoch %d with %v, want %d with %v", r.BestEpoch, *r.ValidMetric, best+1,
			*r.History[best].Valid)
	}
	// Parameters and test metric are those of training for so many epochs.
	o.Epochs = r.BestEpoch
	short := mustFit(t, dev, toySIGN(2), Data{Train: data.Train, Test: data.Test, BatchRows: 100}, o)
	if !sameBits(r.Parameters, short.Parameters) || *r.TestMetric != *short.TestMetric {
		t.Error("the result is not that of the selected epoch")
	}
	// Patience stops so many epochs after the best, with the same result.
	o.Epochs, o.Patience = 60, 59-best
	if patient := mustFit(t, dev, toySIGN(2), data, o); patient.Epochs != 60 {
		t.Errorf("patience %d stopped after %d epochs", o.Patience, patient.Epochs)
	}
	o.Patience--
	if patient := mustFit(t, dev, toySIGN(2), data, o); patient.Epochs != best+1+o.Patience ||
		!sameBits(r.Parameters, patient.Parameters) {
		t.Errorf("patience %d stopped after %d epochs, best %d", o.Patience, patient.Epochs, best+1)
	}
	// Validation now and then, and at the end.
	o.Epochs, o.Patience, o.EvalEvery = 7, 0, 3
	sparse := mustFit(t, dev, toySIGN(2), data, o)
	for _, e := range sparse.History {
		if (e.Valid != nil) != (e.Number == 3 || e.Number == 6 || e.Number == 7) {
			t.Errorf("validation in epoch %d: %t", e.Number, e.Valid != nil)
		}
	}
	if sparse.BestEpoch != 3 && sparse.BestEpoch != 6 && sparse.BestEpoch != 7 {
		t.Errorf("selected epoch %d", sparse.BestEpoch)
	}
}

// TestOfEquallyAccurateEpochsTheOneWithTheLowestLossIsKept trains on classes that are told apart at once,
// so that accuracy stays at one while the loss falls.
func TestOfEquallyAccurateEpochsTheOneWithTheLowestLossIsKept(t *testing.T) {
	dev := openDevice(t, host.Options{})
	train, valid := clusters(1, 60, 1, 4, 3, 0), clusters(2, 40, 1, 4, 3, 0)
	data := Data{Train: train.feed(dev, 60), Valid: valid.feed(dev, 16), BatchRows: 60}
	r := mustFit(t, dev, toySGC, data, Options{Epochs: 40, LearningRate: 0.05, Patience: 3})
	if r.Epochs != 40 || r.BestEpoch != 40 || *r.ValidMetric != 1 || *r.History[30].Valid != 1 {
		t.Errorf("%d epochs, best %d with %v", r.Epochs, r.BestEpoch, *r.ValidMetric)
	}
	// The validation loss is that of the model: cross entropy, over the validation rows.
	same := mustFit(t, dev, toySGC, Data{Train: data.Train, Valid: data.Train, BatchRows: 60},
		Options{Epochs: 2, LearningRate: 1e-9})
	if a, b := same.History[0].ValidLoss, same.History[1].TrainLoss; math.Abs(a/b-1) > 1e-6 {
		t.Errorf("the validation loss is %v, the training loss of the same rows and parameters %v", a, b)
	}
}

func TestWithoutValidationTheLastEpochIsKept(t *testing.T) {
	unlabelled := clusters(2, 10, 1, 4, 3, 0)
	for i := range unlabelled.labels {
		unlabelled.labels[i] = -1
	}
	for _, c := range []struct {
		name        string
		valid, test *toy
	}{
		{"no sets", nil, nil},
		{"sets without rows", &toy{features: 4}, &toy{features: 4}},
		{"sets without labels", unlabelled, unlabelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := openDevice(t, host.Options{})
			data := Data{Train: clusters(1, 30, 1, 4, 3, 0).feed(dev, 10), BatchRows: 10}
			if c.valid != nil {
				data.Valid, data.Test = c.valid.feed(dev, 10), c.test.feed(dev, 10)
			}
			r := mustFit(t, dev, toySGC, data, Options{Epochs: 3, LearningRate: 0.01})
			if r.BestEpoch != 3 || r.Selection != SelectedLast || r.ConvergenceEpoch != nil ||
				r.TrainLoss != r.History[2].TrainLoss {
				t.Errorf("%+v", r)
			}
			text, err := json.Marshal(r)
			if err != nil || !strings.Contains(string(text), `"valid_metric":null,"test_metric":null`) {
				t.Errorf("%s, %v", text, err)
			}
			longer := mustFit(t, dev, toySGC, Data{Train: data.Train, BatchRows: 10},
				Options{Epochs: 2, LearningRate: 0.01})
			if sameBits(longer.Parameters, r.Parameters) {
				t.Error("two epochs and three give the same parameters")
			}
		})
	}
}

func TestUnlabelledRowsDoNotCountInAccuracy(t *testing.T) {
	dev := openDevice(t, host.Options{})
	test := clusters(3, 50, 1, 4, 3, 0)
	for i := range 20 {
		test.labels[i] = -1
	}
	r := mustFit(t, dev, toySGC, Data{Train: clusters(1, 60, 1, 4, 3, 0).feed(dev, 60), Test: test.feed(dev, 16),
		BatchRows: 60}, Options{Epochs: 40, LearningRate: 0.1})
	if *r.TestMetric != 1 {
		t.Errorf("accuracy %v", *r.TestMetric)
	}
}

// Training on rows that have no label, beside others, is training on the others: SGD shows by how much a loss is
// scaled.
func TestUnlabelledRowsDoNotCountInTheLoss(t *testing.T) {
	all := clusters(1, 60, 1, 4, 3, 0.1)
	labelled := *all
	labelled.x, labelled.labels = [][]float32{nil}, nil
	for i := range all.labels {
		if i%3 == 0 {
			all.labels[i] = -1
			continue
		}
		labelled.x[0] = append(labelled.x[0], all.x[0][i*4:(i+1)*4]...)
		labelled.labels = append(labelled.labels, all.labels[i])
	}
	o := Options{Epochs: 3, LearningRate: 0.1, WeightDecay: 0.01, Optimizer: "sgd", Standardize: "none"}
	for _, world := range []int{1, 2} {
		want := mustFitRanks(t, deal(openDevices(t, world), 60, &labelled, nil, nil), toySGC, o)
		ranks := deal(openDevices(t, world), 60, all, nil, nil)
		for i := range ranks {
			ranks[i].TrainLabelled = 40
		}
		got := mustFitRanks(t, ranks, toySGC, o)
		for i, v := range got.Parameters {
			if math.Abs(float64(v-want.Parameters[i])) > 1e-6 {
				t.Errorf("%d devices: parameter %d is %v, want %v", world, i, v, want.Parameters[i])
			}
		}
		if math.Abs(got.TrainLoss/want.TrainLoss-1) > 1e-6 {
			t.Errorf("%d devices: loss %v, want %v", world, got.TrainLoss, want.TrainLoss)
		}
	}
}

func TestADivergingRunSaysWhenAndWhatToTry(t *testing.T) {
	dev := openDevice(t, host.Options{})
	broken := clusters(1, 30, 1, 4, 3, 0)
	broken.x[0][17] = float32(math.NaN())
	for _, c := range []struct {
		name string
		spec Spec
		data *toy
		rate float64
		want string
	}{
		{"features that are no numbers", toySGC, broken, 0.01,
			"training diverged before it began: x/hop-0 holds values that are not finite"},
		{"features that are no numbers, of several layers", toySIGN(1), broken, 0.01,
			"training diverged before it began: x/hop-0 holds values that are not finite"},
		{"a learning rate far too high", toySGC, clusters(1, 30, 1, 4, 3, 0), 1e38,
			"in epoch 2, batch 1: try a learning rate below 1e+38"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Fit(t.Context(), []Rank{{dev, Data{Train: c.data.feed(dev, 30), BatchRows: 30}}}, c.spec,
				Options{Epochs: 5, LearningRate: c.rate}, nil)
			if !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestTrainingStopsBetweenBatches(t *testing.T) {
	failure := errors.New("the disk is on fire")
	reason := errors.New("enough")
	for _, c := range []struct {
		name   string
		hook   func(cancel context.CancelCauseFunc) func(epoch, batch int) error
		want   error
		prefix string
	}{
		{"when the context ends", func(cancel context.CancelCauseFunc) func(int, int) error {
			return func(epoch, batch int) error {
				if epoch == 1 && batch == 2 {
					cancel(reason)
				}
				if epoch > 1 || epoch == 1 && batch > 2 {
					t.Errorf("epoch %d, batch %d was asked for", epoch, batch)
				}
				return nil
			}
		}, reason, "epoch 2: "},
		{"when a batch cannot be had", func(context.CancelCauseFunc) func(int, int) error {
			return func(epoch, batch int) error {
				if epoch == 2 && batch == 1 {
					return failure
				}
				return nil
			}
		}, failure, "epoch 3: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			dev := openDevice(t, host.Options{}) // which reports memory that is not freed
			data := clusters(1, 30, 1, 4, 3, 0)
			data.hook = c.hook(cancel)
			r, err := Fit(ctx, []Rank{{dev, Data{Train: data.feed(dev, 8), BatchRows: 8}}}, toySGC,
				Options{Epochs: 9, LearningRate: 0.01}, nil)
			if r == nil || !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), c.prefix) {
				t.Errorf("got %v, %v", r, err)
			}
		})
	}
}

// severalLabels is a set of a multi-label store, whose labels are int8 [rows, 5].
type severalLabels struct{ *toy }

func (s severalLabels) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for b, err := range s.toy.EpochFrom(ctx, stream, n, first) {
			if err == nil {
				b.Labels = gds.Tensor{Rows: b.Rows, Cols: 5, Stride: 5, DType: gds.Int8}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func TestBadInputToTrainingIsAnError(t *testing.T) {
	dev := openDevice(t, host.Options{})
	data := clusters(1, 30, 1, 4, 3, 0)
	outOfRange := clusters(1, 30, 1, 4, 3, 0)
	outOfRange.labels[4] = 3
	o := Options{Epochs: 2, LearningRate: 0.01}
	for _, c := range []struct {
		name  string
		train Epocher
		spec  Spec
		batch int
		o     Options
		want  string // an ErrOptions begins with its text
	}{
		{"no training rows", &toy{features: 4}, toySGC, 8, o, "no training rows"},
		{"no training set", nil, toySGC, 8, o, "no training rows"},
		{"no epochs", data.feed(dev, 8), toySGC, 8, Options{LearningRate: 1}, "unusable options: 0 epochs"},
		{"no learning rate", data.feed(dev, 8), toySGC, 8, Options{Epochs: 1}, "unusable options: learning rate 0"},
		{"negative weight decay", data.feed(dev, 8), toySGC, 8, Options{Epochs: 1, LearningRate: 1, WeightDecay: -1},
			"unusable options: weight decay -1"},
		{"negative patience", data.feed(dev, 8), toySGC, 8, Options{Epochs: 1, LearningRate: 1, Patience: -1},
			"unusable options: validation every 1 epochs with patience -1"},
		{"no batch rows", data.feed(dev, 8), toySGC, 0, o, "unusable options: batches of at most 0 rows"},
		{"batches larger than said", data.feed(dev, 16), toySGC, 8, o,
			"first batch: batch 0: 16 rows, but memory for 8"},
		{"too few matrices", data.feed(dev, 8), toySIGN(2), 8, o, "1 matrices, but sign was made for 2"},
		{"other features", data.feed(dev, 8), Spec{Model: "sgc", Matrices: hops("sym", 0), Features: 5, Classes: 3}, 8,
			o, "x/hop-0 is [8,4]"},
		{"a label that is no class", outOfRange.feed(dev, 8), toySGC, 8, o, "label 3"},
		{"several labels a row", severalLabels{data.feed(dev, 8)}, toySGC, 8, o,
			"batch 0: labels [8,5]int8(stride 5, offset 0), but sgc was made for 3 classes (int32)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Fit(t.Context(), []Rank{{dev, Data{Train: c.train, BatchRows: c.batch}}}, c.spec, c.o, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				errors.Is(err, ErrOptions) != strings.HasPrefix(c.want, "unusable options") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if used := dev.Usage().InUse; used != 0 {
				t.Errorf("%d bytes still in use", used)
			}
		})
	}
}

func TestModelsAreIndifferentToUnitAndOriginOfTheirFeatures(t *testing.T) {
	for _, spec := range []Spec{toySIGN(3), {Model: "sgc", Matrices: hops("sym", 2), Features: 4, Classes: 3}, toySSGC,
		toyGAMLP, toyHOGA, toyNARS} {
		t.Run(spec.Model, func(t *testing.T) {
			dev := openDevice(t, host.Options{})
			data := clusters(1, 60, 3, 4, 3, 0.1)
			clear(data.x[2]) // a matrix of zeros has no unit
			fit := func() *Result {
				fed := data.feed(dev, 16)
				o := Options{Epochs: 3, LearningRate: 0.01, WeightDecay: 0.01}
				if spec.Model == "hoga" {
					// Gradients of some of its biases are rounding errors, as those of the keys, and
					// Adam makes whole steps of them.
					o.LearningRate = 0.001
				}
				return mustFit(t, dev, spec, Data{Train: fed, Valid: fed, BatchRows: 16}, o)
			}
			r := fit()
			for k, x := range data.x[:2] {
				var mean [4]float64
				for i, v := range x[:16*4] { // the first batch, in order
					mean[i%4] += float64(v) / 16
				}
				squares := 0.0
				for i, v := range x[:16*4] {
					squares += math.Pow(float64(v)-mean[i%4], 2)
				}
				want := 1 / math.Sqrt(squares/16) // SGC's rows have a length of one
				if k, _ := findKind(spec.Model); k.size(4) == 1 {
					want *= math.Sqrt(4) // SIGN's elements a size of one
				}
				if math.Abs(float64(r.Scales[k])/want-1) > 1e-6 {
					t.Errorf("matrix %d is multiplied by %v, want %v", k, r.Scales[k], want)
				}
			}
			if r.Scales[2] != 1 {
				t.Errorf("zeros are multiplied by %v", r.Scales[2])
			}
			for i := range data.x[1] {
				data.x[1][i] /= 1024 // exact
			}
			if other := fit(); !sameBits(r.Parameters, other.Parameters) || other.Scales[1] != 1024*r.Scales[1] {
				t.Errorf("in another unit the run is another: %v, %v", r.Scales, other.Scales)
			}
			for i := range data.x[0] {
				data.x[0][i] += float32(int(16) << (i % 4))
			}
			if other := fit(); math.Abs(other.TrainLoss/r.TrainLoss-1) > 1e-3 ||
				math.Abs(other.History[0].TrainLoss/r.History[0].TrainLoss-1) > 1e-3 {
				t.Errorf("around other means the loss is %v, not %v", other.TrainLoss, r.TrainLoss)
			}
		})
	}
}

// TestTestRowsAreReadOnce also counts the other rows: training rows are begun once to be measured.
func TestTestRowsAreReadOnce(t *testing.T) {
	dev := openDevice(t, host.Options{})
	train, valid, test := clusters(1, 30, 1, 4, 3, 0).feed(dev, 10), clusters(2, 30, 1, 4, 3, 0).feed(dev, 10),
		clusters(3, 30, 1, 4, 3, 0).feed(dev, 10)
	mustFit(t, dev, toySGC, Data{Train: train, Valid: valid, Test: test, BatchRows: 10},
		Options{Epochs: 4, LearningRate: 0.01, EvalEvery: 2})
	if train.epochs != 1+4 || valid.epochs != 2 || test.epochs != 1 {
		t.Errorf("%d, %d and %d epochs", train.epochs, valid.epochs, test.epochs)
	}
}

func TestConvergenceIsTheFirstEpochNearThePeak(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		name  string
		valid []*float64
		want  int // 0: none
	}{
		{"the first within one percent", []*float64{at(0.5), at(0.79), at(0.793), at(0.8), at(0.7)}, 3},
		{"epochs without validation are skipped", []*float64{nil, at(0.1), nil, at(0.9)}, 4},
		{"never right", []*float64{at(0), at(0)}, 1},
		{"no validation", []*float64{nil, nil}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var history []Epoch
			for i, v := range c.valid {
				history = append(history, Epoch{Number: i + 1, Valid: v})
			}
			got := 0
			if e := convergence(history, "accuracy"); e != nil {
				got = *e
			}
			if got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestTheBetterRunHasTheBetterValidationOrElseTheLowerLoss(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		name     string
		r, other Figures
		want     bool
	}{
		{"more", Figures{TrainLoss: 9, ValidMetric: at(0.6)}, Figures{ValidMetric: at(0.5)}, true},
		{"as much", Figures{ValidMetric: at(0.5)}, Figures{TrainLoss: 9, ValidMetric: at(0.5)}, false},
		{"only one was validated", Figures{TrainLoss: 9, ValidMetric: at(0)}, Figures{}, true},
		{"only the other was", Figures{}, Figures{TrainLoss: 9, ValidMetric: at(0)}, false},
		{"a lower loss", Figures{TrainLoss: 1}, Figures{TrainLoss: 2}, true},
		{"the same loss", Figures{TrainLoss: 1}, Figures{TrainLoss: 1}, false},
	} {
		if got := c.r.Better(&c.other); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestATrainingThatEndsEarlyGivesTheBestOfTheEpochsThatHaveEnded(t *testing.T) {
	reason := errors.New("enough")
	for _, c := range []struct {
		name  string
		valid bool
		stop  func(cancel context.CancelCauseFunc, d *toy) error
		want  error
	}{
		{"by the context", true, func(cancel context.CancelCauseFunc, _ *toy) error { cancel(reason); return nil },
			reason},
		{"by the context, without validation", false, func(cancel context.CancelCauseFunc,
			_ *toy) error {
			cancel(reason)
			return nil
		}, reason},
		{"by a batch that cannot be had", true, func(context.CancelCauseFunc, *toy) error { return reason }, reason},
		{"by divergence", true, func(_ context.CancelCauseFunc,
			d *toy) error {
			d.x[0][len(d.x[0])-1] = float32(math.NaN())
			return nil
		}, ErrDiverged},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			dev := openDevice(t, host.Options{})
			train, valid := clusters(1, 40, 1, 4, 3, 0.3), clusters(2, 100, 1, 4, 3, 0.3)
			o := Options{Epochs: 9, LearningRate: 0.05, Seed: 1}
			stopping := *train
			stopping.x = [][]float32{append([]float32(nil), train.x[0]...)}
			stopping.hook = func(epoch, batch int) error {
				if epoch == 5 && batch == 1 {
					return c.stop(cancel, &stopping)
				}
				return nil
			}
			data := func(train *toy) Data {
				d := Data{Train: train.feed(dev, 10), Test: valid.feed(dev, 50), BatchRows: 50}
				if c.valid {
					d.Valid = valid.feed(dev, 50)
				}
				return d
			}
			r, err := Fit(ctx, []Rank{{dev, data(&stopping)}}, toySGC, o, nil)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if r == nil || r.Epochs != 5 || len(r.History) != 5 || r.TestMetric != nil {
				t.Fatalf("got %+v", r)
			}
			// It is what training for so many epochs gives, but for the test.
			o.Epochs = 5
			short := mustFit(t, dev, toySGC, data(train), o)
			if !sameBits(r.Parameters, short.Parameters) || r.BestEpoch != short.BestEpoch ||
				c.valid != (r.ValidMetric != nil) || c.valid && *r.ValidMetric != *short.ValidMetric {
				t.Errorf("epoch %d of 5, but %d when trained for 5", r.BestEpoch, short.BestEpoch)
			}
		})
	}
}

func TestTheBestSoFarIsThatOfAShorterTraining(t *testing.T) {
	dev := openDevice(t, host.Options{})
	train, valid := clusters(1, 40, 1, 4, 3, 0.5), clusters(2, 100, 1, 4, 3, 0.3)
	data := Data{Train: train.feed(dev, 10), Valid: valid.feed(dev, 50), BatchRows: 50}
	o := Options{Epochs: 12, LearningRate: 0.05, Seed: 1}
	var then *Result
	last, err := Fit(t.Context(), []Rank{{dev, data}}, toySGC, o, func(e Epoch, best func() (*Result, error)) {
		if e.Number != 4 {
			return
		}
		var err error
		if then, err = best(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Epochs = 4
	short := mustFit(t, dev, toySGC, data, o)
	if then.Epochs != 4 || then.BestEpoch != short.BestEpoch || !sameBits(then.Parameters, short.Parameters) ||
		len(then.History) != 4 {
		t.Errorf("after 4 epochs: %+v", then)
	}
	if last.BestEpoch <= 4 || sameBits(last.Parameters, then.Parameters) {
		t.Fatal("nothing better came later: the test could not tell")
	}
}

func TestAModelThatIsNoNumbersIsNotGiven(t *testing.T) {
	dev := openDevice(t, host.Options{})
	data := clusters(1, 30, 1, 4, 3, 0)
	// The last step of an epoch, whose loss was finite, is one too far.
	r, err := Fit(t.Context(), []Rank{{dev, Data{Train: data.feed(dev, 30), BatchRows: 30}}}, toySGC,
		Options{Epochs: 1, LearningRate: 1e39}, nil)
	if r != nil || !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "epoch 1") {
		t.Errorf("%+v, %v", r, err)
	}
}
