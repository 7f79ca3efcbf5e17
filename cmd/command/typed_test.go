package command

import (
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// A store of a typed graph whose target type has no features: two matrices, of 3 and 5 columns, and no hop 0.
func TestAStoreOfMatricesOfDifferentWidthsIsPlannedTrainedAndEvaluated(t *testing.T) {
	d := disk(t)
	array := func(name string, kind npy.Type, data []byte, shape ...int64) {
		if err := d.MkdirAll("arrays/" + name); err != nil {
			t.Fatal(err)
		}
		write(t, d, "arrays/"+name+".npy", string(append(npy.AppendHeader(nil, kind, 1, shape...), data...)))
	}
	const papers = 90
	if err := d.MkdirAll("arrays"); err != nil {
		t.Fatal(err)
	}
	write(t, d, "arrays/meta.json", `{"node_types": {"paper": 90, "author": 30, "venue": 10}, "target": "paper"}`)
	labels, splits := make([]int32, papers), make([]byte, papers)
	for i := range labels {
		labels[i], splits[i] = int32(i%3), byte(i/3%3)
	}
	array("nodes/paper/node_label", npy.Int32, dtype.BytesOf(labels), papers)
	array("nodes/paper/splits", npy.Int8, splits, 1, papers)
	for _, c := range []struct {
		name        string
		nodes, cols int
	}{{"author", 30, 3}, {"venue", 10, 5}} {
		x, edges := make([]float32, c.nodes*c.cols), make([]int64, 2*papers)
		for i := range x {
			x[i] = float32(i % 7)
		}
		for i := range papers {
			edges[i], edges[papers+i] = int64(i%c.nodes), int64(i)
		}
		array("nodes/"+c.name+"/node_feat", npy.Float32, dtype.BytesOf(x), int64(c.nodes), int64(c.cols))
		array("edges/"+c.name+"__paper/edge_index", npy.Int64, dtype.BytesOf(edges), 2, papers)
	}
	must(t, d, "import npy arrays -o graph")
	must(t, d, "propagate graph -o store --hops 1 --chunk-rows 16")
	write(t, d, "machine.yaml", toyMachine)
	p := object(t, must(t, d, "plan store --hardware machine.yaml --model sehgnn --json"))
	if p["matrices"] != 2.0 || p["rows"] != float64(papers) {
		t.Errorf("planned %v matrices of %v rows", p["matrices"], p["rows"])
	}
	for _, model := range []string{"sign", "sehgnn"} {
		must(t, d, "train store --hidden 8 --epochs 2 --model "+model+" --run "+model)
		must(t, d, "evaluate store --checkpoint "+model)
	}
}
