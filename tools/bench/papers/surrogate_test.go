package papers

import (
	"testing"

	"github.com/hopfeed/hopfeed/tools/tune"
)

func TestTheMedianOfTwoIsTheirMean(t *testing.T) {
	var unseen []tune.Unseen
	for i, want := range []float64{4, 3, 2, 2.5} {
		r2 := []float64{4, 2, 1, 3}[i]
		unseen = append(unseen, tune.Unseen{Regression: "a", R2: [3]*float64{&r2}}, tune.Unseen{Regression: "a"},
			tune.Unseen{Regression: "b", R2: [3]*float64{new(float64)}})
		if m := median(unseen, "a", 0); *m != want {
			t.Errorf("the median of %d is %g, want %g", i+1, *m, want)
		}
	}
	if median(unseen, "a", 1) != nil {
		t.Error("nothing has a median")
	}
}
