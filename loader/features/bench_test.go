package features_test

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// BenchmarkGather gathers rows of random nodes of the graph that HOPFEED_GRAPH names: as many as a
// batch has, and, from storage, so few that hardly two are neighbours.
func BenchmarkGather(b *testing.B) {
	path := os.Getenv("HOPFEED_GRAPH")
	if path == "" {
		b.Skip("HOPFEED_GRAPH names no graph")
	}
	graph, err := format.OpenGraph(vfs.OS(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer graph.Close()
	for way, s := range sources(b, graph) {
		for _, rows := range []int{2000, 200000} {
			b.Run(way+"/rows="+map[int]string{2000: "2k", 200000: "200k"}[rows], func(b *testing.B) {
				rows := min(rows, int(s.Rows()))
				r := rand.New(rand.NewPCG(1, 2))
				lists := make([][]uint32, 5)
				for i := range lists {
					for _, v := range r.Perm(int(s.Rows()))[:rows] {
						lists[i] = append(lists[i], uint32(v))
					}
				}
				dst := make([]byte, gds.Bytes(rows, s.Columns(), gds.Float32))
				gather := func(i int) {
					if err := s.Gather(b.Context(), dst, gds.Float32, lists[i%len(lists)]); err != nil {
						b.Fatal(err)
					}
				}
				gather(0)
				before := s.Stats()
				b.SetBytes(int64(len(dst)))
				b.ResetTimer()
				for i := range b.N {
					gather(i)
				}
				after := s.Stats()
				if reads := after.Reads - before.Reads; reads > 0 {
					b.ReportMetric(float64(reads)/b.Elapsed().Seconds(), "reads/s")
					b.ReportMetric(float64(after.ReadBytes-before.ReadBytes)/float64(after.Rows-before.Rows),
						"read-bytes/row")
				}
			})
		}
	}
}
