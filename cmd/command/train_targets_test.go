package command

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// storeOf makes a store whose nodes have other labels than the generated ones.
func storeOf(t *testing.T, kind npy.Type, columns int, labels []byte, flags string) *vfs.Mem {
	d := disk(t, generateLine, exportLine)
	write(t, d, "arrays/node_label.npy", string(npy.AppendHeader(nil, kind, 1, 300, int64(columns)))+string(labels))
	must(t, d, "import npy arrays -o graph --force"+flags)
	must(t, d, "propagate graph -o store --hops 2 --force")
	return d
}

func TestSeveralLabelsAndValuesGoAllTheWay(t *testing.T) {
	several, values := make([]byte, 0, 1200), make([]byte, 0, 4*600)
	for node := range 300 {
		for j := range 4 {
			several = append(several, byte(node>>j&1))
		}
		for j := range 2 {
			values = binary.LittleEndian.AppendUint32(values, math.Float32bits(float32(1000*j+node%7)))
		}
	}
	for _, c := range []struct {
		name    string
		store   *vfs.Mem
		metrics []string // the first is the default
		refused string
	}{
		{"several labels", storeOf(t, npy.Bool, 4, several, ""), []string{"micro-f1", "macro-f1", "roc-auc", "loss"},
			`the metric "accuracy" is not for labels`},
		{"values", storeOf(t, npy.Float32, 2, values, " --labels-as values"), []string{"mse", "mae", "loss"},
			`the metric "accuracy" is not for values`},
	} {
		for i, metric := range c.metrics {
			line := "train store --epochs 5 --batch 60 --json --run " + metric
			if i > 0 {
				line += " --optimizer adamw --lr-schedule cosine --clip-norm 1 --metric " + metric
			}
			trained := object(t, must(t, c.store, line))
			valid, ok := trained["valid_metric"].(float64)
			if trained["metric"] != metric || !ok || strings.Contains(metric, "f1") && valid > 1 {
				t.Errorf("%s, %s: %v", c.name, line, trained)
			}
			if e := object(t, must(t, c.store,
				"evaluate --json --checkpoint "+metric+" store")); e["test_metric"] != trained["test_metric"] ||
				e["same_nodes"] != true {
				t.Errorf("%s: evaluated %v, trained %v", c.name, e["test_metric"], trained["test_metric"])
			}
		}
		if o := hopfeed(t, c.store, "train store --metric accuracy"); o.code != exitUsage ||
			!strings.Contains(o.stderr, c.refused) {
			t.Errorf("%s: status %d, %s", c.name, o.code, o.stderr)
		}
		if o := hopfeed(t, c.store, "train store --class-weights balanced"); o.code != exitUsage ||
			!strings.Contains(o.stderr, "are not classes") {
			t.Errorf("%s: status %d, %s", c.name, o.code, o.stderr)
		}
	}
}

func TestClassWeightsAreGivenOrBalanced(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	weights := func(given string) []any {
		s, _ := object(t, must(t, d,
			"train store --epochs 2 --json --class-weights "+given))["settings"].(map[string]any)
		w, _ := s["class_weights"].([]any)
		return w
	}
	if w := weights("1,0.5,2"); len(w) != 3 || w[1] != 0.5 {
		t.Errorf("given weights are %v", w)
	}
	if w := weights("balanced"); len(w) != 3 || w[0] == w[1] && w[1] == w[2] {
		t.Errorf("balanced weights are %v", w)
	}
	for given, want := range map[string]string{"1,2": "2 class weights for 3 classes",
		"1,x,2": "want numbers separated by commas", "1,-1,1": "weight -1 of class 1"} {
		if o := hopfeed(t, d, "train store --class-weights "+given); o.code != exitUsage ||
			!strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %s", given, o.code, o.stderr)
		}
	}
}

func TestADivergedRunNamesTheNodesOfItsBatch(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	o := hopfeed(t, d, "train store --lr 1e38 --batch 10 --epochs 3")
	if o.code != exitFailed || !strings.Contains(o.stderr, "batch 2: try a learning rate below 1e+38") ||
		!strings.Contains(o.stderr, "; the batch is of the nodes [") {
		t.Errorf("status %d, %s", o.code, o.stderr)
	}
}
