package kernel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// BenchmarkSum sums lists of 25 rows, some of which are listed more often than
// others, of a matrix that no cache holds (rows=1000000) or that fits (rows=100).
func BenchmarkSum(b *testing.B) {
	const columns, list, lists, atOnce = 128, 25, 4096, 128
	for _, rows := range []int{100, 1_000_000} {
		nodes := make([]uint32, list*lists)
		for i := range nodes {
			r := rng.Float64(rng.Hash(1, uint64(i)))
			nodes[i] = uint32(uint64(r*r*r*float64(rows)) * 2654435761 % uint64(rows))
		}
		x, codes := make([]float32, rows*columns), make([]uint16, rows*columns)
		for i := range x { // touched, so that they are in memory
			x[i], codes[i] = float32(i%97), uint16(i%97)
		}
		factors := make([]float32, rows)
		sums, lengths := make([]float32, atOnce*columns), slices.Repeat([]int{list}, atOnce)
		terms := termsOf(nil, lengths, factors, true)
		for _, t := range []struct {
			name  string
			bytes int
			sum   func()
		}{
			{"float32", 4, func() { SumListsFloat32(sums, x, columns, columns, terms) }},
			{"float16", 2, func() { SumListsFloat16(sums, codes, columns, columns, terms) }},
			{"bfloat16", 2, func() { SumListsBFloat16(sums, codes, columns, columns, terms) }},
		} {
			for _, set := range available() {
				b.Run(fmt.Sprintf("rows=%d/dtype=%s/set=%s", rows, t.name, set.name), func(b *testing.B) {
					defer func(before *implementation) { active = before }(active)
					active = set
					b.SetBytes(atOnce * list * columns * int64(t.bytes))
					i := 0
					for b.Loop() {
						terms.Nodes = nodes[i*list:]
						t.sum()
						i = (i + atOnce) % lists
					}
				})
			}
		}
	}
}

func BenchmarkScale(b *testing.B) {
	src, half := make([]float32, 1024), []float32{0.5}
	floats, codes := make([]float32, len(src)), make([]uint16, len(src))
	for _, t := range []struct {
		name  string
		scale func()
	}{
		{"float32", func() { ScaleFloat32(floats, src, half, false) }},
		{"float16", func() { ScaleFloat16(codes, src, half, false) }},
		{"bfloat16", func() { ScaleBFloat16(codes, src, half, false) }},
	} {
		for _, set := range available() {
			b.Run(fmt.Sprintf("dtype=%s/set=%s", t.name, set.name), func(b *testing.B) {
				defer func(before *implementation) { active = before }(active)
				active = set
				b.SetBytes(int64(4 * len(src)))
				for b.Loop() {
					t.scale()
				}
			})
		}
	}
}

func BenchmarkFeistel(b *testing.B) {
	images, keys := make([]uint64, 8000), []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	for _, set := range available() {
		b.Run("set="+set.name, func(b *testing.B) {
			defer func(before *implementation) { active = before }(active)
			active = set
			for b.Loop() {
				Feistel(images, 0, keys, 1760, 9)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(images)), "ns/number")
		})
	}
}

// BenchmarkGemm multiplies on one goroutine: the products of a layer of 512 by 512 forward and for its
// weights' gradient.
func BenchmarkGemm(b *testing.B) {
	const rows, width = 2048, 512
	x, w, y := make([]float32, rows*width), make([]float32, width*width), make([]float32, rows*width)
	for _, c := range []struct {
		name    string
		product Product
	}{
		{"forward", Product{TransB: true, Rows: rows, Columns: width, Inner: width, Alpha: 1, A: x, AStride: width,
			B: w, BStride: width, C: y, CStride: width}},
		{"weightgrad", Product{TransA: true, Rows: width, Columns: width, Inner: rows, Alpha: 1, A: y, AStride: width,
			B: x, BStride: width, C: w, CStride: width}},
	} {
		for _, set := range available() {
			b.Run(fmt.Sprintf("product=%s/set=%s", c.name, set.name), func(b *testing.B) {
				defer func(before *implementation) { active = before }(active)
				active = set
				var g Gemm
				for b.Loop() {
					g.run(c.product, 1)
				}
				b.ReportMetric(2*rows*width*width*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gflop/s")
			})
		}
	}
}
