package main

import (
	"strings"
	"testing"
)

func TestAGraphWithFeaturesInPlaceServesAllCommands(t *testing.T) {
	d := disk(t, generateLine, exportLine, "import npy arrays -o placed --features-in-place", "verify placed",
		propagateLine, strings.Replace(propagateLine, "propagate graph -o store", "propagate placed -o other", 1), "export npy placed -o again")
	if o := must(t, d, "inspect placed"); !strings.Contains(o.stdout, "../arrays/node_feat.npy") {
		t.Errorf("inspect does not say where the features are: %s", o.stdout)
	}
	store, other := tree(t, d, "store"), tree(t, d, "other")
	for name, data := range store {
		if name != "store/manifest.json" && other["other"+name[len("store"):]] != data { // which names the graph
			t.Errorf("%s differs", name)
		}
	}
	arrays, again := tree(t, d, "arrays"), tree(t, d, "again")
	for name, data := range arrays {
		if again["again"+name[len("arrays"):]] != data {
			t.Errorf("%s differs", name)
		}
	}
	for name := range tree(t, d, "placed") {
		if strings.Contains(name, "features") {
			t.Errorf("%s was copied", name)
		}
	}
	write(t, d, "arrays/node_feat.npy", arrays["arrays/node_feat.npy"][1:])
	for _, line := range []string{"verify placed", "inspect placed", "propagate placed -o third"} {
		o := hopfeed(t, d, line)
		if said := o.stdout + o.stderr; o.code != exitCorrupt || !strings.Contains(said, "arrays/node_feat.npy") || !strings.Contains(said, "import again") {
			t.Errorf("hopfeed %s: exit status %d: %s", line, o.code, said)
		}
	}
	if o := hopfeed(t, d, "import npy again -o x --features-in-place --normalize-features"); o.code != exitUsage {
		t.Errorf("exit status %d: %s", o.code, o.stderr)
	}
}
