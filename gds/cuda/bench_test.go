//go:build cuda && cgo && linux

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// allocator is Alloc or AllocPinned of a device.
type allocator = func(bytes int64) (gds.Buffer, error)

// benchDevice is the first device, a stream of it, and what makes a tensor. All of it goes with the benchmark.
func benchDevice(b *testing.B) (gds.Device, gds.Stream, func(from allocator, rows, cols int, t gds.DType) gds.Tensor) {
	d := open(b, 0)
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	var buffers []gds.Buffer
	b.Cleanup(func() {
		err := s.Close()
		for _, buffer := range buffers {
			err = errors.Join(err, buffer.Free())
		}
		if err := errors.Join(err, d.Close()); err != nil {
			b.Error(err)
		}
	})
	return d, s, func(from allocator, rows, cols int, t gds.DType) gds.Tensor {
		buffer, err := from(gds.Bytes(rows, cols, t))
		if err != nil {
			b.Fatal(err)
		}
		buffers = append(buffers, buffer)
		return gds.NewTensor(buffer, rows, cols, t)
	}
}

// rate reports how many bytes a second an operation moves: it is enqueued many times, and waited for
// once.
func rate(b *testing.B, s gds.Stream, bytes int64, enqueue func()) {
	enqueue()
	if err := s.Synchronize(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(16 * bytes)
	for b.Loop() {
		for range 16 {
			enqueue()
		}
		if err := s.Synchronize(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// benchGraphs are the graphs of benchmarks: one whose nodes have the same degree, and of as many edges one whose
// degrees are skewed, the largest 64 times the mean, and one with hubs, the largest of 1.6 % of all edges, both with
// sources that are mostly a few nodes.
var benchGraphs = []string{"uniform", "skewed", "hubs"}

// lists are the offsets and the sources of a graph of rows nodes, a power of two.
func lists(graph string, rows, degree int) (offsets []int64, sources []uint32) {
	offsets, sources = make([]int64, rows+1), make([]uint32, rows*degree)
	upTo := func(i int) int64 { return int64(i * degree) }
	if power := map[string]float64{"skewed": 64, "hubs": 0.3}[graph]; power > 0 {
		upTo = func(i int) int64 {
			return int64(float64(rows*degree) * math.Pow(float64(i)/float64(rows), power))
		}
	}
	for i := range rows {
		from := i * 7919 % rows // odd, so each node once, and large ones are apart
		offsets[i+1] = offsets[i] + upTo(from+1) - upTo(from)
	}
	for e := range sources {
		sources[e] = uint32(rng.Hash(1, uint64(e)) % uint64(rows))
		if graph != "uniform" {
			u := rng.Float64(rng.Hash(1, uint64(e)))
			sources[e] = uint32(u * u * float64(rows))
		}
	}
	return offsets, sources
}

// BenchmarkPropagate measures a product of a sparse matrix of 25 terms a row, or 25 in the mean. The
// bytes are the bytes of the rows that are added.
func BenchmarkPropagate(b *testing.B) {
	const rows, degree, cols = 1 << 20, 25, 128
	d, s, alloc := benchDevice(b)
	tensor := func(rows, cols int, t gds.DType) gds.Tensor { return alloc(d.Alloc, rows, cols, t) }
	const terms = rows * degree
	product := gds.Product{NodeFactors: tensor(1, rows, gds.Float32), RowFactors: tensor(1, rows, gds.Float32),
		Nodes: tensor(1, terms, gds.Uint32)}
	all := tensor(1, rows+1, gds.Int64)
	product.Starts, product.Ends = all.Columns(0, rows), all.Columns(1, rows+1)
	x, y := tensor(rows, cols, gds.Float32), tensor(rows, cols, gds.Float32)
	for _, graph := range benchGraphs {
		offsets, nodes := lists(graph, rows, degree)
		if err := errors.Join(gds.Upload(d, s, all, offsets), gds.Upload(d, s, product.Nodes, nodes)); err != nil {
			b.Fatal(err)
		}
		for _, t := range []gds.DType{gds.Float32, gds.Float16} {
			for _, c := range []int{8, cols} {
				src, dst := gds.NewTensor(x.Buf, rows, c, t), gds.NewTensor(y.Buf, rows, c, t)
				b.Run(fmt.Sprintf("graph=%s/type=%v/cols=%d", graph, t, c), func(b *testing.B) {
					rate(b, s, gds.Bytes(terms, c, t), func() { s.Propagate(dst, src, product) })
				})
			}
		}
	}
}

// BenchmarkSample measures how a block is sampled: of 16,384 nodes of a graph of 1M nodes and 25M edges, in
// pinned memory and on the device. Bytes are 4 for each edge that is chosen.
func BenchmarkSample(b *testing.B) {
	const nodes, degree, seeds, fanout = 1 << 20, 25, 1 << 14, 10
	d, s, alloc := benchDevice(b)
	tensor := func(from allocator, cols int, t gds.DType) gds.Tensor { return alloc(from, 1, cols, t) }
	chosen := make([]uint32, seeds)
	for i := range chosen {
		chosen[i] = uint32(i * 7919 % nodes)
	}
	all := tensor(d.Alloc, seeds*(fanout+1), gds.Uint32)
	starts, total, read, count := tensor(d.Alloc, seeds+1, gds.Uint32), tensor(d.Alloc, 1, gds.Int64),
		tensor(d.Alloc, 1, gds.Int64), tensor(d.Alloc, 1, gds.Uint32)
	edges, weights, ids := tensor(d.Alloc, 2*seeds*fanout, gds.Uint32), tensor(d.Alloc, 2*seeds*fanout, gds.Float32),
		tensor(d.Alloc, seeds*fanout, gds.Uint32)
	from := all.Columns(0, seeds)
	if err := gds.Upload(d, s, from, chosen); err != nil {
		b.Fatal(err)
	}
	for place, alloc := range map[string]func(int64) (gds.Buffer, error){"pinned": d.AllocPinned, "device": d.Alloc} {
		g := &gds.Graph{Offsets: tensor(alloc, nodes+1, gds.Int64), Sources: tensor(alloc, nodes*degree, gds.Uint32),
			Mean: true}
		for _, graph := range benchGraphs {
			offsets, sources := lists(graph, nodes, degree)
			err := errors.Join(gds.Upload(d, s, g.Offsets, offsets), gds.Upload(d, s, g.Sources, sources))
			if err != nil {
				b.Fatal(err)
			}
			for name, o := range map[string]gds.Sampling{"neighbor": {Fanout: fanout, Random: 1},
				"labor": {Fanout: fanout, Labor: true, Random: 1}} {
				b.Run(fmt.Sprintf("%s/graph=%s/in=%s", name, graph, place), func(b *testing.B) {
					s.CountSampled(starts, total, read, from, g, o)
					var count [1]int64
					if err := gds.Download(d, s, count[:], total); err != nil {
						b.Fatal(err)
					}
					n := int(count[0])
					rate(b, s, 4*int64(n), func() {
						s.CountSampled(starts, total, read, from, g, o)
						s.SampleEdges(edges.Columns(0, n), weights.Columns(0, n), starts, from, g, o)
					})
				})
			}
		}
	}
	b.Run("relabel", func(b *testing.B) {
		rate(b, s, 4*seeds*fanout, func() { s.Relabel(ids, all, count, edges.Columns(0, seeds*fanout), seeds) })
	})
}

// BenchmarkEdges measures a layer over a block of 16,384 destinations and 176,000 edges from 150,000 sources: each the
// source of as many edges, or skewed, so that the first are the sources of most.
func BenchmarkEdges(b *testing.B) {
	const destinations, sources, edges, cols, heads = 1 << 14, 150_000, 176_000, 256, 4
	d, s, alloc := benchDevice(b)
	tensor := func(rows, cols int, t gds.DType) gds.Tensor { return alloc(d.Alloc, rows, cols, t) }
	offsets, indices, weights := tensor(1, destinations+1, gds.Uint32), tensor(1, edges, gds.Uint32),
		tensor(1, edges, gds.Float32)
	src, dst := tensor(sources, cols, gds.Float32), tensor(destinations, cols, gds.Float32)
	scores, stats, gradScores := tensor(sources, 2*heads, gds.Float32), tensor(destinations, 2*heads, gds.Float32),
		tensor(sources, 2*heads, gds.Float32)
	gradSrc := tensor(sources, cols, gds.Float32)
	s.Fill(src, 1)
	s.Fill(dst, 1)
	s.Fill(weights, 1)
	s.Fill(scores, 1)
	for _, graph := range benchGraphs[:2] {
		from, index := make([]uint32, destinations+1), make([]uint32, edges)
		for i := range from {
			from[i] = uint32(i * edges / destinations)
		}
		for e := range index {
			u := rng.Float64(rng.Hash(1, uint64(e)))
			if graph != "uniform" {
				u = math.Pow(u, 4)
			}
			index[e] = uint32(u * sources)
		}
		if err := errors.Join(gds.Upload(d, s, offsets, from), gds.Upload(d, s, indices, index)); err != nil {
			b.Fatal(err)
		}
		for _, op := range []struct {
			name string
			run  func()
		}{
			{"sum", func() { s.SumEdges(dst, src, offsets, indices, weights) }},
			{"sum grad", func() { s.SumEdgesGrad(gradSrc, dst, offsets, indices, weights) }},
			{"attend", func() { s.AttendEdges(dst, stats, src, scores, offsets, indices, 0.2) }},
			{"attend grad", func() {
				s.AttendEdgesGrad(gradSrc, gradScores, dst, stats, src, scores, offsets, indices, 0.2)
			}},
		} {
			b.Run(fmt.Sprintf("%s/graph=%s", op.name, graph), func(b *testing.B) {
				rate(b, s, gds.Bytes(edges, cols, gds.Float32), op.run)
			})
		}
	}
}

// BenchmarkDevice measures what loading and training do most: run it on a real GPU alone.
func BenchmarkDevice(b *testing.B) {
	const rows, cols, hidden = 1 << 18, 128, 512
	d, s, tensor := benchDevice(b)
	x, y := tensor(d.Alloc, rows, cols, gds.Float32), tensor(d.Alloc, rows, cols, gds.Float32)
	pinned := tensor(d.AllocPinned, rows, cols, gds.Float32)
	index := make([]uint32, rows)
	for i := range index {
		index[i] = uint32(i*7919) % rows
	}
	by := tensor(d.Alloc, 1, rows, gds.Uint32)
	if err := gds.Upload(d, s, by, index); err != nil {
		b.Fatal(err)
	}
	moved := 2 * gds.Bytes(rows, cols, gds.Float32)
	b.Run("copy", func(b *testing.B) { rate(b, s, moved, func() { s.Copy(y, x) }) })
	b.Run("copy/from=pinned", func(b *testing.B) { rate(b, s, moved/2, func() { s.Copy(y, pinned) }) })
	for _, c := range []int{16, 100, 128} {
		b.Run(fmt.Sprintf("gather/row=%dB", 4*c), func(b *testing.B) {
			rate(b, s, 2*gds.Bytes(rows, c, gds.Float32), func() { s.Gather(y.Columns(0, c), x.Columns(0, c), by) })
		})
		b.Run(fmt.Sprintf("gather/row=%dB/from=pinned", 4*c), func(b *testing.B) {
			rate(b, s, gds.Bytes(rows, c, gds.Float32), func() { s.Gather(y.Columns(0, c), pinned.Columns(0, c), by) })
		})
	}
	few, weights, out := x.Slice(0, 8192), tensor(d.Alloc, cols, hidden, gds.Float32),
		tensor(d.Alloc, 8192, hidden, gds.Float32)
	b.Run("gemm/m=8192,n=512,k=128/flops", func(b *testing.B) {
		rate(b, s, 2*8192*cols*hidden, func() { s.Gemm(false, false, 1, few, weights, 0, out) })
	})
	b.Run("layernorm", func(b *testing.B) {
		stats, one := tensor(d.Alloc, rows, 2, gds.Float32), tensor(d.Alloc, 1, cols, gds.Float32)
		rate(b, s, moved, func() { s.NormalizeRows(y, stats, x, one, one, 1e-5) })
	})
	const parameters = 1_300_000
	vector := func(of gds.Tensor, i int) gds.Tensor {
		return gds.NewTensor(of.Buf, 2, parameters, gds.Float32).Slice(i, i+1)
	}
	b.Run("adam", func(b *testing.B) {
		o := gds.AdamOptions{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 1}
		rate(b, s, 7*gds.Bytes(1, parameters, gds.Float32), func() {
			s.Adam(vector(x, 0), vector(x, 1), vector(y, 0), vector(y, 1), o)
		})
	})
	b.Run("checksum", func(b *testing.B) {
		rate(b, s, moved/2, func() { s.Checksum(by.Columns(0, 1), x) })
	})
	one := x.Slice(0, 1)
	b.Run("launches=1024", func(b *testing.B) {
		rate(b, s, 1, func() {
			for range 64 {
				s.Fill(one, 1)
			}
		})
	})
	b.Run("launch and wait", func(b *testing.B) {
		for b.Loop() {
			s.Fill(one, 1)
			if err := s.Synchronize(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
