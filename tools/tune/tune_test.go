package tune

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// score is a trial whose outcome is a function of its settings: the fewer letters, the better.
func score(_ context.Context, _ int, s Settings) (Outcome, error) {
	v := 1 / float64(1+len(s["a"]+s["b"]))
	if s["a"] == "fails" {
		return Outcome{Failed: "so it is"}, nil
	}
	return Outcome{Metric: "accuracy", Valid: &v}, nil
}

func TestAGridHasAllCombinations(t *testing.T) {
	propose := Grid(Settings{"c": "1", "a": "base"}, map[string][]string{"a": {"x", "fails"}, "b": {"22", "333", ""}})
	trials, err := Run(t.Context(), propose, nil, score, func([]Trial) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, trial := range trials {
		got = append(got, trial.Settings["a"]+"/"+trial.Settings["b"]+"/"+trial.Settings["c"])
	}
	if want := []string{"x/22/1", "x/333/1", "x//1", "fails/22/1", "fails/333/1", "fails//1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if best := Best(trials); best == nil || best.Number != 3 {
		t.Errorf("the best is %+v", best)
	}
	for i := range trials {
		trials[i].Lower = true
	}
	if best := Best(trials); best == nil || best.Number != 2 {
		t.Errorf("if lower is better, the best is %+v", best)
	}
	if Best(trials[3:]) != nil {
		t.Error("a trial that failed is the best")
	}
}

func TestTrialsThatAreInterruptedAnywhereEndTheSame(t *testing.T) {
	space := []Dimension{{"a", func(u float64) string { return fmt.Sprint(u) }}, {"b", func(u float64) string { return fmt.Sprint(int(100 * u)) }}}
	propose := Random(Settings{"c": "1"}, space, 6, 7)
	run := func(done []Trial, stop int) (logged []byte, err error) {
		_, err = Run(t.Context(), propose, done, func(ctx context.Context, n int, s Settings) (Outcome, error) {
			if n == stop {
				return Outcome{}, context.Canceled
			}
			return score(ctx, n, s)
		}, func(all []Trial) error { logged, err = Encode(all); return err })
		return logged, err
	}
	want, err := run(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Decode(want)
	if err != nil || len(all) != 6 || len(all[0].Settings) != 1 || all[1].Settings["a"] == all[2].Settings["a"] {
		t.Fatalf("%+v, %v", all, err)
	}
	for stop := 1; stop <= 6; stop++ {
		logged, err := run(nil, stop)
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		done, err := Decode(logged)
		if err != nil || len(done) != stop-1 {
			t.Fatalf("stopped at %d: %d trials, %v", stop, len(done), err)
		}
		if got, err := run(done, 0); err != nil || string(got) != string(want) {
			t.Errorf("stopped at %d: %s, %v, want %s", stop, got, err, want)
		}
	}
	propose = Random(Settings{"c": "2"}, space, 6, 7)
	if _, err := run(all, 0); !errors.Is(err, ErrOther) {
		t.Errorf("trials of other settings go on: %v", err)
	}
	for _, damaged := range []string{`{"trial":2}`, `{"trial":1}{`, `[]`} {
		if _, err := Decode([]byte(damaged)); err == nil {
			t.Errorf("%s is accepted", damaged)
		}
	}
}
