package chunk_test

import (
	"fmt"

	"github.com/hopfeed/hopfeed/chunk"
)

// Two epochs over ten rows in batches of four; pairs of rows stay together.
func Example() {
	plan := chunk.Plan{Rows: 10, ChunkRows: 2, BatchRows: 4, Order: chunk.Shuffled, Seed: 1}
	if err := plan.Check(); err != nil {
		fmt.Println(err)
		return
	}
	for epoch := range 2 {
		for batch := range plan.Epoch(epoch) {
			fmt.Printf("epoch %d, batch %d: rows %d\n", epoch, batch.Index, chunk.AppendRows(nil, batch.Spans()))
		}
	}
	// Output:
	// epoch 0, batch 0: rows [6 7 0 1]
	// epoch 0, batch 1: rows [2 3 8 9]
	// epoch 0, batch 2: rows [4 5]
	// epoch 1, batch 0: rows [2 3 6 7]
	// epoch 1, batch 1: rows [4 5 0 1]
	// epoch 1, batch 2: rows [8 9]
}
