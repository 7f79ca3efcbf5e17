package format

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// sample is what a directory is made of.
type sample struct {
	name     string
	layout   Layout
	manifest Manifest
	topology *CSC
	rows     *RowTable
	matrices map[MatrixID][]byte
	parts    int64 // partBytes; 0: as it is
}

func noise(rng *rand.Rand, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// columns says what a made-up row table has.
type columns struct {
	labels, splits int
	origID         bool
}

func (c columns) fill(rng *rand.Rand, t *RowTable, classes int) {
	t.NumSplits = c.splits
	if c.splits > 0 {
		t.Splits = make([]uint8, t.Rows*int64(c.splits))
	}
	for i := range t.Splits {
		t.Splits[i] = uint8(rng.IntN(4))
	}
	if c.labels == 1 {
		t.Labels = make([]int32, t.Rows)
		for i := range t.Labels {
			t.Labels[i] = int32(rng.IntN(classes+1)) - 1
		}
	} else if c.labels > 1 {
		t.LabelColumns, t.MultiLabels = c.labels, make([]int8, t.Rows*int64(c.labels))
		for i := range t.MultiLabels {
			t.MultiLabels[i] = int8(rng.IntN(3)) - 1
		}
	}
	if c.labels < 0 {
		t.LabelColumns, t.LabelValues = -c.labels, make([]float32, t.Rows*int64(-c.labels))
		for i := range t.LabelValues {
			t.LabelValues[i] = rng.Float32() - 0.5
		}
	}
	if c.origID {
		t.OrigID = make([]string, t.Rows)
		for i := range t.OrigID {
			t.OrigID[i] = fmt.Sprintf("%.*s", rng.IntN(9), fmt.Sprint("näme-", i))
		}
	}
}

// classes is how many a manifest says that there are.
func (c columns) classes() int {
	if c.labels < 0 {
		return 0
	}
	return 5
}

func makeGraph(name string, nodes int64, features, chunkRows int, t DType, weighted bool, c columns) sample {
	rng := rand.New(rand.NewPCG(uint64(nodes), uint64(features)))
	s := sample{name: name, matrices: map[MatrixID][]byte{}}
	s.layout = Layout{Regions: Regions([]RegionSize{{RegionAll, nodes}}, chunkRows), ChunkRows: chunkRows,
		Features: features, DType: t}
	s.topology = &CSC{Offsets: make([]int64, 1, nodes+1), Neighbors: []uint32{}}
	for range nodes {
		list := make([]uint32, rng.IntN(6))
		for i := range list {
			list[i] = uint32(rng.Int64N(nodes))
		}
		slices.Sort(list)
		s.topology.Neighbors = append(s.topology.Neighbors, list...)
		s.topology.Offsets = append(s.topology.Offsets, int64(len(s.topology.Neighbors)))
	}
	if weighted {
		s.topology.Weights = make([]float32, s.topology.Edges())
		for i := range s.topology.Weights {
			s.topology.Weights[i] = rng.Float32()
		}
	}
	s.rows = &RowTable{Rows: nodes}
	c.fill(rng, s.rows, 5)
	if features > 0 {
		s.matrices[Input] = noise(rng, nodes*s.layout.rowBytes())
	}
	s.manifest = Manifest{Name: name, Directed: true, Classes: c.classes(),
		Input: map[string]string{"importer": "test", "a": "<b> & \"c\""}}
	return s
}

func makeStore(name string, sizes [4]int64, features, chunkRows int, t DType, c columns, operators ...Operator) sample {
	rng := rand.New(rand.NewPCG(uint64(features), uint64(chunkRows)))
	s := sample{name: name, matrices: map[MatrixID][]byte{}}
	regions := []RegionSize{{RegionTrain, sizes[0]}, {RegionValid, sizes[1]}, {RegionTest, sizes[2]},
		{RegionRest, sizes[3]}}
	s.layout = Layout{Regions: Regions(regions, chunkRows), ChunkRows: chunkRows, Features: features, DType: t}
	rows := s.layout.rows()
	s.manifest = Manifest{Name: name, Nodes: 2*rows + 1, Edges: 12345, Classes: c.classes(), Operators: operators,
		RowSet: RowsLabeled, Seed: 77, Split: max(0, c.splits-1)}
	s.rows = &RowTable{Rows: rows}
	c.fill(rng, s.rows, 5)
	nodes := rng.Perm(int(s.manifest.Nodes))
	for i, r := range s.layout.Regions {
		for range r.Rows {
			if c.splits > 0 {
				s.rows.Splits[len(s.rows.NodeID)*c.splits+s.manifest.Split] = []uint8{SplitTrain, SplitValid, SplitTest,
					SplitNone}[i]
			}
			s.rows.NodeID = append(s.rows.NodeID, uint32(nodes[0]))
			nodes = nodes[1:]
		}
		ids := s.rows.NodeID[r.FirstRow : r.FirstRow+r.Rows]
		slices.SortFunc(ids, func(a, b uint32) int {
			if ka, kb := TrainKey(77, a), TrainKey(77, b); i == 0 && ka != kb {
				if ka < kb {
					return -1
				}
				return 1
			}
			return int(int64(a) - int64(b))
		})
	}
	if s.rows.NodeID == nil {
		s.rows.NodeID = []uint32{}
	}
	if features > 0 {
		s.matrices[Input] = noise(rng, rows*s.layout.rowBytes())
		for _, o := range operators {
			for r := 1; r <= o.Hops; r++ {
				s.matrices[MatrixID{o.Name, r}] = noise(rng, rows*s.layout.rowBytes())
			}
		}
	}
	return s
}

// samples are directories of every type and of odd shapes.
func samples() []sample {
	sym := []Operator{{Name: "sym", Hops: 2}, {Name: "ppr:alpha=0.15", Hops: 1}}
	small := func(s sample) sample { s.parts = 48 << 10; return s }
	return []sample{
		makeGraph("a graph", 50, 7, 16, Float32, false, columns{1, 2, false}),
		makeGraph("a weighted graph with names", 33, 3, 11, Float16, true, columns{1, 1, true}),
		makeGraph("a graph of bfloat16 with many labels", 20, 5, 20, BFloat16, false, columns{4, 3, false}),
		makeGraph("a graph with values to predict", 21, 3, 4, Float32, false, columns{-1, 1, false}),
		makeStore("a store with several values to predict", [4]int64{9, 2, 3, 4}, 3, 4, Float32, columns{-3, 1, true},
			sym...),
		makeGraph("a graph without labels", 9, 2, 100, Float32, false, columns{}),
		makeGraph("a graph without features", 12, 0, 5, Float32, true, columns{1, 0, false}),
		makeGraph("a graph of one node", 1, 1, 1, Float32, true, columns{1, 1, true}),
		makeGraph("a graph of no nodes", 0, 4, 10, Float32, true, columns{1, 1, true}),
		small(makeGraph("a graph of several parts", 100, 700, 7, Float32, true, columns{1, 1, true})),
		makeStore("a store", [4]int64{20, 10, 15, 5}, 6, 8, Float32, columns{1, 2, false}, sym...),
		makeStore("a store of float16 with names", [4]int64{20, 10, 15, 5}, 6, 8, Float16, columns{1, 1, true}, sym...),
		makeStore("a store without test and rest", [4]int64{17, 1, 0, 0}, 3, 16, Float32, columns{3, 1, false}, sym...),
		makeStore("a store without train", [4]int64{0, 0, 1, 30}, 3, 16, BFloat16, columns{1, 0, false}, sym...),
		makeStore("a store of no rows", [4]int64{}, 3, 16, Float32, columns{1, 1, false}, sym...),
		makeStore("a store without operators", [4]int64{3, 3, 3, 3}, 3, 1, Float32, columns{}),
		small(makeStore("a store of several parts", [4]int64{60, 20, 11, 1}, 600, 9, Float16, columns{1, 1, true},
			sym...)),
	}
}

// write makes the directory, matrices in uneven pieces of rows.
func (s *sample) write(fsys vfs.FS, dir string, o CreateOptions) (*Manifest, error) {
	if s.parts != 0 {
		before := partBytes
		partBytes = s.parts
		defer func() { partBytes = before }()
	}
	w, err := Create(fsys, dir, s.layout, o)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	return s.finish(w)
}

// finish writes what the directory lacks, and publishes it.
func (s *sample) finish(w *Writer) (*Manifest, error) {
	if s.topology != nil {
		if err := w.Topology(s.topology); err != nil {
			return nil, err
		}
	}
	for id, data := range s.matrices {
		if w.Finished(id) {
			continue
		}
		m, err := w.Matrix(id)
		if err != nil {
			return nil, err
		}
		rowBytes := int(s.layout.rowBytes())
		for step := 1; len(data) > 0; step = 2*step + 1 {
			n := min(step*rowBytes, len(data))
			if err := m.Write(data[:n]); err != nil {
				return nil, err
			}
			data = data[n:]
		}
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	if err := w.Rows(s.rows); err != nil {
		return nil, err
	}
	m := s.manifest
	return &m, w.Publish(&m)
}

// mustWrite makes the directory on a disk of its own.
func (s *sample) mustWrite(t testing.TB) (*vfs.Mem, string) {
	t.Helper()
	fsys := vfs.NewMem()
	if _, err := s.write(fsys, "/d", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return fsys, "/d"
}

// compare reads everything back.
func (s *sample) compare(t testing.TB, fsys vfs.FS, dir string) {
	t.Helper()
	ctx := context.Background()
	d, err := OpenAny(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d.Layout(), s.layout) {
		t.Errorf("layout %+v, want %+v", d.Layout(), s.layout)
	}
	if s.topology != nil {
		c, err := d.Topology(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Offsets, s.topology.Offsets) || !slices.Equal(c.Neighbors, s.topology.Neighbors) ||
			!slices.Equal(c.Weights, s.topology.Weights) ||
			(c.Weights == nil) != (s.topology.Weights == nil) {
			t.Error("the topology differs")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	rows, err := d.Rows(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rows, s.rows) {
		t.Errorf("rows %+v, want %+v", rows, s.rows)
	}
	visited := d.Manifest.NewRowTable(0)
	err = d.VisitRows(ctx, func(part *RowTable, first int64) {
		if first != visited.Rows {
			t.Errorf("rows from %d on after %d", first, visited.Rows)
		}
		visited.Rows += part.Rows
		visited.NodeID, visited.Labels = append(visited.NodeID, part.NodeID...), append(visited.Labels, part.Labels...)
		visited.MultiLabels, visited.LabelValues = append(visited.MultiLabels, part.MultiLabels...),
			append(visited.LabelValues, part.LabelValues...)
		visited.Splits, visited.OrigID = append(visited.Splits, part.Splits...), append(visited.OrigID, part.OrigID...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(visited, s.rows) {
		t.Errorf("rows visited %+v, want %+v", visited, s.rows)
	}
	for _, r := range s.layout.Regions {
		got := make([]int32, r.Rows)
		err := d.ReadLabels(ctx, r, got)
		if s.rows.MultiLabels == nil {
			err := d.ReadColumns(ctx, r, &RowTable{MultiLabels: []int8{}})
			if err == nil || !strings.Contains(err.Error(), "not multi-label") {
				t.Errorf("several labels of %s: %v", r.Name, err)
			}
		}
		if s.rows.LabelValues == nil {
			err := d.ReadColumns(ctx, r, &RowTable{LabelValues: []float32{}})
			if err == nil || !strings.Contains(err.Error(), "not values") {
				t.Errorf("values of %s: %v", r.Name, err)
			}
		}
		switch {
		case s.rows.MultiLabels != nil:
			if err == nil || !strings.Contains(err.Error(), "multi-label") {
				t.Errorf("labels of %s: %v", r.Name, err)
			}
			n := int64(s.rows.LabelColumns)
			several := make([]int8, r.Rows*n)
			if err := d.ReadColumns(ctx, r, &RowTable{MultiLabels: several, LabelColumns: int(n)}); err != nil ||
				!slices.Equal(several, s.rows.MultiLabels[r.FirstRow*n:(r.FirstRow+r.Rows)*n]) {
				t.Errorf("labels of %s: %v, %v", r.Name, several, err)
			}
		case s.rows.LabelValues != nil:
			if err == nil || !strings.Contains(err.Error(), "values, not classes") {
				t.Errorf("labels of %s: %v", r.Name, err)
			}
			n := int64(s.rows.LabelColumns)
			values, want := make([]float32, r.Rows*n), s.rows.LabelValues[r.FirstRow*n:(r.FirstRow+r.Rows)*n]
			if err := d.ReadColumns(ctx, r, &RowTable{LabelValues: values, LabelColumns: int(n)}); err != nil ||
				!bytes.Equal(dtype.BytesOf(values), dtype.BytesOf(want)) {
				t.Errorf("labels of %s: %v, %v, want %v", r.Name, values, err, want)
			}
		case err != nil:
			t.Fatal(err)
		case s.rows.Labels != nil:
			if !slices.Equal(got, s.rows.Labels[r.FirstRow:r.FirstRow+r.Rows]) {
				t.Errorf("labels of %s: %v", r.Name, got)
			}
		case slices.ContainsFunc(got, func(v int32) bool { return v != -1 }):
			t.Errorf("labels of %s, which has none: %v", r.Name, got)
		}
	}
	if len(d.Matrices()) != len(s.matrices) {
		t.Errorf("matrices %v, want %d", d.Matrices(), len(s.matrices))
	}
	for _, id := range d.Matrices() {
		m, err := d.Matrix(id)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for k := range m.Chunks() {
			first, n := m.ChunkRowRange(k)
			if first*s.layout.rowBytes() != int64(len(got)) {
				t.Fatalf("%s: chunk %d starts at row %d", id, k, first)
			}
			e := m.Extent(k)
			dst := make([]byte, e.Length)
			if e.Offset%4096 != 0 && !filepath.IsAbs(e.File) || e.Length != int64(n)*s.layout.rowBytes() {
				t.Fatalf("%s: chunk %d is at %+v", id, k, e)
			}
			if err := m.ReadChunk(k, dst); err != nil {
				t.Fatal(err)
			}
			if err := m.CheckChunk(k, dst); err != nil {
				t.Fatal(err)
			}
			got = append(got, dst...)
		}
		if !bytes.Equal(got, s.matrices[id]) {
			t.Errorf("%s differs", id)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func verify(t testing.TB, fsys vfs.FS, dir string) *VerifyReport {
	t.Helper()
	r, err := Verify(context.Background(), fsys, dir, 2, progress.Silent)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			fsys, dir := s.mustWrite(t)
			s.compare(t, fsys, dir)
			if r := verify(t, fsys, dir); len(r.Bad) > 0 {
				t.Errorf("found damaged: %v", r.Bad)
			}
		})
	}
}

func TestATopologyOfSeveralExtentsIsReadAndChecked(t *testing.T) {
	const nodes, degree = 3000, 3000 // 34 MiB
	s := makeGraph("large", 0, 0, 10, Float32, false, columns{})
	s.layout.Regions = Regions([]RegionSize{{RegionAll, nodes}}, 10)
	s.rows.Rows = nodes
	for range nodes {
		for u := range uint32(degree) {
			s.topology.Neighbors = append(s.topology.Neighbors, u)
		}
		s.topology.Offsets = append(s.topology.Offsets, int64(len(s.topology.Neighbors)))
	}
	fsys, dir := s.mustWrite(t)
	s.compare(t, fsys, dir)
	path := dir + PartPath("/topology", 0)
	for _, at := range []int64{8192, 20 << 20, 34 << 20} {
		bad := &damaged{FS: fsys, path: path, flip: at, length: -1}
		if r := verify(t, bad, dir); len(r.Bad) != 1 || r.Bad[0].File != path || r.Bad[0].Chunk != 0 {
			t.Errorf("byte %d: found %v", at, r.Bad)
		}
		d, err := OpenGraph(bad, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Topology(context.Background(), 2); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}

func TestOperatingSystemFilesAreReadBack(t *testing.T) {
	for _, s := range tiny() {
		dir := t.TempDir() + "/out/d"
		if _, err := s.write(vfs.OS(), dir, CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.compare(t, vfs.OS(), dir)
		if r := verify(t, vfs.OS(), dir); len(r.Bad) > 0 {
			t.Errorf("%s: found damaged: %v", s.name, r.Bad)
		}
	}
}

func TestNoChunkIsLongerThanTheLongestRegion(t *testing.T) {
	for _, c := range []struct {
		name            string
		sizes           []int64
		requested, want int
	}{
		{"the default of a large graph", []int64{5000}, 0, 1000},
		{"the default of a small graph", []int64{60}, 0, 60},
		{"more than there are", []int64{60}, 1_000_000, 60},
		{"as many as the longest region has", []int64{5, 70, 0, 60}, 1000, 70},
		{"fewer", []int64{5, 70, 0, 60}, 8, 8},
		{"no rows at all", []int64{0}, 0, 1},
	} {
		var sizes []RegionSize
		for i, rows := range c.sizes {
			sizes = append(sizes, RegionSize{[]string{RegionTrain, RegionValid, RegionTest, RegionRest}[i], rows})
		}
		if len(sizes) == 1 {
			sizes[0].Name = RegionAll
		}
		l := NewLayout(sizes, c.requested, 4, Float32)
		if _, err := l.check(); l.ChunkRows != c.want || err != nil {
			t.Errorf("%s: %d rows a chunk, want %d (%v)", c.name, l.ChunkRows, c.want, err)
		}
	}
}
