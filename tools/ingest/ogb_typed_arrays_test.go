package ingest

import (
	"archive/zip"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// magDicts are the archives of the graph of magOGB, as OGB's DatasetSaver writes them.
func magDicts() map[string]layout {
	counts := func(of map[string]int64) layout {
		l := layout{}
		for name, n := range of {
			l[name] = array(npy.Int64, []int64{n}, 1)
		}
		return l
	}
	return map[string]layout{
		"num_nodes_dict.npz": counts(map[string]int64{"author": 2, "field_of_study": 1, "institution": 2, "paper": 3}),
		"num_edges_dict.npz": counts(map[string]int64{"author___writes___paper": 4, "paper___cites___paper": 2,
			"paper___has_topic___field_of_study": 2, "author___affiliated_with___institution": 0}),
		"edge_index_dict.npz": {
			"author___writes___paper":                array(npy.Int64, []int64{0, 1, 1, 1, 0, 2, 1, 1}, 2, 4),
			"paper___cites___paper":                  array(npy.Int64, []int64{0, 1, 1, 1}, 2, 2),
			"paper___has_topic___field_of_study":     array(npy.Int64, []int64{2, 0, 0, 0}, 2, 2),
			"author___affiliated_with___institution": array(npy.Int64, []int64{}, 2, 0),
		},
		"node_feat_dict.npz": {"paper": array(npy.Float32, []float32{1, 2.5, -3, 4, 5, 6}, 3, 2)},
		"node_year.npz":      {"paper": array(npy.Int64, []int64{2015, 2019, 2018}, 3, 1)},
		"edge_reltype.npz":   {"paper___cites___paper": array(npy.Int64, []int64{1, 1}, 2, 1)},
		"node-label.npz":     {"paper": array(npy.Int64, []int64{0, 1, -1}, 3, 1)},
	}
}

// magDictOGB is a data set of such archives, with the splits that Python has unpacked.
func magDictOGB(archives map[string]layout) layout {
	l := layout{
		"split/time/split_dict.pt":       []byte("PK\x03\x04pickled"),
		"split/time/paper/train_idx.npy": array(npy.Int64, []int64{0}, 1),
		"split/time/paper/valid_idx.npy": array(npy.Int64, []int64{2}, 1),
		"split/time/paper/test_idx.npy":  array(npy.Int32, []int32{1}, 1),
		"RELEASE_v1.txt":                 {},
	}
	for name, arrays := range archives {
		l["raw/"+name] = archive(zip.Deflate, arrays)
	}
	return l
}

// withArray returns archives of which one array is another; nil: none.
func withArray(archive, name string, data []byte) map[string]layout {
	archives := magDicts()
	archives[archive] = with(archives[archive], name, data)
	return archives
}

func TestTypedOGBInArraysEqualsTheSameAsText(t *testing.T) {
	pairs := fortran(array(npy.Int64, []int64{0, 0, 1, 2, 1, 1, 1, 1}, 2, 4))
	for name, archives := range map[string]map[string]layout{"C order": magDicts(),
		"Fortran order": withArray("edge_index_dict.npz", "author___writes___paper", pairs)} {
		for _, missing := range []StandIn{NoStandIn, DegreeFor} {
			o := OGBOptions{TypedOptions: TypedOptions{Missing: missing}}
			text, disk := magOGB().put(t), magDictOGB(archives).put(t)
			if _, err := importTypedOGB(text, o, Options{}); err != nil {
				t.Fatal(err)
			}
			r, err := importTypedOGB(disk, o, Options{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if note := "in/raw: left out: edge_reltype.npz"; !slices.Contains(r.Notes, note) {
				t.Errorf("no note says %q: %q", note, r.Notes)
			}
			checkTyped(t, disk)
			want := contents(t, text)
			if len(want) < 10 {
				t.Fatalf("only %d files are compared", len(want))
			}
			sameFiles(t, name, contents(t, disk), want)
		}
	}
}

func TestWhatIsNotReadOfOGBArraysIsNoted(t *testing.T) {
	archives := magDicts()
	archives["node_feat_dict.npz"] = with(archives["node_feat_dict.npz"], "shelf", array(npy.Int8, []int8{1}, 1, 1))
	typed := with(magDictOGB(archives), "raw/notes.csv.gz", gzipped("1\n"))
	plain := binaryOGB(with(binaryMembers(), "edge_reltype", array(npy.Int8, make([]int8, 4), 4, 1)))
	for name, c := range map[string]struct {
		files layout
		notes []string
	}{
		"by types": {typed, []string{"in/raw/node_feat_dict.npz: left out: shelf",
			"in/raw: left out: edge_reltype.npz, notes.csv.gz"}},
		"plain": {plain, []string{"in/raw/data.npz: left out: edge_reltype"}},
	} {
		r, err := importTypedOGB(c.files.put(t), ogbDirected, Options{Direction: Directed})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		left := slices.DeleteFunc(r.Notes, func(note string) bool { return !strings.Contains(note, "left out") })
		if slices.Sort(left); !slices.Equal(left, c.notes) {
			t.Errorf("%s: %q", name, left)
		}
	}
}

func TestTypedOGBInArraysThatIsNoneIsRefusedNamingTheArray(t *testing.T) {
	without := func(archive string) layout {
		archives := magDicts()
		delete(archives, archive)
		return magDictOGB(archives)
	}
	whole := magDictOGB(magDicts())
	pickled := layout{}
	for name, data := range whole {
		if !strings.HasSuffix(name, "_idx.npy") {
			pickled[name] = data
		}
	}
	changed := func(archive, name string, data []byte) layout { return magDictOGB(withArray(archive, name, data)) }
	const writes = "author___writes___paper"
	for _, c := range []struct {
		name  string
		files layout
		say   []string
	}{
		{"no numbers of nodes", without("num_nodes_dict.npz"), []string{"in/raw: no num_nodes_dict.npz"}},
		{"no numbers of edges", without("num_edges_dict.npz"), []string{"in/raw: no num_edges_dict.npz"}},
		{"a number of edges short", changed("num_edges_dict.npz", writes, nil),
			[]string{"in/raw/num_edges_dict.npz: " + writes, "no such array"}},
		{"no nodes", changed("num_nodes_dict.npz", "institution", array(npy.Int64, []int64{0}, 1)),
			[]string{"in/raw/num_nodes_dict.npz: institution: the type has no nodes"}},
		{"two graphs", changed("num_nodes_dict.npz", "paper", array(npy.Int64, []int64{1, 2}, 2)),
			[]string{"in/raw/num_nodes_dict.npz: paper", "one graph"}},
		{"a type that is not counted", changed("num_nodes_dict.npz", "author", nil),
			[]string{"in/raw/edge_index_dict.npz", `no type "author"`}},
		{"a name of two parts", changed("edge_index_dict.npz", "author___paper", array(npy.Int64, []int64{0, 0}, 2, 1)),
			[]string{"in/raw/edge_index_dict.npz", `"author___paper"`}},
		{"an edge short", changed("edge_index_dict.npz", writes, array(npy.Int64, []int64{0, 1, 1, 0, 2, 1}, 2, 3)),
			[]string{"in/raw/edge_index_dict.npz: " + writes, "integers [2,4]"}},
		{"a source out of range", changed("edge_index_dict.npz", writes,
			array(npy.Int64, []int64{0, 2, 1, 1, 0, 2, 1, 1}, 2, 4)), []string{"edge 1 has source 2", "2 nodes"}},
		{"a destination out of range", changed("edge_index_dict.npz", writes,
			array(npy.Int64, []int64{0, 1, 1, 1, 0, 3, 1, 1}, 2, 4)), []string{"edge 1 has destination 3", "3 nodes"}},
		{"features of two", changed("node_feat_dict.npz", "paper", array(npy.Float32, []float32{1, 2}, 2, 1)),
			[]string{"in/raw/node_feat_dict.npz: paper", "numbers [3,F]"}},
		{"labels of two", changed("node-label.npz", "paper", array(npy.Int64, []int64{1, 2}, 2, 1)),
			[]string{"in/raw/node-label.npz: paper"}},
		{"splits that are pickled alone", pickled, []string{"in/split/time/split_dict.pt", "torch.load", "_idx.npy"}},
		{"a split of no node", with(whole, "split/time/paper/test_idx.npy", array(npy.Int64, []int64{3}, 1)),
			[]string{"in/split/time/paper/test_idx.npy: entry 0 is 3"}},
		{"a node in two lists", with(whole, "split/time/paper/test_idx.npy", array(npy.Int64, []int64{1, 2}, 2)),
			[]string{"in/split/time/paper/test_idx.npy: entry 1: node 2 is listed twice"}},
		{"an archive that is cut", with(whole, "raw/edge_index_dict.npz", whole["raw/edge_index_dict.npz"][:90]),
			[]string{"in/raw/edge_index_dict.npz"}},
	} {
		disk := c.files.put(t)
		_, err := importTypedOGB(disk, OGBOptions{}, Options{})
		refused(t, c.name, err, c.say...)
		if left := files(t, disk, "out"); len(left) > 0 {
			t.Errorf("%s: %d files are left", c.name, len(left))
		}
	}
}

func TestAnImportOfOGBArraysThatFailedIsMadeAnew(t *testing.T) {
	input, seen := magDictOGB(magDicts()).put(t), vfs.Disks{}
	for n := int64(1); ; n += 11 {
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
		if _, err := importTypedOGB(disk, OGBOptions{}, Options{}); err != nil && !errors.Is(err, format.ErrExists) {
			t.Fatalf("after failing operation %d: %v", n, err)
		}
		checkTyped(t, disk)
	}
}
