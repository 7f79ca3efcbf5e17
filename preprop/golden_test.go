package preprop

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// golden is a small graph and its hops by scipy, in float64: see testdata/golden.py.
type golden struct {
	Nodes, Features             int
	Offsets, Neighbors, Weights []byte
	X                           []byte
	Hops                        map[string][][]byte
}

func readGolden(t *testing.T, name string) (*golden, *format.CSC) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	g := new(golden)
	if err := json.Unmarshal(text, g); err != nil {
		t.Fatal(err)
	}
	csc := &format.CSC{Offsets: dtype.Int64s(g.Offsets), Neighbors: dtype.Uint32s(g.Neighbors),
		Weights: dtype.Float32s(g.Weights)}
	if len(csc.Offsets) != g.Nodes+1 || len(g.X) != 4*g.Nodes*g.Features || len(g.Hops) == 0 {
		t.Fatalf("%s is not what golden.py makes", name)
	}
	return g, csc
}

func TestHopsAgreeWithScipy(t *testing.T) {
	for _, name := range []string{"gamora_csa8.json", "tolokers_core.json", "cora_weighted.json", "gamora_part.json"} {
		golden, csc := readGolden(t, name)
		g := &testGraph{nodes: golden.Nodes, features: golden.Features, x: dtype.Float32s(golden.X),
			DType: format.Float32, weighted: csc.Weights != nil}
		g.rows.Rows = int64(g.nodes)
		for v := range csc.Nodes() {
			for e := csc.Offsets[v]; e < csc.Offsets[v+1]; e++ {
				one := edge{csc.Neighbors[e], uint32(v), 1}
				if g.weighted {
					one.weight = csc.Weights[e]
				}
				g.edges = append(g.edges, one)
			}
		}
		for spelling, hops := range golden.Hops {
			o, err := operator.Parse(spelling)
			if err != nil {
				t.Fatal(err)
			}
			for r, got := range propagateGraph(t, g, o, len(hops)) {
				for i, w := range dtype.As[float64](hops[r]) {
					// No feature or weight is negative, so w is also the sum of its terms' magnitudes.
					if math.Abs(float64(got[i])-w) > 1e-5*w {
						t.Fatalf("%s, %s, hop %d: node %d, column %d is %g, want %g", name, spelling, r+1, i/g.features,
							i%g.features, got[i], w)
					}
				}
			}
		}
	}
}
