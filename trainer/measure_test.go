package trainer

import (
	"context"
	"errors"
	"testing"

	"github.com/hopfeed/hopfeed/gds/host"
)

func TestStepsAreMeasured(t *testing.T) {
	for _, discrete := range []bool{false, true} {
		dev := openDevice(t, host.Options{Discrete: discrete})
		data := noise(1, 40, 3, 4, 3).feed(dev, 16)
		train, evaluate, err := measureSteps(t.Context(), []Rank{{dev, Data{Train: data, BatchRows: 16}}}, toySIGN(3))
		if err != nil {
			t.Fatal(err)
		}
		if train <= 0 || evaluate <= 0 {
			t.Errorf("%v and %v seconds", train, evaluate)
		}
		if used := dev.Usage().InUse; used != 0 {
			t.Errorf("%d bytes are still in use", used)
		}
		// The model's memory is known beforehand, the toy's batch has four buffers of a page.
		model, err := toySIGN(3).DeviceBytes(16, true)
		if err != nil {
			t.Fatal(err)
		}
		if want, got := model+4*4096, dev.Usage().Peak; got != want {
			t.Errorf("at most %d bytes, want %d", got, want)
		}
	}
}

func TestMeasuringThatFailsLeavesNothingBehind(t *testing.T) {
	dev := openDevice(t, host.Options{})
	bad := errors.New("bad disk")
	failing := noise(1, 40, 3, 4, 3).feed(dev, 16)
	failing.hook = func(_, _ int) error { return bad }
	if _, _, err := measureSteps(t.Context(), []Rank{{dev, Data{Train: failing, BatchRows: 16}}},
		toySIGN(3)); !errors.Is(err, bad) {
		t.Errorf("error %v, want %v", err, bad)
	}
	if _, _, err := measureSteps(t.Context(), []Rank{{dev, Data{Train: noise(1, 0, 3, 4, 3).feed(dev, 16),
		BatchRows: 16}}}, toySIGN(3)); err == nil {
		t.Error("measured without rows")
	}
	stopped, stop := context.WithCancelCause(t.Context())
	stop(bad)
	if _, _, err := measureSteps(stopped, []Rank{{dev, Data{Train: noise(1, 40, 3, 4, 3).feed(dev, 16),
		BatchRows: 16}}}, toySIGN(3)); !errors.Is(err, bad) {
		t.Errorf("error %v, want %v", err, bad)
	}
	if used := dev.Usage().InUse; used != 0 {
		t.Errorf("%d bytes are still in use", used)
	}
}

func TestParametersAreCounted(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want int64
	}{
		{toySGC, 4*3 + 3},
		{toySIGN(3), 3*(4*16+16) + (48*16 + 16) + 16*3 + 3},
	} {
		if got, err := c.spec.Parameters(); got != c.want || err != nil {
			t.Errorf("%s has %d parameters (%v), want %d", c.spec.Model, got, err, c.want)
		}
	}
	if _, err := (Spec{Model: "none"}).Parameters(); !errors.Is(err, ErrOptions) {
		t.Errorf("a model that is not there: %v", err)
	}
}
