package preprop

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

func TestRepairComputesTheDamagedChunksOfATypedStoreAnew(t *testing.T) {
	base := vfs.NewMem()
	randomTyped(t, base, "graph", 300)
	sym := []operator.Operator{{Name: operator.Sym}}
	for name, o := range map[string]Options{
		"metapaths and labels": {Hops: 2, LabelHops: 2, Split: 1, Seed: 3, Operators: sym, DType: format.BFloat16,
			ChunkRows: 32, Threads: 1},
		"subsets, all rows": {Hops: 2, RelationsSubsets: 2, Rows: format.RowsAll, ChunkRows: 64, Threads: 2},
		"hop 0 alone":       {ChunkRows: 32, Threads: 1},
	} {
		disk := base.CrashClone()
		want := propagated(t, disk, "store", o)
		for _, file := range slices.Sorted(maps.Keys(want)) {
			if !strings.Contains(file, "part-") {
				continue
			}
			for damage, content := range map[string][]byte{
				"a flipped bit": flip(want[file], chunkAt(t, disk, file)), "half of it": want[file][:len(want[file])/2]} {
				damaged := disk.CrashClone()
				overwrite(t, damaged, file, content)
				r, err := Repair(context.Background(), damaged, "store", "graph", Options{Threads: 1})
				if err != nil || len(r.Files) != 1 || "store/"+r.Files[0] != file || len(r.Left) > 0 ||
					damage == "a flipped bit" && r.Chunks != 1 {
					t.Fatalf("%s, %s, %s: %+v, %v", name, file, damage, r, err)
				}
				got := files(t, damaged, "store")
				if _, err := damaged.Stat("store/.job"); err == nil || !sameFiles(got, want) {
					t.Errorf("%s, %s, %s: the store is another", name, file, damage)
				}
			}
		}
	}
}

func TestARepairOfATypedStoreThatIsKilledLeavesItAsItWas(t *testing.T) {
	base := vfs.NewMem()
	randomTyped(t, base, "graph", 40, fewMetapaths...)
	o := Options{Hops: 1, Threads: 1}
	want := propagated(t, base, "store", o)
	more := Options{Hops: 2, Threads: 1}
	grown := propagated(t, base, "grown", more)
	part := format.PartPath("store/features/rw+paper-author/hop-1", 0)
	overwrite(t, base, part, flip(want[part], chunkAt(t, base, part)))
	before, seen := files(t, base, "store"), vfs.Disks{}
	for n := int64(1); ; n += 5 * failureStep() {
		mem := base.CrashClone()
		fault := vfs.NewFault(mem)
		fault.FailFrom(n, syscall.EIO)
		_, err := Repair(context.Background(), fault, "store", "graph", Options{Threads: 1})
		done := fault.Operations() < n
		mem = mem.CrashClone()
		if got := files(t, mem, "store"); !sameFiles(got, before) && !sameFiles(got, want) {
			t.Fatalf("killed at operation %d: the store is another", n)
		}
		if !done && !seen.Add(mem, min(n%3, 1)) {
			continue
		}
		if n%3 == 0 { // an interrupted repair is in nobody's way
			if _, err := Repair(context.Background(), mem, "store", "graph", Options{Threads: 1}); err != nil {
				t.Fatalf("killed at operation %d: %v", n, err)
			}
			if !sameFiles(files(t, mem, "store"), want) {
				t.Fatalf("killed at operation %d, and not repaired", n)
			}
		}
		if _, err := Propagate(context.Background(), mem, "graph", "store", more); err != nil {
			t.Fatalf("killed at operation %d: %v", n, err)
		}
		if n%3 == 0 && !sameFiles(files(t, mem, "store"), grown) {
			t.Fatalf("killed at operation %d: the store that grew is another", n)
		}
		if done {
			if err != nil || n < 50 {
				t.Fatalf("%d operations: %v", n, err)
			}
			return
		}
	}
}

func TestATypedStoreIsRepairedFromItsGraphAlone(t *testing.T) {
	disk := vfs.NewMem()
	randomTyped(t, disk, "graph", 40)
	randomTyped(t, disk, "other", 41)
	randomGraph(0, 40, 3).write(t, disk, "plain")
	want := propagated(t, disk, "store", Options{Hops: 1, Threads: 1})
	for _, graph := range []string{"other", "plain"} {
		if _, err := Repair(context.Background(), disk, "store", graph, Options{}); !errors.Is(err, ErrOptions) {
			t.Errorf("by %s: %v", graph, err)
		}
	}
	part := format.PartPath("store/features/x/hop-0", 0)
	overwrite(t, disk, part, nil)
	if _, err := Repair(context.Background(), disk, "store", "graph", Options{MemoryBytes: 1}); err == nil {
		t.Error("with a byte of memory")
	}
	source := format.PartPath("graph/nodes/paper/features/x/hop-0", 0)
	overwrite(t, disk, source, nil)
	if _, err := Repair(context.Background(), disk, "store", "graph", Options{}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("by a damaged graph: %v", err)
	}
	if r, err := Repair(context.Background(), disk, "whole", "graph", Options{}); err == nil {
		t.Errorf("no store: %+v", r)
	}
	if got := files(t, disk, "store"); len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
}
