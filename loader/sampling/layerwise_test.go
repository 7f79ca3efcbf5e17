package sampling

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// A layer has the nodes that were asked for, or all that can be drawn, and each coefficient is that of the papers, from
// the whole matrix in float64: FastGCN A[v,u] / (n p(u)), LADIES the same over the sum of its row. An edge is there
// exactly if its source is.
func TestLayersOfThePapersHaveSoManyNodes(t *testing.T) {
	for _, name := range []string{"ladies-paper", "ladies-flat-paper", "fastgcn-paper", "fastgcn-flat-paper",
		"ladies-debias-paper", "ladies-flat-debias-paper", "fastgcn-debias-paper", "fastgcn-flat-debias-paper"} {
		for _, a := range []Aggregation{Mean, Sym} {
			for _, weighted := range []bool{false, true} {
				g := smallGraph(weighted)
				matrix := matrix64(g, a)
				m := newTestMethod(t, name, g, Options{Fanouts: []int{20, 9, 100}, Aggregation: a})
				var b MiniBatch
				for batch := range 20 {
					if err := m.Sample(t.Context(), &b, []uint32{0, 1, 5, 7, 8, 12}, Key(1, 0, batch)); err != nil {
						t.Fatal(err)
					}
					sources := b.Inputs
					for i, fanout := range []int{100, 9, 20} {
						checkLayer(t, name, matrix, &b.Blocks[i], sources, fanout)
						sources = b.Blocks[i].Nodes
					}
				}
			}
		}
	}
}

// checkLayer compares a block with the matrix of the graph.
func checkLayer(t *testing.T, name string, matrix [][]float64, block *Block, sources []uint32, fanout int) {
	t.Helper()
	norms, total, candidates := make([]float64, len(matrix)), 0.0, 0
	for v, row := range matrix {
		if strings.HasPrefix(name, "ladies") && !slices.Contains(block.Nodes, uint32(v)) {
			continue
		}
		for u, w := range row {
			norms[u] += w * w
		}
	}
	for u := range norms {
		if strings.Contains(name, "flat") {
			norms[u] = math.Sqrt(norms[u])
		}
		if total += norms[u]; norms[u] > 0 {
			candidates++
		}
	}
	if want := min(fanout, candidates); len(sources) != want || block.Sources != want {
		t.Fatalf("%s: a layer has %d nodes, want %d of %d candidates", name, len(sources), want, candidates)
	}
	debiased := strings.Contains(name, "debias")
	for v, node := range block.Nodes {
		want, sum := map[uint32]float64{}, 0.0
		for _, u := range sources {
			if a := matrix[node][u]; a != 0 {
				want[u] = a
				if candidates > fanout {
					want[u] *= total / (float64(fanout) * norms[u])
				}
				sum += want[u]
			}
		}
		first, end := block.Offsets[v], block.Offsets[v+1]
		if int(end-first) != len(want) {
			t.Fatalf("%s: node %d has %d edges, want %d", name, node, end-first, len(want))
		}
		for e := first; e < end; e++ {
			u := sources[block.Indices[e]]
			w, ok := want[u]
			if strings.HasPrefix(name, "ladies") && !debiased {
				w /= sum
			}
			if got := float64(block.Weights[e]); !ok || !debiased && math.Abs(got-w) > 1e-5*(1+math.Abs(w)) {
				t.Fatalf("%s: the edge from %d to %d has the coefficient %v, want %v", name, u, node, got, w)
			}
		}
	}
}

// GraphSAINT's node sampler as printed draws v with a probability proportional to the squared norm of its column, and
// nothing from a graph without edges. Of 40,000 draws, each count is within 6 standard deviations.
func TestNodesOfThePaperAreDrawnByTheirColumns(t *testing.T) {
	const draws = 40000
	g := smallGraph(true)
	matrix, total := matrix64(g, Sym), 0.0
	norms := make([]float64, len(matrix))
	for _, row := range matrix {
		for u, w := range row {
			norms[u] += w * w
			total += w * w
		}
	}
	m := newTestMethod(t, "saint-node-paper", g, Options{Fanouts: []int{1}, Aggregation: Sym})
	counts := make([]float64, len(matrix))
	var b MiniBatch
	for i := range draws {
		if err := m.Sample(t.Context(), &b, make([]uint32, 1), Key(1, 0, i)); err != nil {
			t.Fatal(err)
		}
		for _, v := range b.Seeds {
			counts[v]++
		}
	}
	for v, n := range counts {
		if p := norms[v] / total; math.Abs(n-draws*p) > 6*math.Sqrt(draws*p*(1-p))+1e-9 {
			t.Errorf("node %d was drawn %v times, want %.0f", v, n, draws*p)
		}
	}
	m = newTestMethod(t, "saint-node-paper", fromLists(make([][]uint32, 5), false), Options{Fanouts: []int{1}})
	if err := m.Sample(t.Context(), &b, make([]uint32, 3), 1); err != nil || len(b.Seeds) != 0 {
		t.Errorf("from a graph without edges: %v, %v", b.Seeds, err)
	}
}
