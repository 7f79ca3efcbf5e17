package ingest

import (
	"context"
	"errors"
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
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// run imports a layout into a graph on its disk.
func run(t *testing.T, l layout, o Options) (*vfs.Mem, *Result, error) {
	t.Helper()
	disk := l.put(t)
	s, err := OpenNPY(disk, "in", NPYOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := Run(context.Background(), disk, s, "out/graph", o)
	return disk, r, err
}

func openGraph(t *testing.T, disk vfs.FS, dir string) *format.Dir {
	t.Helper()
	report, err := format.Verify(context.Background(), disk, dir, 1, progress.Silent)
	if err != nil || len(report.Bad) > 0 {
		t.Fatalf("the graph does not verify: %v, %v", report, err)
	}
	d, err := format.OpenGraph(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func storedFeatures(t *testing.T, d *format.Dir) []float32 {
	t.Helper()
	m, err := d.Matrix(format.Input)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	l := d.Layout()
	var out []float32
	for k := range m.Chunks() {
		_, rows := m.ChunkRowRange(k)
		data, values := make([]byte, rows*l.Features*l.DType.Size()), make([]float32, rows*l.Features)
		if err := m.ReadChunk(k, data); err != nil {
			t.Fatal(err)
		}
		dtype.Decode(values, data, l.DType)
		out = append(out, values...)
	}
	return out
}

// files is every file of a tree, with its content.
func files(t *testing.T, disk vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := disk.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			for k, v := range files(t, disk, name) {
				out[k] = v
			}
			continue
		}
		f, err := disk.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		data := make([]byte, size)
		if _, err := f.ReadAt(data, 0); err != nil && size > 0 {
			t.Fatal(err)
		}
		f.Close()
		out[name] = string(data)
	}
	return out
}

func sameFiles(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, data := range want {
		if got[name] != data {
			t.Errorf("%s: %s differs", what, name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there too", what, name)
		}
	}
}

func TestASmallGraphIsImportedWhole(t *testing.T) {
	disk, r, err := run(t, smallLayout(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Seconds = 0
	want := Result{Nodes: 5, Edges: 4, Features: 4, Classes: 3, LabelColumns: 1, Train: 2, Valid: 1, Test: 1,
		Output: "out/graph"}
	if len(r.Notes) > 0 {
		t.Error(r.Notes)
	}
	r.Notes = nil
	if got := *r; got.Nodes != want.Nodes || got.Edges != want.Edges || got.Features != want.Features ||
		got.Classes != want.Classes ||
		got.LabelColumns != want.LabelColumns || got.Train != want.Train || got.Valid != want.Valid ||
		got.Test != want.Test || got.Output != want.Output {
		t.Errorf("%+v, want %+v", got, want)
	}
	d := openGraph(t, disk, "out/graph")
	m := d.Manifest
	if m.Name != "small" || m.Nodes != 5 || m.Edges != 4 || !m.Directed || m.Weighted || m.Classes != 3 ||
		m.Labels != 1 || m.Splits != 2 {
		t.Errorf("%+v", m)
	}
	csc, err := d.Topology(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer csc.Close()
	if !slices.Equal(csc.Offsets, []int64{0, 1, 2, 3, 4, 4}) || !slices.Equal(csc.Neighbors, []uint32{4, 0, 1, 4}) {
		t.Errorf("%v, %v", csc.Offsets, csc.Neighbors)
	}
	if got := storedFeatures(t, d); !slices.Equal(got, smallFeatures) {
		t.Error(got)
	}
	rows, err := d.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows.Labels, []int32{0, 1, 2, -1, 1}) ||
		!slices.Equal(rows.Splits, []uint8{1, 3, 1, 2, 2, 1, 0, 0, 3, 0}) {
		t.Errorf("%v, %v", rows.Labels, rows.Splits)
	}
}

func TestUndirectedEdgesAreStoredInBothDirections(t *testing.T) {
	l := smallLayout()
	l["meta.json"] = []byte(`{"directed": false}`)
	// 0-2 and 2-0 are one edge, 2-2 is a self-loop
	l["edge_index.npy"] = array(npy.Int64, []int64{0, 2, 2, 1, 2, 0, 2, 2}, 2, 4)
	disk, r, err := run(t, l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := openGraph(t, disk, "out/graph")
	csc, err := d.Topology(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer csc.Close()
	if r.Edges != 5 || d.Manifest.Directed || !slices.Equal(csc.Neighbors, []uint32{2, 2, 0, 1, 2}) {
		t.Errorf("%d edges, directed %v, %v", r.Edges, d.Manifest.Directed, csc.Neighbors)
	}
	if !slices.Equal(r.Notes, []string{"2 duplicate edges were merged"}) {
		t.Errorf("%q", r.Notes)
	}
}

func TestFeaturesAreNormalizedAndRounded(t *testing.T) {
	l := smallLayout()
	values := []float32{1, 2, 3, -4, 0, 0, 0, 0, 1, 1, 1, 0, -1, -1, 0, 1, 0.1, 0.2, 0.3, 0.4}
	l["node_feat.npy"] = array(npy.Float32, values, 5, 4)
	for _, dt := range []format.DType{format.Float32, format.Float16, format.BFloat16} {
		disk, _, err := run(t, l, Options{NormalizeFeatures: true, DType: dt})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, 20)
		for r := range 5 {
			sum := 0.0
			for _, v := range values[r*4 : r*4+4] {
				sum += float64(v)
			}
			for c, v := range values[r*4 : r*4+4] {
				if want[r*4+c] = v; sum > 0 {
					want[r*4+c] = float32(float64(v) / sum)
				}
			}
		}
		raw := make([]byte, 20*dt.Size())
		dtype.Encode(raw, want, dt)
		dtype.Decode(want, raw, dt)
		if got := storedFeatures(t, openGraph(t, disk, "out/graph")); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", dt, got, want)
		}
	}
}

func TestFeaturesThatNoFiniteNumberHoldsAreRefusedByPlace(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		at     int
		value  float64
		o      Options
		reason string
	}{
		{"NaN", 6, nan, Options{}, "in/node_feat.npy: row 1, column 2: NaN is not a finite float32"},
		{"infinity", 19, math.Inf(-1), Options{}, "in/node_feat.npy: row 4, column 3: -Inf is not a finite float32"},
		{"beyond float32", 0, 1e300, Options{}, "in/node_feat.npy: row 0, column 0: 1e+300 is not a finite float32"},
		{"beyond float16", 5, -70000, Options{DType: format.Float16},
			"in/node_feat.npy: row 1, column 1: -70000 is too large for float16"},
		{"beyond bfloat16", 5, math.MaxFloat32, Options{DType: format.BFloat16},
			"in/node_feat.npy: row 1, column 1: 3.4028235e+38 is too large for bfloat16"},
	} {
		values := make([]float64, 20)
		values[c.at] = c.value
		l := smallLayout()
		l["node_feat.npy"] = array(npy.Float64, values, 5, 4)
		disk, _, err := run(t, l, c.o)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", c.name, err)
		}
		if left := files(t, disk, "out"); len(left) > 0 {
			t.Errorf("%s: %d files are left", c.name, len(left))
		}
	}
}

func TestABadFeatureIsPrintedAsItsShardHasIt(t *testing.T) {
	l := smallLayout()
	delete(l, "node_feat.npy")
	l["node_feat_0.npy"] = array(npy.Float32, smallFeatures[:8], 2, 4)
	l["node_feat_1.npy"] = fortran(array(npy.Float64, []float64{0, 0, 0, 0, 0, 0, 0, -1e99, 0, 0, 0, 0}, 3, 4))
	_, _, err := run(t, l, Options{})
	refused(t, "a column of a shard", err, "in/node_feat_1.npy: row 1, column 2: -1e+99 is not a finite float32")
}

func TestWeightsThatAddUpToInfinityAreRefusedByFile(t *testing.T) {
	l := smallLayout()
	l["edge_index.npy"] = array(npy.Int64, []int64{0, 0, 1, 1, 1, 2}, 2, 3)
	l["edge_weight.npy"] = array(npy.Float32, []float32{math.MaxFloat32, math.MaxFloat32, 1}, 3)
	_, _, err := run(t, l, Options{Duplicates: SumDuplicates})
	refused(t, "two edges", err, "in/edge_weight.npy", "node 1 ")
}

func TestTheFirstBadFeatureIsNamedForAnyThreads(t *testing.T) {
	const cols = 1 << 14 // so that ranges are short
	values := make([]float32, 40*cols)
	for r := 3; r < 40; r++ {
		values[r*cols+40-r] = float32(math.NaN())
	}
	stored := make([]byte, 4*len(values))
	for _, threads := range []int{1, 8} {
		o, _ := Options{Threads: threads}.withDefaults()
		if bad := encodeRows(stored, values, cols, o); bad == nil || bad.row != 3 || bad.col != 37 {
			t.Errorf("%d threads: %+v", threads, bad)
		}
	}
}

func TestTheBytesDependOnNeitherThreadsNorMemory(t *testing.T) {
	var want map[string]string
	for _, o := range []Options{{Threads: 1}, {Threads: 3}, {Threads: 2, MemoryBytes: 1 << 30},
		{Threads: 2, MemoryBytes: 43 << 20}, {Threads: 1, MemoryBytes: 38 << 20}} {
		options := small
		options.Nodes, options.Edges = 3000, 200_000 // too many for the last two
		s, err := SBM(SBMOptions{options, 0.8, 2})
		if err != nil {
			t.Fatal(err)
		}
		disk := vfs.NewMem()
		if _, err := Run(context.Background(), disk, s, "out/graph", o); err != nil {
			t.Fatal(err)
		}
		openGraph(t, disk, "out/graph")
		got := files(t, disk, "out/graph")
		if want == nil {
			want = got
		}
		sameFiles(t, "other options", got, want)
	}
}

func TestNoFaultLeavesHalfAGraph(t *testing.T) {
	l := smallLayout()
	l["edge_weight.npy"] = array(npy.Float32, []float32{1, 2, 3, 4}, 4)
	_, _, err := run(t, l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	disk := l.put(t)
	if err := importFrom(disk, disk); err != nil {
		t.Fatal(err)
	}
	want := files(t, disk, "out")
	for n := int64(1); ; n++ {
		fault := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[n%2]
		disk := l.put(t)
		faulty := vfs.NewFault(disk)
		faulty.FailAt(n, fault)
		err := importFrom(faulty, faulty)
		if err == nil && faulty.Operations() < n {
			sameFiles(t, "without a fault", files(t, disk, "out"), want)
			return
		}
		if err != nil && !errors.Is(err, fault) {
			t.Fatalf("operation %d failed with %v, the import with %v", n, fault, err)
		}
		got := files(t, disk, "out")
		if _, whole := got["out/graph/manifest.json"]; whole || err == nil {
			openGraph(t, disk, "out/graph")
		} else if len(got) > 1 { // the lock, where removing it was what failed
			t.Fatalf("operation %d failed, and left %d files", n, len(got))
		}
		// Whatever is left, the next import succeeds (with force where the graph is there).
		s, err := OpenNPY(disk, "in", NPYOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(context.Background(), disk, s, "out/graph", Options{Threads: 1, Force: true}); err != nil {
			t.Fatalf("after a fault at operation %d: %v", n, err)
		}
		s.Close()
		sameFiles(t, "after a fault", files(t, disk, "out"), want)
	}
}

func importFrom(in, out vfs.FS) error {
	s, err := OpenNPY(in, "in", NPYOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = Run(context.Background(), out, s, "out/graph", Options{Threads: 1})
	return err
}

func TestAReadCutShortIsAnErrorOrHarmless(t *testing.T) {
	l := smallLayout()
	whole := l.put(t)
	if err := importFrom(whole, whole); err != nil {
		t.Fatal(err)
	}
	want := files(t, whole, "out")
	for n := int64(1); ; n++ {
		disk := l.put(t)
		faulty := vfs.NewFault(disk)
		faulty.ShortenRead(n)
		if err := importFrom(faulty, disk); faulty.Reads() < n {
			if err != nil || n < 8 {
				t.Fatalf("%d reads, %v", n-1, err)
			}
			return
		} else if err == nil { // what was read of a header was enough
			sameFiles(t, "a read cut short", files(t, disk, "out"), want)
		} else if left := files(t, disk, "out"); !errors.Is(err, ErrInvalid) || len(left) > 0 {
			t.Fatalf("read %d cut short: %v; %d files are left", n, err, len(left))
		}
	}
}

func TestAnImportThatEndsEarlyLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	options := small
	s, err := SBM(SBMOptions{options, 0.8, 2})
	if err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewMem()
	_, err = Run(ctx, disk, s, "out/graph", Options{Progress: cancelAt{"write features", cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := files(t, disk, "out"); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}

// cancelAt cancels when a task starts.
type cancelAt struct {
	label  string
	cancel func()
}

func (c cancelAt) Start(label string, total int64, unit progress.Unit) progress.Task {
	if label == c.label {
		c.cancel()
	}
	return progress.Silent.Start(label, total, unit)
}

func TestWhatDoesNotFitIsRefusedBeforeItStarts(t *testing.T) {
	disk, _, err := run(t, smallLayout(), Options{MemoryBytes: 1 << 20})
	if !errors.Is(err, machine.ErrDoesNotFit) || len(files(t, disk, "out")) > 0 {
		t.Errorf("little memory: %v", err)
	}
	disk = smallLayout().put(t)
	used := int64(0)
	for _, data := range files(t, disk, "in") {
		used += int64(len(data))
	}
	disk.SetCapacity(used + 50)
	if err := importFrom(disk, disk); !errors.Is(err, machine.ErrDoesNotFit) || len(files(t, disk, "out")) > 0 {
		t.Errorf("little disk: %v", err)
	}
}

func TestAGraphThatIsThereIsReplacedByForceOnly(t *testing.T) {
	disk := smallLayout().put(t)
	if err := importFrom(disk, disk); err != nil {
		t.Fatal(err)
	}
	want := files(t, disk, "out")
	if err := importFrom(disk, disk); !errors.Is(err, format.ErrExists) {
		t.Error(err)
	}
	sameFiles(t, "after the refusal", files(t, disk, "out"), want)
}

func TestSourcesAndOptionsOutOfBoundsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		info Info
		o    Options
		want error
	}{
		"2^32 nodes":        {Info{Nodes: 1 << 32, Features: 1}, Options{}, ErrInvalid},
		"no features":       {Info{Nodes: 1}, Options{}, ErrInvalid},
		"integer features":  {Info{Nodes: 1, Features: 1}, Options{DType: dtype.Int8}, ErrOptions},
		"other self-loops":  {Info{Nodes: 1, Features: 1}, Options{SelfLoops: "add"}, ErrOptions},
		"other duplicates":  {Info{Nodes: 1, Features: 1}, Options{Duplicates: "no"}, ErrOptions},
		"another direction": {Info{Nodes: 1, Features: 1}, Options{Direction: Symmetric}, ErrOptions},
		"undirected directed": {Info{Nodes: 1, Features: 1, Direction: Undirected}, Options{Direction: Directed},
			ErrOptions},
	} {
		disk := vfs.NewMem()
		if _, err := Run(context.Background(), disk, &listSource{info: c.info}, "graph", c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if len(files(t, disk, ".")) > 0 {
			t.Errorf("%s: files are left", name)
		}
	}
}
