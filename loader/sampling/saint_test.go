package sampling

import (
	"math"
	"math/big"
	"slices"
	"testing"
)

// The mean over 2000 batches of the mean of weight * loss over seeds is compared with the mean loss
// of all nodes that may be seeds and can be drawn; 6 standard errors are allowed, and for walks, whose
// probabilities are counted, 2 % besides.
func TestSeedWeightsGiveTheMeanLossOfAllTargets(t *testing.T) {
	const draws = 2000
	loss := func(v uint32) float64 { return 1 + float64(v%7) }
	g := smallGraph(false)
	for _, name := range []string{"saint-node", "saint-edge", "saint-rw"} {
		for _, targets := range [][]uint32{nil, {3, 8, 5, 44, 20, 0}} {
			s := newTestMethod(t, name, g, Options{Fanouts: []int{0: 1, 1: 1}, Targets: targets})
			all, want := 0.0, 0.0
			for v := range uint32(60) {
				if targets == nil || slices.Contains(targets, v) {
					all++
					if name != "saint-edge" || v != 1 { // which is in no edge
						want += loss(v)
					}
				}
			}
			want /= all
			var b MiniBatch
			sum, squares := 0.0, 0.0
			for i := range draws {
				if err := s.Sample(t.Context(), &b, make([]uint32, 12), Key(2, 0, i)); err != nil {
					t.Fatal(err)
				}
				y := 0.0
				for j, v := range b.Seeds {
					if targets != nil && !slices.Contains(targets, v) {
						t.Fatalf("%s: seed %d is no target", name, v)
					}
					y += float64(b.SeedWeights[j]) * loss(v) / float64(len(b.Seeds))
				}
				sum += y
				squares += y * y
			}
			mean := sum / draws
			deviation := math.Sqrt((squares/draws - mean*mean) / draws)
			tolerance := 6 * deviation
			if name == "saint-rw" {
				tolerance += 0.02 * want
			}
			if math.Abs(mean-want) > tolerance {
				t.Errorf("%s of %d targets: mean %.4f ± %.4f, want %.4f", name, len(targets), mean, deviation, want)
			}
		}
	}
}

// All edges between the nodes of a subgraph are there, and no others.
func TestSubgraphsAreInduced(t *testing.T) {
	g := smallGraph(false)
	for _, name := range []string{"saint-node", "saint-edge", "saint-rw"} {
		s := newTestMethod(t, name, g, Options{Fanouts: []int{1, 1}})
		var b MiniBatch
		if err := s.Sample(t.Context(), &b, make([]uint32, 9), 7); err != nil {
			t.Fatal(err)
		}
		if len(b.Seeds) == 0 || len(b.Seeds) > 27 || len(b.Inputs) != len(b.Seeds) {
			t.Fatalf("%s: %d seeds and %d inputs of 9 draws", name, len(b.Seeds), len(b.Inputs))
		}
		for _, block := range b.Blocks {
			for v := range block.Destinations {
				want := 0
				for _, u := range g.In(int64(b.Inputs[v])) {
					if slices.Contains(b.Seeds, u) {
						want++
					}
				}
				if got := int(block.Offsets[v+1] - block.Offsets[v]); got != want {
					t.Errorf("%s: node %d has %d edges, want %d", name, b.Inputs[v], got, want)
				}
			}
		}
	}
}

// Probabilities of few draws among many nodes, against 200 digits.
func TestProbabilitiesAreExactWhereTheyAreSmall(t *testing.T) {
	power := func(q *big.Float, k int) *big.Float {
		p := big.NewFloat(1).SetPrec(700)
		for range k {
			p.Mul(p, q)
		}
		return p
	}
	one := func() *big.Float { return big.NewFloat(1).SetPrec(700) }
	for _, c := range []struct {
		u, v, both float64
		k          int
	}{
		{1e-8, 1e-8, 0, 2}, {1e-8, 1e-8, 0, 10}, {1e-8, 2e-8, 5e-9, 100}, {1e-9, 1e-9, 1e-9, 6000},
		{1e-12, 1e-3, 1e-13, 50},
		{0.3, 0.4, 0, 5}, {0.3, 0.4, 0.3, 5}, {0.5, 0.5, 0, 3}, {1, 0.25, 0.25, 4}, {1, 1, 1, 1}, {0.5, 0.5, 0, 1},
	} {
		u, v := one().SetFloat64(c.u), one().SetFloat64(c.v)
		notU, notV := one(), one()
		notU.Sub(notU, u)
		notV.Sub(notV, v)
		neither := one()
		neither.Sub(notU, v)
		neither.Add(neither, one().SetFloat64(c.both))
		want := one()
		want.Sub(want, power(notU, c.k))
		want.Sub(want, power(notV, c.k))
		want.Add(want, power(neither, c.k))
		exact, _ := want.Float64()
		if got := bothAmong(c.u, c.v, c.both, float64(c.k)); math.Abs(got-exact) > 1e-12*exact {
			t.Errorf("%+v: %v, want %v", c, got, exact)
		}
		there := one()
		exact, _ = there.Sub(there, power(notV, c.k)).Float64()
		if got := among(c.v, float64(c.k)); math.Abs(got-exact) > 1e-12*exact {
			t.Errorf("%+v: v is there with %v, want %v", c, got, exact)
		}
	}
}
