package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// graph writes a small weighted graph with everything that one can have.
func graph(t *testing.T, disk vfs.FS, dir string, dt format.DType, multi, undirected bool) {
	t.Helper()
	w, err := format.Create(disk, dir, layoutOf(dt, format.RegionSize{Name: format.RegionAll, Rows: 5}),
		format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	csc := &format.CSC{Offsets: []int64{0, 1, 3, 3, 5, 6}, Neighbors: []uint32{1, 0, 4, 3, 3, 1},
		Weights: []float32{1, 1, 2, 0.5, 0.25, 2}}
	rows := &format.RowTable{
		Rows:      5,
		Labels:    []int32{0, 2, -1, 1, 1},
		Splits:    []uint8{1, 0, 1, 2, 0, 3, 2, 1, 3, 2},
		NumSplits: 2,
		OrigID:    []string{"a", "", "ä€", "long one", "e"},
	}
	m := &format.Manifest{Name: "tiny", Nodes: 5, Edges: 6, Weighted: true, Directed: !undirected, Labels: 1,
		Classes: 3, Splits: 2,
		Input: map[string]string{"source": "npy", "duplicates": "keep", "self_loops": "keep",
			"normalize_features": "false", "splits": "splits.npy[2]"}}
	if multi {
		rows.Labels, rows.MultiLabels, rows.LabelColumns = nil, []int8{0, 1, 1, 1, -1, -1, 0, 0, 1, 0}, 2
		m.Labels, m.Classes = 2, 0
	}
	publish(t, w, csc, rows, m, dt, format.Input)
}

func layoutOf(dt format.DType, regions ...format.RegionSize) format.Layout {
	return format.Layout{Regions: format.Regions(regions, 2), ChunkRows: 2, Features: 3, DType: dt}
}

// publish fills in features 0, 0.25, 0.5, ... by row, plus ten a matrix.
func publish(t *testing.T, w *format.Writer, csc *format.CSC, rows *format.RowTable, m *format.Manifest,
	dt format.DType, ids ...format.MatrixID) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if csc != nil {
		must(w.Topology(csc))
	}
	must(w.Rows(rows))
	for k, id := range ids {
		mw, err := w.Matrix(id)
		must(err)
		must(mw.Write(features(dt, k, int(rows.Rows))))
		must(mw.Close())
	}
	must(w.Publish(m))
}

func features(dt format.DType, matrix, rows int) []byte {
	values := make([]float32, 3*rows)
	for i := range values {
		values[i] = float32(i)/4 + 10*float32(matrix)
	}
	data := make([]byte, len(values)*dt.Size())
	dtype.Encode(data, values, dt)
	return data
}

func content(t *testing.T, disk vfs.FS, name string) []byte {
	t.Helper()
	data, err := vfs.ReadFile(disk, name, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func tree(t *testing.T, disk vfs.FS, dir string) (names []string) {
	t.Helper()
	entries, err := disk.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			for _, below := range tree(t, disk, path.Join(dir, e.Name())) {
				names = append(names, e.Name()+"/"+below)
			}
		} else {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestAnExportedGraphIsImportedAsTheSameBytes(t *testing.T) {
	for _, c := range []struct {
		dtype             format.DType
		multi, undirected bool
	}{{format.Float32, false, false}, {format.Float16, true, true}, {format.BFloat16, false, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			disk := vfs.NewMem()
			graph(t, disk, "graph", c.dtype, c.multi, c.undirected)
			r, err := NPY(context.Background(), disk, "graph", "out", Options{})
			if err != nil {
				t.Fatal(err)
			}
			total := int64(0)
			for _, name := range r.Files {
				total += int64(len(content(t, disk, "out/"+name)))
			}
			if got := tree(t, disk, "out"); len(got) != len(r.Files) || total != r.Bytes {
				t.Errorf("%v of %d bytes; the result says %+v", got, total, r)
			}
			s, err := ingest.OpenNPY(disk, "out", ingest.NPYOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := ingest.Run(context.Background(), disk, s, "again",
				ingest.Options{DType: c.dtype, Duplicates: ingest.KeepDuplicates}); err != nil {
				t.Fatal(err)
			}
			// Chunks have other sizes here, which manifest, index and the headers of
			// parts show; what they hold is compared.
			compareGraphs(t, disk, "graph", "again")
		})
	}
}

func TestGraphsOfNextToNothingAreExportedAndImported(t *testing.T) {
	for nodes := int64(0); nodes < 3; nodes++ {
		for edges := range nodes * nodes {
			disk := vfs.NewMem()
			w, err := format.Create(disk, "graph", layoutOf(format.Float32,
				format.RegionSize{Name: format.RegionAll, Rows: nodes}), format.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			csc := &format.CSC{Offsets: make([]int64, nodes+1)}
			for i := range edges {
				csc.Neighbors = append(csc.Neighbors, uint32(i%nodes))
				for v := i/nodes + 1; v <= nodes; v++ {
					csc.Offsets[v]++
				}
			}
			rows := &format.RowTable{Rows: nodes, Labels: make([]int32, nodes), OrigID: make([]string, nodes)}
			m := &format.Manifest{Name: "little", Nodes: nodes, Edges: edges, Directed: true, Labels: 1,
				Classes: int(min(1, nodes)), Input: map[string]string{}}
			publish(t, w, csc, rows, m, format.Float32, format.Input)
			w.Abort()
			if _, err := NPY(context.Background(), disk, "graph", "out", Options{}); err != nil {
				t.Fatal(err)
			}
			s, err := ingest.OpenNPY(disk, "out", ingest.NPYOptions{})
			if err != nil {
				t.Errorf("%d nodes, %d edges: %v", nodes, edges, err)
				continue
			}
			defer s.Close()
			if _, err := ingest.Run(context.Background(), disk, s, "again", ingest.Options{}); err != nil {
				t.Fatal(err)
			}
			compareGraphs(t, disk, "graph", "again")
		}
	}
}

func compareGraphs(t *testing.T, disk vfs.FS, a, b string) {
	t.Helper()
	ctx := context.Background()
	type whole struct {
		csc      *format.CSC
		rows     *format.RowTable
		features []byte
		m        format.Manifest
	}
	read := func(dir string) whole {
		d, err := format.OpenGraph(disk, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		csc, err := d.Topology(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { csc.Close() })
		rows, err := d.Rows(ctx)
		if err != nil {
			t.Fatal(err)
		}
		m, err := d.Matrix(format.Input)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var data []byte
		for k := range m.Chunks() {
			_, n := m.ChunkRowRange(k)
			chunk := make([]byte, n*d.Layout().Features*d.Layout().DType.Size())
			if err := m.ReadChunk(k, chunk); err != nil {
				t.Fatal(err)
			}
			data = append(data, chunk...)
		}
		return whole{csc, rows, data, d.Manifest}
	}
	x, y := read(a), read(b)
	if !slices.Equal(x.csc.Offsets, y.csc.Offsets) || !slices.Equal(x.csc.Neighbors, y.csc.Neighbors) ||
		!slices.Equal(x.csc.Weights, y.csc.Weights) {
		t.Errorf("topologies differ: %+v, %+v", x.csc, y.csc)
	}
	if !slices.Equal(x.rows.Labels, y.rows.Labels) || !slices.Equal(x.rows.MultiLabels, y.rows.MultiLabels) ||
		!slices.Equal(x.rows.Splits, y.rows.Splits) || !slices.Equal(x.rows.OrigID, y.rows.OrigID) {
		t.Errorf("row tables differ: %+v, %+v", x.rows, y.rows)
	}
	if !slices.Equal(x.features, y.features) {
		t.Error("features differ")
	}
	if x.m.Name != y.m.Name || x.m.Directed != y.m.Directed || x.m.Weighted != y.m.Weighted || x.m.DType != y.m.DType ||
		x.m.Splits != y.m.Splits {
		t.Errorf("manifests differ: %+v, %+v", x.m, y.m)
	}
}

func TestLabelsKeepTheirKindOnTheWayBack(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		rows  format.RowTable
		names []string
	}{
		"values":              {format.RowTable{LabelValues: []float32{0.5, nan, -1, 2, 3}, LabelColumns: 1}, nil},
		"values that are all": {format.RowTable{LabelValues: []float32{0, 1, -1, 2, nan}, LabelColumns: 1}, nil},
		"several values": {format.RowTable{LabelValues: []float32{0, 1, nan, 2, 3, 1, 1, 1, 0, nan},
			LabelColumns: 2}, nil},
		"named classes": {format.RowTable{Labels: []int32{0, 2, -1, 1, 1}}, []string{"a", "ä <b>", "c"}},
	} {
		disk := vfs.NewMem()
		w, err := format.Create(disk, "graph", layoutOf(format.Float32,
			format.RegionSize{Name: format.RegionAll, Rows: 5}), format.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		rows := c.rows
		rows.Rows = 5
		m := &format.Manifest{Name: "tiny", Nodes: 5, Edges: 1, Directed: true, Classes: len(c.names),
			ClassNames: c.names}
		publish(t, w, &format.CSC{Offsets: []int64{0, 1, 1, 1, 1, 1}, Neighbors: []uint32{1}}, &rows, m, format.Float32,
			format.Input)
		if _, err := NPY(context.Background(), disk, "graph", "arrays", Options{}); err != nil {
			t.Fatal(err)
		}
		s, err := ingest.OpenNPY(disk, "arrays", ingest.NPYOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := ingest.Run(context.Background(), disk, s, "again", ingest.Options{}); err != nil {
			t.Fatal(err)
		}
		d, err := format.OpenGraph(disk, "again")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		got, err := d.Rows(context.Background())
		if err != nil || fmt.Sprint(*got) != fmt.Sprint(rows) || !slices.Equal(d.Manifest.ClassNames, c.names) ||
			d.Manifest.LabelValues != (rows.LabelValues != nil) {
			t.Errorf("%s: %+v, %q, want %+v; %v", name, got, d.Manifest.ClassNames, rows, err)
		}
	}
}

func TestAStoreIsExportedMatrixByMatrix(t *testing.T) {
	disk := vfs.NewMem()
	regions := []format.RegionSize{{Name: format.RegionTrain, Rows: 3}, {Name: format.RegionValid, Rows: 1},
		{Name: format.RegionTest, Rows: 0}, {Name: format.RegionRest, Rows: 1}}
	w, err := format.Create(disk, "store", layoutOf(format.Float16, regions...), format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	train := []uint32{2, 0, 6}
	slices.SortFunc(train, func(a, b uint32) int {
		if format.TrainKey(9, a) < format.TrainKey(9, b) {
			return -1
		}
		return 1
	})
	rows := &format.RowTable{Rows: 5, NodeID: append(train, 3, 1), Labels: []int32{1, 0, 1, 0, -1},
		Splits: []uint8{1, 1, 1, 2, 0}, NumSplits: 1}
	publish(t, w, nil, rows, &format.Manifest{Nodes: 7, Edges: 9, Labels: 1, Classes: 2, Splits: 1, Seed: 9,
		RowSet:    "labeled",
		Operators: []format.Operator{{Name: "ppr:alpha=0.15", Hops: 1}}, Input: map[string]string{}}, format.Float16,
		format.Input, format.MatrixID{Operator: "ppr:alpha=0.15", Hop: 1})
	r, err := NPY(context.Background(), disk, "store", "out", Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"node_id.npy", "x_hop-0.npy", "ppr+alpha=0.15_hop-1.npy", "node_label.npy", "splits.npy",
		"meta.json"}
	if !slices.Equal(r.Files, want) {
		t.Errorf("%v, want %v", r.Files, want)
	}
	for k, name := range want[1:3] {
		header := npy.AppendHeader(nil, npy.Float16, 1, 5, 3)
		if got := content(t, disk, "out/"+name); string(got) != string(header)+string(features(format.Float16, k, 5)) {
			t.Errorf("%s is not what was stored", name)
		}
	}
	if got := content(t, disk, "out/node_id.npy"); string(got) != string(npy.AppendHeader(nil, npy.Uint32, 1,
		5))+string(dtype.BytesOf(rows.NodeID)) {
		t.Errorf("node ids: %q", got)
	}
	if got := string(content(t, disk, "out/meta.json")); !strings.Contains(got,
		`"first_row": 3`) || !strings.Contains(got, "ppr:alpha=0.15") {
		t.Error(got)
	}
}

func TestWhatIsThereIsReplacedByForceAndOnlyIfExported(t *testing.T) {
	disk := vfs.NewMem()
	graph(t, disk, "graph", format.Float32, false, false)
	export := func(force bool) error {
		_, err := NPY(context.Background(), disk, "graph", "out", Options{Force: force})
		return err
	}
	if err := export(false); err != nil {
		t.Fatal(err)
	}
	whole := tree(t, disk, "out")
	if err := export(false); !errors.Is(err, format.ErrExists) {
		t.Errorf("without force: %v", err)
	}
	put(t, disk, "out/old_hop-3.npy")
	if err := export(true); err != nil || !slices.Equal(tree(t, disk, "out"), whole) {
		t.Errorf("with force: %v, %v", err, tree(t, disk, "out"))
	}
	put(t, disk, "out/thesis.txt")
	if err := export(true); !errors.Is(err, format.ErrExists) || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("over a foreign file: %v", err)
	}
	if got := tree(t, disk, "out"); len(got) != len(whole)+1 {
		t.Errorf("the refusal has left %v", got)
	}
	// Somebody's own arrays have the names of an export, but not its mark.
	for _, name := range []string{"own/edge_index.npy", "own/meta.json"} {
		if err := disk.MkdirAll("own"); err != nil {
			t.Fatal(err)
		}
		put(t, disk, name)
		_, err := NPY(context.Background(), disk, "graph", "own", Options{Force: true})
		if _, missing := disk.Stat(name); !errors.Is(err, format.ErrExists) || missing != nil {
			t.Errorf("over %s: %v, %v", name, err, missing)
		}
	}
}

func TestWhatAnExportLeavesTheNextReplacesAndNoImportTakes(t *testing.T) {
	disk := vfs.NewMem()
	graph(t, disk, "graph", format.Float32, false, false)
	for _, dir := range []string{"whole", "old"} {
		if _, err := NPY(context.Background(), disk, "graph", dir, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	whole := tree(t, disk, "whole")
	for name, c := range map[string]struct {
		out    string
		killed bool // so that nothing is cleaned up
	}{
		"killed":              {"out", true},
		"failed":              {"out", false},
		"killed over another": {"old", true},
		"failed over another": {"old", false},
		"killed over another where names cannot be exchanged": {"old", true},
	} {
		absent, seen := 0, vfs.Disks{}
		exchange := !strings.Contains(name, "cannot")
		for n := int64(1); ; n++ {
			m := disk.CrashClone()
			if !exchange {
				m.NoExchange = true
			}
			faulty := vfs.NewFault(m)
			if c.killed {
				faulty.FailFrom(n, syscall.EIO)
			} else {
				faulty.FailAt(n, syscall.EIO)
			}
			_, err := NPY(context.Background(), faulty, "graph", c.out, Options{Force: c.out == "old"})
			if faulty.Operations() < n {
				if err != nil {
					t.Fatalf("%s: %v without a fault", name, err)
				}
				break
			}
			if c.killed {
				m = m.CrashClone()
			}
			left := tree(t, m, c.out)
			if err == nil && !slices.Equal(left, whole) {
				t.Errorf("%s at operation %d: exported, but %v is left", name, n, left)
			}
			if !seen.Add(m, 0) {
				continue
			}
			isWhole := slices.Contains(left, "meta.json")
			if files := slices.DeleteFunc(slices.Clone(left),
				func(name string) bool { return name == npy.LockName }); isWhole && !slices.Equal(files, whole) {
				t.Errorf("%s at operation %d: %v counts as whole", name, n, left)
			}
			if s, err := ingest.OpenNPY(m, c.out, ingest.NPYOptions{}); err == nil {
				s.Close()
				if !isWhole {
					t.Errorf("%s at operation %d: %v is imported", name, n, left)
				}
			}
			if len(left) > 0 && !isWhole {
				t.Errorf("%s at operation %d: %v is left", name, n, left)
			}
			if len(left) == 0 && c.out == "old" {
				absent++
				if _, err := NPY(context.Background(), m, "graph", "old", Options{}); !errors.Is(err,
					format.ErrExists) || !slices.Contains(tree(t, m, "old"), "meta.json") {
					t.Fatalf("%s at operation %d: not given back: %v", name, n, err)
				}
				isWhole = true
			}
			if _, err := NPY(context.Background(), m, "graph", c.out, Options{Force: isWhole}); err != nil ||
				!slices.Equal(tree(t, m, c.out), whole) {
				t.Fatalf("%s at operation %d: %v, then %v, %v", name, n, left, err, tree(t, m, c.out))
			}
			for _, suffix := range []string{".replacement", ".replaced"} {
				if _, err := m.Stat(c.out + suffix); !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("%s at operation %d: %s is left, %v", name, n, suffix, err)
				}
			}
		}
		if (absent > 0) == exchange && c.out == "old" {
			t.Errorf("%s: %d times nothing was left", name, absent)
		}
	}
}

func TestAnExportNeverReplacesTheFeaturesThatItReads(t *testing.T) {
	disk := vfs.NewMem()
	graph(t, disk, "graph", format.Float32, false, false)
	if _, err := NPY(context.Background(), disk, "graph", "arrays", Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := ingest.OpenNPY(disk, "arrays", ingest.NPYOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := ingest.Run(context.Background(), disk, s, "light",
		ingest.Options{FeaturesInPlace: true, Duplicates: ingest.KeepDuplicates}); err != nil {
		t.Fatal(err)
	}
	before := tree(t, disk, "arrays")
	if _, err := NPY(context.Background(), disk, "light", "arrays", Options{Force: true}); !errors.Is(err,
		format.ErrExists) || !slices.Equal(tree(t, disk, "arrays"), before) {
		t.Errorf("%v; left are %v", err, tree(t, disk, "arrays"))
	}
	if _, err := NPY(context.Background(), disk, "light", "others", Options{}); err != nil ||
		!slices.Equal(content(t, disk, "others/node_feat.npy"), content(t, disk, "arrays/node_feat.npy")) {
		t.Errorf("elsewhere: %v", err)
	}
}

// An empty folder may be a mount point, which can't be exchanged for another.
func TestAnEmptyFolderIsWrittenToInPlace(t *testing.T) {
	disk := vfs.NewMem()
	graph(t, disk, "graph", format.Float32, false, false)
	if err := disk.MkdirAll("out"); err != nil {
		t.Fatal(err)
	}
	put(t, disk, "out.replacement") // in the way of any other place
	if _, err := NPY(context.Background(), disk, "graph", "out", Options{}); err != nil {
		t.Fatal(err)
	}
	if files := tree(t, disk, "out"); !slices.Contains(files, "meta.json") || slices.Contains(files, npy.LockName) {
		t.Errorf("%v", files)
	}
}

func TestOnlyOneExportWritesADirectory(t *testing.T) {
	disk := vfs.NewMem()
	graph(t, disk, "graph", format.Float32, false, false)
	if err := disk.MkdirAll("out.replacement"); err != nil {
		t.Fatal(err)
	}
	lock, err := disk.Lock("out.replacement/" + npy.LockName)
	if err != nil {
		t.Fatal(err)
	}
	put(t, disk, "out.replacement/edge_index.npy")
	for _, force := range []bool{false, true} {
		if _, err := NPY(context.Background(), disk, "graph", "out", Options{Force: force}); !errors.Is(err,
			vfs.ErrLocked) || !strings.Contains(err.Error(), "another process is exporting to it") {
			t.Error(err)
		}
	}
	if got := tree(t, disk, "out.replacement"); !slices.Equal(got, []string{npy.LockName, "edge_index.npy"}) {
		t.Errorf("the refusal has left %v", got)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := disk.MkdirAll("out"); err != nil {
		t.Fatal(err)
	}
	put(t, disk, "out/meta.json") // somebody's own
	if _, err := NPY(context.Background(), disk, "graph", "out", Options{Force: true}); !errors.Is(err,
		format.ErrExists) {
		t.Errorf("over somebody's own meta.json: %v", err)
	}
}

func put(t *testing.T, disk vfs.FS, name string) {
	t.Helper()
	if err := vfs.WriteFile(disk, name, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAFaultLeavesNoExport(t *testing.T) {
	for n := int64(1); ; n++ {
		disk := vfs.NewMem()
		graph(t, disk, "graph", format.Float32, false, false)
		faulty := vfs.NewFault(disk)
		faulty.FailAt(n, syscall.EIO)
		// without direct reads, which may fail
		_, err := NPY(context.Background(), struct{ vfs.FS }{faulty}, "graph", "out", Options{})
		if faulty.Operations() < n {
			if err != nil || n < 20 {
				t.Fatalf("%d operations, %v", n-1, err)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("operation %d failed: %v", n, err)
		}
		if left := tree(t, disk, "out"); len(left) > 0 {
			t.Fatalf("operation %d failed and left %v", n, left)
		}
	}
}

func TestAnExportThatCannotBeIsRefused(t *testing.T) {
	disk := vfs.NewMem()
	graph(t, disk, "graph", format.Float32, false, false)
	if _, err := NPY(context.Background(), disk, "nothing", "out", Options{}); err == nil ||
		!strings.Contains(err.Error(), "nothing") {
		t.Error(err)
	}
	used := int64(0)
	for _, name := range tree(t, disk, "graph") {
		used += int64(len(content(t, disk, "graph/"+name)))
	}
	disk.SetCapacity(used + 100)
	if _, err := NPY(context.Background(), disk, "graph", "out", Options{}); !errors.Is(err, machine.ErrDoesNotFit) {
		t.Error(err)
	}
	if err := disk.RemoveAll("out"); err != nil {
		t.Fatal(err)
	}
	disk.SetCapacity(1 << 30)
	if _, err := NPY(context.Background(), disk, "graph", "out", Options{}); err != nil {
		t.Fatal(err)
	}
	arrays := int64(-len(content(t, disk, "out/meta.json")))
	for _, name := range tree(t, disk, "out") {
		arrays += int64(len(content(t, disk, "out/"+name)))
		if path.Ext(name) == ".npy" {
			arrays -= 128 // of header
		}
	}
	if err := disk.RemoveAll("out"); err != nil {
		t.Fatal(err)
	}
	disk.SetCapacity(used + arrays - 1)
	if _, err := NPY(context.Background(), disk, "graph", "out", Options{}); !errors.Is(err, machine.ErrDoesNotFit) {
		t.Errorf("a byte short of %d: %v", arrays, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	disk.SetCapacity(1 << 30)
	if _, err := NPY(ctx, disk, "graph", "out", Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := tree(t, disk, "out"); len(left) > 0 {
		t.Error(left)
	}
}
