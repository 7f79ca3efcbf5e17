package tune

import (
	"context"
	"errors"
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

func list(t *testing.T, s Space) *Points {
	t.Helper()
	p, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAGridHasAllCombinations(t *testing.T) {
	points := list(t, Space{Base: Settings{"c": "1", "a": "base"},
		Dimensions: []Dimension{{"a", []string{"x", "fails"}, 0}, {"b", []string{"22", "333", ""}, 0}}})
	trials, err := Run(t.Context(), points.Grid(), nil, score, func([]Trial) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, trial := range trials {
		got = append(got, trial.Settings["a"]+"/"+trial.Settings["b"]+"/"+trial.Settings["c"])
	}
	if want := []string{"x/22/1", "x/333/1", "x//1", "fails/22/1", "fails/333/1", "fails//1"}; !reflect.DeepEqual(got,
		want) {
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
	points := list(t, Space{Base: Settings{"c": "1"},
		Dimensions: []Dimension{{"a", []string{"1", "2", "3", "4"}, 2}, {"b", []string{"", "2", "33"}, 1}}})
	propose := First(6, points.Random(7))
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
	if err != nil || len(all) != 6 || !reflect.DeepEqual(all[0].Settings, Settings{"a": "3", "b": "2", "c": "1"}) {
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
	other := First(6, points.Random(8))
	different := false
	for i, trial := range all {
		different = different || !reflect.DeepEqual(other(all[:i]), trial.Settings)
	}
	if !different {
		t.Error("another seed proposes the same")
	}
	for _, damaged := range []string{`{"trial":2}`, `{"trial":1}{`, `[]`, `{"trial":1,"seconds":-1}`,
		`{"trial":1,"peak_rss_bytes":-1}`} {
		if _, err := Decode([]byte(damaged)); err == nil {
			t.Errorf("%s is accepted", damaged)
		}
	}
}

func TestSettingsAreShort(t *testing.T) {
	const hash = "9f65818fa3505f41240b7cc3ae955300ff871effeb5ca197218397d79fdf63ba"
	for text, want := range map[string]string{
		hash: "9f65818fa3505f41", "0.0006493506493506494": "0.0006494", "6.666666666666667e-05": "6.667e-05",
		"0.3": "0.3", "0.25": "0.25", "512": "512", "15,10,5": "15,10,5", "1000000": "1000000", "sym,rw": "sym,rw",
		"": "", "degree:20MiB": "degree:20MiB", "0.125": "0.125",
	} {
		if got := Short(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}
