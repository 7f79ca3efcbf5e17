package preprop

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// overwrite gives a file other content.
func overwrite(t *testing.T, fsys vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := fsys.Create(name)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRepairComputesTheDamagedChunksAnewAndNoOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"labelled rows", Options{Hops: 2, Operators: allOperators[:2], ChunkRows: 100, Threads: 2}},
		{"all rows, a series, float16", Options{Hops: 1, Operators: someSeries[:1], Rows: format.RowsAll,
			DType: format.Float16, ChunkRows: 64, Threads: 1}},
		{"another graph", Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Col,
			Graph: operator.Undirected}}, ChunkRows: 333, Threads: 2}},
		{"labels in the first hop", Options{Hops: 2, LabelHops: 1, Operators: allOperators[:1], ChunkRows: 200, Threads: 2}},
	} {
		base := vfs.NewMem()
		randomGraph(1, 1500, 5).write(t, base, "graph")
		want := propagated(t, base, "store", c.o)
		for _, budget := range []int64{0, least(t, base, c.o) + 1<<20} {
			for _, name := range slices.Sorted(maps.Keys(want)) {
				content := want[name]
				if !strings.Contains(name, "part-") {
					continue
				}
				for _, damage := range []struct {
					name    string
					content []byte
					chunks  int
				}{
					{"a flipped bit", flip(content, chunkAt(t, base, name)), 1},
					{"a flipped bit of metadata", flip(content, 20), 0},
					{"half of it", content[:len(content)/2], -1},
					{"nothing", nil, -1},
				} {
					disk := base.CrashClone()
					overwrite(t, disk, name, damage.content)
					r, err := Repair(context.Background(), disk, "store", "graph",
						Options{Threads: c.o.Threads, MemoryBytes: budget})
					if err != nil {
						t.Fatalf("%s, %s, %s: %v", c.name, name, damage.name, err)
					}
					if len(r.Files) != 1 || "store/"+r.Files[0] != name || len(r.Left) > 0 || damage.chunks >= 0 &&
						r.Chunks != damage.chunks {
						t.Errorf("%s, %s, %s: %+v", c.name, name, damage.name, r)
					}
					if !sameFiles(files(t, disk, "store"), want) {
						t.Errorf("%s, %s, %s: the store is another", c.name, name, damage.name)
					}
				}
			}
		}
	}
}

func flip(content []byte, at int64) []byte {
	out := slices.Clone(content)
	out[at] ^= 1
	return out
}

// chunkAt is a place in the second chunk of a file, or the first if it is alone.
func chunkAt(t *testing.T, fsys vfs.FS, name string) int64 {
	t.Helper()
	store, err := format.OpenStore(fsys, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	id, ok := store.Manifest.MatrixOf(strings.TrimPrefix(name, "store/"))
	if !ok {
		return 8192 // the row table: its first chunk
	}
	m, err := store.Matrix(id)
	if err != nil {
		t.Fatal(err)
	}
	e := m.Extent(min(1, m.Chunks()-1))
	return e.Offset + e.Length/2
}

func TestRepairOfASoundStoreDoesNothing(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 200, 3).write(t, fsys, "graph")
	want := propagated(t, fsys, "store", Options{Hops: 1, Operators: allOperators[:1]})
	r, err := Repair(context.Background(), fsys, "store", "graph", Options{})
	if err != nil || len(r.Files)+len(r.Left)+r.Chunks != 0 || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRepairLeavesAnUnfinishedGrowthAlone(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 1500, 6).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	sound := propagated(t, fsys, "store", o)
	o.Hops = 2
	makeHalf(t, fsys, "store", 6, o)
	before := files(t, fsys, "store")
	part := format.PartPath("store/features/sym/hop-1", 0)
	overwrite(t, fsys, part, flip(sound[part], chunkAt(t, fsys, part)))
	r, err := Repair(context.Background(), fsys, "store", "graph", Options{Threads: 1})
	if err != nil || r.Chunks != 1 || !sameFiles(files(t, fsys, "store"), before) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhatRepairCannotMendIsSaid(t *testing.T) {
	base := vfs.NewMem()
	randomGraph(0, 200, 3).write(t, base, "graph")
	randomGraph(2, 200, 3).write(t, base, "other")
	want := propagated(t, base, "store", Options{Hops: 1, Operators: allOperators[:1]})
	if _, err := Repair(context.Background(), base, "store", "other", Options{}); !errors.Is(err, ErrOptions) {
		t.Errorf("by another graph: %v", err)
	}
	if _, err := Repair(context.Background(), base, "graph", "graph", Options{}); !errors.Is(err, ErrOptions) {
		t.Errorf("a graph: %v", err)
	}
	for _, name := range []string{"store/manifest.json", "store/index.arrow"} {
		disk := base.CrashClone()
		overwrite(t, disk, name, flip(want[name], 100))
		r, err := Repair(context.Background(), disk, "store", "graph", Options{})
		if err != nil || len(r.Left) == 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	disk := base.CrashClone()
	part := format.PartPath("store/features/sym/hop-1", 0)
	overwrite(t, disk, part, flip(want[part], chunkAt(t, disk, part)))
	overwrite(t, disk, part+vfs.TempSuffix, want[part][:9000]) // of a repair that was killed
	if r, err := Repair(context.Background(), disk, "store", "graph", Options{}); err != nil || len(r.Left) > 0 ||
		!sameFiles(files(t, disk, "store"), want) {
		t.Errorf("after a repair that was killed: %+v, %v", r, err)
	}
	disk = base.CrashClone()
	overwrite(t, disk, "store/stranger", []byte("?"))
	if r, err := Repair(context.Background(), disk, "store", "graph", Options{}); err != nil || len(r.Left) != 1 ||
		len(r.Files) > 0 {
		t.Errorf("a file that is not listed: %+v, %v", r, err)
	}
	// A graph that is itself damaged.
	disk = base.CrashClone()
	part = format.PartPath("store/features/sym/hop-1", 0)
	overwrite(t, disk, part, flip(want[part], chunkAt(t, base, part)))
	x := files(t, base, "graph")[format.PartPath("graph/features/x/hop-0", 0)]
	overwrite(t, disk, format.PartPath("graph/features/x/hop-0", 0), flip(x, 8200))
	if _, err := Repair(context.Background(), disk, "store", "graph", Options{}); !errors.Is(err, format.ErrCorrupt) ||
		!strings.Contains(err.Error(), "graph/features") {
		t.Errorf("with a damaged graph: %v", err)
	}
	if report, err := format.Verify(context.Background(), disk, "store", 1, progress.Silent); err != nil ||
		len(report.Bad) != 1 {
		t.Errorf("after a repair that failed: %+v, %v", report, err)
	}
}
