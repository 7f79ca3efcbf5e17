package command

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// sparseGraph is a graph of three classes whose features have 2 of 64 elements.
func sparseGraph(t *testing.T) *vfs.Mem {
	t.Helper()
	const nodes, features, edges = 600, 64, 2400
	x, labels, split := make([]float32, nodes*features), make([]int32, nodes), make([]int8, nodes)
	var from, to []int64
	for v := range nodes {
		labels[v] = int32(v % 3)
		x[v*features+int(rng.Hash(1, uint64(v))%20)*3+v%3], x[v*features+int(rng.Hash(2, uint64(v))%features)] = 1, 1
		split[v] = int8(min(v/60, 2))
	}
	for e := range edges {
		u := int64(rng.Hash(3, uint64(e)) % nodes)
		v := int64(rng.Hash(4, uint64(e)) % nodes)
		if e%4 > 0 {
			v = v/3*3 + u%3
		}
		from, to = append(from, u, v), append(to, v, u)
	}
	d := vfs.NewMem()
	if err := d.MkdirAll("arrays"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"edge_index.npy": npyText("<i8", "(2, 4800)", dtype.BytesOf(slices.Concat(from, to))),
		"node_feat.npy":  npyText("<f4", "(600, 64)", dtype.BytesOf(x)),
		"node_label.npy": npyText("<i4", "(600,)", dtype.BytesOf(labels)),
		"splits.npy":     npyText("|i1", "(1, 600)", dtype.BytesOf(split)),
		"meta.json":      `{"directed": true}`,
	} {
		write(t, d, "arrays/"+name, text)
	}
	must(t, d, "import npy arrays -o graph")
	return d
}

// Features that are mostly zero give what dense ones give, but for rounding, and the same bits wherever they are
// sparse.
func TestSparseFeaturesTrainAsDenseOnesDo(t *testing.T) {
	d := sparseGraph(t)
	type result struct {
		Loss    float64 `json:"train_loss"`
		Valid   float64 `json:"valid_metric"`
		Test    float64 `json:"test_metric"`
		Reasons []string
	}
	train := func(flags string) (r result, sparse bool) {
		readJSON(t, must(t, d, "train graph --json --hidden 8 --epochs 5 --lr 0.02 "+flags).stdout, &r)
		return r, strings.Contains(strings.Join(r.Reasons, "\n"), "features are sparse, and kept so")
	}
	for _, flags := range []string{"--model gcn", "--model sage --batch 25", "--model gat",
		"--model gcn --sampler full --epochs 60 --dropout 0.1 --hidden 16",
		"--model sage --layers 1 --sampler saint-node --batch 50"} {
		got, sparse := train(flags)
		if !sparse {
			t.Errorf("%s: %+v", flags, got)
		}
		if strings.Contains(flags, "full") { // a batch is all nodes
			if got.Test < 0.5 {
				t.Errorf("%s: %+v", flags, got)
			}
			continue
		}
		want, sparse := train(flags + " --placement storage")
		if sparse || math.Abs(got.Loss-want.Loss) > 1e-4*want.Loss || math.Abs(got.Test-want.Test) > 0.02 {
			t.Errorf("%s: %+v; dense (sparse=%t): %+v", flags, got, sparse, want)
		}
		for _, placed := range []string{flags + " --placement host", flags + " --emulate gpu=1,mem=1GiB,link=8GiB/s"} {
			other, sparse := train(placed)
			if other.Reasons, got.Reasons = nil, nil; !sparse || other.Loss != got.Loss || other.Valid != got.Valid ||
				other.Test != got.Test {
				t.Errorf("%s: sparse=%t, %+v; want %+v", placed, sparse, other, got)
			}
		}
	}
}
