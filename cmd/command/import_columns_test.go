package command

import (
	"encoding/json"
	"fmt"
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

// Amounts of orders and of payments become features of shops, which have no others, and of users, and reach a model.
func TestColumnsOfRelationsReachAModel(t *testing.T) {
	d := vfs.NewMem()
	nodes, shops := "id,label,split,age\n", "id\n"
	orders, pays := "user,shop,amount,at\n", "source,destination,amount,at\n"
	for i := range 40 {
		nodes += fmt.Sprintf("u%d,%d,%s,%d\n", i, i%2, []string{"train", "valid", "test"}[i%3], i)
		orders += fmt.Sprintf("u%d,s%d,%d,%d\nu%[1]d,s%d,2,99\n", i, i%2, 100*(i%2), i, (i+1)%3)
		pays += fmt.Sprintf("u%d,u%d,0.5,%d\n", i, (i+2)%40, i)
	}
	for i := range 3 {
		shops += fmt.Sprintf("s%d\n", i)
	}
	for _, dir := range []string{"in/nodes", "in/edges"} {
		if err := d.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	write(t, d, "in/nodes/user.csv", nodes)
	write(t, d, "in/nodes/shop.csv", shops)
	write(t, d, "in/edges/user__orders__shop.csv", orders)
	write(t, d, "in/edges/user__pays__user.csv", pays)
	r := object(t, must(t, d, "import csv in -o g --directed --duplicates keep --edge-columns amount,at:int64 "+
		"--target user --edge-features mean,std,count:amount --edge-time at --until 50 --json"))
	types, _ := json.Marshal(r["node_types"])
	if r["features"] != 4.0 || !strings.Contains(string(types), `"features":3,`) {
		t.Errorf("features %v, types %s", r["features"], types)
	}
	const said = "edge_features: user__%s: mean,std of edge_amount (1); count; of edges within all by at before 50"
	if o := must(t, d, "inspect g/nodes/shop"); !strings.Contains(o.stdout, fmt.Sprintf(said, "orders__shop")) {
		t.Error(o.stdout)
	}
	if o := must(t, d, "inspect g"); !strings.Contains(o.stdout, "features of user: user__pays__user: mean,std") ||
		!strings.Contains(o.stdout, "the last features of shop: user__orders__shop: mean,std of edge_amount (1); count") {
		t.Error(o.stdout)
	}
	if all, _ := object(t, must(t, d, "inspect g --json"))["edge_features"].(map[string]any); len(all) != 2 ||
		!strings.HasPrefix(fmt.Sprint(all["shop"]), "user__orders__shop: mean,std of edge_amount") {
		t.Errorf("edge_features: %v", all)
	}
	must(t, d, "verify g")
	must(t, d, "propagate g -o s --hops 1")
	if o := must(t, d, "inspect s"); !strings.Contains(o.stdout, fmt.Sprintf(said, "pays__user")) {
		t.Error(o.stdout)
	}
	must(t, d, "train s --model sehgnn --epochs 2 --json")
	if o := hopfeed(t, d, "update g --edges in/edges -o h"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "features that come from edges") {
		t.Errorf("status %d: %s", o.code, o.stderr)
	}
}
