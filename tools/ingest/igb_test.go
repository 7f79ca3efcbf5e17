package ingest

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/tools/npy"
)

const igbPaper, igbCites = "processed/paper/", "processed/paper__cites__paper/"

// igbFloats are the features of ten nodes.
func igbFloats() []float32 {
	values := make([]float32, 10*igbFeatures)
	for i := range values {
		values[i] = float32(i%251) - 7
	}
	return values
}

// smallIGB is ten nodes and two edges: the number of edges for which only the
// format tells sources from destinations.
func smallIGB() layout {
	return layout{
		igbPaper + "node_feat.npy":     array(npy.Float32, igbFloats(), 10, igbFeatures),
		igbPaper + "node_label_19.npy": array(npy.Float32, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 18}, 10),
		igbPaper + "node_label_2K.npy": array(npy.Float32, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 2982}, 10),
		igbCites + "edge_index.npy":    array(npy.Int64, []int64{0, 9, 3, 4}, 2, 2),
	}
}

// raw is a file without the header of smallIGB's.
func raw[T dtype.Number](values []T) []byte { return slices.Clone(dtype.BytesOf(values)) }

func TestIGBIsReadInAllItsLayouts(t *testing.T) {
	flat := layout{"paper_id_index_mapping.npy": []byte("\x80\x03pickled")}
	for name, data := range smallIGB() {
		flat[path.Base(name)] = data
	}
	headerless := smallIGB()
	headerless[igbPaper+"node_feat.npy"] = raw(igbFloats())
	headerless[igbPaper+"node_label_19.npy"] = raw([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 18})
	headerless[igbPaper+"node_label_2K.npy"] = raw([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 2982})
	for _, c := range []struct {
		name  string
		files layout
		o     IGBOptions
		last  int32 // label
	}{
		{"folders", smallIGB(), IGBOptions{}, 18},
		{"flat", flat, IGBOptions{}, 18},
		{"without headers", headerless, IGBOptions{}, 18},
		{"2K classes", smallIGB(), IGBOptions{Classes: "2K"}, 2982},
		{"2K classes without headers", headerless, IGBOptions{Classes: "2K"}, 2982},
	} {
		s, err := OpenIGB(c.files.put(t), "in", c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		defer s.Close()
		info := s.Info()
		if info.Nodes != 10 || info.Features != igbFeatures || info.Direction != UnknownDirection || info.Weighted {
			t.Errorf("%s: %+v", c.name, info)
		}
		if got := allEdges(t, s, 1); !slices.Equal(got, [][2]uint32{{0, 9}, {3, 4}}) {
			t.Errorf("%s: edges %v", c.name, got)
		}
		if got := readFeatures(t, s, 1, 3); !slices.Equal(got, igbFloats()) {
			t.Errorf("%s: other features", c.name)
		}
		rows, err := s.Rows(context.Background())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(rows.Labels, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, c.last}) ||
			!slices.Equal(rows.Splits, []uint8{1, 1, 1, 1, 1, 1, 2, 2, 3, 3}) {
			t.Errorf("%s: labels %v, splits %v", c.name, rows.Labels, rows.Splits)
		}
	}
}

func TestOnlyTheFirstNodesOfIGBFullHaveLabels(t *testing.T) {
	for _, c := range []struct {
		nodes   int64
		classes string
		name    string
		labeled int64
	}{
		{100_000, "19", "igb-tiny", 100_000},
		{1_000_000, "19", "igb-small", 1_000_000},
		{10_000_000, "2K", "igb-medium", 10_000_000},
		{100_000_000, "2K", "igb-large", 100_000_000},
		{269_346_174, "19", "igb-full", 227_130_858},
		{269_346_174, "2K", "igb-full", 157_675_969},
		{12, "19", "igb", 12},
	} {
		if name, labeled := igbSize(c.nodes, c.classes); name != c.name || labeled != c.labeled {
			t.Errorf("%d nodes, %s classes: %s with %d labels", c.nodes, c.classes, name, labeled)
		}
	}
	for name, labels := range map[string][]float32{
		"labels of all nodes, the last unset": {0, 1, 2, 3, 4, 1e30, -5, 0.5, 0, 0},
		"labels of the labelled nodes alone":  {0, 1, 2, 3, 4},
	} {
		l := smallIGB()
		delete(l, igbPaper+"node_label_19.npy")
		l[igbPaper+"labels"] = raw(labels)
		s, err := OpenIGB(l.put(t), "in", IGBOptions{Classes: "2K"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		igb := s.(*arraySource)
		igb.splits = nil
		if err := igb.addIGBLabels("in/"+igbPaper+"labels", 5); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := s.Rows(context.Background())
		if err != nil || !slices.Equal(rows.Labels, []int32{0, 1, 2, 3, 4, -1, -1, -1, -1, -1}) ||
			!slices.Equal(rows.Splits, []uint8{1, 1, 1, 2, 3, 0, 0, 0, 0, 0}) {
			t.Errorf("%s: %+v, %v", name, rows, err)
		}
	}
}

func TestIGBThatIsNoneIsRefusedNamingTheFile(t *testing.T) {
	features, labels, edges := igbPaper+"node_feat.npy", igbPaper+"node_label_19.npy", igbCites+"edge_index.npy"
	for _, c := range []struct {
		name string
		file string
		data []byte
		say  []string
	}{
		{"truncated features without header", features, raw(igbFloats())[:4*igbFeatures+8],
			[]string{"in/" + features, "4104 bytes", "rows of 1024"}},
		{"empty features", features, []byte{}, []string{"in/" + features}},
		{"features in one row", features, array(npy.Float32, make([]float32, 10), 10),
			[]string{"in/" + features, "[10]"}},
		{"labels of other nodes", labels, raw(make([]float32, 9)), []string{"in/" + labels, "[9 1]", "10 nodes"}},
		{"half a label", labels, raw([]float32{0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0}),
			[]string{"in/" + labels, "label 0.5 of node 3"}},
		{"edges in two rows", edges, array(npy.Int64, make([]int64, 6), 2, 3),
			[]string{"in/" + edges, "[2 3]", "[E,2]"}},
		{"an edge to no node", edges, array(npy.Int64, []int64{1, 2, 0, 10, 3, 3}, 3, 2),
			[]string{"in/" + edges, "edge 1 has destination 10"}},
		{"pickled edges", edges, []byte("\x80\x03pickled"), []string{"in/" + edges}},
	} {
		l := smallIGB()
		l[c.file] = c.data
		refused(t, c.name, readSource(OpenIGB(l.put(t), "in", IGBOptions{})), c.say...)
	}
	if err := readSource(OpenIGB(layout{"other": nil}.put(t), "in", IGBOptions{})); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "one size") {
		t.Error(err)
	}
	if err := readSource(OpenIGB(smallIGB().put(t), "in", IGBOptions{Classes: "20"})); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
}

// typedIGB has ten papers, three authors, an institute, and features of any width.
func typedIGB() layout {
	l := smallIGB()
	l["processed/author/node_feat.npy"] = array(npy.Float32, []float32{1, 2, 3, 4, 5, 6}, 3, 2)
	l["processed/author/author_id_index_mapping.npy"] = []byte("\x80\x03pickled")
	l["processed/institute/node_feat.npy"] = array(npy.Float32, []float32{7}, 1, 1)
	l["processed/paper__written_by__author/edge_index.npy"] = array(npy.Int64, []int64{0, 2, 9, 0, 9, 2}, 3, 2)
	l["processed/author__affiliated_to__institute/edge_index.npy"] = array(npy.Int64, []int64{1, 0, 2, 0}, 2, 2)
	return l
}

func TestTypedIGBEqualsTypedArrays(t *testing.T) {
	arrays := layout{
		"meta.json":                                             []byte(`{"node_types": {"paper": 10, "author": 3, "institute": 1}}`),
		"nodes/paper/node_feat.npy":                             smallIGB()[igbPaper+"node_feat.npy"],
		"nodes/paper/node_label.npy":                            smallIGB()[igbPaper+"node_label_19.npy"],
		"nodes/paper/splits.npy":                                array(npy.Int8, []int8{0, 0, 0, 0, 0, 0, 1, 1, 2, 2}, 1, 10),
		"nodes/author/node_feat.npy":                            typedIGB()["processed/author/node_feat.npy"],
		"nodes/institute/node_feat.npy":                         array(npy.Float32, []float32{7}, 1, 1),
		"edges/paper__cites__paper/edge_index.npy":              array(npy.Int64, []int64{0, 3, 9, 4}, 2, 2),
		"edges/paper__written_by__author/edge_index.npy":        array(npy.Int64, []int64{0, 9, 9, 2, 0, 2}, 2, 3),
		"edges/author__affiliated_to__institute/edge_index.npy": array(npy.Int64, []int64{1, 2, 0, 0}, 2, 2),
	}
	for _, direction := range []Direction{UnknownDirection, Directed} {
		twin, disk := arrays.put(t), typedIGB().put(t)
		if _, err := importTyped(twin, direction, Options{}); err != nil {
			t.Fatal(err)
		}
		s, err := OpenIGB(disk, "in", IGBOptions{Direction: direction})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), disk, s, "out", Options{})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		if typed := checkTyped(t, disk); typed.Name != "igbh" || r.Target != "paper" || r.Classes != 19 || r.Train != 6 {
			t.Errorf("%s: %+v", typed.Name, r)
		}
		want := contents(t, twin)
		if len(want) < 10 {
			t.Fatalf("only %d files are compared", len(want))
		}
		sameFiles(t, "IGBH", contents(t, disk), want)
	}
}

func TestTypedIGBThatIsNoneIsRefusedNamingTheFile(t *testing.T) {
	writes := "processed/paper__written_by__author"
	for want, l := range map[string]layout{
		"in/processed/author: no node_feat.npy": with(typedIGB(), "processed/author/node_feat.npy", nil),
		"in/" + writes + "/edge_index.npy: edge 1 has destination 3, but there are 3 nodes": with(typedIGB(),
			writes+"/edge_index.npy", array(npy.Int64, []int64{0, 2, 9, 3, 9, 2}, 3, 2)),
		"in/" + writes + "/edge_index.npy: edge 0 has source 10, but there are 10 nodes": with(typedIGB(),
			writes+"/edge_index.npy", array(npy.Int64, []int64{10, 2, 9, 1, 9, 2}, 3, 2)),
		"in/" + writes + ": no edge_index.npy": with(with(typedIGB(), writes+"/edge_index.npy", nil), writes+"/x", []byte{}),
		`in/processed/paper__topic__fos: there is no type "fos"`: with(typedIGB(),
			"processed/paper__topic__fos/edge_index.npy", array(npy.Int64, []int64{0, 0}, 1, 2)),
		"node_label_19.npy": with(typedIGB(), igbPaper+"node_label_19.npy", raw(make([]float32, 9))),
	} {
		disk := l.put(t)
		s, err := OpenIGB(disk, "in", IGBOptions{})
		if err == nil {
			_, err = Run(t.Context(), disk, s, "out", Options{})
			s.Close()
		}
		refused(t, want, err, want)
	}
}

func TestIGBBecomesAGraph(t *testing.T) {
	disk := smallIGB().put(t)
	s, err := OpenIGB(disk, "in", IGBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := Run(context.Background(), disk, s, "out", Options{DType: format.BFloat16})
	if err != nil {
		t.Fatal(err)
	}
	if r.Nodes != 10 || r.Edges != 2 || r.Features != igbFeatures || r.Classes != 19 || r.Train != 6 || r.Valid != 2 ||
		r.Test != 2 || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
	openGraph(t, disk, "out")
}
