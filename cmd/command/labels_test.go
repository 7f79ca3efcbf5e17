package command

import (
	"maps"
	"strings"
	"testing"
)

func TestAModelReadsPropagatedLabels(t *testing.T) {
	d := disk(t, generateLine, propagateLine+" --rows all --label-hops 1", trainLine)
	o := object(t, must(t, d, "inspect store --json"))
	if o["label_hops"] != 1.0 {
		t.Errorf("inspect: %v", o["label_hops"])
	}
	if text := must(t, d, "inspect store").stdout; !strings.Contains(text, "the last 3 are labels of training nodes, propagated") {
		t.Errorf("inspect prints %s", text)
	}
	must(t, d, "predict --checkpoint run store -o store.csv")
	must(t, d, "predict --checkpoint run graph -o graph.csv")
	_, byStore, _ := readPredictions(t, d, "store.csv")
	_, byGraph, _ := readPredictions(t, d, "graph.csv")
	if !maps.EqualFunc(byStore, byGraph, func(a, b prediction) bool { return a.class == b.class }) {
		t.Error("predictions of the graph are not those of its store")
	}
	must(t, d, strings.Replace(propagateLine, "store", "plain", 1)+" --rows all")
	for line, want := range map[string]string{
		"predict --checkpoint run plain -o plain.csv":          "labels propagated over 1 hops",
		"evaluate --checkpoint run plain":                      "labels propagated over 1 hops",
		"train store --model sgc --splits none.npy":            "labels of the training nodes of split 0",
		propagateLine + " --label-hops 9 --force":              "labels are propagated over 9 hops",
		"propagate graph -o ppr --operator ppr --label-hops 1": "labels cannot be propagated by ppr",
	} {
		if o := hopfeed(t, d, line); o.code == exitDone || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
}
