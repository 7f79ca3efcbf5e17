package bench

import "testing"

func TestTimesThatOverlapAreNoise(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want bool
	}{
		{[]float64{1, 2, 3}, []float64{3, 4}, true},
		{[]float64{3, 4}, []float64{1, 2, 3}, true},
		{[]float64{1, 9}, []float64{4, 5}, true},
		{[]float64{1, 2}, []float64{2.1, 3}, false},
		{[]float64{2.1}, []float64{2}, false},
	} {
		if got := withinNoise(c.a, c.b); got != c.want {
			t.Errorf("%v, %v: %v", c.a, c.b, got)
		}
	}
}

func TestOnlyWhatOverlapsTheFastestIsMarked(t *testing.T) {
	results := []LoadResult{
		{Way: Way{Variant: Memcpy}, EpochSeconds: 0.5, RoundSeconds: []float64{0.5, 2}},
		{Way: Way{Variant: "slow"}, EpochSeconds: 9, RoundSeconds: []float64{8, 9, 10}},
		{Way: Way{Variant: "close"}, EpochSeconds: 2.2, RoundSeconds: []float64{2.05, 2.2, 2.3}},
		{Way: Way{Variant: "fastest"}, EpochSeconds: 2, RoundSeconds: []float64{1.9, 2, 2.1}},
	}
	markNoise(results)
	for _, r := range results {
		if r.WithinNoise != (r.Variant == "close") {
			t.Errorf("%s: within noise: %v", r.Variant, r.WithinNoise)
		}
	}
}

func TestAnAblationMarksWhatItsReferenceOverlaps(t *testing.T) {
	way := func(variant string) Way { return Way{Placement: "host", Variant: variant, Shuffle: "rr"} }
	a := &Ablation{Results: []AblationResult{
		{Model: "sgc", Hops: 2, Way: way("baseline"), EpochSeconds: 2, Seconds: []float64{1.9, 2, 2.1}},
		{Model: "sgc", Hops: 2, Way: way("fused"), EpochSeconds: 1.95, Seconds: []float64{1.8, 1.95, 2}},
		{Model: "sgc", Hops: 2, Way: way("double-buffer"), EpochSeconds: 1, Seconds: []float64{0.9, 1, 1.1}},
	}}
	a.compare()
	for i, want := range []bool{false, true, false} {
		if r := a.Results[i]; r.WithinNoise != want {
			t.Errorf("%s: within noise: %v", r.Variant, r.WithinNoise)
		}
	}
}
