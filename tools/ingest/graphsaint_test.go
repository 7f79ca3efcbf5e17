package ingest

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// csr is a matrix as scipy.sparse.save_npz writes it, with values of true.
func csr(n int64, indptr, indices []int32) layout {
	values := slices.Repeat([]uint8{1}, len(indices))
	return layout{
		"format":  append(npy.AppendHeader(nil, npy.Bytes, 3), "csr"...),
		"shape":   array(npy.Int64, []int64{n, n}, 2),
		"data":    array(npy.Bool, values, int64(len(values))),
		"indices": array(npy.Int32, indices, int64(len(indices))),
		"indptr":  array(npy.Int32, indptr, int64(len(indptr))),
	}
}

func smallAdjacency() layout {
	return csr(5, []int32{0, 1, 2, 3, 4, 4}, []int32{4, 0, 1, 4})
}

// smallSAINT is a data set of five nodes, with smallEdges.
func smallSAINT() layout {
	return layout{
		"adj_full.npz":  archive(zip.Deflate, smallAdjacency()),
		"adj_train.npz": archive(zip.Deflate, csr(5, []int32{0, 0, 0, 0, 1, 1}, []int32{4})),
		"feats.npy":     array(npy.Float32, smallFeatures, 5, 4),
		"role.json":     []byte(`{"tr": [3, 4], "va": [0], "te": [2]}`),
		"class_map.json": []byte(`{"0": 2, "1": 0, "4": 1,
			"3": 0, "2": 1}`),
	}
}

func openSAINT(disk vfs.FS, o GraphSAINTOptions) (Source, error) {
	return OpenGraphSAINT(context.Background(), disk, "in", ScratchOptions{Output: "out/graph"}, o)
}

func TestGraphSAINTIsReadAsItsREADMESays(t *testing.T) {
	stored := smallAdjacency()
	stored["data"] = array(npy.Float64, []float64{1, 0.5, -1, 1}, 4) // true, all of them
	zeros := csr(5, []int32{0, 1, 3, 4, 5, 5}, []int32{4, 3, 0, 1, 4})
	zeros["data"] = array(npy.Int8, []int8{1, 0, 1, 1, 1}, 5)
	multi := with(smallSAINT(), "class_map.json",
		[]byte(`{"0":[0,1],"1":[1,1],"2":[0,0],"3":[1.0,0e0],"4":[ 0 , 1 ]}`+"\n"))
	for name, c := range map[string]struct {
		l     layout
		o     GraphSAINTOptions
		edges [][2]uint32
		multi []int8
	}{
		"all edges":                {l: smallSAINT()},
		"values that are not 1":    {l: with(smallSAINT(), "adj_full.npz", archive(zip.Store, stored))},
		"a value of 0 is no edge":  {l: with(smallSAINT(), "adj_full.npz", archive(zip.Deflate, zeros))},
		"edges between train rows": {smallSAINT(), GraphSAINTOptions{"train"}, [][2]uint32{{4, 3}}, nil},
		"several labels":           {l: multi, multi: []int8{0, 1, 1, 1, 0, 0, 1, 0, 0, 1}},
	} {
		disk := c.l.put(t)
		s, err := openSAINT(disk, c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if info := s.Info(); info.Nodes != 5 || info.Features != 4 || info.Weighted {
			t.Errorf("%s: %+v", name, info)
		}
		if c.edges == nil {
			c.edges = [][2]uint32{{4, 0}, {0, 1}, {1, 2}, {4, 3}}
		}
		if got := allEdges(t, s, 1); !slices.Equal(got, c.edges) {
			t.Errorf("%s: edges %v", name, got)
		}
		if got := readFeatures(t, s, 1, 2); !slices.Equal(got, smallFeatures) {
			t.Errorf("%s: features %v", name, got)
		}
		labels := []int32{2, 0, 1, 0, 1}
		if c.multi != nil {
			labels = nil
		}
		rows, err := s.Rows(context.Background())
		if err != nil || !slices.Equal(rows.Labels, labels) || !slices.Equal(rows.MultiLabels, c.multi) ||
			!slices.Equal(rows.Splits, []uint8{2, 0, 3, 1, 1}) {
			t.Errorf("%s: %+v, %v", name, rows, err)
		}
		if s.Close(); len(files(t, disk, "out")) > 0 {
			t.Errorf("%s: scratch files are left", name)
		}
	}
}

// Entries of a CSR matrix may come in any order and twice: the graph is the same.
func TestGraphSAINTSortsAndMergesEntries(t *testing.T) {
	var want map[string]string
	for _, entries := range []layout{csr(5, []int32{0, 1, 4, 5, 6, 6}, []int32{4, 0, 2, 3, 1, 4}),
		csr(5, []int32{0, 2, 6, 7, 8, 8}, []int32{4, 4, 3, 0, 2, 0, 1, 4})} {
		disk := with(smallSAINT(), "adj_full.npz", archive(zip.Deflate, entries)).put(t)
		s, err := openSAINT(disk, GraphSAINTOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), disk, s, "out/graph", Options{})
		if s.Close(); err != nil || r.Nodes != 5 || r.Edges != 6 || r.Classes != 3 || r.Train != 2 || r.Valid != 1 ||
			r.Test != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		openGraph(t, disk, "out/graph")
		got := files(t, disk, "out")
		if want == nil {
			want = got
		} else if notes := strings.Join(r.Notes, "; "); !strings.Contains(notes, "2 duplicate edges") {
			t.Errorf("%s", notes)
		}
		sameFiles(t, "entries in another order, some twice", got, want)
	}
}

func TestGraphSAINTThatIsNoneIsRefusedNamingFileAndPlace(t *testing.T) {
	adjacency := func(name string, data []byte) layout {
		return with(smallSAINT(), "adj_full.npz", archive(zip.Deflate, with(smallAdjacency(), name, data)))
	}
	file := func(name, text string) layout { return with(smallSAINT(), name, []byte(text)) }
	cut := smallSAINT()
	cut["adj_full.npz"] = cut["adj_full.npz"][:200]
	const classes, roles = "class_map.json", "role.json"
	for _, c := range []struct {
		name string
		l    layout
		say  []string
	}{
		{"no matrix", with(smallSAINT(), "adj_full.npz", nil), []string{"in", "no adj_full.npz"}},
		{"no features", with(smallSAINT(), "feats.npy", nil), []string{"in", "no feats.npy"}},
		{"no roles", with(smallSAINT(), roles, nil), []string{"no role.json"}},
		{"no classes", with(smallSAINT(), classes, nil), []string{"no class_map.json"}},
		{"a matrix cut off", cut, []string{"in/adj_full.npz"}},
		{"CSC", adjacency("format", append(npy.AppendHeader(nil, npy.Bytes, 3), "csc"...)), []string{"want csr"}},
		{"no square", adjacency("shape", array(npy.Int64, []int64{5, 6}, 2)), []string{"5 rows and 6 columns"}},
		{"too many nodes", adjacency("shape", array(npy.Int64, []int64{1 << 40, 1 << 40}, 2)), []string{"1099511627776"}},
		{"a source that is no node", adjacency("indices", array(npy.Int32, []int32{4, 0, 5, 4}, 4)),
			[]string{"in/adj_full.npz: indices", "row 2", "column 5"}},
		{"rows that go back", adjacency("indptr", array(npy.Int32, []int32{0, 2, 1, 3, 4, 4}, 6)),
			[]string{"in/adj_full.npz: indptr", "row 1 ends at entry 1"}},
		{"too few rows", adjacency("indptr", array(npy.Int32, []int32{0, 1, 2, 4}, 4)), []string{"indptr", "[4]"}},
		{"too few values", adjacency("data", array(npy.Bool, []uint8{1, 1}, 2)), []string{"indices", "[4]"}},
		{"features of other nodes", with(smallSAINT(), "feats.npy", array(npy.Float32, smallFeatures, 4, 5)),
			[]string{"in/feats.npy", "4 nodes", "has 5"}},
		{"flat features", with(smallSAINT(), "feats.npy", array(npy.Float32, smallFeatures, 20)), []string{"[20]"}},
		{"a node in two roles", file(roles, `{"tr": [0, 1], "va": [2], "te": [1]}`),
			[]string{"in/role.json: byte", `"te" lists node 1`, "already"}},
		{"a node twice", file(roles, `{"tr": [0, 0], "va": [2], "te": [1]}`), []string{`"tr" lists node 0`, "already"}},
		{"a role of no node", file(roles, `{"tr": [0, 5], "va": [2], "te": [1]}`), []string{"node 5", "0 to 4"}},
		{"half a node", file(roles, `{"tr": [0.5], "va": [2], "te": [1]}`), []string{"node 0.5"}},
		{"no test nodes", file(roles, `{"tr": [0], "va": [2]}`), []string{"in/role.json", `no list "te"`}},
		{"an unknown role", file(roles, `{"train": [0]}`), []string{`"train"`}},
		{"a role twice", file(roles, `{"tr": [0], "tr": [1]}`), []string{`"tr"`, "once"}},
		{"roles cut off", file(roles, `{"tr": [0, 1`), []string{"in/role.json", "truncated"}},
		{"a class for some nodes", file(classes, `{"0": 1, "1": 0, "2": 1, "4": 0}`),
			[]string{"in/class_map.json", "node 3 has no class"}},
		{"a class twice", file(classes, `{"0": 1, "1": 0, "2": 1, "1": 0}`), []string{"node 1", "twice"}},
		{"a class of no node", file(classes, `{"0": 1, "5": 0}`), []string{`"5"`, "0 to 4"}},
		{"names for nodes", file(classes, `{"0": 1, "a": 0}`), []string{`"a"`}},
		{"fewer labels", file(classes, `{"0": [1, 0], "1": [1]}`), []string{"node 1 has 1 labels", "have 2"}},
		{"more labels", file(classes, `{"0": [1, 0], "1": [1, 0, 0]}`), []string{"node 1", "more labels"}},
		{"labels and a class", file(classes, `{"0": [1, 0], "1": 1}`), []string{"node 1 has 1 labels"}},
		{"half a class", file(classes, `{"0": 1, "1": 0.5, "2": 0, "3": 0, "4": 0}`), []string{"label 0.5 of node 1"}},
		{"no label", file(classes, `{"0": []}`), []string{"empty"}},
		{"no classes at all", file(classes, `{}`), []string{"no entries"}},
		{"a list", file(classes, `[1, 2]`), []string{"byte 1", `'{'`}},
		{"text for classes", file(classes, `{"0": "a"}`), []string{"want a number"}},
		{"no number", file(classes, `{"0": 1e}`), []string{`"1e"`}},
		{"no comma", file(classes, `{"0": 1 "1": 2}`), []string{"want"}},
		{"a comma too many", file(classes, `{"0": [1,]}`), []string{"want a number"}},
		{"text behind", file(classes, `{"0": 1, "1": 0, "2": 0, "3": 0, "4": 0} x`), []string{"behind the object"}},
		{"a long key", file(classes, `{"`+strings.Repeat("0", 100)+`": 1}`), []string{"more than 32 bytes"}},
		{"a long number", file(classes, `{"0": `+strings.Repeat("0", 100)+`}`), []string{"more than 32 bytes"}},
	} {
		s, err := openSAINT(c.l.put(t), GraphSAINTOptions{})
		refused(t, c.name, readSource(s, err), c.say...)
	}
	if _, err := openSAINT(smallSAINT().put(t), GraphSAINTOptions{"half"}); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
}

func TestTruncatedFilesOfGraphSAINTAreRefused(t *testing.T) {
	for name, data := range smallSAINT() {
		if name == "adj_train.npz" {
			continue
		}
		for n := range data {
			l := maps.Clone(smallSAINT())
			l[name] = data[:n]
			s, err := openSAINT(l.put(t), GraphSAINTOptions{})
			refused(t, fmt.Sprintf("%s of %d bytes", name, n), readSource(s, err))
		}
	}
}

func FuzzGraphSAINT(f *testing.F) {
	l := smallSAINT()
	f.Add([]byte(l["class_map.json"]), []byte(l["role.json"]))
	f.Add([]byte(`{"0":[0,1],"1":[1,1],"2":[0,0],"3":[1.0,0e0],"4":[ 0 , 1 ]}`), []byte(`{"te":[],"va":[4],"tr":[]}`))
	f.Fuzz(func(t *testing.T, classes, roles []byte) {
		l := smallSAINT()
		l["class_map.json"], l["role.json"] = classes, roles
		s, err := openSAINT(l.put(t), GraphSAINTOptions{})
		if err := readSource(s, err); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is not ErrInvalid", err)
		}
	})
}
