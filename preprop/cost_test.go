package preprop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// beforeAssembly notes the peak of memory when the first matrix is assembled.
type beforeAssembly struct{ peak int64 }

func (b *beforeAssembly) Start(label string, total int64, unit progress.Unit) progress.Task {
	if b.peak == 0 && strings.HasPrefix(label, "assemble") {
		b.peak = offheap.Peak()
	}
	return progress.Silent.Start(label, total, unit)
}

func TestJobsTakeWhatTheirStagesDeclare(t *testing.T) {
	if testing.Short() {
		t.Skip("what jobs take is the same under the race detector")
	}
	for i, o := range []Options{
		{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym}}},
		{Hops: 2, Operators: []operator.Operator{{Name: operator.RW}}, Rows: format.RowsAll},
		{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym}, {Name: operator.Col}}, Rows: format.RowsAll,
			DType: format.Float16},
		{Hops: 1, Operators: []operator.Operator{{Name: operator.Heat, Parameter: 0.5, Tolerance: 0.01}}},
		{Hops: 2, Operators: []operator.Operator{{Name: operator.RW, Graph: operator.Reverse}}, Rows: format.RowsAll},
		{Hops: 1, Operators: []operator.Operator{{Name: operator.Sym}, {Name: operator.Sym, Graph: operator.Reverse},
			{Name: operator.Sym, Graph: operator.Undirected}}},
		{Rows: format.RowsAll},
	} {
		graph := vfs.NewMem()
		randomGraph(uint64(i), 4000, 48).write(t, graph, "graph")
		o.Threads = 2
		w := workOf(t, graph, o)
		for _, c := range []struct {
			Plan
			columns int // of a panel
		}{
			{Plan{TopologyInMemory: true}, 48},
			{Plan{TopologyInMemory: true, InputInMemory: true}, 24},
			{Plan{TopologyInMemory: true, InputFiles: true}, 16},
			{Plan{InputFiles: true}, 7},
			{Plan{InputFiles: true, InputKept: true, InputInMemory: true}, 12},
			{Plan{InputFiles: true, InputKept: true}, 16},
			{Plan{}, 48},
			{Plan{FactorsByEdge: true}, 48},
			{Plan{FactorsByEdge: true, TopologyInMemory: true, InputFiles: true}, 16},
			{Plan{FactorsByEdge: true, InputFiles: true}, 16},
			{Plan{FactorsByEdge: true, InputFiles: true, CutBeside: true, HeldBytes: 1 << 30}, 16},
			{Plan{InputFiles: true, InputKept: true, CutBeside: true, HeldBytes: 1 << 30}, 16},
			{Plan{InputFiles: true, InputKept: true, CutBeside: true, FactorsByEdge: true}, 12},
		} {
			p := w.WithPanels(c.Plan, c.columns)
			p.DropCheckpoints()
			o.Planned = func(planned *Plan) { *planned = *p }
			run := func(room int64) (*Result, error) {
				disk := graph.CrashClone()
				used, err := usedBytes(disk, "")
				if err != nil {
					t.Fatal(err)
				}
				disk.SetCapacity(used + room)
				return Propagate(context.Background(), optimist{disk}, "graph", "store", o)
			}
			// An undirected graph has less to hold; what runs side by side need not take most at the same time.
			declared, least := w.MemoryBytes(p), 0.6
			if p.HeldBytes > 0 {
				least = 0.4
			}
			name := fmt.Sprintf("%v of %s rows, planned %+v", o.Operators, o.Rows, p)
			before, panels := offheap.InUse(), &beforeAssembly{}
			offheap.ResetPeak()
			o.Progress = panels
			r, err := run(p.DiskBytes)
			o.Progress = nil
			if err != nil {
				t.Errorf("%s: with its room on disk: %v", name, err)
				continue
			}
			read := r.BytesRead
			if read > p.ReadBytes { // parts of node ranges are read with the rest of their pages
				read = max(p.ReadBytes, read-int64(p.TopologyPasses)*3*2*vfs.PageBytes)
			}
			for _, k := range []struct {
				what           string
				declared, real int64
				least          float64 // share of what is declared
			}{
				// but for those of the Go heap, and as jobs that go on read larger blocks
				{"bytes of memory", p.MemoryBytes - plan.ProcessBytes, offheap.Peak() - before, least},
				{"bytes of memory before assembly", slices.Max(declared[:plan.Assembling]),
					cmp.Or(panels.peak, offheap.Peak()) - before, 0.2},
				{"bytes read", p.ReadBytes, read, 0.9},
				{"bytes written", p.WrittenBytes, r.BytesWritten, 0.9}, // the row table is rounded up
			} {
				if share := float64(k.real) / float64(k.declared); share > 1 || share < k.least {
					t.Errorf("%s: %d %s, and %d are declared", name, k.real, k.what, k.declared)
				}
			}
			if i%3 > 0 {
				continue
			}
			if _, err := run(p.DiskBytes * 9 / 10); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: with nine tenths of its room on disk: %v", name, err)
			}
		}
	}
}

func TestABatchTakesWhatItDeclares(t *testing.T) {
	for _, features := range []int{1, 7, 128, 5000, 100_000} {
		c := &product.MemoryTopology{CSC: &format.CSC{}}
		b := product.NewBatch(&product.Propagator{Graph: c}, nil, &product.Matrix{Features: features}, nil)
		const row, list, one = 8, 24, 4 // of each list
		bytes := 4*(cap(b.Sums)+features) + (row+list+one)*cap(b.Sums)/features
		hub := 4 * plan.HubRuns * features
		if declared := plan.BatchBytes(features); int64(bytes+hub) > declared || int64(bytes+hub) < declared*9/10 {
			t.Errorf("%d features: %d bytes, and %d are declared", features, bytes+hub, declared)
		}
	}
}
