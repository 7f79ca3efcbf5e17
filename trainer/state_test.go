package trainer

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/safetensors"
)

// stoppable is a training whose rows can be cut off.
type stoppable struct {
	spec               Spec
	options            Options
	train, valid, test *toy
	batch              int
}

func newStoppable() *stoppable {
	s := &stoppable{batch: 20, spec: toySIGN(3), options: Options{Epochs: 3, LearningRate: 0.02, WeightDecay: 1e-3,
		Seed: 3, EvalEvery: 2}}
	s.spec.Settings["dropout"] = 0.3
	s.train, s.valid, s.test = sharedToys()
	return s
}

// ranks are those of a number of new devices; the hook is called for each batch of the last of them, before it is read.
func (s *stoppable) ranks(t *testing.T, world int, hook func(set string, epoch, batch int) error) []Rank {
	ranks := deal(openDevices(t, world), s.batch, s.train, s.valid, s.test)
	if hook != nil {
		last := ranks[world-1]
		for name, set := range map[string]Epocher{"train": last.Train, "valid": last.Valid, "test": last.Test} {
			set.(*toy).hook = func(epoch, batch int) error { return hook(name, epoch, batch) }
		}
	}
	return ranks
}

// outcome is what has to be the same however often a run is stopped.
type outcome struct {
	History    []Epoch
	Parameters []float32
	Best       int
	Valid      float64
	Test       float64
}

func outcomeOf(t *testing.T, f *Fitting) outcome {
	t.Helper()
	r, err := f.Result()
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{slices.Clone(r.History), r.Parameters, r.BestEpoch, *r.ValidMetric, *r.TestMetric}
	for i := range o.History {
		o.History[i].Seconds, o.History[i].TrainSeconds = 0, 0
	}
	return o
}

// handOver takes the state of a run to a new one, by way of bytes.
func (s *stoppable) handOver(t *testing.T, f *Fitting, ranks []Rank) *Fitting {
	t.Helper()
	state, err := f.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeState(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(state, back) {
		t.Errorf("decoded %+v, encoded %+v", back, state)
	}
	next, err := Resume(ranks, back)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func (s *stoppable) start(t *testing.T, ranks []Rank) *Fitting {
	t.Helper()
	f, err := Start(t.Context(), ranks, s.spec, s.options)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// undisturbed is the outcome of a run that is not stopped.
func (s *stoppable) undisturbed(t *testing.T, world int) outcome {
	t.Helper()
	f := s.start(t, s.ranks(t, world, nil))
	defer f.Close()
	if err := f.Train(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return outcomeOf(t, f)
}

func TestARunThatIsStoppedBeforeAnyBatchEndsTheSame(t *testing.T) {
	stop := errors.New("stop")
	for _, world := range []int{1, 3} {
		s := newStoppable()
		s.batch = 60
		want := s.undisturbed(t, world)
		stops := 0
		for n := 0; ; n++ { // before batch n of all that are read
			seen, stopped := 0, false
			hook := func(string, int, int) error {
				if seen++; seen-1 == n+1 { // the first batch is read once more, to be measured
					stopped = true
					return stop
				}
				return nil
			}
			f := s.start(t, s.ranks(t, world, hook))
			err := f.Train(t.Context(), nil)
			if !stopped {
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
				break
			}
			stops++
			if !errors.Is(err, stop) {
				t.Fatalf("%d devices, stopped before batch %d: %v", world, n, err)
			}
			if n%2 == 0 {
				f = s.handOver(t, f, s.ranks(t, world, nil))
			}
			if err := f.Train(t.Context(), nil); err != nil {
				t.Fatalf("%d devices, stopped before batch %d: %v", world, n, err)
			}
			if got := outcomeOf(t, f); !reflect.DeepEqual(got, want) {
				t.Errorf("%d devices, stopped before batch %d: %+v, want %+v", world, n, got, want)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if stops != 3*4+2*2+1 { // of training, validation and test
			t.Errorf("%d devices: stopped %d times", world, stops)
		}
	}
}

func TestARunThatIsStoppedAfterEveryBatchEndsTheSame(t *testing.T) {
	for _, world := range []int{1, 3} {
		s := newStoppable()
		want := s.undisturbed(t, world)
		ctx, cancel := context.WithCancel(t.Context())
		batches := 0
		hook := func(set string, _, batch int) error {
			if set == "train" {
				if batches++; batches%2 == 0 { // after it has trained on the one before
					cancel()
				}
			}
			return nil
		}
		f := s.start(t, s.ranks(t, world, nil))
		parts := 1
		for ; ; parts++ {
			f = s.handOver(t, f, s.ranks(t, world, hook))
			err := f.Train(ctx, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			ctx, cancel = context.WithCancel(t.Context())
		}
		cancel()
		if got := outcomeOf(t, f); !reflect.DeepEqual(got, want) || parts < 30 {
			t.Errorf("%d devices, %d parts: %+v, want %+v", world, parts, got, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// stoppedToy is the state of a run in the middle of its second epoch.
func stoppedToy(t *testing.T) (*stoppable, *State) {
	t.Helper()
	s := newStoppable()
	stop := errors.New("stop")
	f := s.start(t, s.ranks(t, 2, func(set string, epoch, batch int) error {
		if set == "train" && epoch == 1 && batch == 4 {
			return stop
		}
		return nil
	}))
	defer f.Close()
	if err := f.Train(t.Context(), nil); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	state, err := f.State()
	if err != nil {
		t.Fatal(err)
	}
	return s, state
}

func TestAStateSaysWhereTheRunIs(t *testing.T) {
	_, s := stoppedToy(t)
	if s.Epoch.Number != 2 || s.Batch != 4 || s.Steps != 14 || s.Rows != 80 || s.TrainRows != 184 || s.Trained ||
		len(s.History) != 1 || len(s.Losses) != 2 || len(s.Moments) != 2 {
		t.Errorf("%+v", s)
	}
}

func TestARunGoesOnWithAnotherNumberOfDevices(t *testing.T) {
	s := newStoppable()
	s.spec.Settings["dropout"] = 0 // which depends on the number
	want := s.undisturbed(t, 1)
	stop := errors.New("stop")
	f := s.start(t, s.ranks(t, 3, func(set string, epoch, batch int) error {
		if set == "train" && epoch == 1 && batch == 4 {
			return stop
		}
		return nil
	}))
	if err := f.Train(t.Context(), nil); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	f = s.handOver(t, f, s.ranks(t, 2, nil))
	defer f.Close()
	if err := f.Train(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got := outcomeOf(t, f)
	for i, e := range got.History {
		if w := want.History[i].TrainLoss; e.TrainLoss/w-1 > 1e-4 || w/e.TrainLoss-1 > 1e-4 {
			t.Errorf("epoch %d: loss %v, want %v", i+1, e.TrainLoss, w)
		}
	}
	if got.Test != want.Test {
		t.Errorf("test %v, want %v", got.Test, want.Test)
	}
}

func TestAStateThatDoesNotFitIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *State, ranks []Rank)
		want   string
	}{
		{"other rows", func(_ *State, ranks []Rank) {
			ranks[0].Train.(*toy).labels = ranks[0].Train.(*toy).labels[:100]
		}, "184 training rows, but there are 100"},
		{"other labelled rows", func(_ *State, ranks []Rank) { ranks[0].TrainLabelled = 100 },
			"divided its loss by 184 rows, but 100 training rows have a label"},
		{"a loss of all rows, of an older version", func(s *State, ranks []Rank) {
			s.TrainLabelled, ranks[0].TrainLabelled = 0, 100
		}, "divided its loss by 184 rows, but 100 training rows have a label"},
		{"another model", func(s *State, _ []Rank) { s.Spec.Settings = signOf(8, 3, 0) }, "values for"},
		{"no options", func(s *State, _ []Rank) { s.Options.Epochs = 0 }, "0 epochs"},
		{"an optimizer that there is not", func(s *State, _ []Rank) { s.Options.Optimizer = "luck" },
			`there is no optimizer "luck": want one of adam`},
		{"a schedule that there is not", func(s *State, _ []Rank) { s.Options.Schedule = "luck" },
			`there is no schedule "luck": want one of constant`},
		{"a moment less", func(s *State, _ []Rank) { s.Moments = s.Moments[1:] }, "1 moments"},
		{"a matrix less", func(s *State, _ []Rank) { s.Inputs = s.Inputs[1:] }, "a state of 2 matrices"},
		{"a mean less", func(s *State, _ []Rank) { s.Inputs[1].Mean = s.Inputs[1].Mean[1:] },
			"3 means and 4 factors for 4 columns"},
		{"an epoch that it has not come to", func(s *State, _ []Rank) { s.Epoch.Number = 3 },
			"a state at epoch 3, batch 4 after 14 steps, with 1 epochs"},
		{"a best epoch that there is not", func(s *State, _ []Rank) { s.Best = 1 }, "the best of them number 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, state := stoppedToy(t)
			ranks := s.ranks(t, 1, nil)
			c.change(state, ranks)
			if _, err := Resume(ranks, state); err == nil || !strings.Contains(err.Error(), c.want) ||
				!errors.Is(err, ErrOptions) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestAStateThatEndsEarlyIsRefused(t *testing.T) {
	_, state := stoppedToy(t)
	data, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(data); at += 1 + at/50 {
		if _, err := DecodeState(data[:at]); err == nil {
			t.Fatalf("%d bytes: %v", at, err)
		}
	}
	state.Epoch.Number++
	if _, err := state.Encode(); err == nil {
		t.Error("a state that contradicts itself is encoded")
	}
}

// FuzzDecodeState encodes what is accepted again.
func FuzzDecodeState(f *testing.F) {
	dev := openDevice(f, host.Options{})
	toy := clusters(1, 20, 1, 4, 3, 0).feed(dev, 10)
	fitting, err := Start(context.Background(), []Rank{{dev, Data{Train: toy, BatchRows: 10}}}, toySGC,
		Options{Epochs: 2, LearningRate: 0.1})
	if err != nil {
		f.Fatal(err)
	}
	if err := fitting.Train(context.Background(), nil); err != nil {
		f.Fatal(err)
	}
	state, err := fitting.State()
	if err != nil {
		f.Fatal(err)
	}
	if err := fitting.Close(); err != nil {
		f.Fatal(err)
	}
	data, err := state.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	state.Moments[1][0] = float32(math.NaN()) // which is not equal to itself
	if data, err = state.Encode(); err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	large, err := safetensors.Encode(map[string]string{stateKey: `{"kind":"run-state","format":2,"model":` +
		`{"name":"sgc","matrices":[{"operator":"x"}],"features":1000000,"classes":1},"state":{}}`}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(large)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeState(data)
		if err != nil {
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeState(again)
		if err != nil {
			t.Fatal(err)
		}
		if third, err := back.Encode(); err != nil || !bytes.Equal(again, third) {
			t.Errorf("%+v comes back as %+v, %v", s, back, err)
		}
	})
}

func TestOnlyTrainingIsPaused(t *testing.T) {
	for _, world := range []int{1, 3} {
		s := newStoppable()
		want := s.undisturbed(t, world)
		evaluated := 0
		f := s.start(t, s.ranks(t, world, func(set string, _, batch int) error {
			if set != "train" && batch == 0 {
				evaluated++
			}
			return nil
		}))
		pauses := 0
		for {
			err := f.TrainUntil(t.Context(), func() bool { return true }, nil)
			if err == nil {
				break
			}
			if pauses++; !errors.Is(err, ErrPaused) || pauses > 3*10 {
				t.Fatalf("%d devices, pause %d: %v", world, pauses, err)
			}
		}
		// validated twice, tested once
		if got := outcomeOf(t, f); !reflect.DeepEqual(got, want) || pauses != 3*10 || evaluated != 3 {
			t.Errorf("%d devices, %d pauses, %d evaluations: %+v, want %+v", world, pauses, evaluated, got, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
