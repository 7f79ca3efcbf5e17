//go:build cuda && cgo && linux

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
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
	}
	few, weights, out := x.Slice(0, 8192), tensor(d.Alloc, cols, hidden, gds.Float32), tensor(d.Alloc, 8192, hidden, gds.Float32)
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
