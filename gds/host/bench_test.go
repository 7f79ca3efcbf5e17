package host_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// bench runs one operation per iteration on a stream of its own. Matrices are
// of numbers in [-1/2, 1/2).
type bench struct {
	*testing.B
	d *host.Device
	s gds.Stream
}

func newBench(b *testing.B) bench {
	d := newDevice(b, host.Options{})
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	return bench{b, d, s}
}

func (b bench) matrix(rows, cols int) gds.Tensor {
	buffer, err := b.d.Alloc(gds.Bytes(rows, cols, gds.Float32))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { buffer.Free() })
	x := dtype.Float32s(buffer.Bytes())
	for i := range x {
		x[i] = rng.Float32(rng.Hash(1, uint64(i))) - 0.5
	}
	return gds.NewTensor(buffer, rows, cols, gds.Float32)
}

func (b bench) loop(op func(s gds.Stream)) {
	b.ReportAllocs()
	for b.Loop() {
		op(b.s)
		if err := b.s.Synchronize(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.s.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range [][3]int{{8000, 512, 512}, {8000, 512, 100}, {8000, 47, 100}} {
		m, n, k := s[0], s[1], s[2]
		for _, c := range []struct {
			name string
			run  func(s gds.Stream, x, w, y gds.Tensor)
		}{
			{"forward", func(s gds.Stream, x, w, y gds.Tensor) { s.Gemm(false, false, 1, x, w, 0, y) }},
			{"weightgrad", func(s gds.Stream, x, w, y gds.Tensor) { s.Gemm(true, false, 1, x, y, 0, w) }},
			{"inputgrad", func(s gds.Stream, x, w, y gds.Tensor) { s.Gemm(false, true, 1, y, w, 0, x) }},
		} {
			b.Run(fmt.Sprintf("rows=%d/in=%d/out=%d/%s", m, k, n, c.name), func(b *testing.B) {
				b2 := newBench(b)
				x, w, y := b2.matrix(m, k), b2.matrix(k, n), b2.matrix(m, n)
				b2.loop(func(s gds.Stream) { c.run(s, x, w, y) })
				b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gflop/s")
			})
		}
	}
}

func BenchmarkGather(b *testing.B) {
	for _, cols := range []int{100, 745} {
		b.Run(fmt.Sprintf("rows=8192/cols=%d", cols), func(b *testing.B) {
			const rows, sources = 8192, 200_000
			b2 := newBench(b)
			src, dst, index := b2.matrix(sources, cols), b2.matrix(rows, cols), b2.matrix(1, rows)
			index.DType = gds.Uint32
			for i := range rows {
				dtype.Uint32s(index.Buf.Bytes())[i] = uint32(rng.Hash(2, uint64(i)) % sources)
			}
			b.SetBytes(gds.Bytes(rows, cols, gds.Float32))
			b2.loop(func(s gds.Stream) { s.Gather(dst, src, index) })
		})
	}
}

func BenchmarkSoftmaxCrossEntropy(b *testing.B) {
	for _, classes := range []int{8, 172} {
		b.Run(fmt.Sprintf("rows=8192/classes=%d", classes), func(b *testing.B) {
			const rows = 8192
			b2 := newBench(b)
			loss, grad, logits, labels := b2.matrix(1, 1), b2.matrix(rows, classes), b2.matrix(rows, classes),
				b2.matrix(1, rows)
			labels.DType = gds.Int32
			for i := range rows {
				dtype.Int32s(labels.Buf.Bytes())[i] = int32(i % classes)
			}
			b.SetBytes(gds.Bytes(rows, classes, gds.Float32))
			b2.loop(func(s gds.Stream) {
				s.SoftmaxCrossEntropy(loss, grad, logits, labels, gds.Tensor{}, gds.Tensor{},
					1)
			})
		})
	}
}

func BenchmarkElementwise(b *testing.B) {
	const rows, cols = 8192, 512
	for _, c := range []struct {
		name string
		run  func(s gds.Stream, x, y, m, v gds.Tensor)
	}{
		{"axpy", func(s gds.Stream, x, y, m, v gds.Tensor) { s.Axpy(1e-9, x, y) }},
		{"relu", func(s gds.Stream, x, y, m, v gds.Tensor) { s.ReLU(y, x) }},
		{"dropout", func(s gds.Stream, x, y, m, v gds.Tensor) { s.Dropout(y, x, 0.5, 1) }},
		{"sumrows", func(s gds.Stream, x, y, m, v gds.Tensor) { s.SumRows(m.Slice(0, 1), 0, x) }},
		{"adam", func(s gds.Stream, x, y, m, v gds.Tensor) {
			s.Adam(y, x, m, v, gds.AdamOptions{LearningRate: 1e-9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 3})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b2 := newBench(b)
			x, y, m, v := b2.matrix(rows, cols), b2.matrix(rows, cols), b2.matrix(rows, cols), b2.matrix(rows, cols)
			b2.s.ReLU(v, v)
			b.SetBytes(gds.Bytes(rows, cols, gds.Float32))
			b2.loop(func(s gds.Stream) { c.run(s, x, y, m, v) })
		})
	}
}

// What an operation costs beside its work: 100 of one element each, and a Synchronize.
func BenchmarkSmallOperations(b *testing.B) {
	b2 := newBench(b)
	x := b2.matrix(1, 1)
	b2.loop(func(s gds.Stream) {
		for range 100 {
			s.Axpy(1e-9, x, x)
		}
	})
}
