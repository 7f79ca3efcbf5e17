package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// describe imports text tables and says what became of them: edges, labels, splits
// and features, and the notes about columns.
func describe(t *testing.T, files layout, src string, o TableOptions) (said string, notes []string, err error) {
	t.Helper()
	disk := files.put(t)
	s, err := OpenCSV(context.Background(), disk, src, ScratchOptions{Output: "out/graph"}, o)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	r, err := Run(context.Background(), disk, s, "out/graph", Options{Threads: 1})
	if err != nil {
		return "", nil, err
	}
	d := openGraph(t, disk, "out/graph")
	rows, err := d.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	said = strings.Join(weightedEdges(t, s), " ") + describeRows(rows, d.Manifest.ClassNames)
	if x := storedFeatures(t, d); s.Info().Features > 1 ||
		slices.ContainsFunc(x, func(v float32) bool { return v != 1 }) {
		said += fmt.Sprintf("; features %v", x)
	}
	if rows.OrigID != nil {
		said += fmt.Sprintf("; ids %q", rows.OrigID)
	}
	return said, r.Notes, nil
}

// describeRows says which labels and splits a row table has.
func describeRows(rows *format.RowTable, names []string) (said string) {
	switch {
	case rows.Labels != nil:
		said += fmt.Sprintf("; labels %v", rows.Labels)
	case rows.MultiLabels != nil:
		said += fmt.Sprintf("; labels %v in %d", rows.MultiLabels, rows.LabelColumns)
	case rows.LabelValues != nil:
		said += fmt.Sprintf("; values %v in %d", rows.LabelValues, rows.LabelColumns)
	}
	if names != nil {
		said += fmt.Sprintf(" %q", names)
	}
	if rows.NumSplits > 0 {
		said += fmt.Sprintf("; splits %v in %d", rows.Splits, rows.NumSplits)
	}
	return said
}

func TestTablesAsProgramsWriteThemAreReadByTheNamesOfTheirColumns(t *testing.T) {
	table := func(o Columns) TableOptions { return TableOptions{NodeFiles: NodeFiles{Table: "in/nodes", Columns: o}} }
	const edges = "src,dst\n0,1\n1,2\n"
	for _, c := range []struct {
		name  string
		files layout
		src   string // default in/edges
		o     TableOptions
		want  string
		note  string
	}{
		{"pandas with its index", layout{"edges": []byte(",u,v\n0,5,6\n1,6,7\n")}, "", TableOptions{}, "5-6 6-7",
			`in/edges: source = u, destination = v; left out: ""`},
		{"pandas with ids that were missing once", layout{"edges": []byte("u,v\n0.0,1.0\n2.0,0\n")}, "", TableOptions{},
			"0-1 2-0", "source = u, destination = v"},
		{"Neo4j", layout{"edges": []byte(":START_ID,:END_ID,:TYPE\na,b,KNOWS\nb,c,KNOWS\n")}, "",
			TableOptions{MapIDs: true}, `0-1 1-2; ids ["a" "b" "c"]`, "source = :START_ID, destination = :END_ID; " +
				"left out: :TYPE"},
		{"SNAP", layout{"edges": []byte("# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n")}, "", TableOptions{},
			"0-1 1-2", "in/edges: source = column 1, destination = column 2 (by place"},
		{"SNAP's names as a header by tabs", layout{"edges": []byte("From Node Id\tTo Node Id\n0\t1\n")}, "",
			TableOptions{}, "0-1", `source = "From Node Id", destination = "To Node Id"`},
		{"Gephi", layout{"edges": []byte("Source,Target,Type,Weight\n0,1,Directed,2.5\n")}, "", TableOptions{},
			"0-1:2.5", "weight = Weight; left out: Type"},
		{"a byte order mark, quotes and Windows line ends",
			layout{"edges": []byte("\xef\xbb\xbf\"to\";\"from\"\r\n\"0\";\"1\"\r\n")}, "", TableOptions{}, "1-0",
			"source = from, destination = to"},
		{"users and movies kept apart",
			layout{"edges": []byte("userId,movieId,rating,timestamp\n1,1,4.5,9\n2,1,3,9\n")}, "",
			TableOptions{Bipartite: true},
			`0-1 2-1; ids ["userId:1" "movieId:1" "userId:2"]`, "source = userId, destination = movieId; left " +
				"out: rating, timestamp"},
		{"users and movies in one numbering", layout{"edges": []byte("userId,movieId,rating\n0,1,4.5\n")}, "",
			TableOptions{NodeFiles: NodeFiles{Columns: Columns{Destination: "movieId",
				Weight: "rating"}}}, "0-1:4.5", "weight = rating"},
		{"a bipartite graph of the Koblenz collection", layout{"edges": []byte("% bip unweighted\n1 1\n2 1\n")}, "",
			TableOptions{Bipartite: true}, `0-1 2-1; ids ["source:1" "destination:1" "source:2"]`, "by place"},
		{"a header above text that is not understood by place but by numbers below",
			layout{"edges": []byte("paper_a,paper_b,n\nx,y,7\n")}, "", TableOptions{MapIDs: true,
				NodeFiles: ends("paper_a", "paper_b").NodeFiles}, `0-1; ids ["x" "y"]`, "left out: n"},
		{"Spark", layout{
			"edges/part-00000-a.csv": []byte("src,dst,w\n0,1,1\n"), "edges/part-00001-a.csv": {},
			"edges/part-00002-a.csv.gz": gzipped("src,dst,w\n1,2,2\n"),
			"edges/part-00003-a.csv":    []byte("src,dst,w\n"),
			"edges/_SUCCESS":            {}, "edges/.part-00000-a.csv.crc": []byte("crc\x00"),
		}, "", TableOptions{}, "0-1:1 1-2:2", "in/edges: source = src, destination = dst, weight = w"},
		{"Spark without headers", layout{"edges/part-00000": []byte("0,1\n"), "edges/part-00001": []byte("1,2\n")}, "",
			TableOptions{}, "0-1 1-2", "in/edges: source = column 1"},
		{"a folder of both tables", layout{"edges.csv": []byte(edges),
			"nodes.csv.gz": gzipped("node_id,label\n2,1\n0,0\n")}, "in", TableOptions{}, "0-1 1-2; labels [0 -1 1]",
			"in/nodes.csv.gz: id = node_id, label = label"},
		{"a folder of both tables of Spark", layout{"edges.csv/part-0.csv": []byte(edges),
			"nodes.csv/part-0.csv": []byte("id,y\n0,3\n"), "nodes.csv/part-1.csv": []byte("id,y\n2,4\n")}, "in",
			TableOptions{}, "0-1 1-2; labels [3 -1 4]", "in/nodes.csv: id = id, label = y"},
		{"DGL", layout{"edges": []byte("src_id,dst_id\n0,1\n1,2\n"),
			"nodes": []byte("node_id,label,train_mask,val_mask,test_mask,feat\n0,1,True,False,False,\"0.1,0.2\"\n" +
				"1,0,False,1,0,\"0.3,0.4\"\n2,1,,,true,\"0.5,0.6\"\n")}, "", table(Columns{}),
			"0-1 1-2; labels [1 0 1]; splits [1 2 3] in 1; features [0.1 0.2 0.3 0.4 0.5 0.6]", "in/nodes: id = " +
				"node_id, label = label, split = train_mask, val_mask, test_mask, features = feat"},
		{"numpy's lists in text", layout{"edges": []byte(edges),
			"nodes": []byte("id,x\n0,[1. 2.]\n1,[ 3  4 ]\n2,\"[5, 6]\"\n")}, "", table(Columns{}),
			"0-1 1-2; features [1 2 3 4 5 6]", "features = x"},
		{"node_id is no feature and rows find their nodes",
			layout{"edges": []byte(edges),
				"nodes": []byte("f0,node_id,f1,title\n7,2,8,x\n3,0,4,y\n5,1,6,z\n")}, "",
			TableOptions{NodeFiles: NodeFiles{Features: "in/nodes"}}, "0-1 1-2; features [3 4 5 6 7 8]",
			"in/nodes: id = node_id, features = f0, f1; left out: title"},
		{"one table under three flags", layout{"edges": []byte(edges),
			"nodes": []byte("id,kind,fold,f\n0,b,train,1\n1,a,val,2\n2,b,,3\n")}, "",
			TableOptions{NodeFiles: NodeFiles{Features: "in/nodes", Labels: "in/nodes", Splits: "in/nodes",
				Columns: Columns{Label: []string{"kind"}}}},
			`0-1 1-2; labels [1 0 1] ["a" "b"]; splits [1 2 0] in 1; features [1 2 3]`, "in/nodes: id = id, label " +
				"= kind, split = fold, features = f"},
		{"a table beside a file of features", layout{"edges": []byte(edges),
			"nodes": []byte("id,label,f\n0,1,7\n1,0,8\n2,1,9\n"), "x": array(npy.Float32, []float32{1, 2, 3}, 3,
				1)}, "", TableOptions{NodeFiles: NodeFiles{Table: "in/nodes", Features: "in/x"}},
			"0-1 1-2; labels [1 0 1]; features [1 2 3]", "in/nodes: id = id, label = label; left out: f"},
		{"labels alone, of three columns", layout{"edges": []byte(edges),
			"nodes": []byte("node_id,label,year\n0,1,1999\n1,0,2000\n")}, "",
			TableOptions{NodeFiles: NodeFiles{Labels: "in/nodes"}}, "0-1 1-2; labels [1 0 -1]", "left out: year"},
		{"rows in the order of nodes", layout{"edges": []byte(edges), "nodes": []byte("nr,f\n5,1\n6,2\n7,3\n")}, "",
			table(Columns{ID: None,
				Features: []string{"f"}}), "0-1 1-2; features [1 2 3]", "id = the number of the row, features = " +
				"f; left out: nr"},
		{"columns by number without a header", layout{"edges": []byte(edges),
			"nodes": []byte("1 0 7 train\n0 1 8 test\n1 2 9 val\n")}, "", table(Columns{ID: "2", Label: []string{"1"},
			Features: []string{"3"}, Split: []string{"4"}}),
			"0-1 1-2; labels [1 0 1]; splits [1 3 2] in 1; features [7 8 9]", "id = column 2, label = column 1"},
		{"several splits and labels", layout{"edges": []byte(edges),
			"nodes": []byte("id,l1,l2,s1,s2\n0,0,1,train,test\n1,1,1,val,train\n2,,0,none,val\n")}, "",
			table(Columns{Label: []string{"l?"}, Split: []string{"s*"}}),
			"0-1 1-2; labels [0 1 1 1 -1 0] in 2; splits [1 3 2 1 0 2] in 2", "label = l1, l2, split = s1, s2"},
	} {
		if c.src == "" {
			c.src = "in/edges"
		}
		said, notes, err := describe(t, c.files, c.src, c.o)
		if err != nil || said != c.want || !strings.Contains(strings.Join(notes, "\n"), c.note) {
			t.Errorf("%s: %s, want %s; notes %q, want %q; %v", c.name, said, c.want, notes, c.note, err)
		}
	}
}

func TestTablesThatAreNotUnderstoodAreRefusedWithTheFlagThatHelps(t *testing.T) {
	table := TableOptions{NodeFiles: NodeFiles{Table: "in/nodes"}}
	nodes := func(text string) layout { return layout{"edges": []byte("src,dst\n0,1\n1,2\n"), "nodes": []byte(text)} }
	for _, c := range []struct {
		name  string
		files layout
		o     TableOptions
		want  error
		say   string // separated by |
	}{
		{"unknown names", layout{"edges": []byte("paper_a,paper_b\n0,1\n")}, TableOptions{}, ErrOptions,
			"in/edges: line 1|paper_a, paper_b|--source-column|--header no"},
		{"unknown names under an index", layout{"edges": []byte(",0,1\n0,5,6\n")}, TableOptions{}, ErrOptions,
			`"", 0, 1|--source-column`},
		{"unknown names above text", layout{"edges": []byte("paper_a,paper_b,n\nx,y,7\n")}, TableOptions{MapIDs: true},
			ErrOptions, "paper_a, paper_b, n|--source-column"},
		{"two sources", layout{"edges": []byte("src,from,dst\n0,1,2\n")}, TableOptions{}, ErrOptions,
			"src, from|--source-column"},
		{"a column that is not there", layout{"edges": []byte("u,v\n0,1\n")}, ends("x", "v"), ErrOptions,
			"--source-column x|u, v"},
		{"users and movies", layout{"edges": []byte("userId,movieId,rating\n1,1,4\n")}, TableOptions{}, ErrOptions,
			"userId and movieId|--ids bipartite|--destination-column"},
		{"users and movies, mapped", layout{"edges": []byte("userId,movieId,rating\n1,1,4\n")},
			TableOptions{MapIDs: true}, ErrOptions, "--ids bipartite"},
		{"fractions as ids", layout{"edges": []byte("u,v\n0,1.5\n")}, TableOptions{}, ErrInvalid,
			"in/edges: line 2|1.5"},
		{"a field too many under a header", layout{"edges": []byte("u,v\n0,1\n0,1,2\n")}, TableOptions{}, ErrInvalid,
			"in/edges: line 3|3 fields (want 2)"},
		{"another header in a part", layout{"edges/part-0": []byte("u,v\n0,1\n"), "edges/part-1": []byte("v,u\n0,1\n")},
			TableOptions{}, ErrInvalid, "in/edges/part-1: line 1|differs from that of the first file"},
		{"a part without the header", layout{"edges/part-0": []byte("u,v\n0,1\n"), "edges/part-1": []byte("2,3\n")},
			TableOptions{}, ErrInvalid, "in/edges/part-1: line 1|differs from that of the first file"},
		{"a folder of something else", layout{"edges/readme": []byte("0,1\n")}, TableOptions{}, ErrInvalid,
			"without edges.csv"},
		{"a web page", layout{"edges": []byte("\n<!DOCTYPE html>\n<html><body>404, not found</body></html>\n")},
			TableOptions{}, ErrInvalid, "HTML page"},
		{"a packed web page of nodes", layout{"edges": []byte("0,1\n"), "nodes": gzipped("<HTML>")}, table, ErrInvalid,
			"in/nodes|HTML page"},
		{"an empty file", layout{"edges": {}}, TableOptions{}, ErrInvalid, "in/edges|no edges"},
		{"comments alone", layout{"edges": []byte("# FromNodeId ToNodeId\n")}, TableOptions{}, ErrInvalid,
			"in/edges|no edges"},
		{"a header alone", layout{"edges": []byte("src,dst\n")}, TableOptions{}, ErrInvalid,
			"in/edges|a header, but no edges"},
		{"a table with a header alone", nodes("id,label\n"), table, ErrInvalid, "in/nodes|no rows"},
		{"ids under another name", nodes("nr,label,f\n0,1,2\n"), table, ErrOptions,
			"in/nodes: line 1|--id-column NAME|nr, label, f"},
		{"two labels", nodes("id,label,class\n0,1,2\n"), table, ErrOptions, "label, class|--label-column"},
		{"an unknown label", nodes("id,a,b\n0,1,2\n"), TableOptions{NodeFiles: NodeFiles{Labels: "in/nodes"}},
			ErrOptions, "--label-column NAME|id, a, b"},
		{"features that are labels and splits alone", nodes("id,label,fold\n0,1,2\n"),
			TableOptions{NodeFiles: NodeFiles{Features: "in/nodes"}}, ErrOptions, "--feature-columns"},
		{"a node in two masks", nodes("id,train_mask,test_mask\n0,1,0\n1,True,True\n"), table, ErrInvalid,
			"in/nodes: line 3|more than one"},
		{"a mask of a third kind", nodes("id,train_mask\n0,2\n"), table, ErrInvalid, `in/nodes: line 2|mask "2"`},
		{"a list of another length", nodes("id,x\n0,\"1,2\"\n1,\"1\"\n"), table, ErrInvalid,
			"in/nodes: line 3|column x|1 values (want 2"},
		{"a feature that is missing", nodes("id,f0,f1\n0,1,2\n1,3,\n2,1,1\n"), table, ErrInvalid,
			"in/nodes: line 3|column f1"},
		{"a table that is an array", layout{"edges": []byte("0,1\n"), "nodes": array(npy.Float32, []float32{1, 2}, 2,
			1)}, table, ErrOptions, "--node-table in/nodes"},
		{"rows that are too few", nodes("label\n0\n1\n"), table, ErrInvalid, "in/nodes|want one for each of 3 nodes"},
		{"rows that are too many", nodes("label\n0\n1\n1\n1\n"), table, ErrInvalid,
			"in/nodes|more rows than the 3 nodes"},
		{"rows without ids that are mapped", nodes("label\n0\n"),
			TableOptions{MapIDs: true, NodeFiles: table.NodeFiles}, ErrOptions, "--ids map needs"},
		{"labels of a fourth kind", nodes("id,label\n0,1\n"),
			TableOptions{NodeFiles: NodeFiles{Table: "in/nodes",
				LabelsAs: "colours"}}, ErrOptions, "--labels-as colours"},
	} {
		_, _, err := describe(t, c.files, "in/edges", c.o)
		for _, part := range strings.Split(c.say, "|") {
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, part)
			}
		}
	}
}

// kindsOfLabels are labels of three nodes, and what they become.
var kindsOfLabels = []struct {
	name, text, want string
	as               LabelsAs
}{
	{"numbers", "2,0,1", "[2 0 1]", ""},
	{"numbers as pandas writes them where some are missing", "2.0,,1.0", "[2 -1 1]", ""},
	{"text, numbered by its order and not by that of rows", "pear,apple,pear", `[1 0 1] ["apple" "pear"]`, ""},
	{"text, one value missing", "b,,a", `[1 -1 0] ["a" "b"]`, ""},
	{"truth values", "True,False,True", `[1 0 1] ["False" "True"]`, ""},
	{"fractions", "1,-7,0.5", "values [1 -7 0.5] in 1", ""},
	{"fractions, one value missing", "1.5,,-1", "values [1.5 NaN -1] in 1", ""},
	{"fractions behind what no class can be", "-3,1e9,0.25", "values [-3 1e+09 0.25] in 1", ""},
	{"whole numbers that are values", "3,-1,9", "values [3 -1 9] in 1", LabelsAsValues},
	{"names and numbers", "1,unknown,2", `[0 2 1] ["1" "2" "unknown"]`, LabelsAsClasses},
}

func TestLabelsBecomeClassesNamesOrValues(t *testing.T) {
	for _, c := range kindsOfLabels {
		cells := strings.Split(c.text, ",")
		text := fmt.Sprintf("id,label\n0,%s\n1,%s\n2,%s\n", cells[0], cells[1], cells[2])
		want := "0-1 1-2; " + c.want
		if !strings.HasPrefix(c.want, "values") {
			want = "0-1 1-2; labels " + c.want
		}
		for _, text := range []string{text, "id,label\n2," + cells[2] + "\n1," + cells[1] + "\n0," + cells[0] + "\n"} {
			said, notes, err := describe(t, layout{"edges": []byte("0 1\n1 2\n"), "nodes": []byte(text)}, "in/edges",
				TableOptions{NodeFiles: NodeFiles{Labels: "in/nodes", LabelsAs: c.as}})
			if err != nil || said != want {
				t.Errorf("%s: %s, want %s; %v", c.name, said, want, err)
			}
			if all := strings.Join(notes, "\n"); strings.HasPrefix(c.want, "values") != strings.Contains(all,
				"values to predict") || strings.Contains(c.want, `"`) != strings.Contains(all, "classes by name") {
				t.Errorf("%s: notes %q", c.name, notes)
			}
		}
	}
	nan := math.NaN()
	for name, c := range map[string]struct {
		files layout
		o     NPYOptions
		want  string
	}{
		"floats that are whole": {layout{"node_label.npy": array(npy.Float32,
			[]float32{0, 1, float32(nan), 2, 1}, 5)}, NPYOptions{}, "[0 1 -1 2 1]"},
		"fractions": {layout{"node_label.npy": array(npy.Float64, []float64{0.5, 1, nan, 2, -1},
			5)}, NPYOptions{}, "[0.5 1 NaN 2 -1] in 1"},
		"fractions in columns": {layout{"node_label.npy": fortran(array(npy.Float64,
			[]float64{0.5, 1, nan, 2, 3, 4, 5, 6, 7, 8}, 5, 2))}, NPYOptions{}, "[0.5 4 1 5 NaN 6 2 7 3 8] in 2"},
		"whole numbers as meta.json says": {layout{"node_label.npy": array(npy.Int8, []int8{0, 1, 2, 3, -1}, 5),
			"meta.json": []byte(`{"labels_as": "values"}`)}, NPYOptions{}, "[0 1 2 3 -1] in 1"},
		"whole numbers as the flag says": {layout{"node_label.npy": array(npy.Int8, []int8{0, 1, 2, 3, -1}, 5)},
			NPYOptions{LabelsAs: LabelsAsValues}, "[0 1 2 3 -1] in 1"},
		"classes whose names are known": {layout{"node_label.npy": array(npy.Int8, []int8{0, 1, 2, 1, -1}, 5),
			"meta.json": []byte(`{"class_names": ["a", "c", "b"]}`)}, NPYOptions{}, `[0 1 2 1 -1] ["a" "c" "b"]`},
		"columns of 0 and 1 that are some": {layout{"node_label.npy": array(npy.Float32,
			[]float32{0, 1, 1, 1, 0, 0, 1, 0, 1, 1}, 5, 2)}, NPYOptions{}, "[0 1 1 1 0 0 1 0 1 1] in 2"},
	} {
		disk := smallLayout()
		for name, data := range c.files {
			disk[name] = data
		}
		s, err := OpenNPY(disk.put(t), "in", c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := s.Rows(context.Background())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		said := fmt.Sprint(rows.Labels)
		if rows.LabelValues != nil {
			said = fmt.Sprint(rows.LabelValues, " in ", rows.LabelColumns)
		} else if rows.MultiLabels != nil {
			said = fmt.Sprint(rows.MultiLabels, " in ", rows.LabelColumns)
		}
		if names := s.Info().ClassNames; names != nil {
			said += fmt.Sprintf(" %q", names)
		}
		if said != c.want {
			t.Errorf("%s: %s, want %s", name, said, c.want)
		}
		s.Close()
	}
	for meta, says := range map[string]string{
		`{"class_names": ["a", "b"]}`:      "class_names has 2 names, but the greatest label is 2",
		`{"class_names": ["a", "a", "b"]}`: `"a" twice`,
		`{"labels_as": "colours"}`:         "labels_as",
	} {
		l := with(smallLayout(), "meta.json", []byte(meta))
		refused(t, meta, readSource(OpenNPY(l.put(t), "in", NPYOptions{})), "in/meta.json", says)
	}
}

func TestParquetTablesAreReadByTheNamesOfTheirColumns(t *testing.T) {
	edges := parquetFile(parquetColumn{"u", []int64{0, 1}}, parquetColumn{"v", []float64{1, 2}},
		parquetColumn{"ts", []int64{9, 9}})
	nodes := func(columns ...parquetColumn) layout {
		return layout{"edges.parquet": edges, "nodes.parquet": parquetFile(append([]parquetColumn{{"nodeid",
			[]float64{0, 1, 2}}}, columns...)...)}
	}
	f0, f1 := parquetColumn{"f0", []float64{1, 2, 3}}, parquetColumn{"f1", []int64{4, 5, 6}}
	masks := []parquetColumn{{"train_mask", []int64{1, 0, 0}}, {"val_mask", []any{nil, int64(1), nil}}}
	for _, c := range []struct {
		name  string
		files layout
		src   string
		o     TableOptions
		want  string
		note  string
	}{
		{"nodeid, class and train_mask are no features",
			nodes(append(masks, parquetColumn{"class", []int64{2, 0, 1}}, f0, f1)...), "in", TableOptions{},
			"labels [2 0 1]; splits [1 2 0] in 1; features [1 4 2 5 3 6]", "in/nodes.parquet: id = nodeid, label " +
				"= class, split = train_mask, val_mask, features = f0, f1"},
		{"text labels", nodes(parquetColumn{"category", []string{"b", "", "a"}}, f0), "in", TableOptions{},
			`labels [1 -1 0] ["a" "b"]; features [1 2 3]`, "2 classes by name"},
		{"values", nodes(parquetColumn{"y", []float64{0.5, math.NaN(), 2}}, f0), "in", TableOptions{},
			"values [0.5 NaN 2] in 1; features [1 2 3]", "values to predict"},
		{"labels in columns and lists of features", nodes(parquetColumn{"l0", []int64{0, 1, 0}}, parquetColumn{"l1",
			[]int64{1, 1, 0}}, parquetColumn{"x", [][]float32{{1}, {2}, {3}}}), "in",
			TableOptions{NodeFiles: NodeFiles{Columns: Columns{Label: []string{"l*"}}}}, "labels [0 1 1 1 0 0] in " +
				"2; features [1 2 3]", "label = l0, l1, features = x"},
		{"chosen columns", nodes(parquetColumn{"part", []string{"test", "train", "none"}}, f0, f1), "in",
			TableOptions{NodeFiles: NodeFiles{Columns: Columns{Split: []string{"part"}, Features: []string{"f1"}}}},
			"splits [3 1 0] in 1; features [4 5 6]", "split = part, features = f1; left out: f0"},
		{"a table of edges alone", layout{"e.parquet": edges}, "in/e.parquet", TableOptions{}, "",
			"in/e.parquet: source = u, destination = v; left out: ts"},
		{"Spark", layout{"edges/part-0.snappy.parquet": edges, "edges/part-1.snappy.parquet": edges,
			"edges/_SUCCESS": {}, "edges/.part-0.snappy.parquet.crc": {}}, "in/edges", TableOptions{}, "",
			"in/edges: source = u"},
		{"a table of nodes elsewhere", layout{"e.parquet": edges, "n.parquet": nodes(f0)["nodes.parquet"]},
			"in/e.parquet", TableOptions{NodeFiles: NodeFiles{Table: "in/n.parquet"}}, "features [1 2 3]",
			"in/n.parquet: id = nodeid, features = f0"},
	} {
		disk := c.files.put(t)
		s, err := OpenParquet(context.Background(), disk, c.src, ScratchOptions{Output: "out/graph"}, c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		r, err := Run(context.Background(), disk, s, "out/graph", Options{Threads: 1})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			s.Close()
			continue
		}
		d := openGraph(t, disk, "out/graph")
		rows, err := d.Rows(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		said := describeRows(rows, d.Manifest.ClassNames)
		if x := storedFeatures(t, d); slices.ContainsFunc(x, func(v float32) bool { return v != 1 }) {
			said += fmt.Sprintf("; features %v", x)
		}
		if said = strings.TrimPrefix(said, "; "); said != c.want ||
			!strings.Contains(strings.Join(r.Notes, "\n"), c.note) {
			t.Errorf("%s: %s, want %s; notes %q, want %q", c.name, said, c.want, r.Notes, c.note)
		}
		if got := strings.Join(weightedEdges(t, s)[:2], " "); got != "0-1 1-2" {
			t.Errorf("%s: edges %s", c.name, got)
		}
		s.Close()
	}
	movies := parquetFile(parquetColumn{"userId", []int64{1, 2}}, parquetColumn{"movieId", []int64{1, 1}},
		parquetColumn{"rating", []float64{4, 5}})
	if err := readSource(openParquet(layout{"edges.parquet": movies}.put(t),
		TableOptions{MapIDs: true})); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "--ids bipartite") {
		t.Errorf("users and movies: %v", err)
	}
	s, err := openParquet(layout{"edges.parquet": movies}.put(t), TableOptions{Bipartite: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if rows, err := s.Rows(context.Background()); err != nil ||
		!slices.Equal(rows.OrigID, []string{"userId:1", "movieId:1", "userId:2"}) {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestInputsWithoutNodesAreRefused(t *testing.T) {
	for name, open := range map[string]func() (Source, error){
		"arrays": func() (Source, error) {
			return OpenNPY(layout{"edge_index.npy": array(npy.Int64, []int64{}, 2, 0),
				"node_feat.npy": array(npy.Float32, []float32{}, 0, 4)}.put(t), "in", NPYOptions{})
		},
		"a table": func() (Source, error) {
			return openParquet(layout{"edges.parquet": parquetFile(parquetColumn{"u", []int64{}},
				parquetColumn{"v", []int64{}})}.put(t), TableOptions{})
		},
		"a matrix": func() (Source, error) {
			return OpenMTX(context.Background(),
				layout{"m": []byte("%%MatrixMarket matrix coordinate pattern general\n0 0 0\n")}.put(t), "in/m",
				ScratchOptions{Output: "out/graph"}, NodeFiles{})
		},
	} {
		s, err := open()
		if err == nil {
			_, err = Run(context.Background(), layout{}.put(t), s, "out/other", Options{})
			s.Close()
		}
		refused(t, name, err, "no nodes")
	}
	page := layout{"m": []byte("<!doctype html>")}.put(t)
	refused(t, "a web page in place of a matrix", readSource(OpenMTX(context.Background(), page, "in/m",
		ScratchOptions{Output: "out/graph"}, NodeFiles{})), "HTML page")
}
