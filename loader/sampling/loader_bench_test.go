package sampling

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
)

// benchGraph opens the graph that the environment names: go test -bench Load with HOPFEED_GRAPH set.
func benchGraph(b *testing.B) *format.Dir {
	b.Helper()
	path := os.Getenv("HOPFEED_GRAPH")
	if path == "" {
		b.Skip("HOPFEED_GRAPH names no graph")
	}
	graph, err := format.OpenGraph(vfs.OS(), path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = graph.Close() })
	return graph
}

// BenchmarkLoad is sampling, features and labels, end to end, as a model on this machine would get them.
func BenchmarkLoad(b *testing.B) {
	graph := benchGraph(b)
	topology, err := LoadTopology(b.Context(), graph, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer topology.Close()
	device, err := host.New(host.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer device.Close()
	labels, err := loader.ReadLabels(b.Context(), graph)
	if err != nil {
		b.Fatal(err)
	}
	nodes := make([]uint32, topology.Nodes())
	for i, v := range rand.New(rand.NewPCG(1, 2)).Perm(len(nodes)) {
		nodes[i] = uint32(v)
	}
	method, err := NewMethod(context.Background(), "neighbor", topology, Options{Fanouts: []int{15, 10, 5}})
	if err != nil {
		b.Fatal(err)
	}
	defer method.Close()
	for _, c := range []struct{ placement, cache string }{{"host", ""}, {"storage", ""}, {"storage", "lru:256MiB"},
		{"storage", "degree:256MiB"}} {
		b.Run(fmt.Sprintf("features=%s/cache=%s", c.placement, c.cache), func(b *testing.B) {
			o := LoaderOptions{Device: device, Labels: labels, Types: make([]TypeRows, 1)}
			rows := &o.Types[0]
			var err error
			if c.placement == "host" {
				rows.Features, err = features.LoadHost(b.Context(), graph, nil, 0)
			} else {
				rows.Features, err = features.OpenStorage(b.Context(), graph, device, 0)
			}
			if err != nil {
				b.Fatal(err)
			}
			defer rows.Features.Close()
			plan := chunk.Plan{BatchRows: 1024, Order: chunk.Shuffled}
			if c.cache != "" {
				spec, err := cache.Parse(c.cache)
				if err != nil {
					b.Fatal(err)
				}
				caches, err := OpenCaches(b.Context(), spec,
					CacheOptions{Topology: topology, RowBytes: []int64{gds.Bytes(1, rows.Features.Columns(),
						rows.Features.DType())}, Method: method, Nodes: nodes, Plan: plan})
				if err != nil {
					b.Fatal(err)
				}
				rows.Cache = caches[0].Cache
			}
			l, err := Open(o)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			set, err := l.Set(nodes, method, plan)
			if err != nil {
				b.Fatal(err)
			}
			stream, err := device.NewStream()
			if err != nil {
				b.Fatal(err)
			}
			defer stream.Close()
			const warm = 5
			seeds, edges, inputs, left := 0, 0, 0, b.N+warm
			for left > 0 {
				for batch, err := range set.EpochFrom(b.Context(), stream, 0, 0) {
					if err != nil {
						b.Fatal(err)
					}
					if left--; left >= b.N {
						if left == b.N {
							b.ResetTimer()
						}
						continue
					}
					seeds += batch.Rows
					inputs += batch.X[0].Rows
					for _, k := range batch.Blocks {
						edges += k.Indices.Cols
					}
					if left == 0 {
						break
					}
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(seeds)/b.Elapsed().Seconds(), "seeds/s")
			b.ReportMetric(float64(edges)/float64(b.N), "edges/batch")
			b.ReportMetric(float64(inputs)/float64(b.N), "inputs/batch")
			s := l.Stats()
			for _, stage := range s.Stages {
				b.ReportMetric(1000*stage.WorkSeconds/float64(s.Batches), stage.Name+"-ms/batch")
			}
			if s.Cache != nil {
				b.ReportMetric(s.Traffic.HitRate(), "hits")
			}
			if s.Features.Reads > 0 {
				b.ReportMetric(float64(s.Features.ReadBytes)/float64(s.Features.Rows), "read-bytes/row")
			}
		})
	}
}
