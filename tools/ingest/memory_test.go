package ingest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

func TestSortingTakesTheMemoryOfItsPlan(t *testing.T) {
	onDisk := map[bool]int{}
	for _, weighted := range []bool{false, true} {
		for _, more := range []int64{0, 2 << 20, 1 << 30} { // than the least
			s := randomSource(rand.New(rand.NewPCG(1, 2)), 50_000, 400_000, weighted)
			o, err := Options{Threads: 2}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			x := newTopology(s, s.Info(), true, o)
			x.o.MemoryBytes = x.leastMemory() + x.o.workingBytes() + more
			plan, err := x.planSort()
			if err != nil {
				t.Fatal(err)
			}
			onDisk[plan.onDisk]++
			disk := vfs.NewMem()
			scratch, err := folder.OpenScratch(disk, "scratch")
			if err != nil {
				t.Fatal(err)
			}
			disk.SetCapacity(1<<10 + 2*x.bucketBytes()) // the lock, buckets, and smaller buckets made of some
			declared, before := x.sortMemory(plan), offheap.InUse()
			offheap.ResetPeak()
			sorted, err := x.sort(context.Background(), disk, scratch, plan)
			if err != nil {
				t.Fatalf("weighted %v, %+v: %v", weighted, plan, err)
			}
			took := offheap.Peak() - before
			if took > declared || more == 0 && took < declared/2 {
				t.Errorf("weighted %v, %+v: %d bytes of memory, and %d are declared", weighted, plan, took, declared)
			}
			sorted.free()
			if err := scratch.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if onDisk[true] == 0 || onDisk[false] == 0 {
		t.Errorf("%v with buckets on disk", onDisk)
	}
}

// columnedSource is a list of edges with a column, which counts how often its edges are read.
type columnedSource struct {
	*listSource
	column inputColumn
	reads  int
}

func (s *columnedSource) Columns() []inputColumn { return []inputColumn{s.column} }

func (s *columnedSource) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	s.reads++
	return s.listSource.Edges(ctx, threads, emit)
}

func TestTheSortOfEdgeColumnsIsPlannedBeforeEdgesAreRead(t *testing.T) {
	const nodes, edges = 50_000, 400_000
	disk := vfs.NewMem()
	f, err := disk.Create("column")
	if err == nil {
		_, err = f.Write(make([]byte, 4*edges))
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	array, err := npy.OpenRaw(disk, "column", npy.Float32, edges)
	if err != nil {
		t.Fatal(err)
	}
	defer array.Close()
	list := randomSource(rand.New(rand.NewPCG(1, 2)), nodes, edges, false)
	list.info.Features, list.features, list.info.Input = 1, make([]float32, nodes), map[string]string{}
	list.block = 1 << 12
	s := &columnedSource{list, inputColumn{Column: format.NewColumn(format.OfEdges, "edge_attr", format.Float32, 0),
		path: "column", rows: edges, read: array.ReadBytes}, 0}
	o, err := Options{Threads: 1, Duplicates: KeepDuplicates}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	// What the edges take alone is not enough for their column.
	bare := newTopology(list, list.Info(), false, o)
	o.MemoryBytes = bare.leastMemory() + o.workingBytes()
	if _, err := Run(t.Context(), disk, s, "graph", o); !errors.Is(err, machine.ErrDoesNotFit) || s.reads > 0 {
		t.Errorf("little memory: %v, after edges were read %d times", err, s.reads)
	}
	o.MemoryBytes += columnBytes + minColumnBytes + 4<<20
	sorts, err := newTopology(s, s.Info(), false, o).planColumns(nil)
	if err != nil || sortBytes(sorts) == 0 {
		t.Fatalf("%v: %d bytes of scratch", err, sortBytes(sorts))
	}
	known := bare.outputBytes(0) + 4*nodes + 4*edges + sortBytes(sorts) // beside the edges, before these are read
	for _, c := range []struct {
		more int64
		fits bool
	}{{-1, false}, {16 << 20, true}} {
		disk.SetCapacity(4*edges + known + c.more)
		s.reads = 0
		_, err := Run(t.Context(), disk, s, "graph", o)
		if c.fits != (err == nil) || !c.fits && (!errors.Is(err, machine.ErrDoesNotFit) || s.reads > 0) {
			t.Errorf("%d bytes of disk more: %v, after edges were read %d times", c.more, err, s.reads)
		}
	}
}

func TestRowTablesTakeNoMoreThanSourcesSay(t *testing.T) {
	open := map[string]func(disk vfs.FS) (Source, error){
		"npy":        func(disk vfs.FS) (Source, error) { return OpenNPY(disk, "in", NPYOptions{}) },
		"parquet":    func(disk vfs.FS) (Source, error) { return openParquet(disk, TableOptions{MapIDs: true}) },
		"ogb":        func(disk vfs.FS) (Source, error) { return openOGB(disk, ogbDirected) },
		"graphsaint": func(disk vfs.FS) (Source, error) { return openSAINT(disk, GraphSAINTOptions{}) },
	}
	for name, layout := range map[string]layout{"npy": smallLayout(), "parquet": smallTables(), "ogb": smallOGB(),
		"graphsaint": smallSAINT()} {
		s, err := open[name](layout.put(t))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows, err := s.Rows(context.Background())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		took := 4*len(rows.Labels) + len(rows.MultiLabels) + 4*len(rows.LabelValues) + len(rows.Splits)
		for _, id := range rows.OrigID {
			took += 16 + len(id)
		}
		if declared := rowMemory(s.Info()); took == 0 || int64(took) > declared {
			t.Errorf("%s: a row table of %d bytes, and %d are declared", name, took, declared)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadingParquetIsPartOfWhatImportsTake(t *testing.T) {
	s, err := openParquet(smallTables().put(t), TableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info := s.Info()
	o, err := Options{DType: format.Float32}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	bare := info
	bare.RowReadBytes, bare.FeatureBytes = 0, 0
	if info.RowReadBytes == 0 || rowMemory(info) != rowMemory(bare)+info.RowReadBytes ||
		featureMemory(info, o) != featureMemory(bare, o)+info.FeatureBytes {
		t.Errorf("%d bytes for reading rows, and %d for features", info.RowReadBytes, info.FeatureBytes)
	}
}
