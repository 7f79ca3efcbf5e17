package ingest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// layout is the files of an input directory.
type layout map[string][]byte

// array is a .npy file in C order.
func array[T dtype.Number](t npy.Type, values []T, shape ...int64) []byte {
	return append(npy.AppendHeader(nil, t, 1, shape...), dtype.BytesOf(values)...)
}

// fortran turns a file of C order into one of Fortran order, without moving data.
func fortran(file []byte) []byte {
	return bytes.Replace(file, []byte("False,"), []byte("True, "), 1)
}

// smallLayout is a graph of five nodes and four edges.
func smallLayout() layout {
	return layout{
		"edge_index.npy": array(npy.Int64, []int64{0, 1, 4, 4, 1, 2, 3, 0}, 2, 4),
		"node_feat.npy": array(npy.Float32, []float32{0, 1.5, 0, -2, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0.25, 0, 7, 8, 9,
			10}, 5, 4),
		"node_label.npy": array(npy.Int16, []uint16{0, 1, 2, 0xffff, 1}, 5),
		"splits.npy":     array(npy.Int8, []int8{0, 0, 1, -1, 2, 2, 1, 0, -1, -1}, 2, 5),
		"meta.json":      []byte(`{"name": "small", "num_nodes": 5, "directed": true}`),
	}
}

var smallEdges = [][2]uint32{{0, 1}, {1, 2}, {4, 3}, {4, 0}}
var smallFeatures = []float32{0, 1.5, 0, -2, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0.25, 0, 7, 8, 9, 10}

// put writes the files into a directory of a new disk.
func (l layout) put(t testing.TB) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	for name, data := range l {
		if err := disk.MkdirAll(path.Dir(path.Join("in", name))); err != nil {
			t.Fatal(err)
		}
		putFile(t, disk, path.Join("in", name), data)
	}
	return disk
}

func putFile(t testing.TB, disk vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := disk.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (l layout) open(t testing.TB, o NPYOptions) Source {
	t.Helper()
	s, err := OpenNPY(l.put(t), "in", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// readAll reads everything that a directory has.
func readAll(fsys vfs.FS, dir string, o NPYOptions) error { return readSource(OpenNPY(fsys, dir, o)) }

// readSource reads everything that a source has, if it opened.
func readSource(s Source, err error) error {
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Rows(context.Background()); err != nil {
		return err
	}
	if err := s.Edges(context.Background(), 2, func(Edges) error { return nil }); err != nil {
		return err
	}
	in, err := s.Features(1)
	if err != nil {
		return err
	}
	defer in.Close()
	return in.Read(context.Background(), make([]float32, s.Info().Nodes*int64(s.Info().Features)))
}

// refused checks that err is ErrInvalid in one line, which says all that it should.
func refused(t testing.TB, name string, err error, say ...string) {
	t.Helper()
	if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v", name, err)
		return
	}
	for _, say := range say {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %q does not say %q", name, err, say)
		}
	}
}

func TestEdgesReadInAnyArrangement(t *testing.T) {
	apart, together := []int64{0, 1, 4, 4, 1, 2, 3, 0}, []int64{0, 1, 1, 2, 4, 3, 4, 0}
	narrow := make([]uint8, 8)
	for i, v := range apart {
		narrow[i] = uint8(v)
	}
	for name, file := range map[string][]byte{
		"[2,E]":                  array(npy.Int64, apart, 2, 4),
		"[E,2]":                  array(npy.Int64, together, 4, 2),
		"[2,E] in Fortran order": fortran(array(npy.Int64, together, 2, 4)),
		"[E,2] in Fortran order": fortran(array(npy.Int64, apart, 4, 2)),
		"[2,E] of bytes":         array(npy.Uint8, narrow, 2, 4),
	} {
		l := smallLayout()
		l["edge_index.npy"] = file
		if got := allEdges(t, l.open(t, NPYOptions{}), 1); !slices.Equal(got, smallEdges) {
			t.Errorf("%s: %v", name, got)
		}
	}
	square := smallLayout()
	square["edge_index.npy"] = array(npy.Int64, []int64{0, 1, 2, 3}, 2, 2)
	if got := allEdges(t, square.open(t, NPYOptions{EdgeLayout: "2xE"}), 1); !slices.Equal(got,
		[][2]uint32{{0, 2}, {1, 3}}) {
		t.Errorf("2xE: %v", got)
	}
	square["meta.json"] = []byte(`{"edge_layout": "Ex2"}`)
	if got := allEdges(t, square.open(t, NPYOptions{}), 1); !slices.Equal(got, [][2]uint32{{0, 1}, {2, 3}}) {
		t.Errorf("Ex2 by meta.json: %v", got)
	}
	if got := allEdges(t, square.open(t, NPYOptions{EdgeLayout: "Ex2"}), 1); !slices.Equal(got,
		[][2]uint32{{0, 1}, {2, 3}}) {
		t.Errorf("Ex2: %v", got)
	}
}

// manyEdges are m edges between five nodes: by rows, in pairs, and one by one.
func manyEdges(m int) (apart, together []uint16, edges [][2]uint32) {
	apart, together = make([]uint16, 2*m), make([]uint16, 2*m)
	for i := range m {
		u, v := uint16(i%5), uint16(i*7%5)
		apart[i], apart[m+i], together[2*i], together[2*i+1] = u, v, u, v
		edges = append(edges, [2]uint32{uint32(u), uint32(v)})
	}
	return apart, together, edges
}

func TestManyEdgesReadTheSameInBlocks(t *testing.T) {
	const m = 3*edgeBlock + 17
	apart, together, want := manyEdges(m)
	for _, file := range [][]byte{array(npy.Uint16, apart, 2, m), array(npy.Uint16, together, m, 2)} {
		l := smallLayout()
		l["edge_index.npy"] = file
		s := l.open(t, NPYOptions{})
		if !slices.Equal(allEdges(t, s, 1), want) {
			t.Error("one thread reads other edges, or in another order")
		}
		got := allEdges(t, s, 3)
		sorted := slices.Clone(want)
		slices.SortFunc(got, compareEdges)
		slices.SortFunc(sorted, compareEdges)
		if !slices.Equal(got, sorted) {
			t.Error("three threads read other edges")
		}
	}
}

func TestFeaturesReadFromAnyFile(t *testing.T) {
	column := make([]float32, 20) // Fortran order
	half, brain := make([]byte, 40), make([]byte, 40)
	double := make([]float64, 20)
	for i, v := range smallFeatures {
		column[i%4*5+i/4], double[i] = v, float64(v)
	}
	dtype.Encode(half, smallFeatures, dtype.Float16)
	dtype.Encode(brain, smallFeatures, dtype.BFloat16)
	for _, c := range []struct {
		name    string
		files   layout
		options NPYOptions
	}{
		{"C order", layout{"node_feat.npy": array(npy.Float32, smallFeatures, 5, 4)}, NPYOptions{}},
		{"Fortran order", layout{"node_feat.npy": fortran(array(npy.Float32, column, 5, 4))}, NPYOptions{}},
		{"float64", layout{"node_feat.npy": array(npy.Float64, double, 5, 4)}, NPYOptions{}},
		{"float16", layout{"node_feat.npy": array(npy.Float16, half, 5, 4)}, NPYOptions{}},
		{"bfloat16 by option", layout{"node_feat.npy": array(npy.Uint16, brain, 5, 4)},
			NPYOptions{FeatureType: npy.BFloat16}},
		{"bfloat16 by meta.json", layout{"node_feat.npy": array(npy.Int16, brain, 5, 4),
			"meta.json": []byte(`{"feature_dtype": "bfloat16"}`)}, NPYOptions{}},
		{"three shards", layout{
			"node_feat_0.npy": array(npy.Float32, smallFeatures[:4], 1, 4),
			"node_feat_1.npy": array(npy.Float64, double[4:16], 3, 4),
			"node_feat_2.npy": array(npy.Float32, smallFeatures[16:], 1, 4),
		}, NPYOptions{}},
		{"raw float32", layout{"node_feat.npy": dtype.BytesOf(smallFeatures)}, NPYOptions{FeatureShape: []int64{5, 4}}},
		{"raw float16 that meta.json tells of", layout{"node_feat.npy": half,
			"meta.json": []byte(`{"feature_dtype": "float16", "num_nodes": 5, "num_features": 4}`)}, NPYOptions{}},
		{"raw shards", layout{"node_feat_0.npy": raw(smallFeatures[:12]), "node_feat_1.npy": raw(smallFeatures[12:])},
			NPYOptions{FeatureShape: []int64{5, 4}}},
		{"raw bfloat16", layout{"node_feat.npy": brain},
			NPYOptions{FeatureShape: []int64{5, 4}, FeatureType: npy.BFloat16}},
		{"a deflated CSR matrix", layout{"node_feat.npz": fixture(t, "deflated")}, NPYOptions{}},
		{"a stored CSR matrix", layout{"node_feat.npz": fixture(t, "stored")}, NPYOptions{}},
		{"a CSR matrix of big-endian float64 and int64", layout{"node_feat.npz": fixture(t, "wide")}, NPYOptions{}},
		{"a CSR matrix with an entry in two parts", layout{"node_feat.npz": fixture(t, "twice")}, NPYOptions{}},
	} {
		l := smallLayout()
		delete(l, "node_feat.npy")
		for name, data := range c.files {
			l[name] = data
		}
		s := l.open(t, c.options)
		if info := s.Info(); info.Nodes != 5 || info.Features != 4 {
			t.Errorf("%s: %d nodes, %d features", c.name, info.Nodes, info.Features)
			continue
		}
		for _, rows := range []int{1, 2, 5} {
			if got := readFeatures(t, s, 1, rows); !slices.Equal(got, smallFeatures) {
				t.Errorf("%s, %d rows at a time: %v", c.name, rows, got)
			}
		}
	}
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".npz")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLabelsReadFromAnyArray(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name  string
		file  []byte
		want  []int32
		multi []int8
	}{
		{"integers", array(npy.Int16, []uint16{0, 1, 2, 0xffff, 1}, 5), []int32{0, 1, 2, -1, 1}, nil},
		{"a column", array(npy.Uint8, []uint8{0, 1, 2, 3, 1}, 5, 1), []int32{0, 1, 2, 3, 1}, nil},
		{"floats with NaN", array(npy.Float64, []float64{0, nan, 2, -1, 1}, 5), []int32{0, -1, 2, -1, 1}, nil},
		{"truth values", array(npy.Bool, []uint8{0, 1, 2, 0, 1}, 5), []int32{0, 1, 1, 0, 1}, nil},
		{"several a node", array(npy.Int8, []int8{0, 1, 1, 1, -1, 0, 0, 0, 1, 0}, 5, 2), nil,
			[]int8{0, 1, 1, 1, -1, 0, 0, 0, 1, 0}},
		{"several a node in Fortran order", fortran(array(npy.Float64, []float64{0, 1, -1, 0, 1, 1, 1, nan, 0, 0}, 5,
			2)), nil, []int8{0, 1, 1, 1, -1, -1, 0, 0, 1, 0}},
	} {
		l := smallLayout()
		l["node_label.npy"] = c.file
		got, err := l.open(t, NPYOptions{}).Rows(context.Background())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(got.Labels, c.want) || !slices.Equal(got.MultiLabels, c.multi) ||
			got.LabelColumns != len(c.multi)/5 {
			t.Errorf("%s: %v, %v in %d columns", c.name, got.Labels, got.MultiLabels, got.LabelColumns)
		}
	}
}

func TestAllShippedSplitsAreKept(t *testing.T) {
	lists := layout{
		"train_idx.npy": array(npy.Int32, []int32{1, 0}, 2),
		"valid_idx.npy": array(npy.Int32, []int32{}, 0),
		"test_idx.npy":  array(npy.Int64, []int64{4}, 1),
	}
	more := layout{
		"splits_b.npy": array(npy.Int8, []int8{2, 2, 2, 2, 2}, 1, 5),
		"splits_a.npy": fortran(array(npy.Int8, []int8{0, -1, 0, -1, 0, -1, 0, -1, 0, 1}, 2, 5)),
	}
	for _, c := range []struct {
		name  string
		files []layout
		want  []uint8 // by split
	}{
		{"none", nil, nil},
		{"an array", []layout{{"splits.npy": array(npy.Int8, []int8{0, 0, 1, -1, 2, 2, 1, 0, -1, -1}, 2, 5)}},
			[]uint8{1, 1, 2, 0, 3, 3, 2, 1, 0, 0}},
		{"one row", []layout{{"splits.npy": array(npy.Int64, []int64{0, 0, 1, -1, 2}, 5)}}, []uint8{1, 1, 2, 0, 3}},
		{"lists", []layout{lists}, []uint8{1, 1, 0, 0, 3}},
		{"lists and an array that agree", []layout{lists, {"splits.npy": array(npy.Int8, []int8{0, 0, 1, -1, 2}, 1,
			5)}}, []uint8{1, 1, 2, 0, 3}},
		{"lists and further splits by name", []layout{lists, more},
			[]uint8{1, 1, 0, 0, 3, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 3, 3, 3, 3, 3}},
		{"further splits alone", []layout{more}, []uint8{1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 3, 3, 3, 3, 3}},
	} {
		l := smallLayout()
		delete(l, "splits.npy")
		for _, files := range c.files {
			for name, data := range files {
				l[name] = data
			}
		}
		got, err := l.open(t, NPYOptions{}).Rows(context.Background())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var splits []uint8
		for k := range got.NumSplits {
			for v := range 5 {
				splits = append(splits, got.Splits[v*got.NumSplits+k])
			}
		}
		if !slices.Equal(splits, c.want) {
			t.Errorf("%s: %v, want %v", c.name, splits, c.want)
		}
	}
}

func TestBadInputIsRefusedNamingFileAndPlace(t *testing.T) {
	i64 := func(values ...int64) []byte { return array(npy.Int64, values, 2, int64(len(values)/2)) }
	for _, c := range []struct {
		name    string
		files   layout // nil data: take the file away
		options NPYOptions
		say     []string
	}{
		{"no edges", layout{"edge_index.npy": nil}, NPYOptions{}, []string{"in: no edge_index.npy"}},
		{"no features", layout{"node_feat.npy": nil}, NPYOptions{}, []string{"no features"}},
		{"two feature files", layout{"node_feat_0.npy": array(npy.Float32, smallFeatures, 5, 4)}, NPYOptions{},
			[]string{"more than one"}},
		{"a source out of range", layout{"edge_index.npy": i64(0, 5, 1, 2)}, NPYOptions{EdgeLayout: "2xE"},
			[]string{"in/edge_index.npy", "edge 1 has source 5", "5 nodes"}},
		{"a destination out of range", layout{"edge_index.npy": i64(0, 1, 1, -3)}, NPYOptions{EdgeLayout: "2xE"},
			[]string{"edge 1 has destination -3"}},
		{"an id beyond 32 bits", layout{"edge_index.npy": i64(0, 1, 1<<32+1, 2)}, NPYOptions{EdgeLayout: "2xE"},
			[]string{"edge 0 has destination 4294967297"}},
		{"an id beyond 63 bits", layout{"edge_index.npy": array(npy.Uint64, []uint64{0, 1, math.MaxUint64, 0}, 2, 2)},
			NPYOptions{EdgeLayout: "2xE"}, []string{"edge 0 has destination 18446744073709551615"}},
		{"an id in a pair", layout{"edge_index.npy": array(npy.Int32, []int32{0, 1, 2, 3, 4, 9}, 3, 2)}, NPYOptions{},
			[]string{"edge 2 has destination 9"}},
		{"two edges without a layout", layout{"edge_index.npy": i64(0, 1, 2, 3)}, NPYOptions{},
			[]string{"--edge-layout 2xE or Ex2"}},
		{"a layout that does not fit", layout{}, NPYOptions{EdgeLayout: "Ex2"}, []string{"[2 4]", "[E,2]"}},
		{"edges of floats", layout{"edge_index.npy": array(npy.Float64, make([]float64, 6), 2, 3)}, NPYOptions{},
			[]string{"float64", "integers"}},
		{"edges in one row", layout{"edge_index.npy": array(npy.Int64, make([]int64, 6), 6)}, NPYOptions{},
			[]string{"[6]"}},
		{"edges in three rows", layout{"edge_index.npy": array(npy.Int64, make([]int64, 12), 3, 4)}, NPYOptions{},
			[]string{"[3 4] (want integers [2,E] or [E,2])"}},
		{"truncated edges", layout{"edge_index.npy": i64(0, 1, 2, 3, 4, 0)[:150]}, NPYOptions{},
			[]string{"in/edge_index.npy", "176 bytes, found 150"}},
		{"a weight short", layout{"edge_weight.npy": array(npy.Float32, make([]float32, 3), 3)}, NPYOptions{},
			[]string{"in/edge_weight.npy", "numbers [4]"}},
		{"a weight of NaN", layout{"edge_weight.npy": array(npy.Float64, []float64{1, math.NaN(), 1, 1}, 4)},
			NPYOptions{}, []string{"edge 1 has weight NaN"}},
		{"a negative weight", layout{"edge_weight.npy": array(npy.Int64, []int64{1, 1, 1, -1}, 4)}, NPYOptions{},
			[]string{"edge 3 has weight -1"}},
		{"a weight beyond float32", layout{"edge_weight.npy": array(npy.Float64, []float64{1e39, 1, 1, 1}, 4)},
			NPYOptions{}, []string{"edge 0 has weight 1e+39"}},
		{"features in one row", layout{"node_feat.npy": array(npy.Float32, make([]float32, 5), 5)}, NPYOptions{},
			[]string{"in/node_feat.npy", "[5]"}},
		{"features of nothing", layout{"node_feat.npy": array(npy.Float32, []float32{}, 5, 0)}, NPYOptions{},
			[]string{"0 features"}},
		{"shards of other widths", layout{"node_feat.npy": nil, "node_feat_0.npy": array(npy.Float32, smallFeatures, 5,
			4), "node_feat_1.npy": array(npy.Float32, smallFeatures, 4, 5)}, NPYOptions{},
			[]string{"in/node_feat_1.npy", "4 features in all shards"}},
		{"a shard missing", layout{"node_feat.npy": nil, "node_feat_0.npy": array(npy.Float32, smallFeatures, 5, 4),
			"node_feat_2.npy": array(npy.Float32, smallFeatures, 5,
				4)}, NPYOptions{}, []string{"node_feat_2.npy", "node_feat_1.npy is missing"}},
		{"raw features without a shape", layout{"node_feat.npy": make([]byte, 80)}, NPYOptions{}, []string{"--shape"}},
		{"raw features of another shape", layout{"node_feat.npy": make([]byte, 80)},
			NPYOptions{FeatureShape: []int64{5, 5}}, []string{"4 rows together, and --shape says 5"}},
		{"raw features of no columns", layout{"node_feat.npy": {}}, NPYOptions{FeatureShape: []int64{5, 0}},
			[]string{"in/node_feat.npy", "[5 0]"}},
		{"raw shards of part of a row", layout{"node_feat.npy": nil, "node_feat_0.npy": raw(smallFeatures[:7])},
			NPYOptions{FeatureShape: []int64{5, 4}}, []string{"in/node_feat_0.npy", "28 bytes", "rows of 4"}},
		{"raw shards of fewer rows", layout{"node_feat.npy": nil, "node_feat_0.npy": raw(smallFeatures[:8])},
			NPYOptions{FeatureShape: []int64{5, 4}}, []string{"2 rows", "--shape says 5"}},
		{"raw features of a strange type", layout{"node_feat.npy": make([]byte, 80),
			"meta.json": []byte(`{"feature_dtype": "float8", "num_nodes": 5, "num_features": 4}`)}, NPYOptions{},
			[]string{"in/meta.json", "float8"}},
		{"floats as bfloat16", layout{}, NPYOptions{FeatureType: npy.BFloat16}, []string{"float32 cannot be bfloat16"}},
		{"more nodes than 32 bits name", layout{"node_feat.npy": array(npy.Float32, []float32{}, 1<<32, 1)},
			NPYOptions{}, []string{"in/node_feat.npy"}},
		{"meta.json about other nodes", layout{"meta.json": []byte(`{"num_nodes": 6}`)}, NPYOptions{},
			[]string{"num_nodes is 6", "5 rows"}},
		{"meta.json about other features", layout{"meta.json": []byte(`{"num_features": 6}`)}, NPYOptions{},
			[]string{"num_features is 6"}},
		{"meta.json that is none", layout{"meta.json": []byte(`{`)}, NPYOptions{}, []string{"in/meta.json"}},
		{"meta.json against itself", layout{"meta.json": []byte(`{"directed": true, "reverses_stored": true}`)},
			NPYOptions{}, []string{"in/meta.json"}},
		{"meta.json of another kind", layout{"meta.json": []byte(`[1, 2]`)}, NPYOptions{},
			[]string{"in/meta.json: found array (want an object)"}},
		{"meta.json with a comment", layout{"meta.json": []byte("{\n  # five\n}")}, NPYOptions{},
			[]string{"in/meta.json: line 2, column 3: this is not JSON"}},
		{"meta.json with a text for a number", layout{"meta.json": []byte("{\"num_nodes\": \"5\"}")}, NPYOptions{},
			[]string{"in/meta.json: line 1", "num_nodes: found string (want a whole number)"}},
		{"meta.json with half a node", layout{"meta.json": []byte(`{"num_nodes": 5.5}`)}, NPYOptions{},
			[]string{"num_nodes: found number 5.5 (want a whole number)"}},
		{"meta.json with a number for yes or no", layout{"meta.json": []byte(`{"directed": 1}`)}, NPYOptions{},
			[]string{"directed: found number (want true or false)"}},
		{"meta.json with a number for names of classes", layout{"meta.json": []byte(`{"class_names": 3}`)}, NPYOptions{},
			[]string{"class_names: found number (want a list)"}},
		{"meta.json in another encoding", layout{"meta.json": []byte("{\"name\": \"\xe4\"}")}, NPYOptions{},
			[]string{"in/meta.json: not UTF-8"}},
		{"meta.json with a name that cannot be printed", layout{"meta.json": []byte(`{"name": "a\u0007b"}`)},
			NPYOptions{}, []string{"in/meta.json: name", "printed"}},
		{"meta.json with a layout of neither kind", layout{"meta.json": []byte(`{"edge_layout": "E"}`)}, NPYOptions{},
			[]string{`in/meta.json: edge_layout is "E"`}},
		{"an endless meta.json", layout{"meta.json": append([]byte("{}"), bytes.Repeat([]byte(" "), maxMeta)...)},
			NPYOptions{}, []string{"in/meta.json: more than 16777216 bytes"}},
		{"labels of other nodes", layout{"node_label.npy": array(npy.Int8, make([]int8, 6), 6)}, NPYOptions{},
			[]string{"in/node_label.npy", "numbers [5]"}},
		{"half a label that is to be a class", layout{"node_label.npy": array(npy.Float32, []float32{0, 0, 0.5, 0, 0},
			5)}, NPYOptions{LabelsAs: LabelsAsClasses}, []string{"label 0.5 of node 2"}},
		{"a label of -2", layout{"node_label.npy": array(npy.Int8, []int8{0, 0, 0, -2, 0}, 5)}, NPYOptions{},
			[]string{"label -2 of node 3"}},
		{"a huge label", layout{"node_label.npy": array(npy.Int64, []int64{0, 0, 0, 0, 1 << 40}, 5)}, NPYOptions{},
			[]string{"label 1099511627776 of node 4"}},
		{"a multi-label of 2", layout{"node_label.npy": array(npy.Int8, []int8{0, 1, 0, 2, 0, 0, 0, 0, 0, 0}, 5, 2)},
			NPYOptions{}, []string{"label 2 of node 1"}},
		{"an unknown part", layout{"splits.npy": array(npy.Int8, []int8{0, 0, 0, 0, 0, 0, 3, 0, 0, 0}, 2, 5)},
			NPYOptions{}, []string{"in/splits.npy", "split 1 has 3 for node 1"}},
		{"splits of other nodes", layout{"splits.npy": array(npy.Int8, make([]int8, 8), 2, 4)}, NPYOptions{},
			[]string{"in/splits.npy", "[k,5]"}},
		{"a node in two lists", layout{"splits.npy": nil, "train_idx.npy": array(npy.Int32, []int32{1, 2}, 2),
			"test_idx.npy": array(npy.Int32, []int32{2},
				1)}, NPYOptions{}, []string{"in/test_idx.npy", "node 2", "twice"}},
		{"a list with no node", layout{"train_idx.npy": array(npy.Int32, []int32{1, 5}, 2)}, NPYOptions{},
			[]string{"in/train_idx.npy", "entry 1 is 5"}},
		{"lists that disagree", layout{"train_idx.npy": array(npy.Int32, []int32{0, 4}, 2)}, NPYOptions{},
			[]string{"in/train_idx.npy", "node 4"}},
		{"a mask for splits", layout{"splits.npy": array(npy.Bool, make([]uint8, 5), 5)}, NPYOptions{},
			[]string{"in/splits.npy: bool array", "0 train, 1 valid"}},
		{"a mask for ids", layout{"splits.npy": nil, "train_idx.npy": array(npy.Bool, make([]uint8, 5), 5)},
			NPYOptions{}, []string{"in/train_idx.npy: bool array", "flatnonzero"}},
		{"edges of truth values", layout{"edge_index.npy": array(npy.Bool, make([]uint8, 8), 2, 4)}, NPYOptions{},
			[]string{"in/edge_index.npy: bool array"}},
		{"too many splits", layout{"splits.npy": array(npy.Int8, make([]int8, 5*4097), 4097, 5)}, NPYOptions{},
			[]string{"in/splits.npy: 4097 splits (at most 4096)"}},
		{"too many splits together", layout{"splits_a.npy": array(npy.Int8, make([]int8, 5*4095), 4095, 5)},
			NPYOptions{}, []string{"4097 splits (at most 4096)"}},
		{"splits under a name that cannot be printed", layout{"splits_\n.npy": array(npy.Int8, make([]int8, 5), 5)},
			NPYOptions{}, []string{"in/splits_\\n.npy", "printed"}},
		{"strings of no characters, in thousands of millions",
			layout{"orig_id.npy": npy.AppendHeader(nil, npy.Text, 0, 1<<40)}, NPYOptions{}, []string{"in/orig_id.npy",
				"text [5]"}},
		{"ids beyond Unicode", layout{"orig_id.npy": append(npy.AppendHeader(nil, npy.Text, 1, 5),
			dtype.BytesOf([]uint32{'a', 'b', 0x110000, 'd',
				'e'})...)}, NPYOptions{}, []string{"in/orig_id.npy: string 2 is not UTF-32"}},
		{"ids of half characters", layout{"orig_id.npy": append(npy.AppendHeader(nil, npy.Text, 1, 5),
			dtype.BytesOf([]uint32{'a', 'b', 'c', 0xd800,
				'e'})...)}, NPYOptions{}, []string{"in/orig_id.npy: string 3 is not UTF-32"}},
		{"ids in another encoding", layout{"orig_id.npy": append(npy.AppendHeader(nil, npy.Bytes, 1, 5),
			"ab\xe4de"...)}, NPYOptions{}, []string{"in/orig_id.npy: string 2 is not UTF-8"}},
		{"ids of other nodes", layout{"orig_id.npy": append(npy.AppendHeader(nil, npy.Bytes, 1, 2), "ab"...)},
			NPYOptions{}, []string{"in/orig_id.npy"}},
		{"a CSC matrix", layout{"node_feat.npy": nil, "node_feat.npz": fixture(t, "csc")}, NPYOptions{},
			[]string{`in/node_feat.npz`, `"csc"`}},
		{"a column out of range", layout{"node_feat.npy": nil, "node_feat.npz": fixture(t, "broken_column")},
			NPYOptions{}, []string{"indices", "row 2", "column 4, but there are 4 columns"}},
		{"row ends that descend", layout{"node_feat.npy": nil, "node_feat.npz": fixture(t, "broken_ptr")}, NPYOptions{},
			[]string{"indptr", "row 1 ends at entry 1 (want 2 to"}},
		{"a last row cut short", layout{"node_feat.npy": nil, "node_feat.npz": fixture(t, "broken_last")}, NPYOptions{},
			[]string{"indptr", "row 4 ends at entry 8"}},
		{"a first row that is not at 0", layout{"node_feat.npy": nil, "node_feat.npz": fixture(t, "broken_first")},
			NPYOptions{}, []string{"indptr", "the first entry is 1"}},
		{"a CSR matrix of another shape", layout{"node_feat.npy": nil, "node_label.npy": nil, "splits.npy": nil,
			"meta.json": nil, "node_feat.npz": fixture(t,
				"broken_shape")}, NPYOptions{}, []string{"indptr", "[6]", "integers [7]"}},
	} {
		l := smallLayout()
		for name, data := range c.files {
			if l[name] = data; data == nil {
				delete(l, name)
			}
		}
		refused(t, c.name, readAll(l.put(t), "in", c.options), c.say...)
	}
}

func TestUnreadablePathsAreNamed(t *testing.T) {
	if _, err := OpenNPY(smallLayout().put(t), "elsewhere", NPYOptions{}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "elsewhere") {
		t.Error(err)
	}
}

func TestOptionsAgainstTheFilesAreRefused(t *testing.T) {
	for name, o := range map[string]NPYOptions{
		"a layout of neither kind":            {EdgeLayout: "E"},
		"a shape for a file that has its own": {FeatureShape: []int64{5, 4}},
		"a type for a file that has its own":  {FeatureType: npy.Float64},
		"another layout than meta.json has":   {EdgeLayout: "2xE"},
	} {
		l := smallLayout()
		l["meta.json"] = []byte(`{"edge_layout": "Ex2"}`)
		if o.EdgeLayout == "" {
			delete(l, "meta.json")
		}
		if err := readAll(l.put(t), "in", o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEveryFlippedByteOfTheInputIsReadOrRefused(t *testing.T) {
	l := smallLayout()
	delete(l, "node_feat.npy")
	l["node_feat.npz"] = fixture(t, "deflated")
	for name, data := range l {
		for i := range data {
			damaged := slices.Clone(data)
			damaged[i] ^= 0x21
			disk := l.put(t)
			putFile(t, disk, "in/"+name, damaged)
			if err := readAll(disk, "in", NPYOptions{}); err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("%s, byte %d: %v", name, i, err)
			}
		}
	}
}

func TestEveryShorterFileIsRefused(t *testing.T) {
	l := smallLayout()
	delete(l, "node_feat.npy")
	l["node_feat.npz"] = fixture(t, "deflated")
	for name, data := range l {
		for n := range data {
			disk := l.put(t)
			putFile(t, disk, "in/"+name, data[:n])
			if err := readAll(disk, "in", NPYOptions{}); !errors.Is(err, ErrInvalid) {
				t.Fatalf("%s of %d bytes: %v", name, n, err)
			}
		}
	}
}

func FuzzMeta(f *testing.F) {
	for _, text := range []string{`{"name": "a", "num_nodes": 5}`, "\xef\xbb\xbf{", "{\n\"directed\": 1.5}", `[]`,
		`{"num_nodes": {"a": 1}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var m npyMeta
		if err := m.parse(text); err != nil && (strings.ContainsAny(err.Error(), "\n\x00") ||
			strings.Contains(err.Error(), "Go ")) {
			t.Errorf("%q", err)
		} else if err == nil && !printable(m.Name) {
			t.Errorf("a name %q", m.Name)
		}
	})
}

func FuzzSparseFeatures(f *testing.F) {
	for _, name := range []string{"deflated", "stored", "wide", "twice", "broken_ptr"} {
		f.Add(fixture(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l := layout{"edge_index.npy": array(npy.Int8, []int8{}, 2, 0), "node_feat.npz": data}
		s, err := OpenNPY(l.put(t), "in", NPYOptions{})
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
			return
		}
		defer s.Close()
		if info := s.Info(); info.Nodes*int64(info.Features) > 1<<20 {
			return
		}
		in, err := s.Features(1)
		if err == nil {
			err = in.Read(context.Background(), make([]float32, s.Info().Nodes*int64(s.Info().Features)))
			in.Close()
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is not ErrInvalid", err)
		}
	})
}

func TestReversesAreAddedWhereTheInputSaysSoOrItIsAsked(t *testing.T) {
	const refused = "refused"
	for _, c := range []struct {
		said, asked Direction
		want        string
	}{
		{UnknownDirection, UnknownDirection, "as stored, with a note"},
		{UnknownDirection, Directed, "as stored"},
		{UnknownDirection, Undirected, "reverses added"},
		{Directed, UnknownDirection, "as stored"},
		{Directed, Directed, "as stored"},
		{Directed, Undirected, "reverses added, with a note"},
		{Undirected, UnknownDirection, "reverses added"},
		{Undirected, Directed, refused},
		{Undirected, Undirected, "reverses added"},
		{Symmetric, UnknownDirection, "as stored"},
		{Symmetric, Directed, refused},
		{Symmetric, Undirected, "as stored"},
	} {
		reverses, notes, err := directions(Info{Direction: c.said, DirectionFrom: "in/meta.json"}, c.asked)
		got := "as stored"
		if reverses {
			got = "reverses added"
		}
		if len(notes) > 0 {
			got += ", with a note"
		}
		if err != nil && strings.Contains(err.Error(), "in/meta.json") {
			got = refused
		}
		if got != c.want || (err != nil && !errors.Is(err, ErrOptions)) {
			t.Errorf("said %d, asked %d: %s, want %s (%v)", c.said, c.asked, got, c.want, err)
		}
	}
	for text, want := range map[string]Direction{
		`{}`:                        UnknownDirection,
		`{"directed": true}`:        Directed,
		`{"directed": false}`:       Undirected,
		`{"reverses_stored": true}`: Symmetric,
		`{"directed": false, "reverses_stored": true}`: Symmetric,
	} {
		l := smallLayout()
		l["meta.json"] = []byte(text)
		if got := l.open(t, NPYOptions{}).Info().Direction; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
