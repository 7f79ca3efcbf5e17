package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// TestAChangedGraphGoesOnFromItsStore updates a graph, propagates it from the old store, and predicts what changed.
func TestAChangedGraphGoesOnFromItsStore(t *testing.T) {
	d := vfs.NewMem()
	run := func(line string) string {
		t.Helper()
		return must(t, d, line).stdout
	}
	read := func(name string) string {
		t.Helper()
		b, err := vfs.ReadFile(d, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run("generate sbm -o graph --nodes 2000 --edges 20000 --features 8 --classes 40 --homophily 1 --labeled 0.5")
	run("propagate graph -o store --hops 2 --operator sym,rw --rows all")
	run("train store --model sign --epochs 2 --run model")
	write(t, d, "new.csv", "source,destination\n1,41\n1,81\n41,161\n")
	write(t, d, "nodes.csv", "id,label,split\n5,0,train\n6,,none\n")
	var u struct {
		Edges      int64
		EdgesAdded int64 `json:"edges_added"`
		Nodes      int64 `json:"nodes_changed"`
	}
	line := "update graph -o graph2 --edges new.csv --nodes nodes.csv --json"
	if err := json.Unmarshal([]byte(run(line)), &u); err != nil || u.EdgesAdded != 3 || u.Nodes != 2 {
		t.Errorf("update: %+v, %v", u, err)
	}
	said := run("propagate graph2 -o store2 --from store")
	if !strings.Contains(said, "took rows from store; computed of each matrix: 0 36 50 3 36") {
		t.Errorf("propagate --from says %q", said)
	}
	run("propagate graph2 -o fresh --hops 2 --operator sym,rw --rows all")
	run("verify store2")
	for _, name := range []string{"manifest.json", "index.arrow"} {
		if read("store2/"+name) != read("fresh/"+name) {
			t.Errorf("%s differs", name)
		}
	}
	run("predict --checkpoint model store2 -o all.csv")
	run("predict --checkpoint model store2 --changed-since store -o changed.csv")
	all, changed := read("all.csv"), strings.Split(strings.TrimSpace(read("changed.csv")), "\n")
	if len(changed) != 1+50 {
		t.Errorf("%d predictions, want 50", len(changed)-1)
	}
	for _, line := range changed {
		if !strings.Contains(all, line+"\n") {
			t.Errorf("prediction %s is another one than of the whole store", line)
		}
	}
	run("predict --checkpoint model store2 --changed-since fresh -o none.csv")
	if none := strings.Split(strings.TrimSpace(read("none.csv")), "\n"); len(none) != 1 {
		t.Errorf("%d predictions where nothing changed", len(none)-1)
	}
	for line, want := range map[string]string{
		"predict --checkpoint model graph2 --changed-since store -o x.csv": "compares two stores",
		"update graph -o graph/2":                      "to which nothing may be added",
		"update store -o x":                            "a hop store",
		"propagate graph -o x --from store":            "--from-graph",
		"propagate graph2 -o x --from store --dry-run": "for a whole job",
	} {
		if o := hopfeed(t, d, line); o.code == exitDone || !strings.Contains(o.stderr, want) {
			t.Errorf("hopfeed %s: exit status %d: %s", line, o.code, o.stderr)
		}
	}
}
