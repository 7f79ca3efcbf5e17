package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

var toySGC3 = Spec{Model: "sgc", Matrices: hops("sym", 2), Features: 4, Classes: 3}

// openDevices are so many discrete devices that must be left clean by the test.
func openDevices(t testing.TB, n int) []gds.Device {
	t.Helper()
	devices := make([]gds.Device, n)
	for i := range devices {
		devices[i] = openDevice(t, host.Options{Discrete: true, Threads: 1 + i%2})
	}
	return devices
}

// sharedToys have a last batch of 4 rows, of batches of 20: fewer than 8 ranks.
func sharedToys() (train, valid, test *toy) {
	train, valid, test = clusters(1, 184, 3, 4, 3, 0.2), clusters(2, 65, 3, 4, 3, 0.2), clusters(3, 41, 3, 4, 3, 0.2)
	train.shuffle = true
	return train, valid, test
}

func TestAnyNumberOfDevicesLearnsTheSame(t *testing.T) {
	worlds := []int{2, 3, 8}
	if testdevice.GPU { // which is software in tests: 8 take long
		worlds = worlds[:2]
	}
	for _, spec := range []Spec{toySIGN(3), toySGC3, toySSGC, toyGAMLP, toyHOGA, toyNARS} {
		train, valid, test := sharedToys()
		o, tolerance := Options{Epochs: 4, LearningRate: 0.01, WeightDecay: 1e-4, Seed: 3}, 1e-4
		if spec.Model == "hoga" {
			// Gradients of some of its biases are rounding errors, as those of the keys, and Adam
			// makes whole steps of them.
			tolerance = 4e-3
		}
		alone := mustFitRanks(t, deal(openDevices(t, 1), 20, train, valid, test), spec, o)
		for _, world := range worlds {
			r := mustFitRanks(t, deal(openDevices(t, world), 20, train, valid, test), spec, o)
			for i, e := range r.History {
				if want := alone.History[i].TrainLoss; math.Abs(e.TrainLoss/want-1) > tolerance {
					t.Errorf("%s on %d devices, epoch %d: loss %v, on one %v", spec.Model, world, e.Number, e.TrainLoss,
						want)
				}
			}
			if *r.ValidMetric != *alone.ValidMetric || *r.TestMetric != *alone.TestMetric ||
				r.BestEpoch != alone.BestEpoch {
				t.Errorf("%s on %d devices: %+v, on one %+v", spec.Model, world, r, alone)
			}
			for i, scale := range r.Scales {
				if math.Abs(float64(scale/alone.Scales[i])-1) > 1e-5 {
					t.Errorf("%s on %d devices: matrix %d is multiplied by %v, on one by %v", spec.Model, world, i,
						scale, alone.Scales[i])
				}
			}
			// The checkpoint knows nothing of devices.
			devices := openDevices(t, 3)
			var shares []Epocher
			for _, rank := range deal(devices, 20, valid, nil, nil) {
				shares = append(shares, rank.Train)
			}
			e, err := Evaluate(t.Context(), devices, &r.Trained, 7, []NamedRows{{"valid", shares}}, nil)
			if err != nil || *e.Overall.Value != *r.ValidMetric || e.Overall.Rows != 65 {
				t.Errorf("evaluated on 3 devices: %+v, %v; want %v", e, err, *r.ValidMetric)
			}
		}
	}
}

func TestParametersStayTheSameOnAllDevices(t *testing.T) {
	spec := toySIGN(3)
	spec.Settings["dropout"] = 0.3
	var first []float32
	for range 2 { // and in every run
		train, valid, _ := sharedToys()
		f, err := Start(t.Context(), deal(openDevices(t, 3), 20, train, valid, nil), spec,
			Options{Epochs: 3, LearningRate: 0.01, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Train(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for rank, n := range f.ranks {
			values, err := n.download(n.params.value)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = values
			}
			if !sameBits(first, values) {
				t.Errorf("device %d has other parameters than the first", rank)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Both ranks have the same rows, so only what is dropped out can tell them apart.
func TestNoTwoDevicesDropOutTheSame(t *testing.T) {
	half, rows := clusters(1, 20, 2, 4, 3, 0), clusters(1, 20, 2, 4, 3, 0)
	for k := range rows.x {
		rows.x[k] = append(rows.x[k], half.x[k]...)
	}
	rows.labels = append(rows.labels, half.labels...)
	for _, dropout := range []float64{0, 0.5} {
		spec := toySIGN(2)
		spec.Settings["dropout"] = dropout
		f, err := Start(t.Context(), deal(openDevices(t, 2), 40, rows, nil, nil), spec,
			Options{Epochs: 1, LearningRate: 0.01})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Train(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if same := sameBits(dtype.Float32s(f.exchange.partial[0].Bytes()),
			dtype.Float32s(f.exchange.partial[1].Bytes())); same != (dropout == 0) {
			t.Errorf("dropout %v: both devices have the same gradient: %t", dropout, same)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAProfileOfSeveralDevicesSaysWhatTheirGradientsTake(t *testing.T) {
	train, _, _ := sharedToys()
	r := mustFitRanks(t, deal(openDevices(t, 2), 20, train, nil, nil), toySIGN(3),
		Options{Epochs: 2, LearningRate: 0.01, ProfileFrom: 2})
	e, sum := r.History[1], 0.0
	for _, seconds := range e.StepSeconds {
		sum += seconds
	}
	if len(e.StepSeconds) != 5 || e.StepSeconds["reduce"] <= 0 || sum > e.TrainSeconds {
		t.Errorf("steps %v of %v s", e.StepSeconds, e.TrainSeconds)
	}
}

func TestStepsOfSeveralDevicesAreMeasured(t *testing.T) {
	train, _, _ := sharedToys()
	devices := openDevices(t, 8)
	for _, batch := range []int{20, 3} { // the latter leaves some without rows
		train, evaluate, err := measureSteps(t.Context(), deal(devices, batch, train, nil, nil), toySIGN(3))
		if err != nil || train <= 0 || evaluate <= 0 {
			t.Errorf("%v and %v seconds, %v", train, evaluate, err)
		}
	}
}

// Each step of each device fails once. The bubble fails when all goroutines wait for
// one another, and when one is left; the devices, when memory or a stream is.
func TestWhateverFailsOnOneDeviceEndsAll(t *testing.T) {
	for _, rank := range []int{0, 2} {
		for n := 1; ; n++ {
			var device gdstest.FailingDevice
			device.FailAt(n)
			testdevice.Bubble(t, func(t *testing.T) {
				train, valid, test := sharedToys()
				devices := openDevices(t, 3)
				ranks := deal(devices, 100, train, valid, test)
				device.Device = devices[rank]
				ranks[rank].Device = &device
				_, err := Fit(t.Context(), ranks, toySIGN(3), Options{Epochs: 2, LearningRate: 0.01}, nil)
				if !device.Failed() {
					if err != nil {
						t.Errorf("device %d did not fail, but: %v", rank, err)
					}
					return
				}
				if !device.Is(err) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "Copy(") &&
					!strings.Contains(err.Error(), fmt.Sprintf("device %d: ", rank)) {
					t.Errorf("device %d failed at step %d: %v", rank, n, err)
				}
			})
			if !device.Failed() {
				if n < 40 {
					t.Errorf("only %d steps of device %d", n, rank)
				}
				break
			}
		}
	}
}

func TestABatchThatOneDeviceCannotHaveEndsAll(t *testing.T) {
	failure := errors.New("the disk is on fire")
	for _, cancels := range []bool{false, true} {
		for rank := range 3 {
			for epoch := range 2 {
				for batch := range 2 {
					testdevice.Bubble(t, func(t *testing.T) {
						ctx, cancel := context.WithCancelCause(t.Context())
						defer cancel(nil)
						train, valid, _ := sharedToys()
						ranks := deal(openDevices(t, 3), 100, train, valid, nil)
						measured := false // the first batch is read once to measure it
						ranks[rank].Train.(*toy).hook = func(e, b int) error {
							if e != epoch || b != batch || !measured {
								measured = true
								return nil
							}
							if cancels {
								cancel(failure)
								return nil
							}
							return failure
						}
						_, err := Fit(ctx, ranks, toySGC3, Options{Epochs: 3, LearningRate: 0.01}, nil)
						if !errors.Is(err, failure) || !strings.HasPrefix(err.Error(),
							fmt.Sprintf("epoch %d: ", epoch+1)) {
							t.Errorf("device %d, epoch %d, batch %d: %v", rank, epoch, batch, err)
						}
					})
				}
			}
		}
	}
}

func TestRanksThatDisagreeAreRefused(t *testing.T) {
	train, valid, _ := sharedToys()
	short := *train
	short.labels = short.labels[:150]
	fewer := func(change func(ranks []Rank)) []Rank {
		ranks := deal(openDevices(t, 2), 20, train, valid, nil)
		change(ranks)
		return ranks
	}
	for _, c := range []struct {
		name  string
		ranks []Rank
		want  string
	}{
		{"no devices", nil, "unusable options: no device"},
		{"other training rows", fewer(func(ranks []Rank) { ranks[1].Train = short.feed(ranks[1].Device, 20) }),
			"device 1: 150 training rows, but device 0 has 184"},
		{"no validation rows on one", fewer(func(ranks []Rank) { ranks[1].Valid = nil }),
			"device 1: 0 validation rows, but device 0 has 65"},
		{"smaller batches on one", fewer(func(ranks []Rank) { ranks[0].Train.(*toy).batch = 10 }),
			"the devices have different numbers of batches"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Fit(t.Context(), c.ranks, toySGC3, Options{Epochs: 2, LearningRate: 0.01}, nil); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
