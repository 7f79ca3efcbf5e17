package tune_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// A grid of two flags; what a trial does is up to the program.
func Example() {
	propose := tune.Grid(tune.Settings{"model": "sgc"}, map[string][]string{"lr": {"0.1", "0.01"}, "hops": {"1", "2"}})
	try := func(_ context.Context, number int, s tune.Settings) (tune.Outcome, error) {
		lr, err := strconv.ParseFloat(s["lr"], 64)
		valid := 1 - lr
		return tune.Outcome{Metric: "accuracy", Valid: &valid}, err
	}
	trials, err := tune.Run(context.Background(), propose, nil, try, func([]tune.Trial) error { return nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	best := tune.Best(trials)
	fmt.Println(len(trials), "trials, the best with", best.Settings["lr"], "and hops", best.Settings["hops"])
	// Output: 4 trials, the best with 0.01 and hops 1
}
