package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/testdevice"
)

func TestWithoutLagQueuesTrainAsWithout(t *testing.T) {
	for _, world := range []int{1, 2, 3} {
		s := newStoppable()
		s.options.WarmUp, s.options.Schedule, s.options.ClipNorm = 1.5, "cosine", 1
		want := s.undisturbed(t, world)
		for _, q := range []Queues{{Period: 1}, {Period: 4}, {Period: 100}} {
			s.options.Queues = &q
			if got := s.undisturbed(t, world); !reflect.DeepEqual(got, want) {
				t.Errorf("%d devices, %+v: %+v, want %+v", world, q, got, want)
			}
		}
		s.options.Queues = &Queues{Period: 4, Lag: 2}
		late := s.undisturbed(t, world)
		if reflect.DeepEqual(late, want) {
			t.Errorf("%d devices: gradients that wait change nothing", world)
		}
		if again := s.undisturbed(t, world); !reflect.DeepEqual(again, late) {
			t.Errorf("%d devices: gradients that wait are not reproducible", world)
		}
	}
}

// TestGradientsWaitAsPlanned compares with softmax regression by Adam in float64, whose gradients are means
// over devices by Equations 20 and 21 and are applied late.
func TestGradientsWaitAsPlanned(t *testing.T) {
	const rows, features, classes, epochs, batch, world = 60, 4, 3, 2, 6, 3 // each device has two rows of a batch
	const rate, period, lag = 0.05, 4, 2
	data := noise(3, rows, 1, features, classes)
	r := mustFitRanks(t, deal(openDevices(t, world), batch, data, nil, nil), toySGC,
		Options{Epochs: epochs, LearningRate: rate, Seed: 9, Standardize: "none",
			Queues: &Queues{Period: period, Lag: lag}})
	_, declared, err := toySGC.normalized()
	if err != nil {
		t.Fatal(err)
	}
	const count = classes*features + classes
	var w, m, v [count]float64
	for i, x := range declared.params.initial(9) {
		w[i] = float64(x)
	}
	gradient := func(first, n int) (grad [count]float64) {
		for i := first; i < first+n; i++ {
			x := data.x[0][i*features:][:features]
			var p [classes]float64
			sum := 0.0
			for c := range p {
				z := w[classes*features+c]
				for j := range x {
					z += w[c*features+j] * float64(x[j])
				}
				p[c] = math.Exp(z)
				sum += p[c]
			}
			for c := range p {
				d := p[c] / sum
				if int32(c) == data.labels[i] {
					d--
				}
				for j := range x {
					grad[c*features+j] += d * float64(x[j]) / float64(n)
				}
				grad[classes*features+c] += d / float64(n)
			}
		}
		return grad
	}
	step := 0
	var waiting [][count]float64
	update := func() {
		step++
		for i, g := range waiting[0] {
			m[i], v[i] = 0.9*m[i]+0.1*g, 0.999*v[i]+0.001*g*g
			w[i] -= rate * (m[i] / (1 - math.Pow(0.9, float64(step)))) / (math.Sqrt(v[i]/(1-math.Pow(0.999,
				float64(step)))) + 1e-8)
		}
		waiting = waiting[1:]
	}
	for range epochs {
		for b := range rows / batch {
			var acc [count]float64
			for arrived, device := range []int{1, 2, 0} { // in any order
				for i, g := range gradient(b*batch+2*device, 2) {
					acc[i] += (g - acc[i]) / float64(arrived+1) // Equation 20
				}
			}
			if waiting = append(waiting, acc); len(waiting) > lag {
				update()
			}
			for (b+1)%period == 0 && len(waiting) > 0 {
				update()
			}
		}
		for len(waiting) > 0 {
			update()
		}
	}
	for i, got := range r.Parameters {
		if math.Abs(float64(got)-w[i]) > 1e-4 {
			t.Errorf("parameter %d: %v, want %v", i, got, w[i])
		}
	}
}

func TestARunByQueuesThatIsStoppedEndsTheSame(t *testing.T) {
	stop := errors.New("stop")
	for _, world := range []int{1, 3} {
		s := newStoppable()
		s.options.Queues = &Queues{Period: 3, Lag: 2}
		want := s.undisturbed(t, world)
		for n := 0; n < 3*10; n += 2 { // each second batch of training
			for _, cancels := range []bool{false, true} {
				ctx, cancel := context.WithCancelCause(t.Context())
				seen := 0
				f := s.start(t, s.ranks(t, world, func(set string, _, _ int) error {
					if set != "train" {
						return nil
					}
					if seen++; seen-1 != n+1 {
						return nil
					}
					if cancels {
						cancel(stop)
						return nil
					}
					return stop
				}))
				err := f.Train(ctx, nil)
				cancel(nil)
				if !errors.Is(err, stop) {
					t.Fatalf("%d devices, stopped at batch %d: %v", world, n, err)
				}
				state, err := f.State()
				if err != nil || state.Batch%3 != 0 && !state.Trained ||
					state.Steps != 10*len(state.History)+state.Batch || state.Steps > n {
					t.Fatalf("%d devices, stopped at batch %d: batch %d of epoch %d after %d steps, %v", world, n,
						state.Batch, state.Epoch.Number, state.Steps, err)
				}
				if cancels {
					f = s.handOver(t, f, s.ranks(t, world, nil))
				}
				if err := f.Train(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if got := outcomeOf(t, f); !reflect.DeepEqual(got, want) || f.state.Steps != 30 {
					t.Errorf("%d devices, stopped at batch %d: %+v after %d steps, want %+v", world, n, got,
						f.state.Steps, want)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestARunByQueuesIsPausedWhenAllAreSynchronized(t *testing.T) {
	s := newStoppable()
	s.options.Queues = &Queues{Period: 3, Lag: 1}
	want := s.undisturbed(t, 2)
	f := s.start(t, s.ranks(t, 2, nil))
	defer f.Close()
	pauses := 0
	for errors.Is(f.TrainUntil(t.Context(), func() bool { return true }, nil), ErrPaused) {
		pauses++
	}
	if got := outcomeOf(t, f); !reflect.DeepEqual(got, want) || pauses != 3*(3+1) { // and before validation
		t.Errorf("%d pauses: %+v, want %+v", pauses, got, want)
	}
}

// Stragglers change when gradients come, and nothing else; each batch is computed once by each device.
func TestTimingDoesNotChangeAModel(t *testing.T) {
	s := newStoppable()
	s.options.Queues = &Queues{Period: 5, Lag: 3}
	want := s.undisturbed(t, 3)
	testdevice.Bubble(t, func(t *testing.T) {
		f := s.start(t, s.ranks(t, 3, nil))
		computed := make([]int, 3)
		f.Time(QueueTimes{
			Pace: func(rank, epoch, batch int) time.Duration {
				return time.Duration(1+(rank+batch)%3*9) * time.Millisecond
			},
			Computed: func(rank int, took time.Duration) { computed[rank]++ },
		})
		if err := f.Train(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := outcomeOf(t, f); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(computed, []int{30, 30, 30}) {
			t.Errorf("%v computed: %+v, want %+v", computed, got, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWhateverFailsOnOneDeviceEndsAllQueues(t *testing.T) {
	for rank := range 2 {
		for n := 1; ; n++ {
			var device gdstest.FailingDevice
			device.FailAt(n)
			testdevice.Bubble(t, func(t *testing.T) {
				train, valid, test := sharedToys()
				devices := openDevices(t, 2)
				ranks := deal(devices, 100, train, valid, test)
				device.Device = devices[rank]
				ranks[rank].Device = &device
				_, err := Fit(t.Context(), ranks, toySIGN(3),
					Options{Epochs: 2, LearningRate: 0.01, Queues: &Queues{Period: 2, Lag: 1}}, nil)
				switch {
				case !device.Failed():
					if err != nil {
						t.Errorf("device %d did not fail, but: %v", rank, err)
					}
				case !device.Is(err) || strings.Contains(err.Error(), "\n"):
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

func TestQueuesThatCannotBeAreRefused(t *testing.T) {
	train, valid, _ := sharedToys()
	for _, c := range []struct {
		spec   Spec
		queues Queues
		batch  int
		want   string
	}{
		{toySGC3, Queues{Period: 0}, 20, "a synchronisation each 0 batches"},
		{toySGC3, Queues{Period: 2, Lag: 2}, 20, "queues of 2 gradients"},
		{toySGC3, Queues{Period: 2, Lag: -1}, 20, "queues of -1 gradients"},
		{toyHOGA, Queues{Period: 2, Lag: 1}, 20, "hoga adds up rows of all devices"},
		{toySGC3, Queues{Period: 4, Lag: 1}, 10, "the devices have different numbers of batches"},
	} {
		ranks := deal(openDevices(t, 2), 20, train, valid, nil)
		ranks[0].Train.(*toy).batch = c.batch
		_, err := Fit(t.Context(), ranks, c.spec, Options{Epochs: 2, LearningRate: 0.01, Queues: &c.queues}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.queues, err, c.want)
		}
	}
}

func TestADivergingRunByQueuesSaysWhen(t *testing.T) {
	train, _, _ := sharedToys()
	for i := 100 * 4; i < 104*4; i++ { // rows of the sixth batch
		train.x[0][i] = float32(math.NaN())
	}
	train.shuffle = false
	_, err := Fit(t.Context(), deal(openDevices(t, 2), 20, train, nil, nil), toySGC3,
		Options{Epochs: 2, LearningRate: 0.01, Queues: &Queues{Period: 8, Lag: 3}}, nil)
	var d *DivergedError
	if !errors.As(err, &d) || d.Epoch != 1 || d.Batch != 5 {
		t.Errorf("%v: %s", err, fmt.Sprint(d))
	}
}
