package pipeline_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// A sampler with four workers, each with memory of its own. Which worker samples a batch is
// chance; the order of the batches is not.
func Example() {
	type batch struct{ seeds, nodes []int }
	seeds := slices.Values([]*batch{{seeds: []int{5}}, {seeds: []int{1, 2}}, {seeds: []int{8}}})

	const workers = 4
	scratch := make([][]int, workers)
	p := pipeline.New(context.Background())
	defer p.Close()
	batches := pipeline.Feed(p, "seeds", seeds).Then(pipeline.Stage[*batch]{
		Name: "sample", Workers: workers, Queue: 2,
		Work: func(w *pipeline.Worker, b *batch) error {
			found := scratch[w.Index()][:0]
			for _, seed := range b.seeds {
				found = append(found, seed, seed+10) // and a neighbour
			}
			b.nodes, scratch[w.Index()] = slices.Clone(found), found
			return nil
		},
	})
	for b, err := range batches.All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(b.seeds, b.nodes)
	}
	// Output:
	// [5] [5 15]
	// [1 2] [1 11 2 12]
	// [8] [8 18]
}
