package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/rng"
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

// regression is softmax regression on rows that several devices share, in float64: what trainings by queues are
// compared with.
type regression struct {
	*toy
	classes int
}

// initial are the values that toySGC begins with: weights [classes, features], then biases.
func (r regression) initial(t *testing.T, seed uint64) (w []float64) {
	_, declared, err := toySGC.normalized()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range declared.params.initial(seed) {
		w = append(w, float64(x))
	}
	return w
}

// gradient is of the mean loss of some rows, at w.
func (r regression) gradient(w []float64, first, rows int) []float64 {
	grad, biases := make([]float64, len(w)), r.classes*r.features
	for i := first; i < first+rows; i++ {
		x, p, sum := r.x[0][i*r.features:][:r.features], make([]float64, r.classes), 0.0
		for c := range p {
			z := w[biases+c]
			for j := range x {
				z += w[c*r.features+j] * float64(x[j])
			}
			p[c] = math.Exp(z)
			sum += p[c]
		}
		for c := range p {
			d := p[c] / sum
			if int32(c) == r.labels[i] {
				d--
			}
			for j := range x {
				grad[c*r.features+j] += d * float64(x[j]) / float64(rows)
			}
			grad[biases+c] += d / float64(rows)
		}
	}
	return grad
}

func checkNear(t *testing.T, got []float32, want []float64) {
	t.Helper()
	for i := range want {
		if math.Abs(float64(got[i])-want[i]) > 1e-4 {
			t.Errorf("parameter %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// TestGradientsWaitAsPlanned compares with softmax regression by Adam, whose gradients are means over devices by
// Equations 20 and 21 and are applied late.
func TestGradientsWaitAsPlanned(t *testing.T) {
	const rows, epochs, batch, world = 60, 2, 6, 3 // each device has two rows of a batch
	const rate, period, lag = 0.05, 4, 2
	data := noise(3, rows, 1, 4, 3)
	r := mustFitRanks(t, deal(openDevices(t, world), batch, data, nil, nil), toySGC,
		Options{Epochs: epochs, LearningRate: rate, Seed: 9, Standardize: "none",
			Queues: &Queues{Period: period, Lag: lag}})
	reference := regression{data, 3}
	w := reference.initial(t, 9)
	m, v := make([]float64, len(w)), make([]float64, len(w))
	step := 0
	var waiting [][]float64
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
			acc := make([]float64, len(w))
			for arrived, device := range []int{1, 2, 0} { // in any order
				for i, g := range reference.gradient(w, b*batch+2*device, 2) {
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
	checkNear(t, r.Parameters, w)
}

// arriving is a rank of TestGradientsAreAppliedAsTheyArrive.
type arriving struct {
	w, moment, gradient []float64
	batch, steps        int           // next batch, and steps that were made, since the beginning of the period
	end                 time.Duration // when the gradient of the batch is there; -1: the rank waits for others
}

// TestGradientsAreAppliedAsTheyArrive plays Equations 20 to 22 rank by rank: each has its own parameters, on which it
// computes gradients in given times, and means of gradients as far as they have arrived; when all have, it makes the
// step of Equation 22 (of SGD with momentum) after its batch. The training must give the same parameters, and count
// the same staleness; also if it is stopped in the middle of a period, and continued elsewhere.
func TestGradientsAreAppliedAsTheyArrive(t *testing.T) {
	if testdevice.GPU {
		t.Skip("the times of gradients are exact in a bubble alone")
	}
	const rows, epochs, batch, world, batches = 60, 2, 6, 3, 10
	const rate, period, lag = 0.05, 4, 2
	pace := func(rank, epoch, batch int) time.Duration {
		return time.Duration(1 + rng.Hash(rng.Hash(5, uint64(rank)), uint64(epoch*batches+batch))%1e8)
	}
	reference := regression{noise(3, rows, 1, 4, 3), 3}
	w, stale := reference.initial(t, 9), staleness{}
	moment := make([]float64, len(w))
	for first := 0; first < epochs*batches; {
		n := min(period, batches-first%batches)
		ranks := make([]*arriving, world)
		begin := func(rank int, now time.Duration) {
			r, at := ranks[rank], first+ranks[rank].batch
			r.gradient = reference.gradient(r.w, at%batches*batch+2*rank, 2)
			r.end = now + pace(rank, at/batches, at%batches)
			stale.add(r.batch - r.steps)
		}
		for rank := range ranks {
			ranks[rank] = &arriving{w: slices.Clone(w), moment: slices.Clone(moment)}
			begin(rank, 0)
		}
		means, arrived := make([][]float64, n), make([]int, n)
		for arrived[n-1] < world {
			next := -1
			for rank, r := range ranks {
				if r.end >= 0 && (next < 0 || r.end < ranks[next].end) {
					next = rank
				}
			}
			r, now := ranks[next], ranks[next].end
			arrived[r.batch]++
			if means[r.batch] == nil {
				means[r.batch] = make([]float64, len(w))
			}
			for i, g := range r.gradient {
				means[r.batch][i] += (g - means[r.batch][i]) / float64(arrived[r.batch]) // Equation 20
			}
			r.batch, r.end = r.batch+1, -1
			for rank, r := range ranks {
				if r.end >= 0 {
					continue // it computes
				}
				for ; r.steps < n && arrived[r.steps] == world; r.steps++ {
					for i, g := range means[r.steps] {
						r.moment[i] = 0.9*r.moment[i] + g
						r.w[i] -= rate * r.moment[i]
					}
				}
				if r.batch < n && r.batch-r.steps <= lag {
					begin(rank, now)
				}
			}
		}
		w, moment = ranks[0].w, ranks[0].moment
		for _, r := range ranks {
			if !slices.Equal(r.w, w) {
				t.Fatal("ranks differ after a synchronisation")
			}
		}
		first += n
	}
	options := Options{Epochs: epochs, LearningRate: rate, Seed: 9, Standardize: "none", Optimizer: "sgd",
		Queues: &Queues{Period: period, Lag: lag, OnArrival: true}}
	for _, stopAt := range []int{-1, 2, 7, 13, 19} {
		testdevice.Bubble(t, func(t *testing.T) {
			stop, seen := errors.New("stop"), -1 // a batch is read to be measured
			ranks := deal(openDevices(t, world), batch, reference.toy, nil, nil)
			ranks[1].Train.(*toy).hook = func(int, int) error {
				if seen++; seen == stopAt+1 && stopAt >= 0 {
					return stop
				}
				return nil
			}
			f, err := Start(t.Context(), ranks, toySGC, options)
			if err != nil {
				t.Fatal(err)
			}
			var counted staleness
			times := QueueTimes{Pace: pace, Computed: func(_, missing int, _ time.Duration) { counted.add(missing) }}
			f.Time(times)
			err = f.Train(t.Context(), nil)
			if stopAt >= 0 {
				if !errors.Is(err, stop) {
					t.Fatalf("stopped at batch %d: %v", stopAt, err)
				}
				f = newStoppable().handOver(t, f, deal(openDevices(t, world), batch, reference.toy, nil, nil))
				if at := f.state.Batch; at%period != 0 {
					t.Errorf("stopped at batch %d, it goes on from %d", stopAt, at)
				}
				f.Time(times)
				err = f.Train(t.Context(), nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			result, err := f.Result()
			if err != nil {
				t.Fatal(err)
			}
			checkNear(t, result.Parameters, w)
			if stopAt < 0 && counted != stale {
				t.Errorf("staleness %+v, want %+v", counted, stale)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if stale.largest != lag || stale.sum == 0 {
		t.Errorf("the times make gradients %+v stale, which tests little", stale)
	}
}

// staleness counts missing steps.
type staleness struct{ gradients, sum, largest int }

func (m *staleness) add(missing int) {
	m.gradients, m.sum, m.largest = m.gradients+1, m.sum+missing, max(m.largest, missing)
}

// Of two ranks, sums do not depend on the order.
func TestOneGradientAtATimeOnArrivalIsSynchronousTraining(t *testing.T) {
	for _, optimizer := range []string{"sgd", "adam"} {
		for _, world := range []int{1, 2} {
			s := newStoppable()
			s.options.Optimizer = optimizer
			want := s.undisturbed(t, world)
			for _, q := range []Queues{{Period: 1, OnArrival: true}, {Period: 4, OnArrival: true}} {
				s.options.Queues = &q
				if got := s.undisturbed(t, world); !reflect.DeepEqual(got, want) {
					t.Errorf("%d devices, %s, %+v: %+v, want %+v", world, optimizer, q, got, want)
				}
			}
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
			Computed: func(rank, _ int, _ time.Duration) { computed[rank]++ },
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
	for k := range 4 {
		rank, queues := k/2, Queues{Period: 2, Lag: 1, OnArrival: k%2 > 0}
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
					Options{Epochs: 2, LearningRate: 0.01, Queues: &queues}, nil)
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
		{toySGC3, Queues{Period: 4, Lag: 1, OnArrival: true}, 10, "the devices have different numbers of batches"},
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
