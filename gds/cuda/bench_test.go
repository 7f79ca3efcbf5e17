//go:build cuda && cgo && linux

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

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

// BenchmarkPropagate measures a product of a sparse matrix of 25 terms a row. The
// bytes are the bytes of the rows that are added.
func BenchmarkPropagate(b *testing.B) {
	const rows, degree, cols = 1 << 20, 25, 128
	d := open(b, 0)
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	var buffers []gds.Buffer
	tensor := func(rows, cols int, t gds.DType) gds.Tensor {
		buffer, err := d.Alloc(gds.Bytes(rows, cols, t))
		if err != nil {
			b.Fatal(err)
		}
		buffers = append(buffers, buffer)
		return gds.NewTensor(buffer, rows, cols, t)
	}
	offsets, nodes := make([]int64, rows+1), make([]uint32, rows*degree)
	for i := range offsets {
		offsets[i] = int64(i * degree)
	}
	for e := range nodes {
		nodes[e] = uint32(rng.Hash(1, uint64(e)) % rows)
	}
	lists := gds.Product{NodeFactors: tensor(1, rows, gds.Float32), RowFactors: tensor(1, rows, gds.Float32),
		Nodes: tensor(1, len(nodes), gds.Uint32)}
	all := tensor(1, rows+1, gds.Int64)
	if err := errors.Join(gds.Upload(d, s, all, offsets), gds.Upload(d, s, lists.Nodes, nodes)); err != nil {
		b.Fatal(err)
	}
	lists.Starts, lists.Ends = all.Columns(0, rows), all.Columns(1, rows+1)
	for _, t := range []gds.DType{gds.Float32, gds.Float16} {
		x, y := tensor(rows, cols, t), tensor(rows, cols, t)
		for _, c := range []int{8, cols} {
			src, dst := gds.NewTensor(x.Buf, rows, c, t), gds.NewTensor(y.Buf, rows, c, t)
			for _, any := range []bool{false, true} {
				b.Run(fmt.Sprintf("type=%v/cols=%d/any-order=%t", t, c, any), func(b *testing.B) {
					lists.AnyOrder = any
					rate(b, s, gds.Bytes(len(nodes), c, t), func() { s.Propagate(dst, src, lists) })
				})
			}
		}
	}
	err = s.Close()
	for _, buffer := range buffers {
		err = errors.Join(err, buffer.Free())
	}
	if err := errors.Join(err, d.Close()); err != nil {
		b.Error(err)
	}
}

// BenchmarkSample measures how a block is sampled: of 16,384 nodes of a graph of 1M nodes and 25M edges, in
// pinned memory and on the device. Bytes are 4 for each edge that is chosen.
func BenchmarkSample(b *testing.B) {
	const nodes, degree, seeds, fanout = 1 << 20, 25, 1 << 14, 10
	d := open(b, 0)
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	var buffers []gds.Buffer
	tensor := func(alloc func(int64) (gds.Buffer, error), cols int, t gds.DType) gds.Tensor {
		buffer, err := alloc(gds.Bytes(1, cols, t))
		if err != nil {
			b.Fatal(err)
		}
		buffers = append(buffers, buffer)
		return gds.NewTensor(buffer, 1, cols, t)
	}
	offsets, sources, chosen := make([]int64, nodes+1), make([]uint32, nodes*degree), make([]uint32, seeds)
	for v := range offsets {
		offsets[v] = int64(v * degree)
	}
	for e := range sources {
		sources[e] = uint32(rng.Hash(1, uint64(e)) % nodes)
	}
	for i := range chosen {
		chosen[i] = uint32(i * 7919 % nodes)
	}
	all := tensor(d.Alloc, seeds*(fanout+1), gds.Uint32)
	starts, total, read, count := tensor(d.Alloc, seeds+1, gds.Uint32), tensor(d.Alloc, 1, gds.Int64),
		tensor(d.Alloc, 1, gds.Int64), tensor(d.Alloc, 1, gds.Uint32)
	edges, weights, ids := tensor(d.Alloc, seeds*fanout, gds.Uint32), tensor(d.Alloc, seeds*fanout, gds.Float32),
		tensor(d.Alloc, seeds*fanout, gds.Uint32)
	from := all.Columns(0, seeds)
	if err := gds.Upload(d, s, from, chosen); err != nil {
		b.Fatal(err)
	}
	for place, alloc := range map[string]func(int64) (gds.Buffer, error){"pinned": d.AllocPinned, "device": d.Alloc} {
		g := &gds.Graph{Offsets: tensor(alloc, nodes+1, gds.Int64), Sources: tensor(alloc, nodes*degree, gds.Uint32),
			Mean: true}
		if err := errors.Join(gds.Upload(d, s, g.Offsets, offsets), gds.Upload(d, s, g.Sources, sources)); err != nil {
			b.Fatal(err)
		}
		o := gds.Sampling{Fanout: fanout, Random: 1}
		b.Run("neighbor/graph="+place, func(b *testing.B) {
			rate(b, s, 4*seeds*fanout, func() {
				s.CountSampled(starts, total, read, from, g, o)
				s.SampleEdges(edges, weights, starts, from, g, o)
			})
		})
	}
	b.Run("relabel", func(b *testing.B) {
		rate(b, s, 4*seeds*fanout, func() { s.Relabel(ids, all, count, edges, seeds) })
	})
	err = s.Close()
	for _, buffer := range buffers {
		err = errors.Join(err, buffer.Free())
	}
	if err := errors.Join(err, d.Close()); err != nil {
		b.Error(err)
	}
}

// BenchmarkDevice measures what loading and training do most: run it on a real GPU alone.
func BenchmarkDevice(b *testing.B) {
	const rows, cols, hidden = 1 << 18, 128, 512
	d := open(b, 0)
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	var buffers []gds.Buffer
	tensor := func(alloc func(int64) (gds.Buffer, error), rows, cols int, t gds.DType) gds.Tensor {
		buffer, err := alloc(gds.Bytes(rows, cols, t))
		if err != nil {
			b.Fatal(err)
		}
		buffers = append(buffers, buffer)
		return gds.NewTensor(buffer, rows, cols, t)
	}
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
	b.Run("launch", func(b *testing.B) {
		one := x.Slice(0, 1)
		rate(b, s, 1, func() { s.Fill(one, 1) })
	})
	err = s.Close()
	for _, buffer := range buffers {
		err = errors.Join(err, buffer.Free())
	}
	if err := errors.Join(err, d.Close()); err != nil {
		b.Error(err)
	}
}
