package command

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop"
)

func TestAModelReadsPropagatedLabels(t *testing.T) {
	d := disk(t, generateLine, propagateLine+" --rows all --label-hops 1", trainLine)
	o := object(t, must(t, d, "inspect store --json"))
	if o["label_hops"] != 1.0 {
		t.Errorf("inspect: %v", o["label_hops"])
	}
	text := must(t, d, "inspect store").stdout
	if !strings.Contains(text, "the last 3 are labels of training nodes, propagated") {
		t.Errorf("inspect prints %s", text)
	}
	must(t, d, "report run -o report.html")
	if !strings.Contains(content(t, d, "report.html"), "labels over 1 hop") {
		t.Error("the report does not say that the model reads labels")
	}
	must(t, d, "predict --checkpoint run store -o store.csv")
	must(t, d, "predict --checkpoint run graph -o graph.csv")
	_, byStore, _ := readPredictions(t, d, "store.csv")
	_, byGraph, _ := readPredictions(t, d, "graph.csv")
	if !maps.EqualFunc(byStore, byGraph, func(a, b prediction) bool { return a.class == b.class }) {
		t.Error("predictions of the graph are not those of its store")
	}
	must(t, d, propagateLine+" --rows all --label-hops 2 --force")
	for _, model := range []string{"sgc --hops 1", "sign --hops 0"} { // which read fewer hops than have labels
		must(t, d, "train store --epochs 2 --run fewer --force --model "+model)
		must(t, d, "predict --checkpoint fewer graph --force -o graph.csv")
	}
	must(t, d, strings.Replace(propagateLine, "store", "plain", 1)+" --rows all")
	for line, want := range map[string]string{
		"predict --checkpoint run plain -o plain.csv":          "labels propagated over 1 hop",
		"evaluate --checkpoint run plain":                      "labels propagated over 1 hop",
		"train store --model sgc --splits none.npy":            "labels of the training nodes of split 0",
		propagateLine + " --label-hops 9 --force":              "labels are propagated over 9 hops",
		"propagate graph -o ppr --operator ppr --label-hops 1": "labels cannot be propagated by ppr",
	} {
		if o := hopfeed(t, d, line); o.code == exitDone || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
}

// checkSmoothed compares smoothed predictions of all nodes with what preprop.Smooth makes of plain ones.
func checkSmoothed(t *testing.T, graph *format.Dir, plain, smooth map[uint32]prediction, o preprop.Smoothing) {
	t.Helper()
	z := make([]float32, 3*len(plain))
	for v, p := range plain {
		copy(z[3*v:], p.p)
	}
	if err := preprop.Smooth(t.Context(), graph, 0, z, o, 1); err != nil {
		t.Fatal(err)
	}
	if len(smooth) != len(plain) {
		t.Errorf("%d rows, want %d", len(smooth), len(plain))
	}
	for v, p := range smooth {
		for k, x := range p.p {
			if d := x - z[3*int(v)+k]; d > 1e-6 || d < -1e-6 {
				t.Fatalf("node %d: %v, want %v", v, p.p, z[3*v:][:3])
			}
		}
		if p.class != strconv.Itoa(slices.Index(p.p, slices.Max(p.p))) {
			t.Errorf("node %d: class %s of %v", v, p.class, p.p)
		}
	}
}

func TestPredictionsAreCorrectedAndSmoothed(t *testing.T) {
	d := predictable(t)
	must(t, d, "predict --checkpoint run graph -o plain.csv")
	o := object(t, must(t, d, "predict --checkpoint run graph -o smooth.csv --smooth autoscale --smooth-steps 9 --json"))
	if o["smooth"] != "autoscale" || o["rows"] != 300.0 {
		t.Errorf("%v", o)
	}
	must(t, d, "predict --checkpoint run graph -o fixed.csv --smooth fixed --rows valid")
	_, plain, _ := readPredictions(t, d, "plain.csv")
	_, smooth, order := readPredictions(t, d, "smooth.csv")
	_, fixed, _ := readPredictions(t, d, "fixed.csv")
	if !slices.IsSorted(order) || len(fixed) == 0 || len(fixed) == 300 {
		t.Errorf("nodes %v, %d validation rows", order, len(fixed))
	}
	graph, err := format.OpenGraph(d, "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	checkSmoothed(t, graph, plain, smooth, preprop.Smoothing{CorrectAlpha: 0.8, SmoothAlpha: 0.8, Scale: 1, Steps: 9})
	for line, want := range map[string]string{
		"predict --checkpoint run store -o out.csv --smooth fixed":                     "store is a hop store",
		"predict --checkpoint run graph -o out.csv --smooth fixed --smooth-alpha 2":    "alpha is 2",
		"predict --checkpoint run graph -o out.csv --smooth fixed --split 4":           "has no split 4",
		"predict --checkpoint run graph -o out.csv --smooth most":                      "autoscale",
		"predict --checkpoint run graph -o out.csv --smooth fixed --smooth-steps 5000": "5000 steps",
	} {
		if o := hopfeed(t, d, line); o.code == exitDone || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
}
