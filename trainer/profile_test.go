package trainer

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/gds/host"
)

func TestAProfileSharesOutTheTimeOfItsEpochsAndChangesNothing(t *testing.T) {
	for _, device := range []host.Options{{}, {Discrete: true}} {
		dev := openDevice(t, device)
		train, valid := clusters(1, 300, 3, 4, 3, 0.2), clusters(2, 100, 3, 4, 3, 0.2)
		run := func(from int) *Result {
			return mustFit(t, dev, toySIGN(3), Data{Train: train.feed(dev, 64), Valid: valid.feed(dev, 64),
				BatchRows: 64},
				Options{Epochs: 4, LearningRate: 0.01, Seed: 1, ProfileFrom: from})
		}
		plain, profiled := run(0), run(3)
		if !sameBits(plain.Parameters, profiled.Parameters) || *plain.ValidMetric != *profiled.ValidMetric {
			t.Error("a profile changes what is learnt")
		}
		for i, e := range profiled.History {
			if plain.History[i].StepSeconds != nil || (e.StepSeconds != nil) != (e.Number >= 3) {
				t.Errorf("epoch %d: steps %v, without a profile %v", e.Number, e.StepSeconds,
					plain.History[i].StepSeconds)
			}
			if e.StepSeconds == nil {
				continue
			}
			sum := 0.0
			for _, seconds := range e.StepSeconds {
				sum += seconds
			}
			if names := slices.Sorted(maps.Keys(e.StepSeconds)); !slices.Equal(names,
				[]string{"backward", "forward", "load", "optimizer"}) {
				t.Errorf("steps %v", names)
			}
			if sum <= 0 || sum > e.TrainSeconds {
				t.Errorf("steps of %v s in an epoch of %v s", sum, e.TrainSeconds)
			}
		}
	}
}

func TestAProfileLeavesErrorsToTheLoop(t *testing.T) {
	dev := openDevice(t, host.Options{})
	failed := errors.New("the disk is on fire")
	data := noise(1, 60, 1, 4, 3)
	data.hook = func(epoch, batch int) error {
		if epoch == 1 && batch == 2 {
			return failed
		}
		return nil
	}
	_, err := Fit(t.Context(), []Rank{{dev, Data{Train: data.feed(dev, 20), BatchRows: 20}}}, toySGC,
		Options{Epochs: 3, LearningRate: 0.1, ProfileFrom: 1}, nil)
	if !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	labels := noise(1, 60, 1, 4, 3)
	labels.labels[50] = 9 // no such class: the stream fails
	if _, err := Fit(t.Context(), []Rank{{dev, Data{Train: labels.feed(dev, 20), BatchRows: 20}}}, toySGC,
		Options{Epochs: 3, LearningRate: 0.1, ProfileFrom: 1}, nil); err == nil {
		t.Error("a label beyond the classes is no error")
	}
}
