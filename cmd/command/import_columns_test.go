package command

import (
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestAnImportSaysWhatItTakesAndValuesGoAllTheWay(t *testing.T) {
	d := vfs.NewMem()
	write(t, d, "edges.csv", ",u,v,ts\n0,0,1,7\n1,1,2,8\n")
	write(t, d, "nodes.csv", "node_id,price,train_mask,test_mask,f\n0,0.5,1,0,1\n1,1.5,0,1,2\n2,,0,0,3\n")
	write(t, d, "ratings.csv", "userId,movieId,rating\n1,1,4\n")
	write(t, d, "page.csv", "<!DOCTYPE html>\n")
	imported := must(t, d, "import csv edges.csv -o g --node-table nodes.csv --label-column price --json")
	for _, line := range []string{`edges.csv: source = u, destination = v; left out: "" (the row index), ts`,
		"nodes.csv: id = node_id, label = price, split = train_mask, test_mask, features = f"} {
		if !strings.Contains(imported.stderr, "note: "+line+"\n") {
			t.Errorf("%q is not among the notes %s", line, imported.stderr)
		}
		if notes, _ := object(t, imported)["notes"].([]any); len(notes) == 0 ||
			!strings.Contains(imported.stdout, strings.ReplaceAll(line, `"`, `\"`)) {
			t.Errorf("%q is not in %s", line, imported.stdout)
		}
	}
	must(t, d, "propagate g -o s --hops 1")
	must(t, d, "verify s")
	if o := must(t, d, "inspect s"); !strings.Contains(o.stdout, "1 value a node to predict (regression)") {
		t.Error(o.stdout)
	}
	for line, c := range map[string]struct {
		code int
		says string
	}{
		"train s": {exitDone, ", 1 value\n"},
		"import csv edges.csv -o x --source-column paper": {exitUsage, `--source-column paper: there is no such ` +
			`column (the columns are "", u, v, ts)`},
		"import csv ratings.csv -o x --ids map":         {exitUsage, "--ids bipartite"},
		"import csv page.csv -o x":                      {exitCorrupt, "looks like an HTML page"},
		"import csv edges.csv -o x --labels-as colours": {exitUsage, "--labels-as colours"},
	} {
		if o := hopfeed(t, d, line); o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
}

func TestFeaturesOfEdgesAreAskedForByFlags(t *testing.T) {
	d := vfs.NewMem()
	write(t, d, "edges.csv", "source,target,amount,at\n0,1,2,3600\n0,1,4,7200\n2,1,8,7201\n")
	line := "import csv edges.csv -o g --directed --duplicates keep --edge-columns amount,at:int64 --features none " +
		"--edge-features sum,count:amount --edge-time at --until 7201 --windows 1h,all"
	if features := object(t, must(t, d, line+" --json"))["features"]; features != 4.0 {
		t.Errorf("%v features, want a sum and a count of two windows", features)
	}
	const said = "edge_features: sum of edge_amount (1); count; of edges within 1h,all by at before 7201"
	if o := must(t, d, "inspect g"); !strings.Contains(o.stdout, said) {
		t.Error(o.stdout)
	}
	must(t, d, "propagate g -o s --hops 1 --rows all")
	if o := must(t, d, "inspect s"); !strings.Contains(o.stdout, said) {
		t.Error(o.stdout)
	}
	if o := hopfeed(t, d, "import csv edges.csv -o h --features none"); o.code != exitCorrupt {
		t.Errorf("status %d: %s", o.code, o.stderr)
	}
}
