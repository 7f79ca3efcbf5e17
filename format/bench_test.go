package format

import (
	"context"
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// largeStore has 20000 rows of 2 matrices; the disk is memory, so that the format's own work shows.
func largeStore(b *testing.B, t DType) (vfs.FS, *sample) {
	s := makeStore("large", [4]int64{20000, 0, 0, 0}, 256, 1000, t, columns{1, 1, false}, Operator{Name: "sym", Hops: 1})
	fsys, _ := s.mustWrite(b)
	return fsys, &s
}

func BenchmarkWriteMatrix(b *testing.B) {
	for _, t := range []DType{Float32, Float16} {
		b.Run(fmt.Sprintf("dtype=%s", t), func(b *testing.B) {
			_, s := largeStore(b, t)
			b.SetBytes(int64(len(s.matrices[Input])))
			for b.Loop() {
				w, err := Create(vfs.NewMem(), "/d", s.layout, CreateOptions{})
				if err != nil {
					b.Fatal(err)
				}
				m, err := w.Matrix(Input)
				if err != nil {
					b.Fatal(err)
				}
				if err := m.Write(s.matrices[Input]); err != nil {
					b.Fatal(err)
				}
				if err := m.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadChunk(b *testing.B) {
	for _, t := range []DType{Float32, Float16} {
		b.Run(fmt.Sprintf("dtype=%s", t), func(b *testing.B) {
			fsys, _ := largeStore(b, t)
			d, err := OpenStore(fsys, "/d")
			if err != nil {
				b.Fatal(err)
			}
			m, err := d.Matrix(Input)
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]byte, m.Extent(0).Length)
			b.SetBytes(int64(len(dst)))
			for k := 0; b.Loop(); k++ {
				if err := m.ReadChunk(k%m.Chunks(), dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			fsys, _ := largeStore(b, Float32)
			for b.Loop() {
				r, err := Verify(context.Background(), fsys, "/d", threads, progress.Silent)
				if err != nil || len(r.Bad) > 0 {
					b.Fatal(r, err)
				}
				b.SetBytes(r.Bytes)
			}
		})
	}
}

// BenchmarkTopology has a graph of 1M edges, in lists of different lengths.
func BenchmarkTopology(b *testing.B) {
	s := makeGraph("large", 400_000, 0, 1000, Float32, false, columns{})
	fsys, _ := s.mustWrite(b)
	d, err := OpenGraph(fsys, "/d")
	if err != nil {
		b.Fatal(err)
	}
	ctx, bytes := context.Background(), 8*s.topology.Nodes()+4*s.topology.Edges()
	b.Run("read=whole", func(b *testing.B) {
		b.SetBytes(bytes)
		for b.Loop() {
			c, err := d.Topology(ctx, 1)
			if err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
	b.Run("read=open", func(b *testing.B) {
		b.SetBytes(bytes)
		for b.Loop() {
			f, err := d.OpenTopology(ctx, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
	b.Run("read=blocks", func(b *testing.B) {
		f, err := d.OpenTopology(ctx, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		buf := make([]byte, f.RangeBytes())
		b.SetBytes(bytes)
		for b.Loop() {
			for k := range f.Ranges() {
				if _, err := f.ReadRange(k, buf); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
