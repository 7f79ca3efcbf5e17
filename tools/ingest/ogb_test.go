package ingest

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// archive is an .npz file, as numpy's savez_compressed (or savez) writes it.
func archive(method uint16, members layout) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		w, _ := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: method})
		w.Write(members[name])
	}
	z.Close()
	return b.Bytes()
}

var ogbLists = layout{
	"split/time/train.csv.gz": gzipped("0\n3\n"),
	"split/time/valid.csv.gz": gzipped("1\n"),
	"split/time/test.csv.gz":  gzipped("4\n"),
}

// smallOGB is a data set of five nodes, as text.
func smallOGB() layout {
	l := layout{
		"raw/edge.csv.gz":           gzipped("0,1\n1,2\n4,3\n4,0\n"),
		"raw/node-feat.csv.gz":      gzipped("0.0,1.5,0.0,-2.0\n0,0,0,0\n3,0,0,4\n0,0,0.25,0\n7,8,9,1e1\n"),
		"raw/node-label.csv.gz":     gzipped("2\n0\n1\n0\n1\n"),
		"raw/num-node-list.csv.gz":  gzipped("5\n"),
		"raw/num-edge-list.csv.gz":  gzipped("4\n"),
		"raw/node_year.csv.gz":      gzipped("2010\n2011\n2012\n2013\n2014\n"),
		"mapping/labelidx2arx.csv":  []byte("label idx,arxiv category\n0,x\n"),
		"processed/data_processed":  []byte("pickled"),
		"RELEASE_v1.txt":            {},
		"split/time/split_dict.pt":  []byte("pickled"),
		"raw/another.csv.gz":        gzipped("x\n"),
		"split/time/readme.md":      {},
		"split/notes.txt":           {},
		"mapping/README.md":         {},
		"mapping/nodeidx.csv.gz":    gzipped("1\n"),
		"processed/pre_filter.data": {},
	}
	maps.Copy(l, ogbLists)
	return l
}

func binaryMembers() layout {
	return layout{
		"edge_index":     array(npy.Int64, []int64{0, 1, 4, 4, 1, 2, 3, 0}, 2, 4),
		"node_feat":      array(npy.Float32, smallFeatures, 5, 4),
		"node_year":      array(npy.Int64, []int64{2010, 2011, 2012, 2013, 2014}, 5, 1),
		"num_nodes_list": array(npy.Int64, []int64{5}, 1),
		"num_edges_list": array(npy.Int64, []int64{4}, 1),
	}
}

// binaryOGB is smallOGB as arrays.
func binaryOGB(members layout) layout {
	l := layout{
		"raw/data.npz": archive(zip.Deflate, members),
		"raw/node-label.npz": archive(zip.Deflate, layout{"node_label": array(npy.Float32, []float32{2, 0, 1, 0, 1}, 5,
			1)}),
	}
	maps.Copy(l, ogbLists)
	return l
}

func with(l layout, name string, data []byte) layout {
	l = maps.Clone(l)
	if l[name] = data; data == nil {
		delete(l, name)
	}
	return l
}

var ogbDirected = OGBOptions{Direction: Directed}

func openOGB(disk vfs.FS, o OGBOptions) (Source, error) {
	return OpenOGB(context.Background(), disk, "in", ScratchOptions{Output: "out/graph"}, o)
}

func TestOGBIsReadInAllItsLayouts(t *testing.T) {
	unpacked := layout{}
	for name, data := range smallOGB() {
		if base, ok := strings.CutPrefix(name, "raw/edge."); ok {
			name, data = "raw/edge."+strings.TrimSuffix(base, ".gz"), []byte("0,1\n1,2\n4,3\n4,0\n")
		}
		unpacked[name] = data
	}
	column := make([]float32, 20)
	for i, v := range smallFeatures {
		column[i%4*5+i/4] = v
	}
	stored := binaryOGB(nil)
	stored["raw/data.npz"] = archive(zip.Store, binaryMembers())
	columns := with(with(binaryMembers(), "node_feat", fortran(array(npy.Float32, column, 5, 4))),
		"edge_index", fortran(array(npy.Int64, []int64{0, 1, 1, 2, 4, 3, 4, 0}, 2, 4)))
	for name, l := range map[string]layout{
		"text":                             smallOGB(),
		"text that is unpacked":            unpacked,
		"deflated arrays":                  binaryOGB(binaryMembers()),
		"stored arrays":                    stored,
		"deflated arrays in Fortran order": binaryOGB(columns),
		"deflated arrays with small labels": with(binaryOGB(binaryMembers()), "raw/node-label.npz",
			archive(zip.Deflate, layout{"node_label": array(npy.Int8, []int8{2, 0, 1, 0, 1}, 5)})),
	} {
		disk := l.put(t)
		s, err := openOGB(disk, ogbDirected)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info := s.Info()
		if info.Nodes != 5 || info.Features != 4 || info.Direction != UnknownDirection || info.Weighted ||
			info.Input["splits"] != "time" {
			t.Errorf("%s: %+v", name, info)
		}
		for range 2 {
			if got := allEdges(t, s, 1); !slices.Equal(got, smallEdges) {
				t.Errorf("%s: edges %v", name, got)
			}
		}
		for _, rows := range []int{1, 2, 5} {
			if got := readFeatures(t, s, 1, rows); !slices.Equal(got, smallFeatures) {
				t.Errorf("%s: features %v", name, got)
			}
		}
		rows, err := s.Rows(context.Background())
		if err != nil || !slices.Equal(rows.Labels, []int32{2, 0, 1, 0, 1}) ||
			!slices.Equal(rows.Splits, []uint8{1, 2, 0, 1, 3}) {
			t.Errorf("%s: %+v, %v", name, rows, err)
		}
		s.Close()
		if left := files(t, disk, "out"); len(left) > 0 {
			t.Errorf("%s: %d scratch files are left", name, len(left))
		}
	}
}

func TestABitThatFlipsInScratchFilesOfArraysIsAnError(t *testing.T) {
	members := with(binaryMembers(), "node_feat", fortran(array(npy.Float32, smallFeatures, 5, 4)))
	everyFlip(t, 1, func(fsys vfs.FS) error {
		s, err := openOGB(fsys, ogbDirected)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = Run(context.Background(), fsys, s, "out/graph", Options{Threads: 1})
		return err
	}, func() vfs.FS { return binaryOGB(members).put(t) })
}

func TestManyDeflatedEdgesComeInOrder(t *testing.T) {
	const m = 2*edgeBlock + 5
	apart, together, want := manyEdges(m)
	for _, edges := range [][]byte{array(npy.Uint16, apart, 2, m), fortran(array(npy.Uint16, together, 2, m))} {
		members := with(with(binaryMembers(), "edge_index", edges), "num_edges_list", array(npy.Int64, []int64{m}, 1))
		s, err := openOGB(binaryOGB(members).put(t), ogbDirected)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(allEdges(t, s, 1), want) {
			t.Error("other edges, or in another order")
		}
		s.Close()
	}
}

func TestUnlabelledNodesAndSeveralTasks(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		files  layout
		labels []int32
		multi  []int8
	}{
		{"NaN", with(binaryOGB(binaryMembers()), "raw/node-label.npz",
			archive(zip.Deflate, layout{"node_label": array(npy.Float32, []float32{nan, 171, nan, 0, nan}, 5,
				1)})), []int32{-1, 171, -1, 0, -1}, nil},
		{"nan and nothing", with(smallOGB(), "raw/node-label.csv.gz", gzipped("nan\n171\n\n0\n-1\n")),
			[]int32{-1, 171, -1, 0, -1}, nil},
		{"nothing in the first row", with(smallOGB(), "raw/node-label.csv.gz", gzipped("\n171\n\n0\nnan")),
			[]int32{-1, 171, -1, 0, -1}, nil},
		{"two tasks", with(smallOGB(), "raw/node-label.csv.gz", gzipped("0,1\n1,1\n0,0\n,nan\n1,0\n")), nil,
			[]int8{0, 1, 1, 1, 0, 0, -1, -1, 1, 0}},
		{"two tasks in an array", with(binaryOGB(binaryMembers()), "raw/node-label.npz", archive(zip.Deflate,
			layout{"node_label": array(npy.Float32, []float32{0, 1, 1, 1, 0, 0, nan, nan, 1, 0}, 5,
				2)})), nil, []int8{0, 1, 1, 1, 0, 0, -1, -1, 1, 0}},
	} {
		s, err := openOGB(c.files.put(t), ogbDirected)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		rows, err := s.Rows(context.Background())
		if err != nil || !slices.Equal(rows.Labels, c.labels) || !slices.Equal(rows.MultiLabels, c.multi) {
			t.Errorf("%s: %+v, %v", c.name, rows, err)
		}
		s.Close()
	}
}

func TestTheTableSaysWhetherInverseEdgesAreAdded(t *testing.T) {
	for folder, want := range map[string]Direction{
		"ogbn_arxiv": Directed, "arxiv": Directed,
		"ogbn_products": Undirected, "products": Undirected,
		"ogbn_proteins": Undirected, "proteinfunc": Undirected,
		"ogbn_papers100M": Directed, "papers100M-bin": Directed,
	} {
		disk := vfs.NewMem()
		for name, data := range smallOGB() {
			if err := disk.MkdirAll(path.Join("data", folder, path.Dir(name))); err != nil {
				t.Fatal(err)
			}
			putFile(t, disk, path.Join("data", folder, name), data)
		}
		s, err := OpenOGB(context.Background(), disk, "data/"+folder+"/", ScratchOptions{Output: "out/graph"},
			OGBOptions{})
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		if got := s.Info().Direction; got != want {
			t.Errorf("%s: %d, want %d", folder, got, want)
		}
		s.Close()
	}
	for n, want := range map[int64]Direction{169_343: Directed, 2_449_029: Undirected, 132_534: Undirected,
		111_059_956: Directed} {
		s := &plainOGB{edgeList: &edgeList{}, ogbData: &ogbData{dir: "in"}}
		if err := s.identify(n, true, false); err != nil || s.info.Direction != want {
			t.Errorf("%d nodes: %d, %v", n, s.info.Direction, err)
		}
	}
	if _, err := openOGB(smallOGB().put(t), OGBOptions{}); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "--directed") {
		t.Errorf("a data set that is not known: %v", err)
	}
}

func TestOGBWithoutFeaturesTakesOthersOrOnes(t *testing.T) {
	for name, l := range map[string]layout{"text": with(smallOGB(), "raw/node-feat.csv.gz", nil),
		"arrays": binaryOGB(with(binaryMembers(), "node_feat", nil))} {
		l["x.npy"] = array(npy.Float32, smallFeatures, 5, 4)
		for _, c := range []struct {
			features string
			want     []float32
		}{{"in/x.npy", smallFeatures}, {Ones, []float32{1, 1, 1, 1, 1}}} {
			s, err := openOGB(l.put(t), OGBOptions{Direction: Undirected, Features: c.features})
			if err != nil {
				t.Errorf("%s, %s: %v", name, c.features, err)
				continue
			}
			if got := readFeatures(t, s, 1, 5); !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: %v", name, c.features, got)
			}
			s.Close()
		}
	}
	proteins := &plainOGB{edgeList: &edgeList{}, ogbData: &ogbData{dir: "in"}}
	if err := proteins.identify(132_534, false, false); err != nil || proteins.files.Features != "" {
		t.Errorf("proteins: %q, %v", proteins.files.Features, err)
	}
	if _, err := openOGB(smallOGB().put(t), OGBOptions{Direction: Directed, EdgeColumns: "a"}); !errors.Is(err,
		ErrOptions) {
		t.Errorf("a column of edges that it does not have: %v", err)
	}
	if _, err := openOGB(smallOGB().put(t), OGBOptions{Direction: Directed, Features: "in/x.npy"}); !errors.Is(err,
		ErrOptions) {
		t.Errorf("features of both kinds: %v", err)
	}
}

func TestFeaturesOfNodesAreTheMeansOfThoseOfTheirEdges(t *testing.T) {
	members := with(with(binaryMembers(), "node_feat", nil), "edge_feat",
		array(npy.Float32, []float32{1, 10, 2, 20, 4, 40, 8, 80}, 4, 2))
	text := with(with(smallOGB(), "raw/node-feat.csv.gz", nil), "raw/edge-feat.csv.gz",
		gzipped("1,10\n2,20\n4,40\n8,80\n"))
	for name, l := range map[string]layout{"text": text, "arrays": binaryOGB(members)} {
		for direction, want := range map[Direction][]float32{
			Directed:   {8, 80, 1, 10, 2, 20, 4, 40, 0, 0},
			Undirected: {4.5, 45, 1.5, 15, 2, 20, 4, 40, 6, 60},
		} {
			for _, keep := range []string{"", None} {
				disk := l.put(t)
				s, err := openOGB(disk, OGBOptions{Direction: direction, Features: EdgeMeans, EdgeColumns: keep})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				_, err = Run(t.Context(), disk, s, "out/g", Options{Direction: direction})
				if err := errors.Join(err, s.Close()); err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				d := openGraph(t, disk, "out/g")
				if got := storedFeatures(t, d); !slices.Equal(got, want) {
					t.Errorf("%s, direction %d: %v, want %v", name, direction, got, want)
				}
				isEdgeAttr := func(c format.Column) bool { return c.Name == "edge_attr" }
				if got := d.Manifest.Columns; slices.ContainsFunc(got, isEdgeAttr) != (keep == "") {
					t.Errorf("%s, --edge-columns %q: columns %v", name, keep, got)
				}
				for _, note := range s.Info().Notes {
					if strings.Contains(note, "left out") && strings.Contains(note, "edge") {
						t.Errorf("%s: %s", name, note)
					}
				}
			}
		}
	}
	proteins := &plainOGB{edgeList: &edgeList{source: newSource(nil, "ogb")}, ogbData: &ogbData{dir: "in"}}
	if err := proteins.identify(132_534, false, true); err != nil || proteins.files.Features != EdgeMeans ||
		proteins.info.Direction != Undirected {
		t.Errorf("proteins: %q, %v", proteins.files.Features, err)
	}
	for name, c := range map[string]struct {
		l   layout
		say []string
	}{
		"no features of edges": {with(smallOGB(), "raw/node-feat.csv.gz", nil), []string{"edge-feat.csv.gz"}},
		"too few rows": {with(text, "raw/edge-feat.csv.gz", gzipped("1,10\n2,20\n")),
			[]string{"in/raw/edge-feat.csv.gz"}},
		"too many rows": {with(text, "raw/edge-feat.csv.gz", gzipped("1\n2\n3\n4\n5\n")),
			[]string{"in/raw/edge-feat.csv.gz"}},
		"not finite": {with(text, "raw/edge-feat.csv.gz", gzipped("1,10\n2,nan\n4,40\n8,80\n")),
			[]string{"in/raw/edge-feat.csv.gz: line 2: column 2", "nan"}},
		"an array that is not finite": {binaryOGB(with(members, "edge_feat", array(npy.Float64,
			[]float64{1, 10, 2, 1e300, 4, 40, 8, 80}, 4, 2))), []string{"edge_feat: row 1, column 1", "+Inf"}},
		"too few rows of an array": {binaryOGB(with(members, "edge_feat", array(npy.Float32, []float32{1, 2}, 2, 1))),
			[]string{"edge_feat", "[2 1]"}},
		"Fortran order": {binaryOGB(with(members, "edge_feat", fortran(members["edge_feat"]))),
			[]string{"edge_feat", "Fortran"}},
	} {
		_, err := openOGB(c.l.put(t), OGBOptions{Direction: Directed, Features: EdgeMeans})
		refused(t, name, err, c.say...)
	}
}

func TestOGBThatIsNoneIsRefusedNamingFileAndLine(t *testing.T) {
	text := func(name, content string) layout { return with(smallOGB(), name, gzipped(content)) }
	arrays := func(name string, data []byte) layout { return binaryOGB(with(binaryMembers(), name, data)) }
	labels := func(data []byte) layout {
		return with(binaryOGB(binaryMembers()), "raw/node-label.npz", archive(zip.Deflate, layout{"node_label": data}))
	}
	cut := binaryOGB(binaryMembers())
	cut["raw/data.npz"] = cut["raw/data.npz"][:100]
	for _, c := range []struct {
		name  string
		files layout
		say   []string
	}{
		{"no edges", with(smallOGB(), "raw/edge.csv.gz", nil), []string{"in/raw", "edge.csv.gz"}},
		{"no features", with(smallOGB(), "raw/node-feat.csv.gz", nil), []string{"in/raw", "--features"}},
		{"no labels", with(smallOGB(), "raw/node-label.csv.gz", nil), []string{"in/raw", "node-label.csv.gz"}},
		{"heterogeneous without types", with(smallOGB(), "raw/triplet-type-list.csv.gz", gzipped("a,b,c\n")),
			[]string{"in/raw", "no num-node-dict.csv.gz"}},
		{"heterogeneous arrays", with(smallOGB(), "raw/edge_index_dict.npz", []byte{1}),
			[]string{"in/raw: no num_nodes_dict.npz"}},
		{"several graphs", text("raw/num-node-list.csv.gz", "5\n6\n"),
			[]string{"in/raw/num-node-list.csv.gz: line 2", "more than one"}},
		{"no count", text("raw/num-edge-list.csv.gz", "many\n"),
			[]string{"in/raw/num-edge-list.csv.gz: line 1", `"many"`}},
		{"a node out of range", text("raw/edge.csv.gz", "0,1\n1,5\n4,3\n4,0\n"),
			[]string{"in/raw/edge.csv.gz: line 2", "no node 5", "5 nodes"}},
		{"a header", text("raw/edge.csv.gz", "src,dst\n0,1\n1,2\n4,3\n"),
			[]string{"in/raw/edge.csv.gz: line 1", `"src"`}},
		{"an edge short", text("raw/edge.csv.gz", "0,1\n1,2\n4,3\n"), []string{"in/raw/edge.csv.gz", "3 of 4 edges"}},
		{"an edge too many", text("raw/edge.csv.gz", "0,1\n1,2\n4,3\n4,0\n1,1\n"),
			[]string{"in/raw/edge.csv.gz: line 5", "more than 4"}},
		{"none of four edges", text("raw/edge.csv.gz", ""), []string{"in/raw/edge.csv.gz", "0 of 4 edges"}},
		{"an empty file of edges", with(smallOGB(), "raw/edge.csv.gz", []byte{}),
			[]string{"in/raw/edge.csv.gz", "0 of 4 edges"}},
		{"edges where there are none", text("raw/num-edge-list.csv.gz", "0\n"),
			[]string{"in/raw/edge.csv.gz: line 1", "more than 0"}},
		{"more nodes than 32 bits number", text("raw/num-node-list.csv.gz", "4294967296\n"),
			[]string{"in/raw/num-node-list.csv.gz: line 1", "4294967295"}},
		{"edges that are arrays by name alone", with(smallOGB(), "raw/edge.csv.gz", []byte{0x1f, 0x8b, 0}),
			[]string{"in/raw/edge.csv.gz", "decompression failed"}},
		{"a split under a name that cannot be printed",
			with(with(with(smallOGB(), "split/a\ab/train.csv", []byte("0")), "split/a\ab/valid.csv", []byte("1")),
				"split/a\ab/test.csv", []byte("2")), []string{`in/split/a\ab`, "printed"}},
		{"no labels in arrays", with(binaryOGB(binaryMembers()), "raw/node-label.npz", nil),
			[]string{"in/raw: no node-label.npz ("}},
		{"edges less than none", arrays("num_edges_list", array(npy.Int64, []int64{-4}, 1)),
			[]string{"in/raw/data.npz: num_edges_list: -4 (want 0"}},
		{"a label beyond all", labels(array(npy.Float64, []float64{0, 1e300, 0, 0, 0}, 5, 1)),
			[]string{"label 1e+300 of node 1"}},
		{"edges of three", text("raw/edge.csv.gz", "0,1,2\n1,2,2\n4,3,2\n4,0,2\n"),
			[]string{"in/raw/edge.csv.gz: line 1", "3 fields (want 2)"}},
		{"features of four nodes", text("raw/node-feat.csv.gz", "1\n2\n3\n4\n"),
			[]string{"in/raw/node-feat.csv.gz: line 4", "5 nodes"}},
		{"features of six nodes", text("raw/node-feat.csv.gz", "1\n2\n3\n4\n5\n6\n"),
			[]string{"in/raw/node-feat.csv.gz: line 6", "5 nodes"}},
		{"a feature short", text("raw/node-feat.csv.gz", "1,2\n2,2\n3\n4,2\n5,2\n"),
			[]string{"in/raw/node-feat.csv.gz: line 3", "1 fields (want 2)"}},
		{"an empty feature", text("raw/node-feat.csv.gz", "1,2\n2,\n3,2\n4,2\n5,2\n"),
			[]string{"in/raw/node-feat.csv.gz: line 2", "column 2"}},
		{"labels of six nodes", text("raw/node-label.csv.gz", "1\n2\n3\n4\n5\n6\n"),
			[]string{"in/raw/node-label.csv.gz: line 6", "5 nodes"}},
		{"labels of four nodes", text("raw/node-label.csv.gz", "1\n2\n3\n4\n"),
			[]string{"in/raw/node-label.csv.gz: line 4", "5 nodes"}},
		{"a label below zero", text("raw/node-label.csv.gz", "1\n2\n-7\n4\n5\n"),
			[]string{"in/raw/node-label.csv.gz: line 3", "label -7"}},
		{"a split without a list", with(smallOGB(), "split/time/valid.csv.gz", nil),
			[]string{"in/split/time", "valid"}},
		{"a split of no node", text("split/time/test.csv.gz", "2\n9\n"),
			[]string{"in/split/time/test.csv.gz: line 2", "no node 9"}},
		{"a node in two lists", text("split/time/test.csv.gz", "2\n0\n"),
			[]string{"in/split/time/test.csv.gz: line 2", "node 0", "twice"}},
		{"truncated gzip", with(smallOGB(), "raw/edge.csv.gz", smallOGB()["raw/edge.csv.gz"][:20]),
			[]string{"in/raw/edge.csv.gz", "decompression failed"}},
		{"an array out of range", arrays("edge_index", array(npy.Int64, []int64{0, 1, 4, 4, 1, 2, 5, 0}, 2, 4)),
			[]string{"in/raw/data.npz: edge_index", "edge 2 has destination 5", "5 nodes"}},
		{"an array of negative ids", arrays("edge_index", array(npy.Int64, []int64{0, -1, 4, 4, 1, 2, 3, 0}, 2, 4)),
			[]string{"edge 1 has source -1"}},
		{"an array of 64-bit ids", arrays("edge_index", array(npy.Uint64, []uint64{0, 1, 4, 4, 1, 2, 3, math.MaxUint64},
			2, 4)), []string{"edge 3 has destination 18446744073709551615"}},
		{"edges in pairs", arrays("edge_index", array(npy.Int64, make([]int64, 8), 4, 2)),
			[]string{"in/raw/data.npz: edge_index", "[4 2]", "[2,4]"}},
		{"an array of other nodes", arrays("node_feat", array(npy.Float32, make([]float32, 4), 4, 1)),
			[]string{"in/raw/data.npz: node_feat", "numbers [5,F]"}},
		{"two graphs in arrays", arrays("num_nodes_list", array(npy.Int64, []int64{2, 3}, 2)),
			[]string{"in/raw/data.npz: num_nodes_list", "one graph"}},
		{"no edge_index", arrays("edge_index", nil), []string{"in/raw/data.npz: edge_index"}},
		{"labels of other nodes in arrays", labels(array(npy.Float32, make([]float32, 4), 4, 1)),
			[]string{"in/raw/node-label.npz: node_label", "numbers [5]"}},
		{"a label below zero in arrays", labels(array(npy.Float32, []float32{0, -7, 0, 0, 0}, 5, 1)),
			[]string{"in/raw/node-label.npz: node_label", "label -7 of node 1"}},
		{"labels under another name", with(binaryOGB(binaryMembers()), "raw/node-label.npz", archive(zip.Deflate,
			layout{"label": array(npy.Int8, make([]int8, 5), 5)})), []string{"in/raw/node-label.npz: node_label"}},
		{"a truncated archive", cut, []string{"in/raw/data.npz"}},
	} {
		disk := c.files.put(t)
		refused(t, c.name, readSource(openOGB(disk, ogbDirected)), c.say...)
		if len(files(t, disk, "out")) > 0 {
			t.Errorf("%s: files are left", c.name)
		}
	}
}

func TestAFeatureThatCannotBeStoredIsNamedByItsLine(t *testing.T) {
	for text, want := range map[string]string{"1\n2\nnan\n4\n5\n": `line 3: column 1: "nan" is not a finite float32`,
		"1\n1e39\n3\n4\n5\n": `line 2: column 1: "1e39" is not a finite float32`} {
		disk := with(smallOGB(), "raw/node-feat.csv.gz", gzipped(text)).put(t)
		s, err := openOGB(disk, ogbDirected)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(context.Background(), disk, s, "out/graph", Options{}); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), "in/raw/node-feat.csv.gz: "+want) {
			t.Errorf("%q: %v", text, err)
		}
		s.Close()
	}
}

func TestAFeatureOfAnArchiveThatCannotBeStoredIsNamedByItsRow(t *testing.T) {
	for name, file := range map[string][]byte{
		"C order":       array(npy.Float64, []float64{0, 0, 0, 1e300, 0, 0, 0, 0, 0, 0}, 5, 2),
		"Fortran order": fortran(array(npy.Float64, []float64{0, 0, 0, 0, 0, 0, 1e300, 0, 0, 0}, 5, 2)),
	} {
		disk := binaryOGB(with(binaryMembers(), "node_feat", file)).put(t)
		s, err := openOGB(disk, ogbDirected)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Run(context.Background(), disk, s, "out/graph", Options{})
		refused(t, name, err, "in/raw/data.npz: node_feat: row 1, column 1: +Inf")
		s.Close()
	}
}

func TestBothLayoutsOfOGBBecomeTheSameGraph(t *testing.T) {
	var want map[string]string
	for _, l := range []layout{with(smallOGB(), "raw/edge-feat.csv.gz", gzipped("1,10\n2,20\n4,40\n8,80\n")),
		binaryOGB(with(binaryMembers(), "edge_feat", array(npy.Float32, []float32{1, 10, 2, 20, 4, 40, 8, 80}, 4, 2)))} {
		disk := l.put(t)
		s, err := openOGB(disk, OGBOptions{Direction: Undirected})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), disk, s, "out/graph", Options{Direction: Undirected})
		s.Close()
		if err != nil || r.Nodes != 5 || r.Edges != 8 || r.Classes != 3 || r.Train != 2 || r.Valid != 1 || r.Test != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		columns := openGraph(t, disk, "out/graph").Manifest.Columns
		if len(columns) != 2 || columns[0].Name != "edge_attr" || columns[1].Name != "node_year" {
			t.Errorf("columns: %v", columns)
		}
		got := files(t, disk, "out")
		if want == nil {
			want = got
		}
		sameFiles(t, "the other layout", got, want)
	}
}

func FuzzOGBArchive(f *testing.F) {
	f.Add(archive(zip.Deflate, binaryMembers()))
	f.Add(archive(zip.Store, binaryMembers()))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := openOGB(with(binaryOGB(nil), "raw/data.npz", data).put(t), ogbDirected)
		if err == nil && s.Info().Nodes*int64(s.Info().Features) > 1<<20 {
			s.Close()
			return
		}
		if err := readSource(s, err); err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrOptions) {
			t.Errorf("%v is not ErrInvalid", err)
		}
	})
}
