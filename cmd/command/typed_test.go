package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// typedDisk makes a disk with the typed graph "graph". It has 90 papers: none has features, 80 have a label. Authors
// have 3 features, venues 5.
func typedDisk(t *testing.T) vfs.FS {
	t.Helper()
	d := disk(t)
	writeTypedArrays(t, d)
	must(t, d, "import npy arrays -o graph")
	return d
}

// writeTypedArrays writes the arrays of the graph to the folder arrays.
func writeTypedArrays(t *testing.T, d vfs.FS) {
	t.Helper()
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
		if labels[i], splits[i] = int32(i%3), byte(i/3%3); i >= 80 {
			labels[i], splits[i] = -1, 255
		}
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
}

// The store has two matrices, of 3 and 5 columns, and no hop 0.
func TestAStoreOfMatricesOfDifferentWidthsIsPlannedTrainedAndEvaluated(t *testing.T) {
	d := typedDisk(t)
	must(t, d, "propagate graph -o store --hops 1 --chunk-rows 16")
	write(t, d, "machine.yaml", toyMachine)
	p := object(t, must(t, d, "plan store --hardware machine.yaml --model sehgnn --json"))
	if p["matrices"] != 2.0 || p["rows"] != 80.0 {
		t.Errorf("planned %v matrices of %v rows", p["matrices"], p["rows"])
	}
	for _, model := range []string{"sign", "sehgnn", "nars"} {
		must(t, d, "train store --hidden 8 --epochs 2 --model "+model+" --run "+model)
		must(t, d, "evaluate store --checkpoint "+model)
	}
}

func TestAllNodesOfTheTargetOfATypedGraphArePredicted(t *testing.T) {
	for _, flags := range []string{"--hops 1", "--hops 2 --relations-subsets 2"} {
		t.Run(flags, func(t *testing.T) { predictTyped(t, flags) })
	}
}

func predictTyped(t *testing.T, flags string) {
	d := typedDisk(t)
	must(t, d, "propagate graph -o store --label-hops 2 "+flags)
	must(t, d, "train store --model sehgnn --hidden 8 --epochs 2 --run run")
	must(t, d, "predict store --checkpoint run -o store.csv")
	must(t, d, "predict graph --checkpoint run -o graph.csv")
	_, some, _ := readPredictions(t, d, "store.csv")
	_, all, _ := readPredictions(t, d, "graph.csv")
	if len(some) != 80 || len(all) != 90 {
		t.Fatalf("%d rows of the store and %d nodes of the graph, want 80 and 90", len(some), len(all))
	}
	for v, want := range some {
		if !slices.Equal(all[v].p, want.p) {
			t.Errorf("node %d: %v from the graph, %v from the store", v, all[v].p, want.p)
		}
	}
	write(t, d, "nodes.txt", "85\n3\n")
	must(t, d, "predict graph --checkpoint run -o two.csv --node-file nodes.txt")
	if _, two, _ := readPredictions(t, d, "two.csv"); len(two) != 2 || !slices.Equal(two[85].p, all[85].p) {
		t.Errorf("two nodes: %v, want that of 85 as %v", two, all[85])
	}
	must(t, d, "predict graph --checkpoint run -o smooth.csv --smooth fixed --smooth-steps 5 --smooth-metapaths "+
		"paper<author<paper")
	_, smooth, _ := readPredictions(t, d, "smooth.csv")
	target, err := format.OpenTarget(d, "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	checkSmoothed(t, target, all, smooth, preprop.Smoothing{Metapaths: []string{"paper<author<paper"}, Fixed: true,
		SmoothAlpha: 0.8, Scale: 1, Steps: 5})
	for line, want := range map[string]string{
		"predict graph --checkpoint run -o x.csv --smooth fixed --smooth-metapaths paper<x": "there is no relation paper<x",
		"predict graph --checkpoint run -o x.csv --smooth-metapaths paper<author<paper":     "give --smooth too",
		"propagate graph -o x --hops -1":                       "-1 hops",
		"propagate graph -o x --from-graph graph":              "give --from too",
		"propagate graph -o x --from store --from-graph store": "is a store: give a graph of several types",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d: %s, want %q", line, o.code, o.stderr, want)
		}
	}
}

// Verbs that do not read typed graphs say so, and that it is the command's fault.
func TestEachVerbTakesATypedGraphOrSaysWhatTo(t *testing.T) {
	d := typedDisk(t)
	must(t, d, "propagate graph -o store --hops 1")
	write(t, d, "machine", "")
	for line, want := range map[string]string{
		"train graph --model sign":               "run hopfeed propagate graph -o STORE first",
		"train graph --model gat":                "gat reads a graph of one type (rgcn and sage read typed ones)",
		"plan graph --model gcn":                 "gcn reads a graph of one type (rgcn and sage read typed ones)",
		"plan store --metapaths paper<author":    "--metapaths: it is for the propagation of a typed GRAPH",
		"plan graph --machines 2":                "--machines needs --hardware FILE",
		"plan graph --hops 1,2":                  "--hops 1,2: one number is for all metapaths",
		"plan graph --metapaths author<paper":    "want paper<TYPE",
		"plan graph --operator col":              "--operator is rw",
		"status graph":                           "graph is a typed graph",
		"update graph --edges machine -o graph2": "want a folder with a table for each type or relation",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d: %s, want %q", line, o.code, o.stderr, want)
		}
	}
	r := object(t, must(t, d, "sample graph --batch 10 --fanout 2 --json"))
	edges, all := r["relation_edges_per_batch"].(map[string]any), 0.0
	for _, n := range edges {
		all += n.(float64)
	}
	if len(edges) != 4 || edges["author__paper"].(float64) != r["seeds_per_batch"] || all != r["edges_per_batch"] {
		t.Errorf("sampled %v of %v", edges, r)
	}
	if s := object(t, must(t, d, "status store --json")); s["complete"] != true {
		t.Errorf("status: %v", s)
	}
}

func TestATrainingSaysWhichMatricesMatter(t *testing.T) {
	d := typedDisk(t)
	must(t, d, "propagate graph -o store --hops 2 --relations-subsets 3")
	r := object(t, must(t, d, "train store --model nars --hidden 8 --epochs 3 --runs 2 --importance --run run --json"))
	all, matrices := r["importance"].([]any), r["matrices"].([]any)
	if len(all) != len(matrices) || all[0].(map[string]any)["matrix"] != matrices[0] {
		t.Errorf("importance of %v: %v", matrices, all)
	}
	must(t, d, "report run -o page.html")
	if page := content(t, d, "page.html"); !strings.Contains(page, "Importance of matrices") ||
		!strings.Contains(page, "What run (nars) loses without a matrix") {
		t.Error("the page lacks the importance of matrices")
	}
	o := must(t, d, "train store --model sign --hidden 8 --epochs 3 --importance")
	if !strings.Contains(o.stdout, "without") {
		t.Errorf("the result says %s", o.stdout)
	}
}

// A typed graph goes through the verbs that change and copy it, and its stores stay those of fresh runs.
func TestATypedGraphIsUpdatedRepairedAndExported(t *testing.T) {
	d := typedDisk(t)
	must(t, d, "propagate graph -o store --hops 2 --label-hops 2")
	must(t, d, "train store --model sehgnn --hidden 8 --epochs 2 --run run")
	for _, dir := range []string{"new", "nodes"} {
		if err := d.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	write(t, d, "new/venue__paper.csv", "source,destination\n3,80\n10,85\n")
	write(t, d, "nodes/venue.csv", "id,a,b,c,d,e\n10,1,2,3,4,5\n")
	r := object(t, must(t, d, "update graph --edges new --nodes nodes -o graph2 --json"))
	if r["edges_added"] != 2.0 || r["nodes_added"] != 1.0 || r["nodes"] != 131.0 || r["edges"] != 364.0 {
		t.Errorf("updated: %v", r)
	}
	must(t, d, "verify graph2")
	if o := hopfeed(t, d, "propagate graph2 -o store --hops 2"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "the graph has changed") {
		t.Errorf("an old store: status %d: %s", o.code, o.stderr)
	}
	text := must(t, d, "propagate graph2 -o store2 --from store")
	if !strings.Contains(text.stdout, "took rows from store") {
		t.Errorf("propagated: %s", text.stdout)
	}
	must(t, d, "propagate graph2 -o fresh --hops 2 --label-hops 2")
	if a, b := content(t, d, "store2/manifest.json"), content(t, d, "fresh/manifest.json"); a != b {
		t.Errorf("the store from an earlier one is another: %s, %s", a, b)
	}
	must(t, d, "predict store2 --checkpoint run --changed-since store -o changed.csv")
	if _, changed, _ := readPredictions(t, d, "changed.csv"); len(changed) == 0 || len(changed) == 80 {
		t.Errorf("%d rows have changed", len(changed))
	}
	must(t, d, "predict store2 --checkpoint run --changed-since fresh -o none.csv")
	if _, none, _ := readPredictions(t, d, "none.csv"); len(none) > 0 {
		t.Errorf("%d rows differ between equal stores", len(none))
	}
	part := "store2/features/rw+paper-venue/hop-1/part-00000.arrow"
	sound := content(t, d, part)
	write(t, d, part, sound[:5000]+"x"+sound[5001:])
	if o := hopfeed(t, d, "repair store2 --graph graph"); o.code != exitUsage {
		t.Errorf("by another graph: status %d: %s", o.code, o.stderr)
	}
	must(t, d, "repair store2 --graph graph2")
	if content(t, d, part) != sound {
		t.Error("the part is another")
	}
	must(t, d, "export npy graph2 -o out")
	must(t, d, "import npy out -o graph3")
	if a, b := content(t, d, "graph2/types.json"), content(t, d, "graph3/types.json"); a != b {
		t.Errorf("an import of the export is another graph: %s, %s", a, b)
	}
	files := object(t, must(t, d, "export npy store2 -o matrices --json"))["files"].([]any)
	if !slices.Contains(files, any("rw+paper-venue_hop-1.npy")) || !slices.Contains(files,
		any("rw+paper-author-paper+labels_hop-1.npy")) {
		t.Errorf("exported %v", files)
	}
}

func TestPlanSaysWhatPropagatingATypedGraphTakes(t *testing.T) {
	d := typedDisk(t)
	write(t, d, "machine.yaml", toyMachine)
	before := tree(t, d, "graph")
	for i, flags := range []string{"", " --hardware machine.yaml", " --hardware machine.yaml --relations-subsets 2",
		" --metapaths paper<author<paper<author,paper<venue --label-hops 2"} {
		propagate := fmt.Sprintf("propagate graph -o store%d%s", i, strings.ReplaceAll(flags, " --hardware machine.yaml", ""))
		asked := object(t, must(t, d, propagate+" --dry-run --json"))
		p := object(t, must(t, d, "plan graph --model nars --json"+flags))
		made, _ := p["metapaths"].([]any)
		propagation, _ := p["propagation"].(map[string]any)
		if wanted := asked["metapaths"].([]any); len(made) != len(wanted) || len(made) == 0 {
			t.Fatalf("%s: metapaths %v, want %v", flags, made, wanted)
		}
		for i, one := range asked["metapaths"].([]any) {
			want, got := one.(map[string]any), made[i].(map[string]any)
			if got["name"] != want["name"] || got["bytes"] != want["bytes"] || got["predicted_seconds"] == 0.0 {
				t.Errorf("%s: %v, want %v", flags, got, want)
			}
		}
		for _, key := range strings.Fields("planned_store_bytes disk_needed_bytes planned_bytes_read planned_bytes_written " +
			"memory_needed_bytes predicted_seconds") {
			if bytes, _ := propagation[key].(float64); bytes <= 0 {
				t.Errorf("%s: %s is %v", flags, key, propagation[key])
			}
		}
		text := must(t, d, "plan graph --model nars"+flags).stdout
		for _, part := range []string{"of disk for the store", "to read", "column", "placement"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %s", flags, part, text)
			}
		}
		// What is said about training is what is said of the store.
		if !strings.Contains(flags, "hardware") {
			continue
		}
		must(t, d, propagate)
		of := object(t, must(t, d, fmt.Sprintf("plan store%d --model nars --hardware machine.yaml --json", i)))
		for _, key := range strings.Fields("matrices rows train_rows valid_rows input_bytes work_bytes placement shuffle " +
			"predicted_epoch_seconds") {
			if p[key] != of[key] {
				t.Errorf("%s: %s is %v, and %v of the store", flags, key, p[key], of[key])
			}
		}
	}
	if o := hopfeed(t, d, "plan graph --memory 1MiB"); o.code != exitDoesNotFit {
		t.Errorf("in 1 MiB: status %d: %s", o.code, o.stderr)
	}
	after := tree(t, d, "graph")
	if len(after) != len(before) {
		t.Error("plan changed the graph")
	}
}

func TestPlanSaysWhatTasksOfATypedGraphTake(t *testing.T) {
	d := typedDisk(t)
	write(t, d, "machine.yaml", toyMachine)
	line := "plan graph --model nars --hardware machine.yaml --machines 2"
	tasks := object(t, must(t, d, line+" --tasks 3 --json"))["tasks"].(map[string]any)
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, one := range object(t, must(t, d,
		"propagate graph -o store --tasks 3 --threads 4 --memory 1GB --json"))["tasks"].([]any) {
		task := one.(map[string]any)
		kind, _, _ := strings.Cut(task["name"].(string), "-")
		counts[kind]++
		sums[kind] += task["planned_bytes_read"].(float64) + task["planned_bytes_written"].(float64)
	}
	stages := tasks["stages"].([]any)
	if len(stages) != len(counts) || len(counts) != 5 {
		t.Fatalf("%d stages, %d kinds of tasks", len(stages), len(counts))
	}
	for _, one := range stages {
		s := one.(map[string]any)
		kind := s["kind"].(string)
		bytes := s["planned_bytes_read"].(float64) + s["planned_bytes_written"].(float64)
		if s["tasks"] != counts[kind] || bytes != sums[kind] {
			t.Errorf("%s: %v, want %v tasks of %v bytes together", kind, s, counts[kind], sums[kind])
		}
	}
	if text := must(t, d, line).stdout; !strings.Contains(text, "2 machines, ") || !strings.Contains(text, "hops: ") ||
		!strings.Contains(text, "paper<author") {
		t.Errorf("with --machines it says %s", text)
	}
}

func TestInspectOfADamagedTypedGraphSaysWhatIsDamaged(t *testing.T) {
	d := vfs.NewMem()
	for _, dir := range []string{"in/nodes", "in/edges"} {
		if err := d.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	write(t, d, "in/nodes/user.csv", "id,age,label\na,1,x\nb,2,y\n")
	write(t, d, "in/edges/user__user.csv", "source,destination\na,b\n")
	must(t, d, "import csv in -o g --target user")
	for _, file := range []string{"nodes/user/manifest.json", "types.json"} {
		whole := content(t, d, "g/"+file)
		for damage, text := range map[string]string{"cut": whole[:len(whole)/2], "longer": whole + "x", "empty": ""} {
			write(t, d, "g/"+file, text)
			for _, flag := range []string{"", " --json"} {
				if o := hopfeed(t, d, "inspect g"+flag); o.code != exitCorrupt || !strings.Contains(o.stderr, file) {
					t.Errorf("%s, %s: status %d: %s", file, damage, o.code, o.stderr)
				}
			}
		}
		write(t, d, "g/"+file, whole)
	}
}
