package ingest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// magOGB is a data set laid out as ogbn-mag: three papers with features, labels and years, and types without.
func magOGB() layout {
	relation := func(name, edges, count string) layout {
		at := "raw/relations/" + name + "/"
		return layout{at + "edge.csv.gz": gzipped(edges), at + "num-edge-list.csv.gz": gzipped(count + "\n"),
			at + "edge_reltype.csv.gz": gzipped(strings.Repeat("1\n", strings.Count(edges, "\n")))}
	}
	const types = "author,field_of_study,institution,paper\n"
	l := layout{
		"raw/triplet-type-list.csv.gz": gzipped("author,writes,paper\npaper,cites,paper\n" +
			"paper,has_topic,field_of_study\nauthor,affiliated_with,institution\n"),
		"raw/num-node-dict.csv.gz":               gzipped("author,field_of_study,institution,paper\n2,1,2,3\n"),
		"raw/nodetype-has-feat.csv.gz":           gzipped(types + "False,False,False,True\n"),
		"raw/nodetype-has-label.csv.gz":          gzipped(types + "False,False,False,True\n"),
		"raw/node-feat/paper/node-feat.csv.gz":   gzipped("1.0,2.5\n-3,4e0\n5,6\n"),
		"raw/node-feat/paper/node_year.csv.gz":   gzipped("2015\n2019\n2018\n"),
		"raw/node-label/paper/node-label.csv.gz": gzipped("0\n1\n-1\n"),
		"split/time/nodetype-has-split.csv.gz":   gzipped(types + "False,False,False,True\n"),
		"split/time/paper/train.csv.gz":          gzipped("0\n"),
		"split/time/paper/valid.csv.gz":          gzipped("2\n"),
		"split/time/paper/test.csv.gz":           gzipped("1\n"),
		"mapping/README.md":                      {},
		"RELEASE_v2.txt":                         {},
	}
	for _, files := range []layout{
		relation("author___writes___paper", "0,0\n1,2\n1,1\n1,1\n", "4"),
		relation("paper___cites___paper", "0,1\n1,1\n", "2"),
		relation("paper___has_topic___field_of_study", "2,0\n0,0\n", "2"),
		relation("author___affiliated_with___institution", "", "0"),
	} {
		for name, data := range files {
			l[name] = data
		}
	}
	return l
}

// magArrays is the graph of magOGB in the npy layout.
func magArrays() layout {
	return layout{
		"meta.json": []byte(`{"node_types":
			{"author": 2, "field_of_study": 1, "institution": 2, "paper": 3}}`),
		"nodes/paper/node_feat.npy":                                 array(npy.Float32, []float32{1, 2.5, -3, 4, 5, 6}, 3, 2),
		"nodes/paper/node_label.npy":                                array(npy.Int32, []int32{0, 1, -1}, 3),
		"nodes/paper/splits.npy":                                    array(npy.Int8, []int8{0, 2, 1}, 1, 3),
		"edges/author__writes__paper/edge_index.npy":                array(npy.Int64, []int64{0, 1, 1, 1, 0, 2, 1, 1}, 2, 4),
		"edges/paper__cites__paper/edge_index.npy":                  array(npy.Int64, []int64{0, 1, 1, 1}, 2, 2),
		"edges/paper__has_topic__field_of_study/edge_index.npy":     array(npy.Int64, []int64{2, 0, 0, 0}, 2, 2),
		"edges/author__affiliated_with__institution/edge_index.npy": array(npy.Int64, []int64{}, 2, 0),
	}
}

func importTypedOGB(disk vfs.FS, o OGBOptions, run Options) (*Result, error) {
	source, err := OpenOGB(context.Background(), disk, "in", ScratchOptions{Output: "out", Force: run.Force}, o)
	if err != nil {
		return nil, err
	}
	r, err := Run(context.Background(), disk, source, "out", run)
	return r, errors.Join(err, source.Close())
}

// contents are the files of a graph without those that say where it comes from.
func contents(t *testing.T, disk vfs.FS) map[string]string {
	t.Helper()
	out := files(t, disk, "out")
	for name := range out {
		if strings.HasSuffix(name, ".json") {
			delete(out, name)
		}
	}
	return out
}

func TestTypedOGBEqualsTypedArrays(t *testing.T) {
	unpacked := with(magOGB(), "raw/node-feat/paper/node-feat.csv.gz", nil)
	unpacked["raw/node-feat/paper/node-feat.csv"] = []byte("1,2.5\n-3,4\n5,6\n")
	bare := magOGB() // of files that only confirm what others say
	for _, name := range []string{"raw/nodetype-has-feat.csv.gz", "raw/nodetype-has-label.csv.gz",
		"split/time/nodetype-has-split.csv.gz"} {
		bare = with(bare, name, nil)
	}
	for name, input := range map[string]layout{"packed": magOGB(), "a text that is unpacked": unpacked, "bare": bare} {
		for _, direction := range []Direction{UnknownDirection, Directed} {
			for _, missing := range []StandIn{NoStandIn, OnesFor, DegreeFor} {
				typed := TypedOptions{Missing: missing}
				arrays := magArrays().put(t)
				source, err := OpenTypedNPY(arrays, "in", direction, NPYOptions{TypedOptions: typed})
				if err != nil {
					t.Fatal(err)
				}
				_, err = Run(t.Context(), arrays, source, "out", Options{})
				if err := errors.Join(err, source.Close()); err != nil {
					t.Fatal(err)
				}
				disk := with(input, "raw/node-feat/paper/node_year.csv.gz", nil).put(t) // arrays of types have no columns
				r, err := importTypedOGB(disk, OGBOptions{Direction: direction, TypedOptions: typed}, Options{})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if r.Nodes != 8 || r.Target != "paper" || r.Features != 2 || r.Classes != 2 || r.Train != 1 || r.Valid != 1 ||
					r.Test != 1 {
					t.Errorf("%s: %+v", name, r)
				}
				checkTyped(t, disk)
				want := contents(t, arrays)
				if len(want) < 10 {
					t.Fatalf("only %d files are compared", len(want))
				}
				sameFiles(t, name, contents(t, disk), want)
			}
		}
	}
}

func TestATypedOGBGraphHasItsRelationsReversesAndColumns(t *testing.T) {
	disk := magOGB().put(t)
	if _, err := importTypedOGB(disk, OGBOptions{}, Options{}); err != nil {
		t.Fatal(err)
	}
	checkRelations(t, disk, checkTyped(t, disk), map[string][][]uint32{
		"author__writes__paper": {{0}, {1}, {1}}, "paper__rev_writes__author": {{0}, {1, 2}},
		"paper__cites__paper": {{}, {0, 1}, {}}, "paper__rev_cites__paper": {{1}, {1}, {}},
		"paper__has_topic__field_of_study": {{0, 2}}, "field_of_study__rev_has_topic__paper": {{0}, {}, {0}},
		"author__affiliated_with__institution": {{}, {}}, "institution__rev_affiliated_with__author": {{}, {}},
	})
	d, err := format.OpenGraph(disk, format.NodesDir("out", "paper"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if c := d.Manifest.Columns; len(c) != 1 || c[0].Name != "node_year" || d.Manifest.Input["splits"] != "time" {
		t.Errorf("%+v", d.Manifest)
	}
}

func TestNamesOfOGBTypesThatAreNotAllowedAreChanged(t *testing.T) {
	l := layout{
		"raw/triplet-type-list.csv.gz":                                       gzipped("Drug,drug-drug (acquired),Drug\n"),
		"raw/num-node-dict.csv.gz":                                           gzipped("Drug\n2\n"),
		"raw/relations/Drug___drug-drug (acquired)___Drug/edge.csv":          []byte("0,1\n"),
		"raw/relations/Drug___drug-drug (acquired)___Drug/num-edge-list.csv": []byte("1\n"),
		"raw/relations/Drug___drug-drug (acquired)___Drug/edge-feat.csv.gz":  gzipped("7\n"),
		"raw/relations/another/edge.csv":                                     []byte("0,1\n"),
		"raw/node-feat/Drug/node-feat.csv":                                   []byte("1\n2\n"),
		"raw/node-label/Drug/node-label.csv":                                 []byte("0\n1\n"),
	}
	disk := l.put(t)
	r, err := importTypedOGB(disk, OGBOptions{Direction: Directed}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkRelations(t, disk, checkTyped(t, disk), map[string][][]uint32{"drug__drug_drug_acquired__drug": {{}, {0}}})
	for _, want := range []string{`"Drug" is called drug`, `"drug-drug (acquired)" is called drug_drug_acquired`,
		"in/raw/relations: left out: another", "left out: edge-feat.csv.gz", "no split/<name>/<type>/train.csv.gz"} {
		if !slices.ContainsFunc(r.Notes, func(note string) bool { return strings.Contains(note, want) }) {
			t.Errorf("no note says %q: %q", want, r.Notes)
		}
	}
}

func TestTypedOGBThatIsNoneIsRefusedNamingFileAndLine(t *testing.T) {
	const writes = "raw/relations/author___writes___paper/"
	text := func(name, content string) layout { return with(magOGB(), name, gzipped(content)) }
	edges := "raw/relations/author___writes___paper/edge.csv.gz"
	for _, c := range []struct {
		name  string
		files layout
		say   []string
	}{
		{"no numbers of nodes", with(magOGB(), "raw/num-node-dict.csv.gz", nil), []string{"in/raw: no num-node-dict.csv.gz"}},
		{"only types", text("raw/num-node-dict.csv.gz", "author,paper\n"),
			[]string{"in/raw/num-node-dict.csv.gz", "ends after 1 lines"}},
		{"a number short", text("raw/num-node-dict.csv.gz", "author,field_of_study,institution,paper\n2,1,2\n"),
			[]string{"in/raw/num-node-dict.csv.gz: line 2: 3 values (want one for each of the 4 types"}},
		{"several graphs", text("raw/num-node-dict.csv.gz", "author,field_of_study,institution,paper\n2,1,2,3\n2,1,2,3\n"),
			[]string{"in/raw/num-node-dict.csv.gz: line 3", "more than one graph"}},
		{"no nodes", text("raw/num-node-dict.csv.gz", "author,field_of_study,institution,paper\n2,0,2,3\n"),
			[]string{"in/raw/num-node-dict.csv.gz: line 2", `"0" for field_of_study`}},
		{"a type twice", text("raw/num-node-dict.csv.gz", "author,Author,institution,paper\n2,1,2,3\n"),
			[]string{"in/raw/num-node-dict.csv.gz: line 1: two types are called author"}},
		{"a name without letters", text("raw/num-node-dict.csv.gz", "author,7,institution,paper\n2,1,2,3\n"),
			[]string{"in/raw/num-node-dict.csv.gz: line 1", `"7"`, "rename it"}},
		{"a name with a folder", text("raw/num-node-dict.csv.gz", "author,../x,institution,paper\n2,1,2,3\n"),
			[]string{"in/raw/num-node-dict.csv.gz: line 1", `"../x"`, "rename it"}},
		{"an unknown type", text("raw/triplet-type-list.csv.gz", "author,writes,paper\nauthor,at,Venue\n"),
			[]string{"in/raw/triplet-type-list.csv.gz: line 2", `no type "Venue"`}},
		{"a relation of two", text("raw/triplet-type-list.csv.gz", "author,paper\n"),
			[]string{"in/raw/triplet-type-list.csv.gz: line 1", `"author,paper"`}},
		{"a relation twice", text("raw/triplet-type-list.csv.gz", "author,writes,paper\nauthor,writes,paper\n"),
			[]string{"in/raw/triplet-type-list.csv.gz: line 2: the relation author__writes__paper is listed twice"}},
		{"no relation", text("raw/triplet-type-list.csv.gz", ""), []string{"in/raw/triplet-type-list.csv.gz: no relation"}},
		{"a relation's folder is missing", text("raw/triplet-type-list.csv.gz", "author,knows,author\n"),
			[]string{"in/raw/relations/author___knows___author: no num-edge-list.csv.gz"}},
		{"no edges", with(magOGB(), edges, nil), []string{"in/" + strings.TrimSuffix(writes, "/") + ": no edge.csv.gz"}},
		{"a source out of range", text(edges, "0,0\n1,2\n2,1\n1,1\n"),
			[]string{"in/" + edges + ": line 3: column 1", "no node 2: type author has 2 nodes"}},
		{"a destination out of range", text(edges, "0,0\n1,3\n1,1\n1,1\n"),
			[]string{"in/" + edges + ": line 2: column 2", "no node 3: type paper has 3 nodes"}},
		{"too few edges", text(edges, "0,0\n1,2\n1,1\n"), []string{"in/" + edges, "3 of 4 edges"}},
		{"too many edges", text(edges, "0,0\n1,2\n1,1\n1,1\n1,1\n"), []string{"in/" + edges + ": line 5", "more than 4"}},
		{"no number of edges", text(writes+"num-edge-list.csv.gz", "x\n"),
			[]string{"in/" + writes + "num-edge-list.csv.gz: line 1", `"x"`}},
		{"edges cut", with(magOGB(), edges, magOGB()[edges][:25]), []string{"in/" + edges, "decompression failed"}},
		{"features cut", with(magOGB(), "raw/node-feat/paper/node-feat.csv.gz",
			magOGB()["raw/node-feat/paper/node-feat.csv.gz"][:25]),
			[]string{"in/raw/node-feat/paper/node-feat.csv.gz", "decompression failed"}},
		{"features of too few", text("raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,4\n"),
			[]string{"in/raw/node-feat/paper/node-feat.csv.gz", "after 2 rows"}},
		{"features of too many", text("raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n"),
			[]string{"in/raw/node-feat/paper/node-feat.csv.gz: line 4"}},
		{"a feature that is not finite", text("raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,nan\n5,6\n"),
			[]string{"in/raw/node-feat/paper/node-feat.csv.gz: line 2: column 2"}},
		{"labels of too few", text("raw/node-label/paper/node-label.csv.gz", "0\n1\n"),
			[]string{"in/raw/node-label/paper/node-label.csv.gz", "after 2 rows"}},
		{"years of too many", text("raw/node-feat/paper/node_year.csv.gz", "1\n2\n3\n4\n"),
			[]string{"in/raw/node-feat/paper/node_year.csv.gz: line 4"}},
		{"a split of a node that is not there", text("split/time/paper/valid.csv.gz", "3\n"),
			[]string{"in/split/time/paper/valid.csv.gz: line 1", "type paper has 3 nodes"}},
		{"a list is missing", with(magOGB(), "split/time/paper/test.csv.gz", nil),
			[]string{"in/split/time/paper: no list of the test nodes"}},
		{"features are missing", with(magOGB(), "raw/node-feat/paper/node-feat.csv.gz", nil),
			[]string{"in/raw/nodetype-has-feat.csv.gz: line 2: True for paper", "no node-feat.csv.gz"}},
		{"labels that should not be", with(magOGB(), "raw/node-label/author/node-label.csv.gz", gzipped("0\n1\n")),
			[]string{"in/raw/nodetype-has-label.csv.gz: line 2: False for author"}},
		{"splits are missing", text("split/time/nodetype-has-split.csv.gz", "author,paper\nTrue,True\n"),
			[]string{"in/split/time/nodetype-has-split.csv.gz: line 2: True for author"}},
		{"neither true nor false", text("raw/nodetype-has-feat.csv.gz", "paper\nperhaps\n"),
			[]string{"in/raw/nodetype-has-feat.csv.gz: line 2", `"perhaps" for paper`}},
		{"an unknown type with features", text("raw/nodetype-has-feat.csv.gz", "shelf\nTrue\n"),
			[]string{"in/raw/nodetype-has-feat.csv.gz: line 1", `no type "shelf"`}},
	} {
		disk := c.files.put(t)
		_, err := importTypedOGB(disk, OGBOptions{}, Options{})
		refused(t, c.name, err, c.say...)
		if left := files(t, disk, "out"); len(left) > 0 {
			t.Errorf("%s: %d files are left", c.name, len(left))
		}
		if _, err := disk.Stat("out.scratch"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the scratch folder is left: %v", c.name, err)
		}
	}
}

func TestFlagsOfOneTypeOfNodesAreRefusedForTypedOGB(t *testing.T) {
	for name, o := range map[string]OGBOptions{"--features": {Features: Ones}, "labels": {LabelsAs: "other"},
		"--missing-features": {TypedOptions: TypedOptions{Missing: "other"}}} {
		if _, err := importTypedOGB(magOGB().put(t), o, Options{}); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := openOGB(smallOGB().put(t), OGBOptions{Direction: Directed,
		TypedOptions: TypedOptions{Target: "paper"}}); !errors.Is(err, ErrOptions) {
		t.Errorf("--target for one type: %v", err)
	}
}

func TestATypedOGBImportThatFailedIsMadeAnew(t *testing.T) {
	input, seen := magOGB().put(t), vfs.Disks{}
	for n := int64(1); ; n += 7 {
		disk := input.Clone()
		failing := vfs.NewFault(disk)
		failing.FailAt(n, syscall.EIO)
		_, err := importTypedOGB(failing, OGBOptions{}, Options{})
		if failing.Operations() < n {
			if err != nil || n < 100 {
				t.Fatalf("%d operations: %v", n-1, err)
			}
			break
		}
		if !seen.Add(disk, 0) {
			continue
		}
		if format.IsTyped(disk, "out") {
			checkTyped(t, disk)
		}
		if _, err := importTypedOGB(disk, OGBOptions{}, Options{}); err != nil && !errors.Is(err, format.ErrExists) {
			t.Fatalf("after failing operation %d: %v", n, err)
		}
		checkTyped(t, disk)
	}
}
