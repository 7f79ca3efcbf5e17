package bench_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/tools/bench"
)

// Measures a hop over a random graph of a thousand nodes, three times.
func ExamplePropagate() {
	results, err := bench.Propagate(context.Background(), bench.PropagateOptions{
		Nodes: 1000, Edges: 20_000, Features: 16,
		DTypes: []format.DType{format.Float32}, Threads: []int{1, 2}, Rounds: 3, Progress: progress.Silent,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Printf("%s x%d: %d rounds, %d rows gathered; a rate: %t\n", r.DType, r.Threads, len(r.RoundSeconds),
			r.RowsGathered, r.GatheredBytesPerSecond > 0)
	}
	// Output:
	// float32 x1: 3 rounds, 20981 rows gathered; a rate: true
	// float32 x2: 3 rounds, 20981 rows gathered; a rate: true
}
