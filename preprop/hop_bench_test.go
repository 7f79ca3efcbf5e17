package preprop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// BenchmarkHop reports the rate at which rows are gathered, one hop over a
// random graph.
func BenchmarkHop(b *testing.B) {
	const nodes, edges = 200_000, 5_000_000
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
	for _, features := range []int{4, 128} {
		x := make([]float32, nodes*features)
		for i := range x {
			x[i] = random.Float32()
		}
		for _, dt := range []dtype.DType{format.Float32, format.Float16} {
			for _, o := range []Operator{{Name: Sym}, {Name: RW, NoLoops: true}} {
				b.Run(fmt.Sprintf("operator=%v/dtype=%v/features=%d", o, dt, features), func(b *testing.B) {
					src, err := newMatrix(nodes, features, dt)
					if err != nil {
						b.Fatal(err)
					}
					defer src.buf.Free()
					dst, err := newMatrix(nodes, features, dt)
					if err != nil {
						b.Fatal(err)
					}
					defer dst.buf.Free()
					dtype.Encode(src.buf.Bytes(), x, dt)
					p, err := newPropagator(context.Background(), &resident{csc, csc.Close}, o, 2)
					if err != nil {
						b.Fatal(err)
					}
					defer p.buf.Free()
					for b.Loop() {
						terms, err := p.hop(context.Background(), dst, src, nil, nil, 2, func(int64) {})
						if err != nil {
							b.Fatal(err)
						}
						b.SetBytes(terms * src.rowBytes())
					}
				})
			}
		}
	}
}
