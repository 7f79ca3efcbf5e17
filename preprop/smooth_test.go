package preprop

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// smoothed is Correct and Smooth of the paper, in float64 on dense matrices: S, and D^-1 A in its place.
func smoothed(g *testGraph, split int, z []float32, o Smoothing, s, walk []float64) []float64 {
	y, classes := g.oneHot(split)
	n := g.nodes
	out := make([]float64, n*classes)
	for i, x := range z {
		out[i] = float64(x)
	}
	train := make([]bool, n)
	e, sum, labelled := make([]float64, n*classes), 0.0, 0
	for v := range n {
		train[v] = slices.Max(y[v*classes:(v+1)*classes]) == 1
		if !train[v] {
			continue
		}
		labelled++
		for i := v * classes; i < (v+1)*classes; i++ {
			e[i] = float64(y[i]) - out[i]
			sum += math.Abs(e[i])
		}
	}
	propagate := func(start []float64, alpha float64) []float64 {
		x := slices.Clone(start)
		for range o.Steps {
			next := multiply(s, x, n, classes)
			for i := range next {
				next[i] = (1-alpha)*start[i] + alpha*next[i]
			}
			x = next
		}
		return x
	}
	var spread []float64
	if o.Fixed {
		spread = slices.Clone(e)
		for range o.Steps {
			spread = multiply(walk, spread, n, classes)
			for v := range n {
				if train[v] {
					copy(spread[v*classes:(v+1)*classes], e[v*classes:(v+1)*classes])
				}
			}
		}
	} else {
		spread = propagate(e, o.CorrectAlpha)
	}
	for v := range n {
		norm := 0.0
		for i := v * classes; i < (v+1)*classes; i++ {
			norm += math.Abs(spread[i])
		}
		for i := v * classes; i < (v+1)*classes; i++ {
			switch {
			case train[v]:
				out[i] = float64(y[i])
			case o.Fixed:
				out[i] += o.Scale * spread[i]
			case norm > 0:
				out[i] += sum / float64(labelled) * spread[i] / norm
			}
		}
	}
	return propagate(out, o.SmoothAlpha)
}

// checkSmooth compares what Smooth makes of a graph with its definition. g has the same nodes. It returns the
// predictions.
func checkSmooth(t *testing.T, graph *format.Dir, g *testGraph, seed uint64, metapaths []string,
	s, walk []float64) []float32 {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 9))
	z := make([]float32, g.nodes*4)
	for i := range z {
		z[i] = random.Float32() / 2
	}
	for _, o := range []Smoothing{{CorrectAlpha: 0.8, SmoothAlpha: 0.7, Steps: 20, Scale: 1},
		{Fixed: true, Scale: 1.5, SmoothAlpha: 0.8, Steps: 20}, {CorrectAlpha: 1, SmoothAlpha: 0, Steps: 1, Scale: 1}} {
		o.Metapaths = metapaths
		got := slices.Clone(z)
		if err := Smooth(context.Background(), graph, 1, got, o, 2); err != nil {
			t.Fatal(err)
		}
		want := smoothed(g, 1, z, o, s, walk)
		for i, x := range got {
			if math.Abs(float64(x)-want[i]) > 2e-5*(1+math.Abs(want[i])) {
				t.Fatalf("seed %d, %+v: node %d, class %d is %g, want %g", seed, o, i/4, i%4, x, want[i])
			}
		}
	}
	return z
}

// along is the mean over metapaths of the products of the relations' matrices, [paper][paper].
func (g *testTyped) along(paths [][]string, sym bool) []float64 {
	n := g.nodes["paper"]
	mean := make([]float64, n*n)
	for _, path := range paths {
		x := make([][]float64, n)
		for v := range x {
			x[v] = make([]float64, n)
			x[v][v] = 1
		}
		for _, name := range slices.Backward(path) {
			at := slices.IndexFunc(g.order, func(r format.Relation) bool { return r.String() == name })
			x, _ = g.product(g.order[at], x, x, sym)
		}
		for v, row := range x {
			for u, w := range row {
				mean[v*n+u] += w / float64(len(paths))
			}
		}
	}
	return mean
}

func TestCorrectAndSmoothOfATypedGraphTravelsAlongMetapaths(t *testing.T) {
	writes, by, cites, extends := "author__writes__paper", "paper__by__author", "paper__cites__paper",
		"paper__extends__paper"
	of, in := "venue__paper", "paper__venue"
	for i, c := range []struct {
		metapaths []string
		paths     [][]string
		without   []string
	}{
		{[]string{"paper<author<paper"}, [][]string{{writes, by}}, nil},
		{[]string{"paper<cites.paper<venue<paper<author<paper", "paper<extends.paper"},
			[][]string{{cites, of, in, writes, by}, {extends}}, nil},
		{nil, [][]string{{cites}, {extends}}, nil},
		{nil, [][]string{{writes, by}, {of, in}}, []string{cites, extends}},
	} {
		fsys := vfs.NewMem()
		g := randomTyped(t, fsys, "graph", 60, c.without...)
		graph, err := format.OpenTarget(fsys, "graph")
		if err != nil {
			t.Fatal(err)
		}
		defer graph.Close()
		checkSmooth(t, graph, g.papers, uint64(i), c.metapaths, g.along(c.paths, true), g.along(c.paths, false))
	}
}

func TestMetapathsThatPredictionsCannotTravelAlongAreRefused(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 60)
	randomTyped(t, fsys, "apart", 60, "paper__cites__paper", "paper__extends__paper", "paper__by__author", "venue__paper")
	for _, c := range [][3]string{
		{"graph", "paper<author", `"paper<author" ends at author`},
		{"graph", "author<paper", "want paper<TYPE"},
		{"graph", "paper<paper", "paper<paper may be any of 2 relations: name one (paper<"},
		{"graph", "paper<editor<paper", "there is no relation paper<editor"},
		{"graph", "paper", "want paper<TYPE"},
		{"apart", "", "apart has no metapath of one or two relations from paper to paper: give one"},
	} {
		graph, err := format.OpenTarget(fsys, c[0])
		if err != nil {
			t.Fatal(err)
		}
		defer graph.Close()
		o := Smoothing{Steps: 1, Scale: 1}
		if c[1] != "" {
			o.Metapaths = []string{c[1]}
		}
		z := make([]float32, 60*4)
		_, planned := SmoothBytes(graph, o)
		for _, err := range []error{planned, Smooth(t.Context(), graph, 1, z, o, 1)} {
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c[2]) {
				t.Errorf("%s, %s: %v", c[0], c[1], err)
			}
		}
	}
}

func TestCorrectAndSmoothAgreesWithThePaperInFloat64(t *testing.T) {
	for seed := range uint64(4) {
		g := graphWithHubs(seed, 150, false)
		for i := range g.edges { // residuals keep their order of size, as norms divide
			g.edges[i].weight = float32(math.Abs(float64(g.edges[i].weight)))
		}
		fsys := vfs.NewMem()
		g.write(t, fsys, "graph")
		graph, err := format.OpenGraph(fsys, "graph")
		if err != nil {
			t.Fatal(err)
		}
		defer graph.Close()
		z := checkSmooth(t, graph, g, seed, nil,
			denseMatrix(g.nodes, g.edges, operator.Operator{Name: operator.Sym, NoLoops: true}),
			denseMatrix(g.nodes, g.edges, operator.Operator{Name: operator.RW, NoLoops: true}))
		for _, o := range []Smoothing{{CorrectAlpha: 2, Steps: 1, Scale: 1}, {Scale: 1}, {Steps: 1},
			{CorrectAlpha: math.NaN(), Steps: 1, Scale: 1}, {Metapaths: []string{"paper<paper"}, Steps: 1, Scale: 1}} {
			if err := Smooth(context.Background(), graph, 1, z, o, 1); !errors.Is(err, ErrOptions) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		if err := Smooth(context.Background(), graph, 2, z, Smoothing{Steps: 1, Scale: 1}, 1); !errors.Is(err, ErrOptions) {
			t.Errorf("split 2 of 2: %v", err)
		}
	}
}
