package preprop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

func TestThePlannedDiskIsWhatAStoreTakes(t *testing.T) {
	for _, c := range []struct {
		nodes, features, chunkRows int
		dt                         format.DType
	}{{199, 64, 0, format.Float32}, {60, 100, 1_000_000, format.Float32}, {1500, 7, 100, format.Float16},
		{20, 1, 0, format.BFloat16}, {700, 3, 1, format.Float32}} {
		g := randomGraph(uint64(c.nodes), c.nodes, c.features)
		fsys := vfs.NewMem()
		g.write(t, fsys, "graph")
		o := Options{Hops: 2, Operators: allOperators[:2], Rows: format.RowsAll, ChunkRows: c.chunkRows, DType: c.dt,
			DryRun: true}
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
		if over := planned.DiskBytes - planned.CheckpointBytes - used; over < 0 || over > used/5+64<<10 {
			t.Errorf("%+v: planned %d bytes, and %d were written", c, planned.DiskBytes, used)
		}
	}
}

func TestTheLeastThatIsSaidWillDo(t *testing.T) {
	d, o := Described{Nodes: 1e6, Edges: 1e7, Features: 100}, Options{Hops: 2, Operators: allOperators[:1]}
	for threads := range 64 {
		o.Threads, o.MemoryBytes = threads+1, 1
		_, err := PlanDescribed(d, o)
		_, said, found := strings.Cut(fmt.Sprint(err), "needs ")
		said, _, _ = strings.Cut(said, " at least")
		budget, parseErr := units.ParseBytes(said)
		if !errors.Is(err, machine.ErrDoesNotFit) || !found || parseErr != nil {
			t.Fatalf("%v, %v", err, parseErr)
		}
		o.MemoryBytes = int64(budget)
		if _, err := PlanDescribed(d, o); err != nil {
			t.Errorf("%d threads: %v", threads+1, err)
		}
	}
}

func TestLargeGraphsCanBePlanned(t *testing.T) {
	o := Options{Hops: 3, Operators: allOperators[:1], MemoryBytes: 1 << 46, Threads: 64}
	r, err := PlanDescribed(Described{Nodes: format.MaxNodes, Edges: 1e12, Features: 1 << 16, Rows: 1e9}, o)
	if err != nil {
		t.Fatal(err)
	}
	input := int64(format.MaxNodes) * 4 << 16
	if p := r.Plan; p.Panels < 2 || p.ReadBytes < input || p.ScratchBytes < 4*(1e9*4<<16) || p.Seconds <= 0 {
		t.Errorf("%+v", p)
	}
}

func TestAnInputIsCutOnlyForPanelsThatAreReadFromTheFiles(t *testing.T) {
	d := Described{Nodes: 1e7, Edges: 1e8, Features: 128, Rows: 1e6}
	cut := 0
	for budget := int64(1 << 30); budget < 12<<30; budget += 64 << 20 {
		r, err := PlanDescribed(d, Options{Hops: 2, Operators: allOperators[:2], MemoryBytes: budget, Threads: 2})
		if errors.Is(err, machine.ErrDoesNotFit) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.InputFiles {
			cut++
		}
		if r.InputFiles && r.Panels <= plan.DirectPanels {
			t.Errorf("with %v the input is cut into %d column files", units.Bytes(budget), r.Panels)
		}
	}
	if cut == 0 {
		t.Error("no input is cut")
	}
}

// A budget that is too small even for the rows of the store is told what the whole job needs.
func TestTheFirstErrorSaysWhatTheWholeJobNeeds(t *testing.T) {
	graph := vfs.NewMem()
	randomGraph(1, 50, 3).write(t, graph, "graph")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.RW}}, Threads: 1}
	need := least(t, graph, o)
	o.MemoryBytes = 1
	_, err := Propagate(t.Context(), graph, "graph", "store", o)
	if want := fmt.Sprintf("needs %v at least", units.AtLeast(units.Bytes(need))); !errors.Is(err,
		machine.ErrDoesNotFit) || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q: %v", want, err)
	}
	o.MemoryBytes = need
	if _, err := Propagate(t.Context(), graph, "graph", "store", o); err != nil {
		t.Error(err)
	}
}
