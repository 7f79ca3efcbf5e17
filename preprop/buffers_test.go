package preprop

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// TestPanelsDoNotAddToTheHeap looks at what one collection leaves of the loops of many panels.
func TestPanelsDoNotAddToTheHeap(t *testing.T) {
	ctx, fsys := context.Background(), vfs.NewMem()
	g := randomGraph(0, 1400, 40)
	g.write(t, fsys, "graph")
	graph, err := format.OpenGraph(fsys, "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	stored, err := graph.Matrix(format.Input)
	if err != nil {
		t.Fatal(err)
	}
	in := engine.NewInput(stored, nil, format.Float32)
	x, err := product.NewMatrix(1400, 2, format.Float32)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Buf.Free()
	y, err := product.NewMatrix(1400, 2, format.Float32)
	if err != nil {
		t.Fatal(err)
	}
	defer y.Buf.Free()
	topology := &product.MemoryTopology{CSC: g.csc()}
	p, err := product.NewPropagator(ctx, topology, operator.Operator{Name: operator.RW}, 1,
		product.Alone(ctx, topology, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Buf.Free()

	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	heap()
	before := heap()
	for range 40 {
		if err := in.Load(ctx, x, 2, progress.Silent); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Hop(ctx, y, x, nil, nil, 2, func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("%d bytes of the heap before, %d after", before, after)
	}
}
