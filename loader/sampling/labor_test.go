package sampling

import (
	"context"
	"math"
	"testing"
)

// At equal fanouts LABOR-0 needs fewer distinct nodes than neighbor, and LABOR-1 fewer again (Balin
// and Catalyurek 2023, Table 2), of which a graph has more if in-neighbours are shared. The edges of
// LABOR-0 are as many as those of neighbor, on average: 200 batches have about 30000.
func TestLaborSamplesFewerNodesOnAsManyEdges(t *testing.T) {
	g := skewed(2000, 80_000)
	nodes, edges := map[string]float64{}, map[string]float64{}
	for _, name := range []string{"neighbor", "labor", "labor-1"} {
		s := newTestMethod(t, name, g, Options{Fanouts: []int{5}})
		seeds := make([]uint32, 300)
		var b MiniBatch
		for i := range 20 {
			for j := range seeds {
				seeds[j] = uint32((300*i + j) % 2000)
			}
			if err := s.Sample(t.Context(), &b, seeds, Key(1, 0, i)); err != nil {
				t.Fatal(err)
			}
			nodes[name] += float64(len(b.Inputs))
			edges[name] += float64(len(b.Blocks[0].Indices))
		}
	}
	if nodes["labor"] > 0.9*nodes["neighbor"] || nodes["labor-1"] > nodes["labor"] {
		t.Errorf("distinct nodes: %v", nodes)
	}
	if math.Abs(edges["labor"]/edges["neighbor"]-1) > 0.03 {
		t.Errorf("edges: %v", edges)
	}
}

// The probabilities that LABOR-1 chooses by give each destination the variance that its fanout does:
// the sum of 1/p is d^2/fanout. Each coefficient is 1/p times the matrix.
func TestLabor1KeepsTheVarianceOfTheFanout(t *testing.T) {
	const fanout = 4
	g := smallGraph(false)
	m, err := NewMethod(context.Background(), "labor-1", InMemory(g), Options{Fanouts: []int{fanout}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.take()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	nodes := []uint32{0, 2, 4, 5, 7, 8, 20, 31}
	edges := &s.edges
	edges.ctx, edges.fanout = t.Context(), fanout
	probability := map[int64]float64{}
	for edges.random = range uint64(3000) { // until each edge has come
		if err := edges.begin(s.chooser, nodes); err != nil {
			t.Fatal(err)
		}
		if _, err := edges.choose(s.chooser, nodes); err != nil {
			t.Fatal(err)
		}
		for j, e := range edges.edges {
			probability[e] = 1 / float64(edges.weights[j])
		}
	}
	for _, v := range nodes {
		sum, d := 0.0, float64(len(g.In(int64(v))))
		for e := g.Offsets[v]; e < g.Offsets[v+1]; e++ {
			if probability[e] == 0 {
				t.Fatalf("edge %d of node %d is never chosen", e, v)
			}
			sum += 1 / probability[e]
		}
		if want := d * d / min(fanout, d); math.Abs(sum/want-1) > 1e-5 {
			t.Errorf("node %d of degree %v: the inverses add up to %v, want %v", v, d, sum, want)
		}
	}
}
