package preprop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// BenchmarkHop reports the rate at which rows are gathered, one hop over a random
// graph, by two goroutines. Rows of 16 to 64 columns are those of panels.
func BenchmarkHop(b *testing.B) {
	const nodes, edges, threads = 200_000, 5_000_000, 2
	random := rand.New(rand.NewPCG(1, 1))
	lists := make([][]uint32, nodes)
	for range edges {
		v := random.Uint32N(nodes)
		lists[v] = append(lists[v], random.Uint32N(nodes))
	}
	csc := &format.CSC{Offsets: make([]int64, nodes+1)}
	for v, list := range lists {
		slices.Sort(list)
		csc.Neighbors = append(csc.Neighbors, list...)
		csc.Offsets[v+1] = int64(len(csc.Neighbors))
	}
	for _, t := range []format.DType{format.Float32, format.Float16, format.BFloat16} {
		for _, features := range []int{4, 16, 32, 64, 128} {
			b.Run(fmt.Sprintf("dtype=%v/features=%d", t, features), func(b *testing.B) {
				ctx := context.Background()
				hop, err := product.NewBench(ctx, csc, features, t, threads)
				if err != nil {
					b.Fatal(err)
				}
				defer hop.Close()
				for b.Loop() {
					rows, err := hop.Hop(ctx, threads)
					if err != nil {
						b.Fatal(err)
					}
					b.SetBytes(rows * hop.RowBytes())
				}
			})
		}
	}
}
