package sampling

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"slices"
)

// skewed is a graph whose in-degrees are about m/n and whose sources are like a power law.
func skewed(n, m int) *format.CSC {
	r := rand.New(rand.NewPCG(1, 2))
	perm := r.Perm(n)
	c := &format.CSC{Offsets: make([]int64, n+1), Neighbors: make([]uint32, m)}
	for range m {
		c.Offsets[1+r.IntN(n)]++
	}
	for v := range n {
		c.Offsets[v+1] += c.Offsets[v]
		list := c.In(int64(v))
		for i := range list {
			x := r.Float64()
			list[i] = uint32(perm[int(float64(n)*x*x)])
		}
		slices.Sort(list)
	}
	return c
}

func BenchmarkSample(b *testing.B) {
	n := 1000000
	t := InMemory(skewed(n, 25*n))
	perm := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for _, name := range Names() {
		b.Run("sampler="+name, func(b *testing.B) {
			m, err := NewMethod(context.Background(), name, t, Options{Fanouts: []int{15, 10, 5}})
			if err != nil {
				b.Fatal(err)
			}
			var batch MiniBatch
			edges, inputs := 0, 0
			seeds := make([]uint32, 1024)
			sample := func(i int) {
				for j := range seeds {
					seeds[j] = uint32(perm[(i*len(seeds)+j)%n])
				}
				if err := m.Sample(b.Context(), &batch, seeds, Key(1, 0, i)); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 3 {
				sample(1000 + i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				sample(i)
				for _, block := range batch.Blocks {
					edges += len(block.Indices)
				}
				inputs += len(batch.Inputs)
			}
			b.ReportMetric(float64(edges)/b.Elapsed().Seconds(), "edges/s")
			b.ReportMetric(float64(edges)/float64(b.N), "edges/batch")
			b.ReportMetric(float64(inputs)/float64(b.N), "inputs/batch")
		})
	}
}
