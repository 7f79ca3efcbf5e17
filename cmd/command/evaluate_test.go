package command

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// splitNodes is a file of k splits of the 300 nodes: half of them train, a quarter valid.
func splitNodes(k int, seed uint64) string {
	data := npy.AppendHeader(nil, npy.Int8, 1, int64(k), 300)
	for split := range k {
		for node := range 300 {
			data = append(data, []byte{0, 0, 1, 2}[rng.Hash(seed+uint64(split), uint64(node))%4])
		}
	}
	return string(data)
}

// manySplits is a disk with a store of a graph that ships three splits, laid out by the first;
// one of the same graph, laid out by another; one of a graph with the same nodes and fewer edges;
// and one of another graph with as many nodes.
func manySplits(t *testing.T) *vfs.Mem {
	t.Helper()
	d := disk(t, generateLine, exportLine,
		strings.NewReplacer("-o graph", "-o othergraph", "--seed 7", "--seed 8").Replace(generateLine))
	write(t, d, "arrays/splits.npy", splitNodes(3, 1))
	write(t, d, "file.npy", splitNodes(2, 100))
	for _, line := range []string{
		"import npy arrays -o many",
		"propagate many -o store --hops 2 --operator sym --chunk-rows 16",
		"propagate many -o again --hops 3 --operator sym --split 1 --seed 5",
		"import npy arrays -o sparse --self-loops drop --dtype float16",
		"propagate sparse -o sparsestore --hops 2 --operator sym",
		"propagate othergraph -o otherstore --hops 2 --operator sym",
	} {
		must(t, d, line)
	}
	return d
}

func TestEvaluateTestsTheRowsThatTrainingHasTested(t *testing.T) {
	d := manySplits(t)
	const line = "train store --model sgc --lr 0.05 --epochs 20 --batch 64 --json"
	metrics := map[float64]bool{}
	for run, split := range map[string]string{
		"default": "", "zero": "--split 0", "one": "--split 1", "two": "--split 2",
		"file": "--splits file.npy", "file-one": "--splits file.npy --split 1",
	} {
		trained := object(t, must(t, d, line+" --run "+run+" "+split))
		metrics[trained["test_metric"].(float64)] = true
		for _, store := range []string{"store", "again"} {
			evaluate := "evaluate --json --checkpoint " + run + " " + store
			o := object(t, must(t, d, evaluate))
			if o["test_metric"] != trained["test_metric"] || o["value"] != trained["test_metric"] ||
				o["valid_metric"] != nil || o["trained_rows"] != 0.0 || o["same_nodes"] != true {
				t.Errorf("%s: %v, but training has tested %v", evaluate, o, trained["test_metric"])
			}
			o = object(t, must(t, d, evaluate+" --rows valid"))
			if o["valid_metric"] != trained["valid_metric"] || o["test_metric"] != nil || o["trained_rows"] != 0.0 {
				t.Errorf("%s --rows valid: %v, but training has found %v", evaluate, o, trained["valid_metric"])
			}
			// Rows that were trained on are told apart, and only when asked for.
			only := object(t, must(t, d, evaluate+" --rows train"))
			all := object(t, must(t, d, evaluate+" --rows all"))
			if n := only["trained_rows"].(float64); n < 100 || all["trained_rows"] != n ||
				all["rows"].(float64) <= only["rows"].(float64) || only["rows"].(float64) > n ||
				all["test_metric"] != trained["test_metric"] {
				t.Errorf("%s: train rows %v, all rows %v", evaluate, only, all)
			}
		}
	}
	if len(metrics) < 4 {
		t.Errorf("the splits give the same figures, %v: the test could not tell", metrics)
	}
	// Other features of the same nodes are other numbers, of the same rows.
	for store, same := range map[string]bool{"sparsestore": true, "otherstore": false} {
		if o := object(t, must(t, d, "evaluate --json --checkpoint one "+store)); o["same_nodes"] != same {
			t.Errorf("%s has the nodes of training: %v", store, o["same_nodes"])
		}
	}
}

func TestRowsThatTheModelWasTrainedOnAreNotTestedUnasked(t *testing.T) {
	d := manySplits(t)
	must(t, d, "train store --model sgc --epochs 5 --split 1 --run run")
	must(t, d, "train store --model sgc --epochs 5 --splits file.npy --split 1 --run filerun")
	for _, c := range []struct {
		line  string
		code  int
		wants string
	}{
		{"evaluate --checkpoint run store --split 2", exitUsage, "test rows of split 2 (it was trained by split 1)"},
		{"evaluate --checkpoint run again --split 0", exitUsage, "the model was trained on"},
		{"evaluate --checkpoint run sparsestore --split 0 --rows valid", exitUsage, "valid rows of split 0"},
		{"evaluate --checkpoint run store --splits file.npy", exitUsage, "split 0 of a file of splits"},
		{"evaluate --checkpoint filerun store --split 0", exitUsage, "(it was trained by split 1 of a file of splits)"},
		{"evaluate --checkpoint run store --split 1", exitDone, "test rows of split 1"},
		{"evaluate --checkpoint filerun store --splits file.npy --split 1", exitDone,
			"test rows of split 1 of a file of splits"},
		{"evaluate --checkpoint run again", exitDone,
			"test rows of split 1, as in training (from another store of the same nodes)"},
		{"evaluate --checkpoint run store --split 2 --rows all", exitDone, "the model was trained on 1"},
		{"evaluate --checkpoint run store --rows train", exitDone, "the model was trained on 1"},
		{"evaluate --checkpoint run otherstore", exitDone,
			"test rows of split 0; the model was trained on other data (sbm, 300 nodes)"},
		{"evaluate --checkpoint run otherstore --rows all", exitDone,
			"all rows, by split 0; the model was trained on other data"},
		{"evaluate --checkpoint run otherstore --splits file.npy --split 1", exitDone,
			"test rows of split 1 of a file of splits; the model was trained on other data"},
		{"evaluate --checkpoint run store --split 3", exitUsage, "3 splits"},
		{"evaluate --checkpoint run store --split -1", exitUsage, "--split"},
		{"evaluate --checkpoint run store --rows some", exitUsage, "--rows"},
	} {
		o := hopfeed(t, d, c.line)
		if o.code != c.code || !strings.Contains(o.stdout+o.stderr, c.wants) {
			t.Errorf("hopfeed %s: exit status %d, no %q in %s%s", c.line, o.code, c.wants, o.stdout, o.stderr)
		}
	}
}

func TestAStoreWithoutTestRowsSaysWhatElseToEvaluateOn(t *testing.T) {
	d := manySplits(t)
	must(t, d, "train store --model sgc --epochs 5 --run run")
	// Unlabelled rows tell nothing either.
	write(t, d, "arrays/splits.npy", string(npy.AppendHeader(nil, npy.Int8, 1, 1, 300))+strings.Repeat("\x00", 300))
	for _, line := range []string{"import npy arrays -o all", "propagate all -o allstore --hops 2"} {
		must(t, d, line)
	}
	must(t, d, "train allstore --model sgc --epochs 5 --run allrun")
	for _, line := range []string{"evaluate --checkpoint allrun allstore",
		"evaluate --checkpoint run allstore --split 0"} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, "has no test rows") {
			t.Errorf("hopfeed %s: exit status %d: %s", line, o.code, o.stderr)
		}
	}
	if o := object(t, must(t, d,
		"evaluate --json --checkpoint allrun allstore --rows all")); o["trained_rows"] != 300.0 {
		t.Errorf("%v", o)
	}
}

// A graph is imported again: without some of its nodes in the split, with corrected labels, or with a node more.
// Rows that were trained on are still known, and are not tested unasked.
func TestRowsOfTrainingAreKnownInAGraphThatHasChanged(t *testing.T) {
	d := manySplits(t)
	must(t, d, "train store --model sgc --epochs 5 --run run")
	store, err := format.OpenStore(d, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err := store.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	meta := strings.Replace(content(t, d, "arrays/meta.json"), "300", "301", 1)
	labels, trained := make([]int32, 301), map[uint32]bool{}
	for row, node := range table.NodeID {
		labels[node] = table.Labels[row]
		trained[node] = int64(row) < store.Layout().Regions[0].Rows
	}
	splits := []byte(splitNodes(1, 1))
	splits = splits[len(splits)-300:]
	for name, c := range map[string]struct {
		nodes  int
		change func(node int, label *int32, split *byte)
	}{
		"lacks nodes that were trained on": {300, func(node int, label *int32, split *byte) {
			if trained[uint32(node)] && node%3 == 0 {
				*label, *split = -1, 255
			}
		}},
		"lacks labels": {300, func(node int, label *int32,
			split *byte) {
			*label -= int32(node%2) * (*label + 1)
		}},
		"has corrected labels": {300, func(node int, label *int32,
			split *byte) {
			*label = (*label + int32(1-min(1, node%5))) % 3
		}},
		"has a node more": {301, func(int, *int32, *byte) {}},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.CrashClone()
			labelled := npy.AppendHeader(nil, npy.Int32, 1, int64(c.nodes))
			first, second := npy.AppendHeader(nil, npy.Int8, 1, 2, int64(c.nodes)), []byte{}
			for node := range c.nodes {
				label, split := labels[node], byte(2) // of the new node
				if node < 300 {
					split = splits[node]
				}
				if c.change(node, &label, &split); label < 0 {
					label = -1
				}
				labelled = binary.LittleEndian.AppendUint32(labelled, uint32(label))
				first = append(first, split)
				if split <= 2 {
					split = 2 - split
				}
				second = append(second, split)
			}
			write(t, d, "arrays/node_label.npy", string(labelled))
			if c.nodes > 300 {
				write(t, d, "arrays/meta.json", meta)
			}
			write(t, d, "arrays/splits.npy", string(first)+string(second))
			features := npy.AppendHeader(nil, npy.Float32, 1, int64(c.nodes), int64(store.Manifest.Features))
			write(t, d, "arrays/node_feat.npy", string(features)+strings.Repeat("\x00\x00\x80\x3f",
				c.nodes*store.Manifest.Features))
			must(t, d, "import npy arrays -o changed")
			must(t, d, "propagate changed -o changedstore --hops 2 --operator sym")
			if c.nodes > 300 {
				o := object(t, must(t, d, "evaluate --json --checkpoint run changedstore"))
				if o["same_nodes"] != false || !strings.Contains(o["rows_of"].(string),
					"may have been trained on some of these rows") {
					t.Errorf("%v", o)
				}
				return
			}
			if o := object(t, must(t, d, "evaluate --json --checkpoint run changedstore")); o["same_nodes"] != true ||
				o["trained_rows"] != 0.0 {
				t.Errorf("%v", o)
			}
			// The second split tests the training rows of the first.
			if o := hopfeed(t, d, "evaluate --checkpoint run changedstore --split 1"); o.code != exitUsage ||
				!strings.Contains(o.stderr, "the model was trained on") {
				t.Errorf("exit status %d: %s%s", o.code, o.stdout, o.stderr)
			}
		})
	}
}

func TestEvaluateByAnotherMetric(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	for _, metric := range []string{"accuracy", "macro-f1", "loss"} {
		must(t, d, fmt.Sprintf("train store --model sgc --epochs 1 --eval-every 1 --seed 3 --json --run %s --metric "+
			"%[1]s", metric))
	}
	for _, metric := range []string{"macro-f1", "loss"} { // one epoch, so the same model
		want := object(t, must(t, d, "evaluate --json --checkpoint "+metric+" store"))
		got := object(t, must(t, d, "evaluate --json --checkpoint accuracy store --metric "+metric))
		if got["metric"] != metric || got["value"] != want["value"] || got["test_metric"] != want["test_metric"] ||
			got["value"] == nil {
			t.Errorf("by %s: %v, want %v", metric, got, want)
		}
	}
	for metric, wants := range map[string]string{"mse": "is not for classes", "best": `there is no metric "best"`,
		"roc-auc": "two classes"} {
		if o := hopfeed(t, d, "evaluate --checkpoint accuracy store --metric "+metric); o.code != exitUsage ||
			!strings.Contains(o.stderr, wants) {
			t.Errorf("--metric %s: exit status %d: %s", metric, o.code, o.stderr)
		}
	}
}
