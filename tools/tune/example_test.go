package tune_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// A grid of two flags; what a trial does is up to the program.
func Example() {
	points, err := tune.Space{Base: tune.Settings{"model": "sgc"}, Dimensions: []tune.Dimension{
		{Name: "hops", Values: []string{"1", "2"}}, {Name: "lr", Values: []string{"0.1", "0.01"}},
	}}.List()
	if err != nil {
		fmt.Println(err)
		return
	}
	try := func(_ context.Context, number int, s tune.Settings) (tune.Outcome, error) {
		lr, err := strconv.ParseFloat(s["lr"], 64)
		valid := 1 - lr
		return tune.Outcome{Metric: "accuracy", Valid: &valid}, err
	}
	trials, err := tune.Run(context.Background(), points.Grid(), nil, try, func([]tune.Trial) error { return nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	best := tune.Best(trials)
	fmt.Println(len(trials), "trials, the best with", best.Settings["lr"], "and hops", best.Settings["hops"])
	// Output: 4 trials, the best with 0.01 and hops 1
}
