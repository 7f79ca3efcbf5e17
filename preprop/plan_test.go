package preprop

import (
	"context"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestThePlannedDiskIsWhatAStoreTakes(t *testing.T) {
	for _, c := range []struct {
		nodes, features, chunkRows int
		dt                         format.DType
	}{{199, 64, 0, format.Float32}, {60, 100, 1_000_000, format.Float32}, {1500, 7, 100, format.Float16}, {20, 1, 0, format.BFloat16}, {700, 3, 1, format.Float32}} {
		g := randomGraph(uint64(c.nodes), c.nodes, c.features)
		fsys := vfs.NewMem()
		g.write(t, fsys, "graph")
		o := Options{Hops: 2, Operators: allOperators[:2], Rows: format.RowsAll, ChunkRows: c.chunkRows, DType: c.dt, DryRun: true}
		planned, err := Propagate(context.Background(), fsys, "graph", "store", o)
		if err != nil {
			t.Fatal(err)
		}
		o.DryRun = false
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
			t.Fatal(err)
		}
		used := int64(0)
		for _, content := range files(t, fsys, "store") {
			used += int64(len(content))
		}
		// The row table, index and manifest are rounded up.
		if over := planned.DiskNeededBytes - used; over < 0 || over > used/5+64<<10 {
			t.Errorf("%+v: planned %d bytes, and %d were written", c, planned.DiskNeededBytes, used)
		}
	}
}

func TestMemoryIsPlannedForWhatOperatorsNeed(t *testing.T) {
	const n, m, features = 1_000_000, 20_000_000, 100
	graph := &format.Manifest{Nodes: n, Edges: m, Features: features, ChunkRows: 1000, Weighted: true}
	const (
		given      = 8*(n+1) + 8*m
		undirected = 8*(n+1) + 16*m
		matrix     = 4 * n * features
		factors    = 4 * n
	)
	need := func(list string, dt format.DType, rows int64) int64 {
		operators, err := ParseOperators(list, DefaultTolerance)
		if err != nil {
			t.Fatal(err)
		}
		return memoryNeeded(graph, &Options{Hops: 2, Operators: operators, DType: dt, Threads: 2}, format.Float32, rows)
	}
	half := need("sym", format.Float16, n)
	all := need("sym", format.Float32, n)
	for _, c := range []struct {
		list string
		dt   format.DType
		rows int64
		want int64
	}{
		{"sym", format.Float32, n, processBytes + 4*n + 2*matrix + 2*1000*features*4 + stagingBytes + given + factors},
		{"sym:reverse", format.Float32, n, all},
		{"sym:undirected", format.Float32, n, all + undirected - given},
		{"sym,rw:reverse,sym:undirected", format.Float32, n, all + given + undirected + 2*factors},
		{"col", format.Float32, n, all + 8*n},
		{"ppr", format.Float32, n, all + matrix},
		{"sym,ppr,heat", format.Float32, n, all + matrix}, // factors of sym serve all
		{"heat", format.Float16, n, half + 2*matrix},
		{"ppr:alpha=0.9:tolerance=0.1", format.Float16, n, half}, // one product
		{"sym", format.Float32, n / 10, all - 4*(n-n/10) + 2*(n/8+8)},
		{"heat", format.Float32, n / 10, all - 4*(n-n/10) + matrix + 22*(n/8+8)},
	} {
		if got := need(c.list, c.dt, c.rows); got != c.want {
			t.Errorf("%s, %v, %d rows: %d bytes, want %d", c.list, c.dt, c.rows, got, c.want)
		}
	}
	// Making the union of a topology much larger than the features takes more
	// than what follows.
	graph.Features = 1
	if got, want := need("sym:undirected", format.Float32, n), int64(processBytes+4*n+2*given+undirected); got != want {
		t.Errorf("union: %d bytes, want %d", got, want)
	}
}
