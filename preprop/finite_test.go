package preprop

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/product"
)

func TestFiniteKnowsAllNumbersOf16Bits(t *testing.T) {
	for _, of := range []format.DType{format.Float16, format.BFloat16} {
		for bits := range 1 << 16 {
			for at := range 5 {
				stored := make([]uint16, 5)
				stored[at] = uint16(bits)
				value := make([]float32, 5)
				dtype.Decode(value, dtype.BytesOf(stored), of)
				want := !math.IsNaN(float64(value[at])) && !math.IsInf(float64(value[at]), 0)
				if product.Finite(dtype.BytesOf(stored), of) != want {
					t.Fatalf("%s %g in place %d: finite is %v", of, value[at], at, !want)
				}
			}
		}
	}
}

func TestFiniteKnowsTheEdgesOfFloat32(t *testing.T) {
	for _, c := range []struct {
		bits uint32
		want bool
	}{{0, true}, {0x80000000, true}, {1, true}, {0x7f7fffff, true}, {0xff7fffff, true}, {0x7f800000, false},
		{0xff800000, false}, {0x7f800001, false}, {0xffffffff, false}} {
		for n := 1; n < 6; n++ {
			for at := range n {
				stored := make([]uint32, n)
				for i := range stored {
					stored[i] = 0xff7fffff
				}
				stored[at] = c.bits
				if product.Finite(dtype.BytesOf(stored), format.Float32) != c.want {
					t.Errorf("%x in place %d of %d: finite is %v", c.bits, at, n, !c.want)
				}
			}
		}
	}
}

func TestAnInputNamesTheSameNumberWhetherReadWholeOrNot(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, of := range []format.DType{format.Float32, format.Float16, format.BFloat16} {
		for name, set := range map[string]func(g *testGraph){
			"one":                   func(g *testGraph) { g.x[1234*8+5] = float32(math.NaN()) },
			"in the last row":       func(g *testGraph) { g.x[len(g.x)-1] = -inf },
			"several in a chunk":    func(g *testGraph) { g.x[700*8+3], g.x[700*8+2], g.x[699*8+7] = inf, -inf, inf },
			"in chunks far between": func(g *testGraph) { g.x[2900*8], g.x[0] = inf, -inf },
		} {
			g := randomGraph(2, 3000, 8)
			g.DType = of
			set(g)
			fsys := vfs.NewMem()
			w, err := format.Create(fsys, "graph", format.Layout{
				Regions:   format.Regions([]format.RegionSize{{Name: format.RegionAll, Rows: int64(g.nodes)}}, 512),
				ChunkRows: 512, Features: g.features, DType: of,
			}, format.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			x := make([]byte, len(g.x)*of.Size())
			dtype.Encode(x, g.x, of)
			m, err := w.Matrix(format.Input)
			if err == nil {
				err = errors.Join(m.Write(x), m.Close(), w.Topology(g.csc()), w.Rows(&g.rows))
			}
			if err == nil {
				err = w.Publish(&format.Manifest{Kind: format.KindGraph, Name: "test", Nodes: int64(g.nodes),
					Edges: g.csc().Edges(), Directed: true, Classes: 4})
			}
			if err != nil {
				t.Fatal(err)
			}
			dir, err := format.OpenGraph(fsys, "graph")
			if err != nil {
				t.Fatal(err)
			}
			stored, err := dir.Matrix(format.Input)
			if err != nil {
				t.Fatal(err)
			}
			to, err := product.NewMatrix(int64(g.nodes), g.features, of)
			if err != nil {
				t.Fatal(err)
			}
			nodes := make([]uint32, g.nodes)
			for i := range nodes {
				nodes[i] = uint32(i)
			}
			whole, listed := engine.NewInput(stored, nil, of),
				engine.NewInput(stored, nodes, of)
			if !whole.IsWhole(to) || listed.IsWhole(to) {
				t.Fatalf("%s: not one of each way", of)
			}
			a := whole.Load(context.Background(), to, 3, progress.Silent)
			b := listed.Load(context.Background(), to, 3, progress.Silent)
			if a == nil || b == nil || a.Error() != b.Error() || !errors.Is(a, ErrInvalid) {
				t.Errorf("%s, %s: %v\nand %v", of, name, a, b)
			}
			if err := errors.Join(to.Buf.Free(), stored.Close(), dir.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAnInputThatIsCutIntoColumnFilesNamesTheNumberToo(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomGraph(5, 300, 48)
	g.x[123*48+47] = float32(math.NaN())
	g.write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym}}, Threads: 2, Planned: func(p *Plan) {
		*p = *p.Work.WithPanels(Plan{InputFiles: true, InputKept: true}, 12)
	}}
	_, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err == nil || !strings.Contains(err.Error(), "node 123, column 47: invalid data: NaN") {
		t.Fatalf("NaN in the last panel: %v", err)
	}
}
