package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

func gzipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.Bytes()
}

func zstandard(text string) []byte {
	z, _ := zstd.NewWriter(nil)
	return z.EncodeAll([]byte(text), nil)
}

// weightColumn are options that say where the weights are.
func weightColumn(column string) TableOptions {
	return TableOptions{NodeFiles: NodeFiles{Columns: Columns{Weight: column}}}
}

// ends are options that say where the ends of edges are.
func ends(source, destination string) TableOptions {
	return TableOptions{NodeFiles: NodeFiles{Columns: Columns{Source: source, Destination: destination}}}
}

func openCSV(disk vfs.FS, o TableOptions) (Source, error) {
	return OpenCSV(context.Background(), disk, "in/edges", ScratchOptions{Output: "out/graph"}, o)
}

// weightedEdges are all edges in order, with their weights.
func weightedEdges(t testing.TB, s Source) (out []string) {
	t.Helper()
	err := s.Edges(context.Background(), 1, func(e Edges) error {
		for i := range e.Src {
			edge := fmt.Sprintf("%d-%d", e.Src[i], e.Dst[i])
			if e.Weights != nil {
				edge += fmt.Sprintf(":%g", e.Weights[i])
			}
			out = append(out, edge)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEdgeListsReadInAnyArrangement(t *testing.T) {
	for _, c := range []struct {
		name  string
		text  string
		o     TableOptions
		want  string
		nodes int64
	}{
		{"commas", "0,1\n2,0\n", TableOptions{}, "0-1 2-0", 3},
		{"tabs", "0\t1\n2\t0\n", TableOptions{}, "0-1 2-0", 3},
		{"semicolons and spaces around", " 0 ; 1\n2; 0 \n", TableOptions{}, "0-1 2-0", 3},
		{"spaces and tabs mixed, as KONECT has them", "% asym unweighted\n1 2\n2 \t 3\n", TableOptions{}, "1-2 2-3", 4},
		{"comments of SNAP", " # Directed graph: x\n# FromNodeId\tToNodeId\n0\t1\n\n  # more\n2\t0", TableOptions{},
			"0-1 2-0", 3},
		{"Windows line ends and a byte order mark", "\xef\xbb\xbf0,1\r\n2,0\r\n", TableOptions{}, "0-1 2-0", 3},
		{"quotes", "\"0\",\"1\"\n\"2\" , 0\n", TableOptions{}, "0-1 2-0", 3},
		{"a header that only flags explain", "a,b\n0,1\n", ends("a", "b"), "0-1", 2},
		{"a header that turns them round", "Target,Source\n0,1\n", TableOptions{}, "1-0", 2},
		{"a header with a weight", "src,time,dst,weight\n0,77,1,0.5\n1,78,2,1e-3\n", TableOptions{},
			"0-1:0.5 1-2:0.001", 3},
		{"a header with other columns", "src,dst,time\n0,1,77\n", TableOptions{}, "0-1", 2},
		{"three columns", "0 1 2.5\n1 2 3\n", TableOptions{}, "0-1:2.5 1-2:3", 3},
		{"three columns, and the last is left out", "0 1 1082040961\n", weightColumn(None), "0-1", 2},
		{"four columns", "0 1 2.5 1082040961\n", TableOptions{}, "0-1", 2},
		{"four columns and a chosen one", "0 1 2.5 7\n", weightColumn("4"), "0-1:7", 2},
		{"more nodes than edges tell", "0 1\n", TableOptions{Nodes: 5}, "0-1", 5},
		{"no edges", "# nothing\n", TableOptions{Nodes: 2}, "", 2},
		{"mapped numbers", "9000000000 7\n7 9000000000\n7 18446744073709551616\n", TableOptions{MapIDs: true},
			"0-1 1-0 1-2", 3},
		{"mapped strings with spaces, by tabs", "New York\tBoston\nBoston\tRome\n", TableOptions{MapIDs: true},
			"0-1 1-2", 3},
		{"mapped strings under a header", "from,to\nx,y\ny,z\n", TableOptions{MapIDs: true}, "0-1 1-2", 3},
		{"mapped strings that look like a header", "from,to\nx,from\n", TableOptions{MapIDs: true, Header: "no"},
			"0-1 2-0", 3},
		{"mapped strings under a header that only the user knows", "a,b\nx,y\n",
			TableOptions{MapIDs: true, NodeFiles: ends("b", "a").NodeFiles}, "0-1", 2},
	} {
		for packed, data := range map[string][]byte{"": []byte(c.text), ", gz": gzipped(c.text),
			", zst": zstandard(c.text), ", two gz members": append(gzipped(c.text[:4]), gzipped(c.text[4:])...)} {
			s, err := openCSV(layout{"edges": data}.put(t), c.o)
			if err != nil {
				t.Errorf("%s%s: %v", c.name, packed, err)
				continue
			}
			if got := strings.Join(weightedEdges(t, s), " "); got != c.want || s.Info().Nodes != c.nodes ||
				s.Info().Weighted != strings.Contains(c.want, ":") {
				t.Errorf("%s%s: %d nodes, edges %s, want %s", c.name, packed, s.Info().Nodes, got, c.want)
			}
			s.Close()
		}
	}
}

func TestLinesSplitIntoFields(t *testing.T) {
	for _, c := range []struct {
		line string
		sep  byte
		want []string
	}{
		{"", ',', []string{""}},
		{"a,b,", ',', []string{"a", "b", ""}},
		{" a b ,  , c", ',', []string{"a b", "", "c"}},
		{`"a,b" , "c"`, ',', []string{"a,b", "c"}},
		{`"a ""b"", c",d`, ',', []string{`a "b", c`, "d"}},
		{`"","""",x`, ',', []string{"", `"`, "x"}},
		{`"a" b,"c`, ',', []string{`"a" b`, `"c`}},
		{`"a"";b`, ';', []string{`"a""`, "b"}},
		{"  a \t b  ", ' ', []string{"a", "b"}},
	} {
		var got []string
		for _, f := range split(nil, []byte(c.line), c.sep) {
			got = append(got, string(f))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	room := make([][]byte, 0, maxFields)
	for _, sep := range []byte(", ") {
		if n := len(split(room, bytes.Repeat([]byte{'0', sep}, maxFields+3), sep)); n != maxFields {
			t.Errorf("%q: %d fields", sep, n)
		}
	}
}

func TestWhatIsAssumedOfAnEdgeListIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"0 1 2\n": "in/edges: source = column 1, destination = column 2, weight = column 3 (by place, " +
			"as there is no header)",
		"0 1 2 3\n":          "; left out: column 3, column 4",
		"src,dst,time\n0 1":  "source = src, destination = dst; left out: time",
		"src,dst\n0,1\n1,0;": "no features",
	} {
		s, err := openCSV(layout{"edges": []byte(strings.ReplaceAll(strings.TrimSuffix(text, ";"), "\n0 1",
			"\n0,1,2"))}.put(t), TableOptions{})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if notes := strings.Join(s.Info().Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("%q: %q does not say %q", text, notes, want)
		}
		s.Close()
	}
}

func TestTheKoblenzCollectionTellsTheDirection(t *testing.T) {
	for text, want := range map[string]Direction{
		"% sym unweighted\n1 2\n":    Undirected,
		"% asym positive\n1 2\n":     Directed,
		"% 3 2 2\n1 2\n":             UnknownDirection,
		"# Undirected graph\n1 2\n":  UnknownDirection,
		"1 2\n% sym unweighted\n1 3": UnknownDirection,
	} {
		s, err := openCSV(layout{"edges": []byte(text)}.put(t), TableOptions{})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := s.Info().Direction; got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		s.Close()
	}
}

func TestManyEdgesComeBackFromScratchInOrder(t *testing.T) {
	const m = edgeBlock + 77
	r := rand.New(rand.NewPCG(1, 2))
	for _, weighted := range []bool{false, true} {
		var text []byte
		var want Edges
		for range m {
			src, dst, weight := r.Uint32N(1000), r.Uint32N(1000), r.Float32()
			want = Edges{append(want.Src, src), append(want.Dst, dst), append(want.Weights, weight)}
			text = strconv.AppendUint(append(strconv.AppendUint(text, uint64(src), 10), ' '), uint64(dst), 10)
			if weighted {
				text = strconv.AppendFloat(append(text, ' '), float64(weight), 'g', -1, 32)
			}
			text = append(text, '\n')
		}
		if !weighted {
			want.Weights = nil
		}
		disk := layout{"edges": gzipped(string(text))}.put(t)
		s, err := openCSV(disk, TableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var got Edges
			if err := s.Edges(context.Background(), 1, func(e Edges) error {
				got = Edges{append(got.Src, e.Src...), append(got.Dst, e.Dst...), append(got.Weights, e.Weights...)}
				return nil
			}); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("weighted %v: other edges, or %v", weighted, err)
			}
		}
		one, three := allEdges(t, s, 1), allEdges(t, s, 3)
		slices.SortFunc(one, compareEdges)
		slices.SortFunc(three, compareEdges)
		if len(one) != m || !slices.Equal(one, three) {
			t.Error("three threads read other edges")
		}
		s.Close()
		if left := files(t, disk, "out"); len(left) > 0 {
			t.Errorf("%d scratch files are left", len(left))
		}
	}
}

func TestIDsAreNumberedAsTheyAreFirstSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	m := newIDMap(0)
	want := map[string]uint32{}
	var order []string
	for range 20_000 {
		id := strings.Repeat("x", r.IntN(200)) + strconv.Itoa(r.IntN(3000))
		node, err := m.node([]byte(id), true)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := want[id]; !ok {
			want[id] = uint32(len(order))
			order = append(order, id)
		}
		if node != want[id] {
			t.Fatalf("%q is node %d, want %d", id, node, want[id])
		}
	}
	if !slices.Equal(m.strings(), order) {
		t.Error("other ids come back")
	}
	if _, err := m.node([]byte("nobody"), false); err == nil {
		t.Error("an id that is not there is found")
	}
	small := newIDMap(2 << 20)
	var err error
	for i := 0; err == nil && i < 1<<20; i++ {
		_, err = small.node(fmt.Appendf(nil, "%0100d", i), true)
	}
	if !errors.Is(err, machine.ErrDoesNotFit) || small.bytes() > 2<<20 {
		t.Errorf("%d bytes, %v", small.bytes(), err)
	}
}

// csvNodes are files for the nodes 0 to 3 of "0 1", "1 2", "3 0".
const csvEdges = "0 1\n1 2\n3 0\n"

func TestNodeFilesReadAsTextAndAsArrays(t *testing.T) {
	features := []float32{0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5}
	for _, c := range []struct {
		name                     string
		features, labels, splits []byte
		multi                    bool
		splitsWant               []uint8
	}{
		{"arrays", array(npy.Float32, features, 4, 2), array(npy.Int64, []int64{2, -1, 0, 1}, 4),
			array(npy.Int8, []int8{0, 1, 2, -1, -1, -1, 0, 1}, 2, 4), false, []uint8{1, 0, 2, 0, 3, 1, 0, 2}},
		{"text", []byte("0,0,0.5\n1,1,1.5\n2,2,2.5\n3,3,3.5\n"), []byte("0 2\n1 -1\n2 0\n3 1\n"),
			[]byte("0,train\n1,valid\n2,test\n"), false, []uint8{1, 2, 3, 0}},
		{"text in another order, under headers", gzipped("id,f0,f1\n3,3,3.5\n1,1,1.5\n2,2,2.5\n0,0,0.5\n"),
			zstandard("node\tlabel\n3\t1\n# none\n0\t2\n1\tnan\n2\t0\n"), []byte("2,2,0\n0,0,-1\n1,val,\n3,none,1\n"),
			false, []uint8{1, 0, 2, 0, 3, 1, 0, 2}},
		{"several labels", array(npy.Float64, []float64{0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5}, 4, 2),
			[]byte("0,0,1\n2,1,nan\n3,-1,0\n"), nil, true, nil},
	} {
		l := layout{"edges": []byte(csvEdges), "features": c.features, "labels": c.labels}
		o := TableOptions{NodeFiles: NodeFiles{Features: "in/features", Labels: "in/labels"}}
		if c.splits != nil {
			l["splits"], o.Splits = c.splits, "in/splits"
		}
		s, err := openCSV(l.put(t), o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := readFeatures(t, s, 1, 3); !slices.Equal(got, features) || s.Info().Nodes != 4 {
			t.Errorf("%s: features %v", c.name, got)
		}
		for range 2 {
			rows, err := s.Rows(context.Background())
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				break
			}
			if !c.multi && !slices.Equal(rows.Labels, []int32{2, -1, 0, 1}) || c.multi &&
				!slices.Equal(rows.MultiLabels, []int8{0, 1, -1, -1, 1, -1, -1, 0}) ||
				!slices.Equal(rows.Splits, c.splitsWant) {
				t.Errorf("%s: labels %v %v, splits %v", c.name, rows.Labels, rows.MultiLabels, rows.Splits)
			}
		}
		s.Close()
	}
}

func TestNodeFilesAreKeyedByTheIDsOfTheInput(t *testing.T) {
	lists := layout{"split/train.csv": []byte("c\n"), "split/valid.csv.gz": gzipped("a\nb\n"), "split/test.txt": {},
		"split/split_dict.pt": []byte("pickled")}
	l := layout{
		"edges":    []byte("b,a\na,c\n"),
		"features": []byte("id,x\nlonely,9\na,1\nb,2\nc,3\n"),
		"labels":   []byte("c,7\nlonely,8\n"),
	}
	for name, data := range lists {
		l[name] = data
	}
	s, err := openCSV(l.put(t), TableOptions{MapIDs: true, NodeFiles: NodeFiles{Features: "in/features",
		Labels: "in/labels", Splits: "in/split"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := readFeatures(t, s, 1, 4); !slices.Equal(got, []float32{2, 1, 3, 9}) {
		t.Error(got)
	}
	if !slices.Equal(rows.OrigID, []string{"b", "a", "c", "lonely"}) ||
		!slices.Equal(rows.Labels, []int32{-1, -1, 7, 8}) || !slices.Equal(rows.Splits, []uint8{2, 2, 1, 0}) {
		t.Errorf("%+v", rows)
	}

	// Rows of arrays have numbers, which are ids too.
	l = layout{
		"edges":    []byte("3 1\n1 4\n"),
		"features": array(npy.Float32, []float32{0, 1, 2, 3, 4}, 5, 1),
		"labels":   array(npy.Int8, []int8{0, 1, 2, 3, 4}, 5),
		"splits":   array(npy.Int8, []int8{-1, 0, -1, 1, 2}, 5),
	}
	s, err = openCSV(l.put(t), TableOptions{MapIDs: true, NodeFiles: NodeFiles{Features: "in/features",
		Labels: "in/labels", Splits: "in/splits"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if rows, err = s.Rows(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := readFeatures(t, s, 1, 2); !slices.Equal(got, []float32{3, 1, 4}) ||
		!slices.Equal(rows.Labels, []int32{3, 1, 4}) || !slices.Equal(rows.Splits, []uint8{2, 1, 3}) {
		t.Errorf("%v, %+v", got, rows)
	}
}

func TestBadTextIsRefusedNamingFileAndLine(t *testing.T) {
	damaged := gzipped(strings.Repeat("0 1\n", 100))
	damaged[len(damaged)-6] ^= 1
	for _, c := range []struct {
		name  string
		files layout
		o     TableOptions
		say   []string
	}{
		{"one field", layout{"edges": []byte("0 1\n5\n")}, TableOptions{}, []string{"in/edges: line 2", "1 fields"}},
		{"no field", layout{"edges": []byte("0,1\n,\n")}, TableOptions{}, []string{"in/edges: line 2", `id ""`}},
		{"a first line of one field", layout{"edges": []byte("#\n5\n")}, TableOptions{},
			[]string{"in/edges: line 2", "not an edge"}},
		{"a negative id", layout{"edges": []byte("0 1\n\n-1 0\n")}, TableOptions{},
			[]string{"in/edges: line 3", `"-1"`}},
		{"a name where numbers are", layout{"edges": []byte("0 1\n1 b\n")}, TableOptions{},
			[]string{"in/edges: line 2", `"b"`, "--ids map"}},
		{"a number in a first line", layout{"edges": []byte("0 b\n")}, TableOptions{},
			[]string{"in/edges: line 1", `"b"`}},
		{"a broken number in a first line", layout{"edges": []byte("0x1 1\n1 2\n")}, TableOptions{},
			[]string{"in/edges: line 1", `"0x1"`}},
		{"an id of 33 bits", layout{"edges": []byte("0 1\n4294967296 0\n")}, TableOptions{},
			[]string{"in/edges: line 2", "4294967296", "--ids map"}},
		{"an id of 65 bits", layout{"edges": []byte("18446744073709551616 0\n")}, TableOptions{},
			[]string{"in/edges: line 1"}},
		{"an id beyond the nodes", layout{"edges": []byte("0 1\n1 5\n")}, TableOptions{Nodes: 5},
			[]string{"in/edges: line 2", "no node 5", "5 nodes"}},
		{"an id beyond the features", layout{"edges": []byte("0 1\n1 5\n2 2\n"), "f": array(npy.Float32, make([]float32,
			5), 5, 1)}, TableOptions{NodeFiles: NodeFiles{Features: "in/f"}},
			[]string{"in/edges: line 2", "node 5 has no features", "in/f"}},
		{"features of other nodes", layout{"edges": []byte("0 1\n"), "f": array(npy.Float32, make([]float32, 5), 5, 1)},
			TableOptions{Nodes: 4, NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f", "5 nodes",
				"the graph has 4"}},
		{"a weight of NaN", layout{"edges": []byte("0 1 nan\n")}, weightColumn("3"),
			[]string{"in/edges: line 1", "weight"}},
		{"a negative weight", layout{"edges": []byte("0 1 1\n0 1 -1\n")}, weightColumn("3"),
			[]string{"in/edges: line 2", `"-1"`}},
		{"a weight beyond float32", layout{"edges": []byte("0 1 1e39\n")}, weightColumn("3"),
			[]string{"in/edges: line 1", `"1e39"`}},
		{"a weight short", layout{"edges": []byte("0 1 1\n0 1\n")}, weightColumn("3"),
			[]string{"in/edges: line 2", "2 fields"}},
		{"an empty mapped id", layout{"edges": []byte("a,b\n,c\n")}, TableOptions{MapIDs: true},
			[]string{"in/edges: line 2", "empty"}},
		{"a mapped id that is not UTF-8", layout{"edges": []byte("a,b\n\xff,c\n")}, TableOptions{MapIDs: true},
			[]string{"in/edges: line 2", "UTF-8"}},
		{"a mapped id with a zero", layout{"edges": []byte("a,b\nc\x00,c\n")}, TableOptions{MapIDs: true},
			[]string{"in/edges: line 2", `"c\x00"`}},
		{"an endless first line", layout{"edges": bytes.Repeat([]byte("b"), 5000)}, TableOptions{},
			[]string{"in/edges: line 1", strings.Repeat("b", 100) + `" is not an edge`}},
		{"an endless mapped id", layout{"edges": []byte("a," + strings.Repeat("b", 5000))}, TableOptions{MapIDs: true},
			[]string{"in/edges: line 1", "5000 bytes"}},
		{"a bipartite graph without weights", layout{"edges": []byte("% bip\n1 1\n")}, TableOptions{},
			[]string{"in/edges: line 1", "bipartite"}},
		{"a bipartite graph", layout{"edges": []byte("% bip unweighted\n1 1\n")}, TableOptions{},
			[]string{"in/edges: line 1", "bipartite"}},
		{"truncated gzip", layout{"edges": gzipped(strings.Repeat("0 1\n", 100))[:30]}, TableOptions{},
			[]string{"in/edges: after line", "decompression failed"}},
		{"damaged gzip", layout{"edges": damaged}, TableOptions{},
			[]string{"in/edges: after line", "decompression failed"}},
		{"truncated zstd", layout{"edges": zstandard("0 1\n1 2\n")[:12]}, TableOptions{},
			[]string{"in/edges: after line", "decompression failed"}},
		{"a hole in the features", layout{"edges": []byte(csvEdges), "f": []byte("0,1\n3,1\n1,1\n")},
			TableOptions{NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f", "no features of node 2"}},
		{"no features of an id", layout{"edges": []byte("a,b\n"), "f": []byte("a,1\n")},
			TableOptions{MapIDs: true, NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f",
				`no features of id "b"`}},
		{"features twice", layout{"edges": []byte("0 1\n"), "f": []byte("0,1\n1,1\n0,2\n")},
			TableOptions{NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f: line 3", "has a row already"}},
		{"a feature that is no number", layout{"edges": []byte("0 1\n"), "f": []byte("0,1,2\n1,1,x\n")},
			TableOptions{NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f: line 2", "column 3", `"x"`}},
		{"a first feature that is no number", layout{"edges": []byte("0 1\n"), "f": []byte("0,x\n1,1\n")},
			TableOptions{NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f: line 1", `"x"`}},
		{"a feature of an array that float32 does not hold",
			layout{"edges": []byte("1 2\n"), "f": fortran(array(npy.Float64, []float64{1e300, 0, 0, 0, 0, -1e300}, 3,
				2))}, TableOptions{MapIDs: true, NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f: row 2, " +
				"column 1: -1e+300 is not a finite float32"}},
		{"a feature short", layout{"edges": []byte("0 1\n"), "f": []byte("0,1,2\n1,1\n")},
			TableOptions{NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f: line 2", "2 fields"}},
		{"ids alone", layout{"edges": []byte("0 1\n"), "f": []byte("0\n1\n")},
			TableOptions{NodeFiles: NodeFiles{Features: "in/f"}}, []string{"in/f: line 1", "values"}},
		{"no rows", layout{"edges": []byte("0 1\n"), "f": {}}, TableOptions{NodeFiles: NodeFiles{Features: "in/f"}},
			[]string{"in/f", "no rows"}},
		{"half a label that is to be a class", layout{"edges": []byte("0 1\n"), "f": []byte("0,1\n1,0.5\n")},
			TableOptions{NodeFiles: NodeFiles{Labels: "in/f", LabelsAs: LabelsAsClasses}}, []string{"in/f: line 2",
				"0.5"}},
		{"a label of a word among numbers", layout{"edges": []byte("0 1\n"), "f": []byte("0,1\n1,dog\n")},
			TableOptions{NodeFiles: NodeFiles{Labels: "in/f"}}, []string{"in/f: line 2", `"dog"`,
				"--labels-as classes"}},
		{"a label of a word among values", layout{"edges": []byte("0 1\n1 2\n"), "f": []byte("0,1.5\n1,2\n2,dog\n")},
			TableOptions{NodeFiles: NodeFiles{Labels: "in/f"}}, []string{"in/f: line 3", `"dog"`}},
		{"a label of no node", layout{"edges": []byte("0 1\n"), "f": []byte("0,1\n2,1\n")},
			TableOptions{NodeFiles: NodeFiles{Labels: "in/f"}}, []string{"in/f: line 2", "no node 2"}},
		{"a label of no id", layout{"edges": []byte("a,b\n"), "f": []byte("a,1\nc,1\n")},
			TableOptions{MapIDs: true, NodeFiles: NodeFiles{Labels: "in/f"}}, []string{"in/f: line 2", `"c"`}},
		{"a label twice", layout{"edges": []byte("0 1\n"), "f": []byte("0,-1\n0,1\n")},
			TableOptions{NodeFiles: NodeFiles{Labels: "in/f"}}, []string{"in/f: line 2", "has a row already"}},
		{"labels of other nodes", layout{"edges": []byte("0 1\n"), "f": array(npy.Int8, make([]int8, 3), 3)},
			TableOptions{NodeFiles: NodeFiles{Labels: "in/f"}}, []string{"in/f", "numbers [2]"}},
		{"an unknown part", layout{"edges": []byte("0 1\n"), "f": []byte("0,train\n1,trial\n")},
			TableOptions{NodeFiles: NodeFiles{Splits: "in/f"}}, []string{"in/f: line 2", `"trial"`}},
		{"splits of other nodes", layout{"edges": []byte("0 1\n"), "f": array(npy.Int8, make([]int8, 3), 3)},
			TableOptions{NodeFiles: NodeFiles{Splits: "in/f"}}, []string{"in/f", "[k,2]"}},
		{"a list too few", layout{"edges": []byte("0 1\n"), "s/train.csv": {}, "s/test.csv": {}},
			TableOptions{NodeFiles: NodeFiles{Splits: "in/s"}}, []string{"in/s", "valid"}},
		{"list the same nodes", layout{"edges": []byte("0 1\n"), "s/valid.csv": {}, "s/val.csv": {}},
			TableOptions{NodeFiles: NodeFiles{Splits: "in/s"}}, []string{"in/s", "list the same nodes"}},
		{"a node in two lists", layout{"edges": []byte("0 1\n"), "s/train.csv": []byte("0\n1\n"), "s/valid.csv": {},
			"s/test.csv": []byte("\n1\n")}, TableOptions{NodeFiles: NodeFiles{Splits: "in/s"}},
			[]string{"in/s/test.csv: line 2", "node 1", "twice"}},
		{"a list with no node", layout{"edges": []byte("0 1\n"), "s/train.csv": []byte("7\n"), "s/valid.csv": {},
			"s/test.csv": {}}, TableOptions{NodeFiles: NodeFiles{Splits: "in/s"}},
			[]string{"in/s/train.csv: line 1", "no node 7"}},
	} {
		disk := c.files.put(t)
		refused(t, c.name, readSource(openCSV(disk, c.o)), c.say...)
		if len(files(t, disk, "out")) > 0 {
			t.Errorf("%s: files are left", c.name)
		}
	}
}

func TestOptionsAgainstAnEdgeListAreRefused(t *testing.T) {
	for name, o := range map[string]TableOptions{
		"weights that are destinations":  weightColumn("2"),
		"weights that are not there":     weightColumn("4"),
		"a header of a third kind":       {Header: "maybe"},
		"mapped ids and a node count":    {MapIDs: true, Nodes: 4},
		"more nodes than 32 bits number": {Nodes: 1 << 32},
		"a column before the first":      weightColumn("0"),
		"a column that is no number":     weightColumn("w"),
	} {
		if err := readSource(openCSV(layout{"edges": []byte("0 1 2\n")}.put(t), o)); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var packedEdges = gzipped("a b 1\nb c 2.5\nc a 0\n")

// csvDisk holds a graph whose import uses both kinds of scratch files.
func csvDisk(t testing.TB) *vfs.Mem {
	return layout{
		"edges":    packedEdges,
		"features": []byte("c 1 2\na 3 4\nb 5 6\n"),
		"labels":   []byte("a 1\nb 0\n"),
		"splits":   []byte("a 0\nb 2\n"),
	}.put(t)
}

func importCSV(fsys vfs.FS, force bool) error {
	s, err := OpenCSV(context.Background(), fsys, "in/edges", ScratchOptions{Output: "out/graph", Force: force},
		TableOptions{MapIDs: true, NodeFiles: NodeFiles{Features: "in/features", Labels: "in/labels",
			Splits: "in/splits"}})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = Run(context.Background(), fsys, s, "out/graph", Options{Threads: 1, Force: force})
	return err
}

func TestABitThatFlipsInScratchFilesOfATextIsAnError(t *testing.T) {
	everyFlip(t, 1, func(fsys vfs.FS) error { return importCSV(fsys, false) }, func() vfs.FS { return csvDisk(t) })
}

func TestAnEdgeListBecomesAGraph(t *testing.T) {
	disk := csvDisk(t)
	if err := importCSV(disk, false); err != nil {
		t.Fatal(err)
	}
	d := openGraph(t, disk, "out/graph")
	rows, err := d.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	csc, err := d.Topology(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer csc.Close()
	if !slices.Equal(rows.OrigID, []string{"a", "b", "c"}) || !slices.Equal(rows.Labels, []int32{1, 0, -1}) ||
		!slices.Equal(csc.Neighbors, []uint32{2, 0, 1}) || !slices.Equal(csc.Weights, []float32{0, 1, 2.5}) {
		t.Errorf("%+v, %v, %v", rows, csc.Neighbors, csc.Weights)
	}
	if got := storedFeatures(t, d); !slices.Equal(got, []float32{3, 4, 5, 6, 1, 2}) {
		t.Error(got)
	}
	if err := importCSV(disk, false); !errors.Is(err, format.ErrExists) {
		t.Error(err)
	}
	if _, err := disk.Stat("out/graph.scratch"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("scratch: %v", err)
	}
}

func TestNoFaultLeavesWhatDisturbsTheNextImport(t *testing.T) {
	disk := csvDisk(t)
	if err := importCSV(disk, false); err != nil {
		t.Fatal(err)
	}
	want := files(t, disk, "out")
	for n := int64(1); ; n++ {
		fault := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[n%2]
		disk := csvDisk(t)
		faulty := vfs.NewFault(disk)
		faulty.FailAt(n, fault)
		err := importCSV(faulty, false)
		if err == nil && faulty.Operations() < n {
			return
		}
		if err != nil && !errors.Is(err, fault) || errors.Is(err, ErrInvalid) {
			t.Fatalf("operation %d failed with %v, the import with %v", n, fault, err)
		}
		if err := importCSV(disk, true); err != nil {
			t.Fatalf("after a fault at operation %d: %v", n, err)
		}
		sameFiles(t, "after a fault", files(t, disk, "out"), want)
	}
}

func TestTwoImportsOfOneGraphDoNotMeet(t *testing.T) {
	disk := csvDisk(t)
	s, err := openCSV(disk, TableOptions{MapIDs: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openCSV(disk, TableOptions{MapIDs: true}); !errors.Is(err, vfs.ErrLocked) {
		t.Error(err)
	}
	if got := weightedEdges(t, s); len(got) != 3 {
		t.Error(got)
	}
	s.Close()
	if err := importCSV(disk, false); err != nil {
		t.Error(err)
	}
}

func TestAnImportOfTextCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	disk := csvDisk(t)
	if _, err := OpenCSV(ctx, disk, "in/edges", ScratchOptions{Output: "out/graph"},
		TableOptions{MapIDs: true}); !errors.Is(err, context.Canceled) || len(files(t, disk, "out")) > 0 {
		t.Error(err)
	}
}

func FuzzEdgeList(f *testing.F) {
	for _, text := range []string{"0 1\n1 2\n", "src,dst,weight\n0,1,2\n", ",u,v\n0,1,2\n", ":START_ID,:END_ID\n0,1\n",
		"\xef\xbb\xbfSource\tTarget\r\n", "% sym\n1 2 3 4\n", "\"a\",\"b\"\n", "a\tb c\n"} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Add(gzipped("0 1\n"), false)
	f.Add(zstandard("0 1\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, mapped bool) {
		s, err := openCSV(layout{"edges": data}.put(t), TableOptions{MapIDs: mapped})
		if err == nil {
			defer s.Close()
			err = s.Edges(context.Background(), 1, func(Edges) error { return nil })
		}
		if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrOptions) {
			t.Errorf("%v is neither ErrInvalid nor ErrOptions", err)
		}
	})
}

func FuzzNodeTable(f *testing.F) {
	for _, text := range []string{"0,1\n1,2\n", "id\tx\ty\n1 2 3\n", "0;\"1\"\n", "1,train\n0,nan", "# x\n0 1e99\n",
		"node_id,label,train_mask,feat\n0,cat,True,\"1,2\"\n", ",y,f0\n0,1.5,2\n", "0,\" \"", "0,0 0 2"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, files := range []NodeFiles{{Features: "in/f"}, {Labels: "in/f"}, {Splits: "in/f"}, {Table: "in/f"},
			{Features: "in/f", Labels: "in/f"}} {
			s, err := openCSV(layout{"edges": []byte("0 1\n"), "f": data}.put(t),
				TableOptions{Nodes: 2, NodeFiles: files})
			if err == nil && s.Info().Nodes*int64(s.Info().Features) < 1<<20 {
				err = readSource(s, nil)
			} else if err == nil {
				s.Close()
			}
			if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrOptions) {
				t.Errorf("%v is neither ErrInvalid nor ErrOptions", err)
			}
		}
	})
}

func TestColumnsOfNodesInAnyOrderDeclareTheirMemory(t *testing.T) {
	disk := layout{"edges": []byte("0,1\n1,2\n"), "nodes": []byte("id,f,age\n2,1,7\n0,1,8\n1,1,9\n")}.put(t)
	o := TableOptions{NodeFiles: NodeFiles{Table: "in/nodes", Columns: Columns{Node: []string{"age:int64"}}}}
	for _, most := range []int64{3 * 8, 3*8 - 1} {
		s, err := OpenCSV(context.Background(), disk, "in/edges", ScratchOptions{Output: "out/graph", MemoryBytes: most}, o)
		if most < 3*8 {
			if !errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(), "in/nodes") {
				t.Errorf("a byte too little: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if held := s.Info().HeldBytes; held != 3*8 {
			t.Errorf("%d bytes are held", held)
		}
		s.Close()
	}
	if left := files(t, disk, "out"); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
