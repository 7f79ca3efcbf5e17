package preprop

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// smoothed is Correct and Smooth of the paper, in float64 on dense matrices.
func smoothed(g *testGraph, split int, z []float32, o Smoothing) []float64 {
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
	s := denseMatrix(n, g.edges, operator.Operator{Name: operator.Sym, NoLoops: true})
	walk := denseMatrix(n, g.edges, operator.Operator{Name: operator.RW, NoLoops: true})
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
		random := rand.New(rand.NewPCG(seed, 9))
		z := make([]float32, g.nodes*4)
		for i := range z {
			z[i] = random.Float32() / 2
		}
		for _, o := range []Smoothing{{CorrectAlpha: 0.8, SmoothAlpha: 0.7, Steps: 20, Scale: 1},
			{Fixed: true, Scale: 1.5, SmoothAlpha: 0.8, Steps: 20}, {CorrectAlpha: 1, SmoothAlpha: 0, Steps: 1, Scale: 1}} {
			got := slices.Clone(z)
			if err := Smooth(context.Background(), graph, 1, got, o, 2); err != nil {
				t.Fatal(err)
			}
			want := smoothed(g, 1, z, o)
			for i, x := range got {
				if math.Abs(float64(x)-want[i]) > 2e-5*(1+math.Abs(want[i])) {
					t.Fatalf("seed %d, %+v: node %d, class %d is %g, want %g", seed, o, i/4, i%4, x, want[i])
				}
			}
		}
		for _, o := range []Smoothing{{CorrectAlpha: 2, Steps: 1, Scale: 1}, {Scale: 1}, {Steps: 1},
			{CorrectAlpha: math.NaN(), Steps: 1, Scale: 1}} {
			if err := Smooth(context.Background(), graph, 1, z, o, 1); !errors.Is(err, ErrOptions) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		if err := Smooth(context.Background(), graph, 2, z, Smoothing{Steps: 1, Scale: 1}, 1); !errors.Is(err, ErrOptions) {
			t.Errorf("split 2 of 2: %v", err)
		}
	}
}
