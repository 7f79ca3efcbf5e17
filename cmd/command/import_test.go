package command

import (
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestAGraphWithFeaturesInPlaceServesAllCommands(t *testing.T) {
	d := disk(t, generateLine, exportLine, "import npy arrays -o placed --features-in-place", "verify placed",
		propagateLine, strings.Replace(propagateLine, "propagate graph -o store", "propagate placed -o other", 1),
		"export npy placed -o again")
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
		if said := o.stdout + o.stderr; o.code != exitCorrupt || !strings.Contains(said, "arrays/node_feat.npy") ||
			!strings.Contains(said, "import again") {
			t.Errorf("hopfeed %s: exit status %d: %s", line, o.code, said)
		}
	}
	if o := hopfeed(t, d, "import npy again -o x --features-in-place --normalize-features"); o.code != exitUsage {
		t.Errorf("exit status %d: %s", o.code, o.stderr)
	}
}

func TestDirectionOfEdgesIsChosenByTwoFlags(t *testing.T) {
	d := vfs.NewMem()
	write(t, d, "unknown.csv", "0,1\n1,2\n")
	write(t, d, "undirected.csv", "% sym\n0,1\n1,2\n")
	for _, c := range []struct {
		name, line string
		code       int
		want       string
	}{
		{"an input that does not say is taken as directed, with a note", "import csv unknown.csv -o a", exitDone,
			"edges are taken as directed"},
		{"directed accepts that", "import csv unknown.csv -o b --directed", exitDone, "2 edges"},
		{"undirected adds the reverse of every edge", "import csv unknown.csv -o c --undirected", exitDone, "4 edges"},
		{"the input says that its edges are undirected", "import csv undirected.csv -o d", exitDone, "4 edges"},
		{"labels without a table of nodes", "import csv undirected.csv -o e --label-column y", exitUsage,
			"--label-column y: there is no table of nodes (--node-table FILE names one)"},
		{"directed contradicts the input", "import csv undirected.csv -o e --directed", exitUsage,
			"undirected.csv: line 1 says that the edges are undirected; leave out --directed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := hopfeed(t, d, c.line)
			if said := o.stdout + o.stderr; o.code != c.code || !strings.Contains(said, c.want) ||
				strings.Contains(c.line, "--directed") && strings.Contains(said, "taken as directed") {
				t.Errorf("hopfeed %s: exit status %d, want %d and %q: %s", c.line, o.code, c.code, c.want, said)
			}
		})
	}
}
