package ingest

import (
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestADataSetWithoutANameIsNamedByItsFolderOrFile(t *testing.T) {
	for _, c := range [][2]string{
		{"data/elliptic", "elliptic"},
		{"data/elliptic/", "elliptic"},
		{"web.edges", "web.edges"}, // a folder, too
		{"data/ratings.csv", "ratings"},
		{"data/soc-Epinions1.txt.gz", "soc-Epinions1"},
		{"data/com-dblp.ungraph.txt.zst", "com-dblp.ungraph"},
		{"data/bcsstk.mtx", "bcsstk"},
		{"data/elliptic/edges.csv", "elliptic"},
		{"data/elliptic/edge.csv.gz", "elliptic"},
		{"data/elliptic/edges.parquet", "elliptic"},
		{"data/..", "graph"}, // the root
		{".", "graph"},
		{"data/x/..", "data"},
		{"edges.csv", "graph"},
		{".csv", ".csv"},
		{"data/a\x1b[31m\n", `a\x1b[31m\n`},
	} {
		if got := nameOf(vfs.NewMem(), c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestANameThatIsGivenHasPrecedence(t *testing.T) {
	disk, _, err := run(t, smallLayout(), Options{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if m := openGraph(t, disk, "out/graph").Manifest; m.Name != "other" {
		t.Errorf("%q", m.Name)
	}
	if _, _, err := run(t, smallLayout(), Options{Name: "a\n"}); err == nil {
		t.Error("a line feed is part of a name")
	}
}
